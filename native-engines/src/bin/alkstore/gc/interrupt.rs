//! Ctrl-C and TERM: the first ends the work at the next good place, the second ends it at once.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::Arc;

use nix::sys::signal::{raise, SigSet, Signal};

use crate::exit::{Failure, Result, SIGNALS};
use crate::output;

/// Whether the work is to end, and by which signal.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<State>);

#[derive(Default)]
struct State {
    asked: AtomicBool,
    signal: AtomicI32,
}

impl Interrupt {
    /// Blocks the signals and starts the thread that waits for them. To be called before any other thread is started.
    pub fn watch() -> Result<Self> {
        let set: SigSet = [Signal::SIGINT, Signal::SIGTERM].into_iter().collect();
        set.thread_block()
            .map_err(|error| Failure::system("the signals cannot be blocked", error))?;
        let interrupt = Self::default();
        let told = interrupt.clone();
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || told.wait(&set))
            .map_err(|error| Failure::system("a thread cannot be started", error))?;
        Ok(interrupt)
    }

    fn wait(&self, set: &SigSet) {
        loop {
            let signal = match set.wait() {
                Ok(signal) => signal,
                Err(nix::Error::EINTR) => continue,
                Err(_) => return,
            };
            if self.0.asked.load(Ordering::SeqCst) {
                die_of(signal);
                std::process::exit(i32::from(SIGNALS) + signal as i32);
            }
            self.0.signal.store(signal as i32, Ordering::SeqCst);
            self.0.asked.store(true, Ordering::SeqCst);
            if output::can_rewrite() {
                output::rewrite("");
            }
            output::note("finishing what is in hand; once more ends it at once");
        }
    }

    /// True once the work is to end.
    pub fn flag(&self) -> &AtomicBool {
        &self.0.asked
    }

    /// Ends this process as the signal does, so that the shell that runs it knows to stop its script; an exit code that
    /// says so where that is impossible, as for the first process of a container.
    pub fn finish(&self) -> ExitCode {
        let number = self.0.signal.load(Ordering::SeqCst);
        if let Ok(signal) = Signal::try_from(number) {
            die_of(signal);
        }
        ExitCode::from(SIGNALS.saturating_add(u8::try_from(number).unwrap_or(0)))
    }
}

fn die_of(signal: Signal) {
    if SigSet::from(signal).thread_unblock().is_ok() {
        let _ = raise(signal);
    }
}
