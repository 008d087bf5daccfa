//! The terminal, which belongs to one process group at a time.
//!
//! A command with input and output on the terminal gets it at once. Any other gets it when it first asks for it: in
//! `alkstore lock x -- make | less` it is `less` that reads the keys.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, IsTerminal};

use nix::sys::termios::{tcgetattr, tcsetattr, SetArg, Termios};
use nix::unistd::{getpgrp, tcgetpgrp, tcsetpgrp, Pid};

pub struct Terminal {
    device: File,
    modes: Option<Termios>,
    given: Cell<bool>,
}

impl Terminal {
    /// `None` where there is none.
    pub fn open() -> Option<Self> {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        let modes = tcgetattr(&device).ok();
        Some(Self {
            device,
            modes,
            given: Cell::new(false),
        })
    }

    /// Whether a command would have it for input and output.
    pub fn is_whole() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Whether it is our group that has it.
    pub fn is_ours(&self) -> bool {
        self.is_of(getpgrp())
    }

    pub fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device) == Ok(group)
    }

    /// Hands it to `group` where we have it.
    pub fn give(&self, group: Pid) {
        if self.is_ours() && tcsetpgrp(&self.device, group).is_ok() {
            self.given.set(true);
        }
    }

    /// Takes it back where we had given it away.
    pub fn take_back(&self) {
        if self.given.replace(false) {
            let _ = tcsetpgrp(&self.device, getpgrp());
        }
    }

    /// Whether it is given away.
    pub fn is_given(&self) -> bool {
        self.given.get()
    }

    /// Undoes what a command that was ended by force had set, as editors do.
    pub fn restore(&self) {
        if let Some(modes) = self.modes.as_ref().filter(|_| self.is_ours()) {
            let _ = tcsetattr(&self.device, SetArg::TCSADRAIN, modes);
        }
    }
}
