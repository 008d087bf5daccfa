//! The statements of named locks.

use alkstore::rules::lock::{self as rule, Acquisition, Grant};
use alkstore::{LockInfo, LockName, Owner, Revision, Timestamp, Ttl};
use rusqlite::{params, Connection};

use super::clock::{Reading, StoreClock};
use super::failure::Failure;
use super::txn::{self, Txn};

/// A lease that its owner holds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Held {
    pub(super) token: Revision,
    pub(super) deadline: Timestamp,
}

const ROW: &str = "SELECT owner, token, deadline FROM main.alkstore_lock WHERE name = ?1";

fn grant<'r>(row: &'r rusqlite::Row<'_>, from: usize) -> Result<Grant<&'r [u8]>, Failure> {
    Ok(Grant {
        owner: txn::blob(row, from)?,
        token: txn::revision(row, from + 1)?,
        deadline: txn::timestamp(row, from + 2)?,
    })
}

fn decide(
    row: Option<&Grant<&[u8]>>,
    owner: &Owner<'_>,
    ttl: Ttl,
    now: Timestamp,
) -> (Acquisition, Option<Held>) {
    let held = row.map(|row| Held {
        token: row.token,
        deadline: row.deadline,
    });
    (
        rule::acquire(row, &owner.as_str().as_bytes(), ttl, now),
        held,
    )
}

/// L1 to L4.
pub(super) fn acquire(
    txn: &mut Txn<'_>,
    name: &LockName<'_>,
    owner: &Owner<'_>,
    ttl: Ttl,
) -> Result<Option<Held>, Failure> {
    let key = name.as_str().as_bytes();
    let now = txn.now();
    let found = txn.row(ROW, [key], |row| {
        Ok(decide(Some(&grant(row, 0)?), owner, ttl, now))
    })?;
    match found.unwrap_or_else(|| decide(None, owner, ttl, now)) {
        (Acquisition::Kept, held) => Ok(held),
        (Acquisition::HeldElsewhere, _) => Ok(None),
        (Acquisition::Granted(deadline), _) => {
            let token = txn.next()?;
            txn.write(
                "INSERT INTO main.alkstore_lock (name, owner, token, deadline) VALUES (?1, ?2, ?3, ?4)
                 ON CONFLICT (name) DO UPDATE SET owner = ?2, token = ?3, deadline = ?4",
                params![key, owner.as_str().as_bytes(), txn::number(token), deadline.as_nanos()],
            )?;
            Ok(Some(Held { token, deadline }))
        }
    }
}

/// The part of [`acquire`] that needs no write lock: a live lease, of another or of this very owner. `None` where a
/// grant must be written.
///
/// The time is read after the row, so that a lease that counts as live here was live when the row was read.
pub(super) fn peek(
    connection: &Connection,
    clock: &StoreClock,
    name: &LockName<'_>,
    owner: &Owner<'_>,
    ttl: Ttl,
) -> Result<Option<Option<Held>>, Failure> {
    let sql = "SELECT s.version, s.clock, l.owner, l.token, l.deadline
               FROM main.alkstore_lock l, main.alkstore_state s WHERE l.name = ?1";
    let found = txn::first(connection, sql, [name.as_str().as_bytes()], |row| {
        let now = txn::now_of(row, clock, clock.read())?;
        Ok(decide(Some(&grant(row, 2)?), owner, ttl, now))
    })?;
    Ok(match found {
        Some((Acquisition::Kept, held)) => Some(held),
        Some((Acquisition::HeldElsewhere, _)) => Some(None),
        Some((Acquisition::Granted(_), _)) | None => None,
    })
}

/// L5.
pub(super) fn renew(
    txn: &mut Txn<'_>,
    name: &LockName<'_>,
    owner: &Owner<'_>,
    token: Revision,
    ttl: Ttl,
) -> Result<Option<Timestamp>, Failure> {
    let key = name.as_str().as_bytes();
    let now = txn.now();
    let deadline = txn.row(ROW, [key], |row| {
        let row = grant(row, 0)?;
        Ok(rule::renew(
            Some(&row),
            &owner.as_str().as_bytes(),
            token,
            ttl,
            now,
        ))
    })?;
    let deadline = deadline.flatten();
    if let Some(deadline) = deadline {
        txn.write(
            "UPDATE main.alkstore_lock SET deadline = ?2 WHERE name = ?1",
            params![key, deadline.as_nanos()],
        )?;
    }
    Ok(deadline)
}

/// L6.
pub(super) fn release(
    txn: &mut Txn<'_>,
    name: &LockName<'_>,
    owner: &Owner<'_>,
    token: Revision,
) -> Result<bool, Failure> {
    let owner = owner.as_str().as_bytes();
    delete_if(txn, name, |row| rule::release(Some(row), &owner, token))
}

