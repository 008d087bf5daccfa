//! One write transaction: the rows, the store's time and its counter, while nobody else can write.

use std::cell::Cell;

use alkstore::{Key, Revision, Timestamp, MAX_KEY_BYTES};
use rusqlite::{Connection, Params, Row};

use super::clock::{Reading, StoreClock};
use super::failure::Failure;
use super::schema;

/// The usual size of a page.
const PAGE: usize = 4_096;

/// The state that every write transaction reads first and writes last.
pub(super) struct Txn<'c> {
    pub(super) connection: &'c Connection,
    clock: &'c StoreClock,
    floor: Timestamp,
    now: Timestamp,
    /// Whether anything was judged by the time, and the floor in the file must rise to it.
    timed: Cell<bool>,
    first_revision: u64,
    revision: u64,
    rows: usize,
    bytes: usize,
}

impl<'c> Txn<'c> {
    /// Reads the state. The write lock must be held already, so that the time is read after the wait for it.
    pub(super) fn begin(
        connection: &'c Connection,
        clock: &'c StoreClock,
    ) -> Result<Self, Failure> {
        let (version, revision, floor) = connection
            .prepare_cached("SELECT version, revision, clock FROM main.alkstore_state")?
            .query_row([], |row| {
                Ok((row.get(0)?, row.get::<_, i64>(1)?, row.get(2)?))
            })?;
        check_version(version)?;
        let floor = Timestamp::from_nanos(floor);
        let revision = u64::try_from(revision)
            .map_err(|_| Failure::Damaged("the counter of revisions is negative"))?;
        Ok(Self {
            connection,
            clock,
            floor,
            now: clock.at(clock.read(), floor),
            timed: Cell::new(false),
            first_revision: revision,
            revision,
            rows: 0,
            bytes: 0,
        })
    }

    /// Reads the time anew, for the next request of the same transaction.
    pub(super) fn tick(&mut self) {
        self.now = self.clock.at(self.clock.read(), self.floor);
    }

    /// The store's time of the request that is being served.
    pub(super) fn now(&self) -> Timestamp {
        self.timed.set(true);
        self.now
    }

    /// The number of the next revision, which is not given out yet.
    pub(super) fn upcoming(&self) -> u64 {
        self.revision + 1
    }

    /// The next revision.
    pub(super) fn next(&mut self) -> Result<Revision, Failure> {
        let next = Revision::new(self.upcoming()).ok_or(Failure::Exhausted)?;
        self.revision = next.get();
        Ok(next)
    }

    /// Runs a statement that writes; answers how many rows it changed.
    pub(super) fn write(&mut self, sql: &str, params: impl Params) -> Result<usize, Failure> {
        let rows = self.connection.prepare_cached(sql)?.execute(params)?;
        self.rows += rows;
        Ok(rows)
    }

    /// Notes a value that is about to be written.
    pub(super) fn note_bytes(&mut self, bytes: usize) {
        self.bytes += bytes;
    }

