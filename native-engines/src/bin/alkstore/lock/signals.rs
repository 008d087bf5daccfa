//! The signals that the keeper gets: blocked in every thread, and waited for by one. Nothing is done in a handler, and
//! what was ignored when the keeper was started, as under `nohup`, is so for the command too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::Arc;

use nix::sys::signal::{kill, killpg, raise, SigSet, SigmaskHow, Signal};
use nix::unistd::{getpgrp, getpid};

use super::keeper::Event;
use crate::exit::{Failure, Result};

/// Those that are passed on to the command, and those about stopping and going on.
const WATCHED: [Signal; 9] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGWINCH,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// How the keeper stops itself together with its job.
#[derive(Clone)]
pub struct Suspension(Arc<AtomicBool>);

/// Blocks the signals and starts the thread that waits for them. To be called before any other thread is started.
/// Answers also what it has blocked: processes inherit it.
pub fn watch(events: Sender<Event>) -> Result<(Suspension, SigSet)> {
    let set: SigSet = WATCHED.into_iter().collect();
    let failed = |error| Failure::system("the signals cannot be blocked", error);
    let mut blocked = set;
    // So that giving the terminal away does not stop us.
    blocked.add(Signal::SIGTTOU);
    let before = blocked
        .thread_swap_mask(SigmaskHow::SIG_BLOCK)
        .map_err(failed)?;
    for signal in &before {
        blocked.remove(signal);
    }
    let suspension = Suspension(Arc::new(AtomicBool::new(false)));
    let asked = suspension.clone();
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || wait(&set, &asked, &events))
        .map_err(|error| Failure::system("a thread cannot be started", error))?;
    Ok((suspension, blocked))
}

fn wait(set: &SigSet, suspension: &Suspension, events: &Sender<Event>) {
    loop {
        let event = match set.wait() {
            Ok(Signal::SIGTSTP) if suspension.0.swap(false, Ordering::SeqCst) => {
                stop_here();
                Event::Resumed
            }
            Ok(signal) => Event::Signal(signal),
            Err(nix::Error::EINTR) => continue,
            Err(_) => return,
        };
        if events.send(event).is_err() {
            return;
        }
    }
}

/// Stops the whole process, as the signal does by default; comes back when it goes on. In a job that nobody could
/// continue the system discards the signal, and this comes back at once.
fn stop_here() {
    let stop = SigSet::from(Signal::SIGTSTP);
    if stop.thread_unblock().is_ok() {
        let _ = raise(Signal::SIGTSTP);
        let _ = stop.thread_block();
    }
}

impl Suspension {
    /// Stops the keeper alone: the rest of its group has got the signal that it got.
    pub fn begin_alone(&self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = kill(getpid(), Signal::SIGTSTP);
    }

    /// Stops the keeper and the rest of its process group, as the terminal does to all of a job. [`Event::Resumed`]
    /// tells that it goes on.
    pub fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
        let _ = killpg(getpgrp(), Signal::SIGTSTP);
    }
}

/// Ends this process as an interrupt does, so that the shell that runs it knows to stop its script; returns where that
/// is impossible, as for the first process of a container.
pub fn die_of_interrupt(with_group: bool) {
    let interrupt = SigSet::from(Signal::SIGINT);
    if interrupt.thread_unblock().is_ok() {
        if with_group {
            let _ = killpg(getpgrp(), Signal::SIGINT);
        }
        let _ = raise(Signal::SIGINT);
    }
}
