//! The rules of named locks.

use crate::{Error, ErrorKind, LockName, Revision, Timestamp, Ttl};

/// A lock's row, as the rules see it. `O` is however the engine keeps an owner; equality must be that of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant<O> {
    /// Who holds it.
    pub owner: O,
    /// Its token.
    pub token: Revision,
    /// When it lapses.
    pub deadline: Timestamp,
}

/// What becomes of an acquisition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acquisition {
    /// Granted: write owner, a new token and this deadline.
    Granted(Timestamp),
    /// The owner holds it already: leave the row, and answer its token and deadline.
    Kept,
    /// Another owner's lease is live: leave the row, and answer that it is held elsewhere.
    HeldElsewhere,
}

/// L1 to L4: no row or a lapsed one is granted anew; a live row of the same owner stays; another's stands in the way.
pub fn acquire<O: PartialEq>(
    row: Option<&Grant<O>>,
    owner: &O,
    ttl: Ttl,
    now: Timestamp,
) -> Acquisition {
    match row {
        Some(grant) if !grant.deadline.lapsed(now) => {
            if grant.owner == *owner {
                Acquisition::Kept
            } else {
                Acquisition::HeldElsewhere
            }
        }
        _ => Acquisition::Granted(now.after(ttl)),
    }
}

/// L5: the new deadline, where this very grant is there and live.
pub fn renew<O: PartialEq>(
    row: Option<&Grant<O>>,
    owner: &O,
    token: Revision,
    ttl: Ttl,
    now: Timestamp,
) -> Option<Timestamp> {
    row.filter(|grant| is_grant(grant, owner, token) && !grant.deadline.lapsed(now))
        .map(|_| now.after(ttl))
}

/// L6: whether to delete the row. The holder of a lapsed grant may still clear its row away.
pub fn release<O: PartialEq>(row: Option<&Grant<O>>, owner: &O, token: Revision) -> bool {
    row.is_some_and(|grant| is_grant(grant, owner, token))
}

/// L15: whether to delete the row for somebody who is not its owner.
pub fn force_release<O>(row: Option<&Grant<O>>, token: Revision) -> bool {
    row.is_some_and(|grant| grant.token == token)
}

/// E5: whether a guarded write may happen at `now`.
pub fn guard(
    row: Option<(Revision, Timestamp)>,
    name: &LockName<'_>,
    token: Revision,
    now: Timestamp,
) -> Result<(), Error> {
    match row {
        Some((current, deadline)) if current == token && !deadline.lapsed(now) => Ok(()),
        _ => Err(lease_lost(name, token)),
    }
}

/// The error of a guarded write whose grant is not live: every engine's words.
#[cold]
pub fn lease_lost(name: &LockName<'_>, token: Revision) -> Error {
    Error::new(
        ErrorKind::LeaseLost,
        alloc::format!("the lease {token} on \"{name}\" is no longer live: nothing was written"),
    )
}

fn is_grant<O: PartialEq>(grant: &Grant<O>, owner: &O, token: Revision) -> bool {
    grant.token == token && grant.owner == *owner
}
