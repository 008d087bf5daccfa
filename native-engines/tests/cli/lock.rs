//! `alkstore lock` when all goes well, and when the lock is not to be had.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use crate::support::{children, eventually, Home, Running, UNTIL_GO};

#[test]
fn one_at_a_time() {
    let home = Home::new();
    fs::write(home.path("count"), "0").unwrap();
    // Read, wait, write: two at once would lose a count, and the folder is there for one alone.
    let script = "mkdir inside || echo overlap >>overlaps; n=$(cat count); sleep 0.02; echo $((n+1)) >count; rmdir inside";
    let runs: Vec<_> = (0..8)
        .map(|_| home.start(&["lock", "count", "-q", "--", "sh", "-c", script]))
        .collect();
    for run in runs {
        let done = run.done();
        assert_eq!(done.code(), 0, "{done:?}");
        assert_eq!(done.err, "", "--quiet says nothing");
    }
    assert!(!home.path("overlaps").exists());
    assert_eq!(fs::read_to_string(home.path("count")).unwrap().trim(), "8");
    assert_eq!(home.run(&["locks"]).text(), "", "all are released");
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let home = Home::new();
    for (script, code) in [
        ("exit 0", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("kill -TERM $$", 143),
        ("kill -KILL $$", 137),
    ] {
        let done = home.run(&["lock", "n", "--", "sh", "-c", script]);
        assert_eq!((done.code(), done.err.as_str()), (code, ""), "{script}");
    }
    let done = home.run(&["lock", "n", "--", "./no-such-command"]);
    assert_eq!(done.code(), 127);
    assert!(done.err.contains("./no-such-command"), "{}", done.err);
    fs::write(home.path("plain"), "text").unwrap();
    let done = home.run(&["lock", "n", "--", "./plain"]);
    assert_eq!(done.code(), 126, "{done:?}");
    assert_eq!(
        home.run(&["locks", "--all"]).text(),
        "",
        "released in every case"
    );
}

#[test]
fn a_command_that_dies_of_an_interrupt_interrupts_the_script() {
    let home = Home::new();
    let done = home.run(&["lock", "n", "--", "sh", "-c", "kill -INT $$"]);
    assert_eq!(done.status.signal(), Some(2), "{done:?}");
    assert_eq!(home.run(&["locks"]).text(), "");
}

#[test]
fn the_command_knows_its_lock_and_its_store() {
    let home = Home::new();
    let script =
        "echo \"$ALKSTORE_LOCK_NAME|$ALKSTORE_LOCK_OWNER|$ALKSTORE_LOCK_TOKEN|$ALKSTORE_URL\"; \
                  \"$ALKSTORE\" inspect \"$ALKSTORE_LOCK_NAME\" --json";
    let mut command = home.command(&[
        "--store",
        home.url(),
        "lock",
        "a name\u{e9}",
        "--",
        "sh",
        "-c",
        script,
    ]);
    command.env_remove("ALKSTORE_URL");
    let done = Running::start(command).done();
    assert_eq!(done.code(), 0, "{done:?}");
    let (line, json) = done.text().split_once('\n').unwrap();
    let seen: Vec<_> = line.split('|').collect();
    let info: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(seen[0], "a name\u{e9}");
    assert_eq!(info["owner"], seen[1]);
    assert_eq!(info["token"].to_string(), seen[2]);
    assert_eq!(info["lapsed"], false);
    assert!(info["since"].is_string());
    assert_eq!(seen[3], home.url());

    let token = |done: &crate::support::Done| done.text().trim().parse::<u64>().unwrap();
    let again = home.run(&[
        "lock",
        "a name\u{e9}",
        "--",
        "sh",
        "-c",
        "echo $ALKSTORE_LOCK_TOKEN",
    ]);
    assert!(token(&again) > seen[2].parse().unwrap());
}

#[test]
fn input_and_output_pass_through_byte_for_byte() {
    let home = Home::new();
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let done = home.run_with_input(&["lock", "n", "--", "cat"], &bytes);
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
    assert!(done.out == bytes);
}

#[test]
fn a_held_lock_is_refused_with_who_holds_it_since_when() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n"], &format!("touch ready; {UNTIL_GO}"));
    let pid = format!("/{} since 20", holder.pid());

    let since = Instant::now();
    let done = home.run(&["lock", "n", "--try", "--", "touch", "ran"]);
    assert_eq!(done.code(), 75);
    assert!(
        done.err.contains(&pid) && done.err.contains("lapses in"),
        "{}",
        done.err
    );
    assert_eq!(
        home.run(&["lock", "n", "-n", "-E", "9", "--", "touch", "ran"])
            .code(),
        9
    );
    assert!(since.elapsed() < Duration::from_secs(10));

    let since = Instant::now();
    let done = home.run(&["lock", "n", "--wait", "300ms", "--", "touch", "ran"]);
    assert_eq!(done.code(), 75);
    assert!(since.elapsed() >= Duration::from_millis(300));
    assert_eq!(
        done.err.lines().count(),
        2,
        "waiting is told once, giving up once: {}",
        done.err
    );
    assert!(!home.path("ran").exists());

    let table = home.run(&["locks"]);
    assert_eq!(table.text().lines().count(), 1);
    assert!(table.text().starts_with("n\t") && !table.text().contains('\u{1b}'));

    let waiting = home.start(&["lock", "n", "--wait", "--", "touch", "ran"]);
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
    assert_eq!(waiting.done().code(), 0);
    assert!(home.path("ran").exists());
}