/// L15.
pub(super) fn force_release(
    txn: &mut Txn<'_>,
    name: &LockName<'_>,
    token: Revision,
) -> Result<bool, Failure> {
    delete_if(txn, name, |row| rule::force_release(Some(row), token))
}

fn delete_if(
    txn: &mut Txn<'_>,
    name: &LockName<'_>,
    rule: impl FnOnce(&Grant<&[u8]>) -> bool,
) -> Result<bool, Failure> {
    let key = name.as_str().as_bytes();
    let found = txn.row(ROW, [key], |row| Ok(rule(&grant(row, 0)?)))?;
    let free = found.unwrap_or(false);
    if free {
        txn.write("DELETE FROM main.alkstore_lock WHERE name = ?1", [key])?;
    }
    Ok(free)
}

/// Becomes the one sweep of the store: its epoch. Each asks under a name that nobody had before, so that none is taken
/// for the one under way.
pub(super) fn begin_sweep(txn: &mut Txn<'_>, ttl: Ttl) -> Result<Option<Revision>, Failure> {
    let owner = sweeper(txn.upcoming())?;
    let held = acquire(txn, &LockName::SWEEP, &owner, ttl)?;
    Ok(held.map(|held| held.token))
}

/// Answers whether `epoch` is the current sweep.
pub(super) fn extend_sweep(txn: &mut Txn<'_>, epoch: Revision, ttl: Ttl) -> Result<bool, Failure> {
    let owner = sweeper(epoch.get())?;
    let deadline = renew(txn, &LockName::SWEEP, &owner, epoch, ttl)?;
    Ok(deadline.is_some())
}

/// The owner of the sweep whose epoch is `number`.
fn sweeper(number: u64) -> Result<Owner<'static>, Failure> {
    Ok(Owner::new(format!("sweep {number}"))?)
}

/// W8. Fails where the sweep `fence` is no longer the current one.
pub(super) fn check_sweep(txn: &Txn<'_>, fence: Option<Revision>) -> Result<(), Failure> {
    if let Some(epoch) = fence {
        let row = token_and_deadline(txn, &LockName::SWEEP)?;
        rule::guard(row, &LockName::SWEEP, epoch, txn.now())?;
    }
    Ok(())
}

/// What a guard is judged by.
pub(super) fn token_and_deadline(
    txn: &Txn<'_>,
    name: &LockName<'_>,
) -> Result<Option<(Revision, Timestamp)>, Failure> {
    txn.row(
        "SELECT token, deadline FROM main.alkstore_lock WHERE name = ?1",
        [name.as_str().as_bytes()],
        |row| Ok((txn::revision(row, 0)?, txn::timestamp(row, 1)?)),
    )
}

/// L15.
pub(super) fn info(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    name: &str,
) -> Result<Option<LockInfo>, Failure> {
    let sql = "SELECT s.version, s.clock, l.name, l.owner, l.token, l.deadline
               FROM main.alkstore_lock l, main.alkstore_state s WHERE l.name = ?1";
    txn::first(connection, sql, [name.as_bytes()], |row| {
        lock_info(row, txn::now_of(row, clock, reading)?)
    })
}

/// L15.
pub(super) fn list(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<LockInfo>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT s.version, s.clock, l.name, l.owner, l.token, l.deadline
         FROM main.alkstore_state s, main.alkstore_lock l
         WHERE l.name >= ?1 AND l.name < ?2 ORDER BY l.name LIMIT ?3",
    )?;
    let mut rows = statement.query(params![from, to, txn::count(limit)])?;
    let mut page = Vec::new();
    while let Some(row) = rows.next()? {
        let now = txn::now_of(row, clock, reading)?;
        page.push(lock_info(row, now)?);
    }
    Ok(page)
}

fn lock_info(row: &rusqlite::Row<'_>, now: Timestamp) -> Result<LockInfo, Failure> {
    let deadline = txn::timestamp(row, 5)?;
    Ok(LockInfo {
        name: txn::text(row, 2)?,
        owner: txn::text(row, 3)?,
        token: txn::revision(row, 4)?,
        deadline,
        lapsed: deadline.lapsed(now),
    })
}

/// L9.
pub(super) fn purge(txn: &mut Txn<'_>, limit: usize) -> Result<usize, Failure> {
    let now = txn.now().as_nanos();
    txn.write(
        "DELETE FROM main.alkstore_lock WHERE name IN (
            SELECT name FROM main.alkstore_lock WHERE deadline <= ?1 ORDER BY deadline LIMIT ?2)",
        [now, txn::count(limit)],
    )
}
