//! Looking at the window without changing it.

use alkstore::{Key, Timestamp, WindowRow, WindowStats};
use rusqlite::{params, Connection, Row};

use super::clock::{Reading, StoreClock};
use super::failure::Failure;
use super::txn;

/// A count; the sum over no rows is null.
fn number(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    u64::try_from(row.get::<_, Option<i64>>(column)?.unwrap_or(0))
        .map_err(|_| Failure::Damaged("a count is negative"))
}

fn shown(row: &Row<'_>, from: usize) -> Result<WindowRow, Failure> {
    Ok(WindowRow {
        key: txn::key(row, from)?,
        visible_after: txn::timestamp(row, from + 1)?,
        claimed_until: row
            .get::<_, Option<i64>>(from + 2)?
            .map(Timestamp::from_nanos),
        reclaiming: row.get(from + 3)?,
        requeues: row.get(from + 4)?,
    })
}

/// The rows after `after` in the order in which they become due.
pub(super) fn list(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    after: Option<&WindowRow>,
    limit: usize,
) -> Result<Vec<WindowRow>, Failure> {
    // Each part comes in order out of its index, and a page is merged from the heads of the three.
    let sql = "SELECT key, visible_after, claimed_until, reclaiming, requeues FROM (
             SELECT * FROM main.alkstore_window INDEXED BY alkstore_window_waiting
             WHERE claim IS NULL AND reclaiming = 0 AND (visible_after, key) > (?1, ?2)
             UNION ALL
             SELECT * FROM main.alkstore_window INDEXED BY alkstore_window_marked
             WHERE claim IS NULL AND reclaiming = 1 AND (visible_after, key) > (?1, ?2)
             UNION ALL
             SELECT * FROM main.alkstore_window INDEXED BY alkstore_window_held
             WHERE claim IS NOT NULL AND (visible_after, key) > (?1, ?2)
         ) ORDER BY visible_after, key LIMIT ?3";
    txn::snapshot(connection, clock, reading, |_| {
        let mut statement = connection.prepare_cached(sql)?;
        // No key is empty, so all come after the empty one.
        let (instant, key) = after.map_or((Timestamp::MIN, &[][..]), |row| {
            (row.visible_after, row.key.as_bytes())
        });
        let mut rows = statement.query(params![instant.as_nanos(), key, txn::count(limit)])?;
        let mut page = Vec::new();
        while let Some(row) = rows.next()? {
            page.push(shown(row, 0)?);
        }
        Ok(page)
    })
}

/// The row of a key.
pub(super) fn info(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    key: &Key<'_>,
) -> Result<Option<WindowRow>, Failure> {
    let sql = "SELECT s.version, s.clock, w.key, w.visible_after, w.claimed_until, w.reclaiming, w.requeues
               FROM main.alkstore_window w, main.alkstore_state s WHERE w.key = ?1";
    txn::first(connection, sql, [key.as_bytes()], |row| {
        txn::now_of(row, clock, reading)?;
        shown(row, 2)
    })
}

/// The window in numbers, by one walk over all rows.
pub(super) fn stats(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    now: Timestamp,
) -> Result<WindowStats, Failure> {
    let sql = "SELECT count(*), sum(visible_after <= ?1), sum(claimed_until > ?2),
                      sum(reclaiming), sum(requeues > 0), min(visible_after)
               FROM main.alkstore_window";
    txn::snapshot(connection, clock, reading, |store_now| {
        let instants = [now.as_nanos(), store_now.as_nanos()];
        let stats = txn::first(connection, sql, instants, |row| {
            Ok(WindowStats {
                rows: number(row, 0)?,
                due: number(row, 1)?,
                claimed: number(row, 2)?,
                reclaiming: number(row, 3)?,
                requeued: number(row, 4)?,
                oldest: row.get::<_, Option<i64>>(5)?.map(Timestamp::from_nanos),
            })
        })?;
        Ok(stats.unwrap_or_default())
    })
}