#[test]
fn a_lock_is_renewed_for_as_long_as_the_command_runs() {
    let home = Home::new();
    let (mut holder, _) = home.hold(&["n", "--ttl", "1s"], &format!("touch ready; {UNTIL_GO}"));
    let (token, since) = (home.token("n"), Instant::now());
    while since.elapsed() < Duration::from_millis(2_500) {
        let info = home.inspect("n");
        assert_eq!(
            (info["token"].to_string(), &info["lapsed"]),
            (token.clone(), &false.into())
        );
        assert!(!holder.has_ended());
    }
    fs::write(home.path("go"), "").unwrap();
    let done = holder.done();
    assert_eq!((done.code(), done.err.as_str()), (0, ""));
}

#[test]
fn signals_are_passed_on_to_the_whole_group() {
    let home = Home::new();
    for (signal, name) in [
        (Signal::SIGTERM, "TERM"),
        (Signal::SIGHUP, "HUP"),
        (Signal::SIGUSR1, "USR1"),
        (Signal::SIGUSR2, "USR2"),
    ] {
        let script = format!(
            "sh -c 'trap \"echo inner; exit\" {name}; touch inner; while :; do sleep 0.01; done' & \
             trap 'wait; echo outer; exit 5' {name}; until [ -e inner ]; do sleep 0.01; done; touch ready; \
             while :; do sleep 0.01; done"
        );
        let (holder, _) = home.hold(&["n"], &script);
        holder.signal(signal);
        let done = holder.done();
        assert_eq!(
            (done.code(), done.text()),
            (5, "inner\nouter\n"),
            "{name}: {}",
            done.err
        );
        fs::remove_file(home.path("inner")).unwrap();
    }
    // A shell has its background ignore these two, so that only itself can be asked.
    for (signal, name) in [(Signal::SIGINT, "INT"), (Signal::SIGQUIT, "QUIT")] {
        let script =
            format!("trap 'echo {name}; exit 6' {name}; touch ready; while :; do sleep 0.01; done");
        let (holder, _) = home.hold(&["n"], &script);
        holder.signal(signal);
        let done = holder.done();
        assert_eq!(
            (done.code(), done.text()),
            (6, format!("{name}\n").as_str()),
            "{}",
            done.err
        );
    }
}

