//! The statements of deletion with an outside payload.

use alkstore::rules::window::{self as rule, Row};
use alkstore::{Claim, Key, Reclaim, Revision, Timestamp};
use rusqlite::Connection;

use super::clock::{Reading, StoreClock};
use super::failure::Failure;
use super::txn::{self, Txn};
use super::{entries, window};

/// W8. Marks the row of a claim that stands.
pub(super) fn mark(txn: &mut Txn<'_>, claim: &Claim) -> Result<Reclaim, Failure> {
    let row = window::row(txn, &claim.key)?;
    let answer = rule::mark(row.as_ref(), claim.id, txn.now());
    if answer == Reclaim::Marked && !row.is_some_and(|row| row.reclaiming) {
        txn.write(
            "UPDATE main.alkstore_window SET reclaiming = 1 WHERE key = ?1",
            [claim.key.as_bytes()],
        )?;
    }
    Ok(answer)
}

/// W8. Deletes entry and row where the row is marked.
pub(super) fn finish(txn: &mut Txn<'_>, claim: &Claim) -> Result<Reclaim, Failure> {
    go(txn, claim, rule::finish)
}

/// W8. Deletes entry and row where the row is not marked.
pub(super) fn delete(txn: &mut Txn<'_>, claim: &Claim) -> Result<Reclaim, Failure> {
    go(txn, claim, rule::delete)
}

fn go(
    txn: &mut Txn<'_>,
    claim: &Claim,
    rule: impl Fn(Option<&Row>, Revision, Timestamp) -> Option<Reclaim>,
) -> Result<Reclaim, Failure> {
    let row = window::row(txn, &claim.key)?;
    let now = txn.now();
    if let Some(why_not) = rule(row.as_ref(), claim.id, now) {
        return Ok(why_not);
    }
    let answer = what_goes(txn.connection, &claim.key, now)?;
    // A lapsed entry goes too.
    entries::remove(txn, &claim.key)?;
    window::remove(txn, &claim.key)?;
    Ok(answer)
}

/// What deleting these keys would meet. All are judged at one instant.
pub(super) fn judge(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    keys: &[Key<'_>],
) -> Result<Vec<Reclaim>, Failure> {
    txn::snapshot(connection, clock, reading, |now| {
        keys.iter()
            .map(|key| what_goes(connection, key, now))
            .collect()
    })
}

fn what_goes(connection: &Connection, key: &Key<'_>, now: Timestamp) -> Result<Reclaim, Failure> {
    let size = entries::size(connection, key, now)?;
    Ok(size.map_or(Reclaim::Absent, |bytes| Reclaim::Deleted { bytes }))
}
