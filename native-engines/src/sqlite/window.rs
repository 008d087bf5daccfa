//! The statements of the garbage-collection window.

use alkstore::rules::window::{self as rule, Row};
use alkstore::{Candidate, Claim, Key, Restage, Timestamp, Ttl};
use rusqlite::params;

use super::failure::Failure;
use super::txn::{self, Txn};

/// A key's row.
pub(super) fn row(txn: &Txn<'_>, key: &Key<'_>) -> Result<Option<Row>, Failure> {
    txn.row(
        "SELECT visible_after, coalesce(claim, lapsed), claimed_until, reclaiming, requeues
         FROM main.alkstore_window WHERE key = ?1",
        [key.as_bytes()],
        |row| {
            let claim = match row.get::<_, Option<i64>>(1)? {
                Some(_) => Some((txn::revision(row, 1)?, txn::timestamp(row, 2)?)),
                None => None,
            };
            Ok(Row {
                visible_after: txn::timestamp(row, 0)?,
                claim,
                reclaiming: row.get(3)?,
                requeues: row.get(4)?,
            })
        },
    )
}

/// W2.
pub(super) fn stage(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    visible_after: Timestamp,
    restage: Restage,
) -> Result<(), Failure> {
    // Most keys are new: inserting first saves them the look-up.
    if let Some(new) = rule::stage(None, visible_after, restage) {
        let inserted = txn.write(
            "INSERT INTO main.alkstore_window (key, visible_after) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
            params![key.as_bytes(), new.visible_after.as_nanos()],
        )?;
        if inserted > 0 {
            return Ok(());
        }
    }
    if let Some(new) = rule::stage(row(txn, key)?.as_ref(), visible_after, restage) {
        replace(txn, key, new)?;
    }
    Ok(())
}

/// Writes an unclaimed row over the one that is there.
fn replace(txn: &mut Txn<'_>, key: &Key<'_>, row: Row) -> Result<(), Failure> {
    txn.write(
        "UPDATE main.alkstore_window SET visible_after = ?2, claim = NULL, claimed_until = NULL, lapsed = NULL,
             reclaiming = ?3, requeues = ?4 WHERE key = ?1",
        params![
            key.as_bytes(),
            row.visible_after.as_nanos(),
            row.reclaiming,
            row.requeues
        ],
    )?;
    Ok(())
}