    /// Reads the row that there is at most one of.
    pub(super) fn row<T>(
        &self,
        sql: &str,
        params: impl Params,
        read: impl FnOnce(&Row<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        first(self.connection, sql, params, read)
    }

    /// Leaves counter and time in the file, where they matter. Answers about how many pages there are to commit: where
    /// nothing was written, there is no need for the floor either.
    pub(super) fn finish(self) -> Result<usize, Failure> {
        if self.rows == 0 {
            return Ok(0);
        }
        if self.timed.get() || self.revision != self.first_revision {
            let revision = i64::try_from(self.revision).map_err(|_| Failure::Exhausted)?;
            self.connection
                .prepare_cached("UPDATE main.alkstore_state SET revision = ?1, clock = ?2")?
                .execute([revision, self.now.as_nanos()])?;
        }
        // The state, and for each row a page of its table and one of an index; long values have pages of their own.
        Ok(1 + 2 * self.rows + self.bytes / PAGE)
    }
}

/// The store's time for a read, whose snapshot has been taken already; `reading` was taken before that.
///
/// So the answer is true of one instant of the call: what is lapsed at `reading` is lapsed in the snapshot, and what was
/// written between the two was live when it was written.
pub(super) fn now_of(
    row: &Row<'_>,
    clock: &StoreClock,
    reading: Reading,
) -> Result<Timestamp, Failure> {
    check_version(row.get(0)?)?;
    Ok(clock.at(reading, Timestamp::from_nanos(row.get(1)?)))
}

/// The store's time.
pub(super) fn present(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
) -> Result<Timestamp, Failure> {
    let sql = "SELECT version, clock FROM main.alkstore_state";
    first(connection, sql, [], |row| now_of(row, clock, reading))?
        .ok_or(Failure::Damaged("the row of alkstore_state is missing"))
}

/// Several reads that see one and the same commit, at the store's time.
pub(super) fn snapshot<T>(
    connection: &Connection,
    clock: &StoreClock,
    reading: Reading,
    read: impl FnOnce(Timestamp) -> Result<T, Failure>,
) -> Result<T, Failure> {
    // Where it ends, there is nothing to commit.
    let _same = connection.unchecked_transaction()?;
    read(present(connection, clock, reading)?)
}

/// A process with a newer version may have changed the tables while this one had them open.
fn check_version(found: i64) -> Result<(), Failure> {
    if found == schema::VERSION {
        return Ok(());
    }
    Err(Failure::Newer {
        found,
        known: schema::VERSION,
    })
}

/// The first row of a query, where there is one.
pub(super) fn first<T>(
    connection: &Connection,
    sql: &str,
    params: impl Params,
    read: impl FnOnce(&Row<'_>) -> Result<T, Failure>,
) -> Result<Option<T>, Failure> {
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query(params)?;
    match rows.next()? {
        Some(row) => read(row).map(Some),
        None => Ok(None),
    }
}

pub(super) fn revision(row: &Row<'_>, column: usize) -> Result<Revision, Failure> {
    u64::try_from(row.get::<_, i64>(column)?)
        .ok()
        .and_then(Revision::new)
        .ok_or(Failure::Damaged("a revision is out of its range"))
}

pub(super) fn timestamp(row: &Row<'_>, column: usize) -> Result<Timestamp, Failure> {
    Ok(Timestamp::from_nanos(row.get(column)?))
}

pub(super) fn blob<'r>(row: &'r Row<'_>, column: usize) -> Result<&'r [u8], Failure> {
    row.get_ref(column)?
        .as_blob()
        .map_err(|_| Failure::Damaged("a column holds what is no blob"))
}

pub(super) fn text(row: &Row<'_>, column: usize) -> Result<String, Failure> {
    String::from_utf8(blob(row, column)?.to_vec())
        .map_err(|_| Failure::Damaged("a name or an owner is not UTF-8"))
}

/// A number of rows, as SQL takes it.
pub(super) fn count(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// As SQL keeps it; a revision has 53 bits.
pub(super) fn number(revision: Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

pub(super) fn key(row: &Row<'_>, column: usize) -> Result<Key<'static>, Failure> {
    Key::new(blob(row, column)?.to_vec())
        .map_err(|_| Failure::Damaged("a key breaks the rules of keys"))
}

/// Where the keys that begin with `prefix` and come after `after` lie: from the first, inclusive, to the second,
/// exclusive. One lower bound instead of two, so that the index leads straight to the page.
pub(super) fn range(prefix: &[u8], after: Option<&[u8]>) -> (Vec<u8>, Vec<u8>) {
    let mut from = prefix.to_vec();
    if let Some(after) = after {
        // The first key after another is that key and a zero byte.
        let next = [after, &[0]].concat();
        from = from.max(next);
    }
    let mut to = prefix.to_vec();
    while to.last() == Some(&u8::MAX) {
        to.pop();
    }
    match to.last_mut() {
        Some(last) => *last += 1,
        // No key is as long as this, and so none is beyond it.
        None => to = vec![u8::MAX; MAX_KEY_BYTES + 1],
    }
    (from, to)
}

#[cfg(test)]
mod tests {
    use super::{range, MAX_KEY_BYTES};

    #[test]
    fn ranges_of_pages() {
        let owned = |a: &[u8], b: &[u8]| (a.to_vec(), b.to_vec());
        let last = [u8::MAX; MAX_KEY_BYTES + 1];
        assert_eq!(range(b"ab", None), owned(b"ab", b"ac"));
        assert_eq!(range(b"ab", Some(b"abc")), owned(b"abc\0", b"ac"));
        assert_eq!(range(b"ab", Some(b"aa")), owned(b"ab", b"ac"));
        assert_eq!(range(b"a\xff", None), owned(b"a\xff", b"b"));
        assert_eq!(range(b"", None), owned(b"", &last));
        assert_eq!(range(b"\xff", None), owned(b"\xff", &last));
    }
}
