//! The world in a SQLite file: processes, and a table of references in the same file.
//!
//! A writer publishes and refers in one transaction of its own connection (T5).

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alkstore::{Changeset, HookError, HookFuture, Key, LivenessSource};
use alkstore_native::sqlite::rusqlite::{
    params, Connection, OptionalExtension, TransactionBehavior,
};
use alkstore_native::sqlite::SqliteStore;

use crate::place::{changeset, text, Failure, Outcome, Place, Publication, Seen, Told, PLACES};
use crate::random::Random;

const TABLE: &str = "CREATE TABLE IF NOT EXISTS refs (id TEXT PRIMARY KEY, key BLOB NOT NULL); \
     CREATE INDEX IF NOT EXISTS refs_key ON refs (key)";

pub(crate) struct SqlitePlace {
    store: Arc<SqliteStore>,
    connection: Connection,
    source: Arc<Mutex<Connection>>,
}

impl SqlitePlace {
    pub(crate) async fn open(path: &Path) -> Result<Self, Failure> {
        let store = Arc::new(SqliteStore::open(path).await?);
        let connection = connect(path)?;
        connection.execute_batch(TABLE)?;
        Ok(Self {
            store,
            connection,
            source: Arc::new(Mutex::new(connect(path)?)),
        })
    }

    /// Another worker's place on the same store.
    pub(crate) fn another(&self, path: &Path) -> Result<Self, Failure> {
        Ok(Self {
            store: Arc::clone(&self.store),
            connection: connect(path)?,
            source: Arc::clone(&self.source),
        })
    }

    /// The transaction up to its commit, and whether that is known.
    fn commit(
        &mut self,
        changeset: &Changeset,
        publications: &[Publication],
        stall: Duration,
    ) -> Result<(), (bool, String)> {
        let sure = |error: alkstore_native::sqlite::rusqlite::Error| (false, error.to_string());
        let tx = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .map_err(sure)?;
        self.store
            .apply_in(&tx, changeset)
            .map_err(|error| (false, text(&error)))?;
        for publication in publications {
            tx.prepare_cached("INSERT INTO refs VALUES (?1, ?2)")
                .and_then(|mut insert| {
                    insert.execute(params![publication.reference, publication.key.as_bytes()])
                })
                .map_err(sure)?;
        }
        std::thread::sleep(stall);
        tx.commit().map_err(|error| (true, error.to_string()))
    }
}

fn connect(path: &Path) -> Result<Connection, Failure> {
    let connection = Connection::open(path)?;
    connection.busy_timeout(Duration::from_secs(5))?;
    Ok(connection)
}

impl Place for SqlitePlace {
    type Store = SqliteStore;

    fn store(&self) -> Arc<SqliteStore> {
        Arc::clone(&self.store)
    }

    async fn refer(&mut self, publications: &[Publication], random: &mut Random) -> Told {
        let store = Arc::clone(&self.store);
        let (changeset, published) = match changeset(&*store, publications).await {
            Ok(done) => done,
            Err(error) => return Told::failed(publications, false, text(&error)),
        };
        // Between the look and the transaction, and inside it.
        if random.percent(20) {
            tokio::time::sleep(random.millis(1, 60)).await;
        }
        let stall = if random.percent(5) {
            random.millis(1, 20)
        } else {
            Duration::ZERO
        };
        match self.commit(&changeset, publications, stall) {
            Ok(()) => Told {
                published,
                referred: Outcome::Done,
                why: String::new(),
            },
            Err((unknown, why)) => Told::failed(publications, unknown, why),
        }
    }

    async fn drop_reference(&mut self, reference: &str) -> Outcome {
        match self
            .connection
            .execute("DELETE FROM refs WHERE id = ?1", [reference])
        {
            Ok(0) => Outcome::Not,
            Ok(_) => Outcome::Done,
            Err(_) => Outcome::Unknown,
        }
    }

    async fn some_reference(&mut self, number: u64) -> Option<(String, String)> {
        let sql = format!(
            "SELECT id, CAST(key AS TEXT) FROM refs ORDER BY id LIMIT 1 \
             OFFSET ?1 % max({PLACES}, (SELECT count(*) FROM refs))"
        );
        let number = i64::try_from(number >> 1).unwrap_or(0);
        let mut query = self.connection.prepare_cached(&sql).ok()?;
        let found = query.query_row([number], |row| Ok((row.get(0)?, row.get(1)?)));
        found.optional().ok()?
    }

    async fn live(&mut self) -> Result<Vec<Vec<u8>>, Failure> {
        let mut query = self
            .connection
            .prepare_cached("SELECT DISTINCT key FROM refs")?;
        let keys = query.query_map([], |row| row.get(0))?;
        Ok(keys.collect::<Result<_, _>>()?)
    }

    /// One statement is one snapshot.
    async fn snapshot(&mut self) -> Result<Vec<Seen>, Failure> {
        let mut query = self.connection.prepare_cached(
            "SELECT r.id, CAST(r.key AS TEXT), CAST(e.value AS TEXT) FROM refs r \
             LEFT JOIN alkstore_entry e ON e.key = r.key",
        )?;
        let rows = query.query_map([], |row| {
            Ok(Seen {
                reference: row.get(0)?,
                key: row.get(1)?,
                payload: row.get(2)?,
            })
        })?;
        Ok(rows.collect::<Result<_, _>>()?)
    }

    fn source(&self) -> Option<Box<dyn LivenessSource>> {
        Some(Box::new(Source(Arc::clone(&self.source))))
    }
}

struct Source(Arc<Mutex<Connection>>);

impl Source {
    fn ask(&self, keys: &[Key<'_>]) -> Result<Vec<bool>, HookError> {
        let connection = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut query =
            connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM refs WHERE key = ?1)")?;
        let is_live = |key: &Key<'_>| query.query_row([key.as_bytes()], |row| row.get(0));
        Ok(keys.iter().map(is_live).collect::<Result<_, _>>()?)
    }
}

impl LivenessSource for Source {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        Box::pin(std::future::ready(self.ask(keys)))
    }
}