/// W4. Answers whether the key left.
pub(super) fn unstage(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<bool, Failure> {
    let row = row(txn, key)?;
    unstage_row(txn, key, row.as_ref())
}

/// The same, where the row has been read already.
pub(super) fn unstage_row(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    row: Option<&Row>,
) -> Result<bool, Failure> {
    let leaves = rule::unstage(row);
    if leaves {
        remove(txn, key)?;
    }
    Ok(leaves)
}

/// Deletes a row, whatever is in it.
pub(super) fn remove(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<(), Failure> {
    let sql = "DELETE FROM main.alkstore_window WHERE key = ?1";
    txn.write(sql, [key.as_bytes()])?;
    Ok(())
}

/// W3. The rows that are due, under no live claim and not marked, which is what [`rule::takeable`] says of one row.
pub(super) fn take(
    txn: &mut Txn<'_>,
    now: Timestamp,
    limit: Option<usize>,
) -> Result<Vec<Candidate>, Failure> {
    return_lapsed_claims(txn)?;
    let due = due(txn, now, limit)?;
    let Some(last) = due.last() else {
        return Ok(due);
    };
    // Nobody else writes meanwhile, so the oldest rows that were read are the ones up to the last of them.
    let gone = txn.write(
        "DELETE FROM main.alkstore_window INDEXED BY alkstore_window_waiting
         WHERE claim IS NULL AND reclaiming = 0 AND (visible_after, key) <= (?1, ?2)",
        params![last.visible_after.as_nanos(), last.key.as_bytes()],
    )?;
    if gone != due.len() {
        return Err(Failure::Damaged("the window and its index differ"));
    }
    Ok(due)
}

fn due(txn: &Txn<'_>, now: Timestamp, limit: Option<usize>) -> Result<Vec<Candidate>, Failure> {
    let mut statement = txn.connection.prepare_cached(
        "SELECT key, visible_after FROM main.alkstore_window INDEXED BY alkstore_window_waiting
         WHERE claim IS NULL AND reclaiming = 0 AND visible_after <= ?1 ORDER BY visible_after, key LIMIT ?2",
    )?;
    let limit = limit.map_or(-1, txn::count);
    let mut rows = statement.query([now.as_nanos(), limit])?;
    let mut due = Vec::new();
    while let Some(row) = rows.next()? {
        due.push(Candidate {
            key: txn::key(row, 0)?,
            visible_after: txn::timestamp(row, 1)?,
        });
    }
    Ok(due)
}

/// A claim that has lapsed does so for good, since time never runs back: its row waits again.
fn return_lapsed_claims(txn: &mut Txn<'_>) -> Result<(), Failure> {
    let now = txn.now().as_nanos();
    txn.write(
        "UPDATE main.alkstore_window INDEXED BY alkstore_window_claimed
         SET lapsed = claim, claim = NULL WHERE claim IS NOT NULL AND claimed_until <= ?1",
        [now],
    )?;
    Ok(())
}

/// W5. The rows that are due and under no live claim, marked or not, which is what [`rule::available`] says of one row.
pub(super) fn claim(
    txn: &mut Txn<'_>,
    now: Timestamp,
    lease: Ttl,
    limit: usize,
) -> Result<Vec<Claim>, Failure> {
    return_lapsed_claims(txn)?;
    let until = txn.now().after(lease);
    let connection = txn.connection;
    let mut statement = connection.prepare_cached(
        "SELECT key, visible_after, reclaiming, requeues FROM (
             SELECT * FROM main.alkstore_window INDEXED BY alkstore_window_waiting
             WHERE claim IS NULL AND reclaiming = 0 AND visible_after <= ?1
             UNION ALL
             SELECT * FROM main.alkstore_window INDEXED BY alkstore_window_marked
             WHERE claim IS NULL AND reclaiming = 1 AND visible_after <= ?1
         ) ORDER BY visible_after, key LIMIT ?2",
    )?;
    let mut rows = statement.query([now.as_nanos(), txn::count(limit)])?;
    let mut claims = Vec::new();
    while let Some(row) = rows.next()? {
        claims.push(Claim {
            key: txn::key(row, 0)?,
            visible_after: txn::timestamp(row, 1)?,
            id: txn.next()?,
            until,
            reclaiming: row.get(2)?,
            requeues: row.get(3)?,
        });
    }
    for claim in &claims {
        txn.write(
            "UPDATE main.alkstore_window SET claim = ?2, claimed_until = ?3, lapsed = NULL WHERE key = ?1",
            params![
                claim.key.as_bytes(),
                txn::number(claim.id),
                until.as_nanos()
            ],
        )?;
    }
    Ok(claims)
}

/// W5. Answers whether the claim still stood, and its row left.
pub(super) fn settle(txn: &mut Txn<'_>, claim: &Claim) -> Result<bool, Failure> {
    let row = row(txn, &claim.key)?;
    let leaves = rule::settle(row.as_ref(), claim.id, txn.now());
    if leaves {
        remove(txn, &claim.key)?;
    }
    Ok(leaves)
}

/// W5. Answers whether the claim still stood.
pub(super) fn requeue(
    txn: &mut Txn<'_>,
    claim: &Claim,
    visible_after: Timestamp,
) -> Result<bool, Failure> {
    let row = row(txn, &claim.key)?;
    match rule::requeue(row.as_ref(), claim.id, visible_after, txn.now()) {
        Some(new) => replace(txn, &claim.key, new).map(|()| true),
        None => Ok(false),
    }
}
