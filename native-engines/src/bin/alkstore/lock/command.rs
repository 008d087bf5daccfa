//! The command: a process that leads a group of its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command as Process;
use std::sync::mpsc::Sender;

use nix::sys::signal::{killpg, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use super::keeper::Event;
use super::tenancy::Grant;
use super::LockArgs;
use crate::exit::{Failure, CANNOT_RUN, NOT_FOUND};
use crate::output;
use crate::place::PlaceArgs;

/// The group of the command.
#[derive(Clone, Copy, Debug)]
pub struct Group(Pid);

impl Group {
    pub fn of(number: i32) -> Option<Self> {
        // Neither 0, which is our own group, nor 1, nor the -1 that is everybody.
        (number > 1).then(|| Self(Pid::from_raw(number)))
    }

    pub fn id(self) -> Pid {
        self.0
    }

    pub fn signal(self, signal: Signal) {
        // Its being gone is what is wanted, or is told by the wait for it.
        let _ = killpg(self.0, signal);
    }

    /// Asks it to end, stopped or not.
    pub fn terminate(self) {
        self.signal(Signal::SIGTERM);
        self.signal(Signal::SIGCONT);
    }

    pub fn is_gone(self) -> bool {
        killpg(self.0, None) == Err(nix::Error::ESRCH)
    }
}

/// Starts the command; what becomes of it is told as events.
pub fn start(
    args: &LockArgs,
    grant: &Grant,
    place: &PlaceArgs,
    events: Sender<Event>,
) -> Result<Group, Failure> {
    let (program, arguments) = args
        .command
        .split_first()
        .ok_or_else(|| Failure::new(crate::exit::USAGE, "there is no command"))?;
    let mut process = Process::new(program);
    process
        .args(arguments)
        .env("ALKSTORE_LOCK_NAME", &args.name)
        .env("ALKSTORE_LOCK_TOKEN", grant.token.to_string())
        .env("ALKSTORE_LOCK_OWNER", &grant.owner)
        .envs(place.variables()?)
        .process_group(0);
    let child = process.spawn().map_err(|error| {
        let code = match error.kind() {
            io::ErrorKind::NotFound => NOT_FOUND,
            _ => CANNOT_RUN,
        };
        let program = output::printable(&program.to_string_lossy());
        Failure::new(code, format!("cannot run {program}: {error}"))
    })?;
    let pid = i32::try_from(child.id()).unwrap_or(-1);
    let group = Group::of(pid).ok_or_else(|| Failure::new(CANNOT_RUN, "the command has no id"))?;
    std::thread::Builder::new()
        .name("command".to_owned())
        .spawn(move || wait(group, &events))
        .map_err(|error| {
            group.signal(Signal::SIGKILL);
            Failure::system("a thread cannot be started", error)
        })?;
    Ok(group)
}

fn wait(group: Group, events: &Sender<Event>) {
    loop {
        match waitpid(group.id(), Some(WaitPidFlag::WUNTRACED)) {
            Ok(status @ WaitStatus::Stopped(..)) => {
                if events.send(Event::Command(status)).is_err() {
                    return;
                }
            }
            Ok(status @ (WaitStatus::Exited(..) | WaitStatus::Signaled(..))) => {
                let _ = events.send(Event::Command(status));
                return;
            }
            Ok(_) | Err(nix::Error::EINTR) => {}
            // Nobody else waits for it: it cannot be that it is not there.
            Err(_) => {
                let _ = events.send(Event::Command(WaitStatus::Exited(group.id(), 255)));
                return;
            }
        }
    }
}
