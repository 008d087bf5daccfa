//! The guard: a process that ends the command's group where the keeper is not there to do it.
//!
//! The keeper tells it through a pipe, a line at a time, until when the lock is good. Where the keeper is stopped, no
//! later time comes; where it is killed, the pipe ends.

use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, Command, ExitCode, Stdio};
use std::sync::mpsc::{channel, Receiver, RecvTimeoutError};
use std::time::Duration;

use nix::fcntl::{fcntl, FcntlArg, OFlag};
use nix::sys::signal::{SigSet, Signal};

use super::command::{own_program, Group};
use super::moment::{Moment, Terms};
use crate::exit::{Failure, Result};
use crate::output;

/// How often it looks whether the group is gone.
const LOOK: Duration = Duration::from_millis(20);

/// The keeper's end.
pub struct Guard {
    pipe: ChildStdin,
    terms: Terms,
    group: Option<Group>,
    until: Moment,
}

impl Guard {
    pub fn start(terms: Terms, until: Moment) -> Result<Self> {
        Ok(Self {
            pipe: spawn().map_err(|error| Failure::system("the guard cannot be started", error))?,
            terms,
            group: None,
            until,
        })
    }

    pub fn watch(&mut self, group: Group) {
        self.group = Some(group);
        self.tell();
    }

    /// Until when the lock is good.
    pub fn until(&mut self, deadline: Moment) {
        self.until = deadline;
        self.tell();
    }

    /// The command is stopped and so is the keeper: the time does not matter until they go on.
    pub fn pause(&mut self) {
        self.write("pause\n");
    }

    /// The command has ended: nothing is left to be guarded.
    pub fn done(mut self) {
        let _ = self.pipe.write_all(b"done\n");
    }

    fn tell(&mut self) {
        let Some(group) = self.group else { return };
        let slack = self.terms.slack();
        let line = format!(
            "{} {} {} {}\n",
            group.id(),
            self.terms.term_at(self.until).plus(slack).nanos(),
            self.terms.kill_at(self.until).plus(slack).nanos(),
            self.terms.grace.as_nanos(),
        );
        self.write(&line);
    }

    fn write(&mut self, line: &str) {
        match self.pipe.write_all(line.as_bytes()) {
            Ok(()) => return,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                output::complain("the guard is stopped, and does not guard the command");
                return;
            }
            // Somebody has killed it.
            Err(_) => {}
        }
        let again = spawn().and_then(|mut pipe| {
            pipe.write_all(line.as_bytes())?;
            Ok(pipe)
        });
        match again {
            Ok(pipe) => self.pipe = pipe,
            Err(error) => output::complain(&format!(
                "the guard is gone and cannot be started again: {error}; should this process be killed or stopped, \
                 nothing ends the command"
            )),
        }
    }
}

fn spawn() -> io::Result<ChildStdin> {
    let mut child = Command::new(own_program()?)
        .arg0("alkstore")
        .arg("__guard")
        .env_clear()
        .current_dir("/")
        // Out of reach of what is sent to the keeper's group, above all of a stop.
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()?;
    let pipe = child.stdin.take();
    let pipe = pipe.ok_or_else(|| io::Error::other("it has no pipe"))?;
    // The keeper waits for nobody but the command.
    fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    Ok(pipe)
}

/// What the guard knows.
#[derive(Clone, Copy)]
struct Watch {
    group: Group,
    term_at: Moment,
    kill_at: Moment,
    grace: Duration,
}

enum Word {
    Watch(Watch),
    Pause,
    Done,
    /// The pipe has ended without a word: the keeper was killed.
    Ended,
}

/// The guard's process.
pub fn run() -> Result {
    let signals = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGTTOU,
    ];
    let signals: SigSet = signals.into_iter().collect();
    // They are for the keeper, who says when all is done.
    signals
        .thread_block()
        .map_err(|error| Failure::system("the signals cannot be blocked", error))?;
    let (sender, words) = channel();
    std::thread::Builder::new()
        .spawn(move || {
            for line in io::stdin().lock().lines() {
                let word = line.ok().and_then(|line| Word::read(&line));
                let last = !matches!(word, Some(Word::Watch(_) | Word::Pause));
                if sender.send(word.unwrap_or(Word::Ended)).is_err() || last {
                    return;
                }
            }
            let _ = sender.send(Word::Ended);
        })
        .map_err(|error| Failure::system("a thread cannot be started", error))?;
    watch(&words)
}

fn watch(words: &Receiver<Word>) -> Result {
    let mut last: Option<Watch> = None;
    let mut paused = true;
    loop {
        let word = match last.filter(|_| !paused) {
            None => words.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(watch) => words.recv_timeout(watch.term_at.nap()),
        };
        match word {
            Ok(Word::Watch(watch)) => (last, paused) = (Some(watch), false),
            Ok(Word::Pause) => paused = true,
            Ok(Word::Done) => return Ok(ExitCode::SUCCESS),
            Ok(Word::Ended) | Err(RecvTimeoutError::Disconnected) => {
                // Without a word there is nothing to guard: the command could not be started.
                let Some(watch) = last else {
                    return Ok(ExitCode::SUCCESS);
                };
                if !watch.group.is_gone() {
                    output::complain(
                        "the process that kept the lock was killed: ending the command",
                    );
                    let soon = Moment::now().plus(watch.grace);
                    end(watch, soon.min(watch.kill_at), words);
                }
                return Ok(ExitCode::SUCCESS);
            }
            Err(RecvTimeoutError::Timeout) => {
                if let Some(watch) = last.filter(|watch| watch.term_at.passed()) {
                    if end(watch, watch.kill_at, words) {
                        output::complain(
                            "the process that keeps the lock did not renew it in time: ended the command",
                        );
                    }
                    return Ok(ExitCode::SUCCESS);
                }
            }
        }
    }
}

/// Ends the group; false where the keeper, back again, said that it is done.
fn end(watch: Watch, kill_at: Moment, words: &Receiver<Word>) -> bool {
    watch.group.terminate();
    let mut killed = false;
    while !watch.group.is_gone() {
        if !killed && kill_at.passed() {
            watch.group.signal(Signal::SIGKILL);
            killed = true;
        }
        match words.recv_timeout(LOOK) {
            Ok(Word::Done) => return false,
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(LOOK),
        }
        // A stopped keeper does not bury its child: a dead leader alone is nothing to wait for.
        if killed {
            return true;
        }
    }
    true
}

impl Word {
    fn read(line: &str) -> Option<Self> {
        match line {
            "pause" => return Some(Self::Pause),
            "done" => return Some(Self::Done),
            _ => {}
        }
        let mut parts = line.split(' ');
        let group = Group::of(parts.next()?.parse().ok()?)?;
        let mut number = || parts.next()?.parse::<u64>().ok();
        Some(Self::Watch(Watch {
            group,
            term_at: Moment::from_nanos(number()?),
            kill_at: Moment::from_nanos(number()?),
            grace: Duration::from_nanos(number()?),
        }))
    }
}