#[test]
fn the_command_starts_with_the_signals_that_we_were_started_with() {
    let home = Home::new();
    // Whoever runs these tests may have signals blocked already: the measure is the same command without us.
    let shown = |prefix: &str| {
        let script = format!(
            "trap '' HUP; exec {prefix} sh -c 'kill -HUP $$; grep SigBlk /proc/self/status; echo alive'"
        );
        let mut command = home.program("sh");
        command.args(["-c", &script]);
        let done = Running::start(command).done();
        assert_eq!(done.code(), 0, "{done:?}");
        done.text().to_owned()
    };
    let alone = shown("");
    assert!(
        alone.ends_with("alive\n"),
        "HUP is ignored, as by nohup: {alone}"
    );
    assert_eq!(shown("\"$ALKSTORE\" lock n --"), alone);
}

#[test]
fn who_is_interrupted_while_waiting_leaves_nothing() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n"], &format!("touch ready; {UNTIL_GO}"));
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let mut command = home.command(&["lock", "n", "--", "touch", "ran"]);
        let log = fs::File::create(home.path("log")).unwrap();
        command.stderr(log);
        let mut waiting = command.stdout(Stdio::null()).spawn().unwrap();
        eventually("it waits", || {
            fs::read_to_string(home.path("log"))
                .unwrap()
                .contains("waiting")
        });
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(i32::try_from(waiting.id()).unwrap()),
            signal,
        )
        .unwrap();
        let status = waiting.wait().unwrap();
        assert_eq!(
            status.code().or(status.signal().map(|n| 128 + n)),
            Some(code)
        );
    }
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
    assert!(!home.path("ran").exists());
    assert_eq!(home.run(&["locks", "--all"]).text(), "");
}

#[test]
fn commands_of_one_owner_share_the_lock() {
    let home = Home::new();
    let (holder, _) = home.hold(
        &["n", "--owner", "team"],
        &format!("touch ready; {UNTIL_GO}"),
    );
    let script = "echo \"$ALKSTORE_LOCK_OWNER $ALKSTORE_LOCK_TOKEN\"; touch go; until [ -e gone ]; do sleep 0.01; done";
    let token = home.token("n");
    let second = home.start(&[
        "lock", "n", "--owner", "team", "--ttl", "2s", "--try", "--", "sh", "-c", script,
    ]);
    assert_eq!(holder.done().code(), 0);
    // The first has released it for both; the second notices, and not too late.
    let done = second.done();
    assert_eq!(
        (done.code(), done.text()),
        (76, format!("team {token}\n").as_str()),
        "{}",
        done.err
    );
}

#[test]
fn what_is_left_in_the_background_is_told() {
    let home = Home::new();
    let script = "sh -c 'until [ -e go ]; do sleep 0.01; done' >&- 2>&- & exit 3";
    let done = home.run(&["lock", "n", "--", "sh", "-c", script]);
    assert_eq!(done.code(), 3);
    assert!(done.err.contains("background"), "{}", done.err);
    fs::write(home.path("go"), "").unwrap();
}

#[test]
fn an_output_that_is_closed_early_is_no_failure_to_speak_of() {
    let home = Home::new();
    let mut command = home.program("sh");
    command.args(["-c", "\"$ALKSTORE\" completions bash | head -n 1"]);
    let done = Running::start(command).done();
    assert_eq!(done.err, "");
}

#[test]
fn nothing_is_left_running() {
    let home = Home::new();
    let (holder, _) = home.hold(&["n"], &format!("touch ready; {UNTIL_GO}"));
    let pid = holder.pid();
    assert_eq!(
        children(pid).len(),
        2,
        "the command and the guard: {:?}",
        children(pid)
    );
    let guard = crate::support::guard(pid);
    fs::write(home.path("go"), "").unwrap();
    assert_eq!(holder.done().code(), 0);
    eventually("the guard ends", || crate::support::is_gone(guard));
}
