//! The statements of entries.

use alkstore::rules::entry::{self as rule, Head};
use alkstore::validate::PutRequest;
use alkstore::{Entry, EntryMeta, Key, Put, Revision, Timestamp, Ttl, Value};
use rusqlite::{params, Connection, Row};

use super::clock::{Reading, StoreClock};
use super::failure::Failure;
use super::txn::{self, Txn};
use super::{locks, window};

/// The row without its value.
pub(super) fn head(txn: &Txn<'_>, key: &Key<'_>) -> Result<Option<Head>, Failure> {
    txn.row(
        "SELECT version, expires_at FROM main.alkstore_entry WHERE key = ?1",
        [key.as_bytes()],
        |row| read_head(row, 0),
    )
}

fn read_head(row: &Row<'_>, from: usize) -> Result<Head, Failure> {
    Ok(Head {
        version: txn::revision(row, from)?,
        expires_at: row
            .get::<_, Option<i64>>(from + 1)?
            .map(Timestamp::from_nanos),
    })
}

/// The same request, borrowing nothing.
pub(super) fn owned(request: PutRequest<'_>) -> PutRequest<'static> {
    PutRequest {
        key: request.key.into_owned(),
        mode: request.mode,
        ttl: request.ttl,
        guard: request
            .guard
            .map(|(name, token)| (name.into_owned(), token)),
    }
}

/// E2, E5, E6 and W8.
pub(super) fn put(
    txn: &mut Txn<'_>,
    request: &PutRequest<'_>,
    value: &[u8],
) -> Result<Put, Failure> {
    if let Some((name, token)) = &request.guard {
        let row = locks::token_and_deadline(txn, name)?;
        alkstore::rules::lock::guard(row, name, *token, txn.now())?;
    }
    let waiting = window::row(txn, &request.key)?;
    alkstore::rules::window::write(waiting.as_ref())?;
    let plan = rule::put(
        head(txn, &request.key)?,
        request.mode,
        request.ttl,
        txn.now(),
    );
    let put = match plan.outcome {
        Ok(expires_at) => Put::Stored {
            version: write(txn, &request.key, value, expires_at)?,
        },
        Err(current) => Put::NotStored { current },
    };
    if plan.publish {
        window::unstage_row(txn, &request.key, waiting.as_ref())?;
    }
    Ok(put)
}

/// Writes the entry with the next revision.
pub(super) fn write(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    value: &[u8],
    expires_at: Option<Timestamp>,
) -> Result<Revision, Failure> {
    let version = txn.next()?;
    txn.note_bytes(value.len());
    txn.write(
        "INSERT INTO main.alkstore_entry (key, version, expires_at, value) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (key) DO UPDATE SET version = ?2, expires_at = ?3, value = ?4",
        params![
            key.as_bytes(),
            txn::number(version),
            expires_at.map(Timestamp::as_nanos),
            value
        ],
    )?;
    Ok(version)
}

/// E3.
pub(super) fn touch(txn: &mut Txn<'_>, key: &Key<'_>, ttl: Ttl) -> Result<bool, Failure> {
    let Some(deadline) = rule::touch(head(txn, key)?, ttl, txn.now()) else {
        return Ok(false);
    };
    txn.write(
        "UPDATE main.alkstore_entry SET expires_at = ?2 WHERE key = ?1",
        params![key.as_bytes(), deadline.as_nanos()],
    )?;
    Ok(true)
}

/// E4.
pub(super) fn delete(
    txn: &mut Txn<'_>,
    key: &Key<'_>,
    if_version: Option<Revision>,
) -> Result<bool, Failure> {
    let found = rule::delete(head(txn, key)?, if_version, txn.now());
    if found {
        remove(txn, key)?;
    }
    Ok(found)
}

/// Deletes the row, lapsed or not.
pub(super) fn remove(txn: &mut Txn<'_>, key: &Key<'_>) -> Result<(), Failure> {
    txn.write(
        "DELETE FROM main.alkstore_entry WHERE key = ?1",
        [key.as_bytes()],
    )?;
    Ok(())
}

/// The length of the value of a live entry.
///
/// The length of a blob is known without reading it.
pub(super) fn size(
    connection: &Connection,
    key: &Key<'_>,
    now: Timestamp,
) -> Result<Option<u64>, Failure> {
    let sql = "SELECT version, expires_at, length(value) FROM main.alkstore_entry WHERE key = ?1";
    let found = txn::first(connection, sql, [key.as_bytes()], |row| {
        match rule::live(Some(read_head(row, 0)?), now) {
            Some(_) => length(row, 2).map(Some),
            None => Ok(None),
        }
    })?;
    Ok(found.flatten())
}

fn length(row: &Row<'_>, column: usize) -> Result<u64, Failure> {
    u64::try_from(row.get::<_, i64>(column)?).map_err(|_| Failure::Damaged("a length is negative"))
}

/// What a read found: an entry, or that its value is longer than the reader wanted to wait for.
pub(super) enum Found {
    Entry(Option<Entry>),
    TooLong,
}

/// E4. Values up to `longest` bytes.
pub(super) fn get(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    key: &Key<'_>,
    longest: usize,
) -> Result<Found, Failure> {
    // The length of a blob is known without reading it.
    let sql = "SELECT s.version, s.clock, e.version, e.expires_at,
                      CASE WHEN length(e.value) <= ?2 THEN e.value END
               FROM main.alkstore_entry e, main.alkstore_state s WHERE e.key = ?1";
    let found = txn::first(
        connection,
        sql,
        params![key.as_bytes(), txn::count(longest)],
        |row| {
            let now = txn::now_of(row, clock, reading)?;
            let Some(head) = rule::live(Some(read_head(row, 2)?), now) else {
                return Ok(Found::Entry(None));
            };
            if row.get_ref(4)? == rusqlite::types::ValueRef::Null {
                return Ok(Found::TooLong);
            }
            Ok(Found::Entry(Some(Entry {
                value: Value::from(txn::blob(row, 4)?),
                version: head.version,
                expires_at: head.expires_at,
            })))
        },
    )?;
    Ok(found.unwrap_or(Found::Entry(None)))
}

/// E4.
pub(super) fn list(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    from: &[u8],
    to: &[u8],
    limit: usize,
) -> Result<Vec<EntryMeta>, Failure> {
    let mut statement = connection.prepare_cached(
        "SELECT s.version, s.clock, e.version, e.expires_at, e.key, length(e.value)
         FROM main.alkstore_state s, main.alkstore_entry e
         WHERE e.key >= ?1 AND e.key < ?2 ORDER BY e.key",
    )?;
    let mut rows = statement.query(params![from, to])?;
    let mut page = Vec::new();
    // Lapsed rows are passed over here, so that the rule need not be said again in SQL.
    while page.len() < limit {
        let Some(row) = rows.next()? else { break };
        let now = txn::now_of(row, clock, reading)?;
        let Some(head) = rule::live(Some(read_head(row, 2)?), now) else {
            continue;
        };
        page.push(EntryMeta {
            key: txn::key(row, 4)?,
            version: head.version,
            expires_at: head.expires_at,
            size: length(row, 5)?,
        });
    }
    Ok(page)
}

/// E7.
pub(super) fn purge(txn: &mut Txn<'_>, limit: usize) -> Result<usize, Failure> {
    let now = txn.now().as_nanos();
    txn.write(
        "DELETE FROM main.alkstore_entry WHERE id IN (
            SELECT id FROM main.alkstore_entry WHERE expires_at <= ?1 ORDER BY expires_at LIMIT ?2)",
        [now, txn::count(limit)],
    )
}
