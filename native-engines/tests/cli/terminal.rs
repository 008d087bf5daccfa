//! On a terminal: colours, Ctrl-C, Ctrl-Z, and who has the terminal.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use nix::pty::openpty;

use crate::support::{eventually, eventually_or, Home};

/// A terminal of the test's own, with a program in a session on it.
struct Terminal {
    keys: File,
    screen: Arc<Mutex<Vec<u8>>>,
    child: Child,
}

impl Terminal {
    /// Runs `script` by an interactive shell, or by one that is none.
    fn start(home: &Home, shell: &[&str]) -> Self {
        let pty = openpty(None, None).unwrap();
        let (master, slave) = (File::from(pty.master), pty.slave);
        // The terminal becomes that of a session of its own.
        let mut command: Command = home.program("setsid");
        command.args(["--ctty", "--wait"]).args(shell);
        command.env("TERM", "xterm").env("PS1", "PROMPT> ");
        command.stdin(Stdio::from(slave.try_clone().unwrap()));
        command.stdout(Stdio::from(slave.try_clone().unwrap()));
        command.stderr(Stdio::from(slave));
        let child = command.spawn().unwrap();
        let screen = Arc::new(Mutex::new(Vec::new()));
        let mut from = master.try_clone().unwrap();
        let shown = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = from.read(&mut bytes) {
                shown.lock().unwrap().extend_from_slice(&bytes[..n]);
            }
        });
        Self {
            keys: master,
            screen,
            child,
        }
    }

    fn shell(home: &Home) -> Self {
        let mut terminal = Self::start(
            home,
            &["bash", "--norc", "--noprofile", "--noediting", "-i"],
        );
        terminal.expect("PROMPT> ");
        // What is typed is not shown, so that only answers are.
        terminal.line("stty -echo");
        terminal.line("echo qu''iet");
        terminal.expect("quiet");
        terminal
    }

    fn type_keys(&mut self, keys: &[u8]) {
        self.keys.write_all(keys).unwrap();
    }

    fn line(&mut self, text: &str) {
        self.type_keys(format!("{text}\n").as_bytes());
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock().unwrap()).into_owned()
    }

    /// Waits until `text` is shown, and forgets what was shown up to it.
    fn expect(&self, text: &str) {
        let mut at = None;
        eventually_or(
            || {
                at = self.text().find(text);
                at.is_some()
            },
            || panic!("not shown: {text:?}; shown is {:?}", self.text()),
        );
        let end = at.unwrap() + text.len();
        let mut screen = self.screen.lock().unwrap();
        let end = end.min(screen.len());
        screen.drain(..end);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn colours_are_for_terminals() {
    let home = Home::new();
    let mut shell = Terminal::shell(&home);
    shell.line("$ALKSTORE inspect n; echo co''de $?");
    shell.expect("\u{1b}[1m\u{1b}[31malkstore:\u{1b}[0m there is no store");
    shell.expect("code 69");
    shell.line("NO_COLOR=1 $ALKSTORE inspect n; echo co''de $?");
    shell.expect("alkstore: there is no store");
    shell.expect("code 69");
    shell.line("TERM=dumb $ALKSTORE inspect n; $ALKSTORE init; $ALKSTORE lock n -- sh -c '$ALKSTORE locks'");
    shell.expect("alkstore: there is no store");
    shell.expect("NAME");
    shell.expect("SINCE");
    shell.expect("n ");
}

#[test]
fn a_command_has_the_terminal_to_read_from_and_gives_it_back() {
    let home = Home::new();
    let mut shell = Terminal::shell(&home);
    shell.line("$ALKSTORE lock n -- sh -c 'read line; echo \"<$line>\"'; read after; echo \"after $after\"");
    shell.line("typed");
    shell.expect("<typed>");
    shell.line("more");
    shell.expect("after more");
}

#[test]
fn an_interrupt_ends_the_command_and_the_script_around_it() {
    let home = Home::new();
    std::fs::write(
        home.path("script"),
        "$ALKSTORE lock n -- sh -c 'echo run''ning; sleep 60; echo sl''ept'\necho went on\n",
    )
    .unwrap();
    let mut shell = Terminal::shell(&home);
    shell.line("bash script");
    shell.expect("running");
    shell.type_keys(b"\x03");
    shell.expect("PROMPT> ");
    assert!(!shell.text().contains("went on"));
    shell.line("echo co''de $?");
    shell.expect("code 130");
    assert!(!shell.text().contains("went on"));
    shell.line("$ALKSTORE locks; echo do''ne");
    shell.expect("done");
    assert!(!shell.text().contains("sh"), "released: {}", shell.text());
}

#[test]
fn a_stopped_job_goes_on_with_its_lock() {
    let home = Home::new();
    let mut shell = Terminal::shell(&home);
    shell.line("$ALKSTORE lock n --ttl 30s -- sh -c 'echo rea''dy; read line; echo \"<$line>\"'");
    shell.expect("ready");
    shell.type_keys(b"\x1a");
    shell.expect("Stopped");
    shell.expect("PROMPT> ");
    shell.line("$ALKSTORE lock n --try -- true; echo co''de $?");
    shell.expect("code 75");
    shell.line("fg");
    shell.line("typed");
    shell.expect("<typed>");
    shell.line("echo co''de $?");
    shell.expect("code 0");
}

#[test]
fn a_stopped_job_whose_lock_has_lapsed_does_not_run_again() {
    let home = Home::new();
    let mut shell = Terminal::shell(&home);
    // A command that has read a line has the terminal.
    shell.line("$ALKSTORE lock n --ttl 1s -- sh -c 'read first; trap \"echo aga''in >>log\" TERM CONT; echo rea''dy; read line; echo again >>log'");
    shell.line("first");
    shell.expect("ready");
    shell.type_keys(b"\x1a");
    shell.expect("Stopped");
    eventually("it lapses", || home.inspect("n")["lapsed"] == true);
    shell.line("fg");
    shell.expect("lost the lock \"n\"");
    shell.line("echo co''de $?");
    shell.expect("code 76");
    assert!(!home.path("log").exists());
    // And the terminal is the shell's again, in a state that it can be used in.
    shell.line("read x; echo \"[$x]\"");
    shell.line("typed");
    shell.expect("[typed]");
}

#[test]
fn in_a_pipeline_the_pager_reads_the_keys() {
    let home = Home::new();
    let mut shell = Terminal::shell(&home);
    shell
        .line("$ALKSTORE lock n -- echo text | sh -c 'read key </dev/tty; echo \"key $key\"; cat'");
    shell.line("typed");
    shell.expect("key typed");
    shell.expect("text");
    // One that asks for the terminal gets it, with its output in a pipe too.
    shell.line("$ALKSTORE lock n -- sh -c 'read key </dev/tty; echo \"got $key\"' | cat");
    shell.line("typed");
    shell.expect("got typed");
}

#[test]
fn under_a_shell_without_job_control_ctrl_z_does_no_harm_and_the_terminal_comes_back() {
    let home = Home::new();
    let script =
        "$ALKSTORE lock n -- sh -c 'echo ready; read line; echo \"<$line>\"'; echo code $?; \
                  read after; echo \"after $after\"";
    let mut terminal = Terminal::start(&home, &["sh", "-c", script]);
    terminal.expect("ready");
    terminal.type_keys(b"\x1a");
    terminal.line("typed");
    terminal.expect("<typed>");
    terminal.expect("code 0");
    terminal.line("more");
    terminal.expect("after more");
}

#[test]
fn a_sweep_shows_how_far_it_is_and_a_second_interrupt_ends_it_at_once() {
    let home = Home::new();
    assert_eq!(home.run(&["init"]).code(), 0);
    let keys: Vec<_> = (0..40).map(|n| format!("{n}\n")).collect();
    let keys = keys.concat();
    let staged = home.run_with_input(&["gc", "stage", "-", "--after", "0s"], keys.as_bytes());
    assert_eq!(staged.code(), 0, "{staged:?}");
    let mut shell = Terminal::shell(&home);
    shell.line("$ALKSTORE gc sweep --window-decides --rate 2 --batch 1; echo co''de $?");
    shell.expect("sweeping ....................   0%  0 of 40");
    shell.expect("sweeping #");
    shell.expect(" left");
    shell.type_keys(b"\x03");
    shell.expect("once more");
    shell.expect("interrupted");
    shell.expect("examined");
    shell.expect("PROMPT> ");
    shell.line("echo co''de $?");
    shell.expect("code 130");

    // A store that somebody else keeps busy: there is nothing to finish soon.
    let connection = rusqlite::Connection::open(home.path("store.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    shell.line("$ALKSTORE gc sweep --window-decides");
    shell.expect("sweeping ");
    shell.type_keys(b"\x03");
    shell.expect("once more");
    shell.type_keys(b"\x03");
    shell.expect("PROMPT> ");
    shell.line("echo co''de $?");
    shell.expect("code 130");
    connection.execute_batch("ROLLBACK").unwrap();
    shell.line("$ALKSTORE gc sweep --window-decides -q; echo co''de $?");
    shell.expect("nothing that was due is left");
    shell.expect("code 0");
}
