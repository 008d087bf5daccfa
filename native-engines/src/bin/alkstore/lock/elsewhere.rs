//! Where there are no process groups and signals, nothing could end a command whose lock is lost.

use super::{ExecArgs, LockArgs};
use crate::exit::{Failure, Result, SYSTEM};
use crate::place::PlaceArgs;

pub fn run(_place: &PlaceArgs, _args: &LockArgs) -> Result {
    Err(Failure::new(
        SYSTEM,
        "`alkstore lock` needs the process groups of Unix, which this system does not have",
    )
    .advise("All other verbs work here; on Windows, run this one in WSL."))
}

pub fn exec(_args: &ExecArgs) -> Result {
    guard()
}

pub fn guard() -> Result {
    Err(Failure::new(
        SYSTEM,
        "there is nothing to guard on this system",
    ))
}
