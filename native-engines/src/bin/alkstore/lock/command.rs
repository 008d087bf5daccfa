//! The command: a process that leads a group of its own.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command as Process;
use std::sync::mpsc::Sender;

use nix::sys::signal::{killpg, SigSet, Signal};
use nix::sys::wait::{waitpid, WaitPidFlag, WaitStatus};
use nix::unistd::Pid;

use super::keeper::Event;
use super::tenancy::Grant;
use super::{ExecArgs, LockArgs};
use crate::exit::{Failure, Result, CANNOT_RUN, NOT_FOUND, SYSTEM, USAGE};
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
///
/// What is started is this very program, which inherits the signals that the keeper has blocked, unblocks them and
/// [becomes the command](become_command). A signal that is passed on meanwhile waits.
pub fn start(
    args: &LockArgs,
    grant: &Grant,
    place: &PlaceArgs,
    blocked: &SigSet,
    events: Sender<Event>,
) -> Result<Group> {
    let numbers = blocked.iter().map(|signal| (signal as i32).to_string());
    let variables = place.variables()?;
    let child = own_program()
        .and_then(|program| {
            let mut process = Process::new(program);
            for (name, value) in variables {
                match value {
                    Some(value) => process.env(name, value),
                    None => process.env_remove(name),
                };
            }
            process
                .arg0("alkstore")
                .args(["__exec", &numbers.collect::<Vec<_>>().join(","), "--"])
                .args(&args.command)
                .env("ALKSTORE_LOCK_NAME", &args.name)
                .env("ALKSTORE_LOCK_TOKEN", grant.token.to_string())
                .env("ALKSTORE_LOCK_OWNER", &grant.owner)
                .process_group(0)
                .spawn()
        })
        .map_err(|error| Failure::system("no process can be started", error))?;
    let pid = i32::try_from(child.id()).unwrap_or(-1);
    let group = Group::of(pid).ok_or_else(|| Failure::new(SYSTEM, "the command has no id"))?;
    std::thread::Builder::new()
        .name("command".to_owned())
        .spawn(move || wait(group, &events))
        .map_err(|error| {
            group.signal(Signal::SIGKILL);
            Failure::system("a thread cannot be started", error)
        })?;
    Ok(group)
}

/// This program: by the link that works also after its file was replaced by a newer one, where there is such a link.
pub fn own_program() -> io::Result<PathBuf> {
    let link = PathBuf::from("/proc/self/exe");
    if link.exists() {
        Ok(link)
    } else {
        std::env::current_exe()
    }
}

/// The process of the command, before it is the command. Comes back only where it cannot become it.
pub fn become_command(args: &ExecArgs) -> Result {
    let Some((program, arguments)) = args.command.split_first() else {
        return Err(Failure::new(USAGE, "there is no command"));
    };
    let signals = args.unblock.iter().copied().map(Signal::try_from);
    let unblock: SigSet = signals.flatten().collect();
    unblock
        .thread_unblock()
        .map_err(|error| Failure::system("the signals cannot be unblocked", error))?;
    let error = Process::new(program).args(arguments).exec();
    let code = match error.kind() {
        io::ErrorKind::NotFound => NOT_FOUND,
        _ => CANNOT_RUN,
    };
    let program = output::printable(&program.to_string_lossy());
    Err(Failure::new(code, format!("cannot run {program}: {error}")))
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
