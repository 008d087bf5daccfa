//! `lock`: a command that runs while a lock is held.
//!
//! Three processes take part. The keeper, which the user started, takes the lock, renews it and passes signals on. The
//! command runs in a process group of its own. The guard, a second `alkstore`, ends that group in time where the
//! keeper cannot, because it was stopped or killed.

use std::ffi::OsString;
use std::time::Duration;

use crate::exit::{Result, BUSY};
use crate::place::PlaceArgs;
use crate::values;

// What the keeper does.
#[cfg(unix)]
mod keeper;
#[cfg(unix)]
mod tenancy;

// What it works with.
#[cfg(unix)]
mod command;
#[cfg(unix)]
mod guard;
#[cfg(unix)]
mod moment;
#[cfg(unix)]
mod signals;
#[cfg(unix)]
mod terminal;

#[cfg(not(unix))]
mod elsewhere;

#[cfg(unix)]
pub use command::become_command as exec;
#[cfg(not(unix))]
pub use elsewhere::{exec, guard, run};
#[cfg(unix)]
pub use guard::run as guard;

macro_rules! examples {
    () => {
        "\
Examples:
  alkstore lock nightly -- ./backup.sh            wait for the lock, then run
  alkstore lock nightly --try -- ./backup.sh      give up at once, with code 75
  alkstore lock nightly --wait 5m -- ./backup.sh  give up after five minutes
  alkstore lock edit -- vim plan.txt              works on a terminal, Ctrl-C and Ctrl-Z included
  alkstore lock deploy -- sh -c 'build && push'   several commands"
    };
}

pub const EXAMPLES: &str = concat!(
    examples!(),
    "

`alkstore lock --help` tells of exit codes, variables, signals and what happens when the lock is lost."
);

pub const LONG: &str = concat!(
    examples!(),
    "

Exit codes:
  that of the command; 128 + n where signal n ended it
  64   the arguments make no sense
  69   the store cannot be opened or used: the command was not run
  71   the system failed: the command was not run
  75   somebody else holds the lock (see --conflict-exit-code): the command was not run
  76   the lock was lost: the command was ended, or its lock was gone when it came to its end
  126  the command cannot be run; 127: there is no such command

Variables of the command:
  ALKSTORE_LOCK_NAME, ALKSTORE_LOCK_TOKEN, ALKSTORE_LOCK_OWNER
                the lock; the token is higher than that of every earlier holder
  ALKSTORE_URL  the same store, where its address has no password

While the command runs:
  - The lock is renewed every third of its ttl. A renewal that fails is tried again.
  - HUP, INT, QUIT, TERM, USR1, USR2 and WINCH are passed on to the command's process group.
  - Ctrl-Z stops the command and this one. A lock that has lapsed when they go on is lost.
  - When the command ends the lock is released, and what it left in the background goes on.

When the lock is lost, by `alkstore release` or because the store could not be reached, the \
command's whole process group gets TERM, and KILL after the --grace, and never later than the \
lock's deadline less a margin: a twentieth of the ttl, at most 1s. A guard process does so where \
this one was stopped or killed. A process that has left the group, as setsid does, is not ended."
);

#[derive(clap::Args)]
pub struct LockArgs {
    /// The lock's name: any text of 1 to 512 bytes
    #[arg(value_parser = values::lock_name)]
    name: String,

    /// How long the lock outlives a holder that has died: at least 1s, such as 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = values::kept_ttl)]
    ttl: Duration,

    /// Wait for the lock, for ever (the default) or for so long
    #[arg(
        long, short, value_name = "DURATION", num_args = 0..=1, conflicts_with = "try", value_parser = values::duration
    )]
    #[allow(clippy::option_option)]
    wait: Option<Option<Duration>>,

    /// Do not wait: give up at once where somebody else holds the lock
    #[arg(long = "try", short = 'n', id = "try")]
    try_once: bool,

    /// The exit code where somebody else holds the lock
    #[arg(long, short = 'E', value_name = "CODE", default_value_t = BUSY)]
    conflict_exit_code: u8,

    /// Who takes the lock, for those who look [default: one of its own for each run]
    ///
    /// Commands of one owner share the lock: the second does not wait for the first, and the first that ends releases
    /// it for all.
    #[arg(long, value_parser = values::owner)]
    owner: Option<String>,

    /// How long a command whose lock is lost may take to end itself, after TERM and before KILL [default: a quarter of
    /// the ttl, at most 10s]
    #[arg(long, value_name = "DURATION", value_parser = values::duration)]
    grace: Option<Duration>,

    /// Say nothing of waiting
    #[arg(long, short)]
    quiet: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(clap::Args)]
pub struct ExecArgs {
    /// The numbers of the signals that the keeper has blocked, and the command has not
    #[arg(value_delimiter = ',')]
    unblock: Vec<i32>,

    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

#[cfg(unix)]
pub fn run(place: &PlaceArgs, args: &LockArgs) -> Result {
    keeper::run(place, args)
}
