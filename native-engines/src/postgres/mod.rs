//! Postgres: the same contract across a fleet.
//!
//! A [`PgStore`] keeps everything in one schema of a database, and the server decides: its clock is the store clock,
//! its transactions are the atomic steps. Any number of processes open the same schema.
//!
//! ```no_run
//! use alkstore::{Locks, PutOptions, Entries, Result};
//! use alkstore_native::postgres::{PgOptions, PgStore};
//! use std::time::Duration;
//!
//! # async fn example() -> Result<()> {
//! let store = PgStore::open(PgOptions::new("postgres://app@localhost/app")?).await?;
//! if let Some(lock) = store.try_lock("nightly", "worker-1", Duration::from_secs(30)).await? {
//!     store.put(b"report", b"...", PutOptions::replace().guard("nightly", lock.token())).await?;
//!     lock.release().await?;
//! }
//! # Ok(()) }
//! ```
//!
//! # How it works
//!
//! Every operation is one statement, and so one round trip and one transaction. Waits come first and decisions after:
//! what a statement waited for, it reads again, and the time too. Holding a lock holds no connection and no
//! transaction. Only a [`PgJointTx`] is a transaction of several calls, and being a fleet's sweeper takes a connection of
//! its own.
//!
//! Every call ends by [`PgOptions::call_timeout`], also when the server has stopped answering. A connection on which
//! a call timed out or was dropped is closed, never used again.
//!
//! # A fleet
//!
//! [`EngineFleetState`](alkstore::EngineFleetState) is for publishers and sweepers in many processes: a publisher puts keys
//! and pins them in one transaction, and refers to them from tables of its own while the pins are live; a
//! [`PinKeeper`] renews one. The sweeper deletes what neither a pin nor a
//! [registered table](alkstore::EngineFleetState::register_liveness_source) protects. [`PgOptions::fleet`] makes the lock
//! of a session decide who that is. Operators look at pins with [`PgStore::pins`] and [`PgStore::pin_owners`].
//!
//! # What it needs
//!
//! PostgreSQL 14 or later, a database in UTF8, and a tokio runtime with time and I/O. [`PgStore::open`] makes what is
//! missing in the schema, in one transaction; where nothing is missing, the role needs `SELECT`, `INSERT`, `UPDATE` and
//! `DELETE` on its tables, `USAGE` on schema and sequence, and no more.
//!
//! # Errors
//!
//! The cause of an error is a [`PgCause`], which has the SQLSTATE. An error is final, or
//! [retryable](alkstore::Error::is_retryable): nothing was applied, and the same call may succeed later; or its
//! [outcome is unknown](alkstore::Error::is_outcome_unknown): the connection broke, or the server fell silent, after a
//! write was sent.
//!
//! # `PgBouncer` and its like
//!
//! A pooler refuses the settings that a session is pinned to, or drops them (`ignore_startup_parameters`); with
//! `pool_mode=transaction`, session settings and prepared statements are somebody else's a moment later. Opening
//! through one fails and says so. [`PgOptions::transaction_pooler`] allows it, for `pool_mode=session` and
//! `pool_mode=transaction`, and tells what has to be set for the role instead; every operation works then, since each is
//! one statement or one transaction; only the sweep lock does not. The caller's own transaction
//! ([`PgStore::apply_in`]) works through either.
//!
//! # What it does not promise
//!
//! A failover to a standby that has not got everything, or a restored backup, can lose acknowledged grants and hand
//! their tokens out again.

mod changeset;
mod connection;
mod entries;
mod error;
mod fleet;
mod joint;
mod keeper;
mod locks;
mod options;
mod pins;
mod reclaim;
mod schema;
mod sources;
mod sweeper;
mod tls;
mod window;

use std::fmt;
use std::sync::{Arc, Mutex};

use alkstore::{BoxFuture, Error, ErrorKind, Gate, Lifecycle, Result, Timestamp, Ttl};
use tokio_postgres::types::Type;

use connection::{column, Connections, Statement};
use schema::Schema;

pub use error::PgCause;
pub use joint::PgJointTx;
pub use keeper::PinKeeper;
pub use options::{PgOptions, PgTls, MAX_SCHEMA_BYTES};
pub use pins::{PgPin, PgPinOwner};

/// The driver, whose transactions and configurations this engine takes.
pub use tokio_postgres;

/// A store in a schema of a Postgres database: one handle of possibly many, with a pool of its own.
pub struct PgStore(Arc<Shared>);

/// What the store and the handles of its locks share.
struct Shared {
    gate: Gate,
    schema: Schema,
    connections: Connections,
    locks: locks::Statements,
    entries: entries::Statements,
    changesets: changeset::Statements,
    window: window::Statements,
    reclaim: reclaim::Statements,
    fleet: bool,
    sources: Mutex<Vec<sources::Source>>,
    lookup: Statement,
    sweeper: sweeper::Sweeper,
    sweep: fleet::Statements,
    joint: joint::Statements,
    pins: pins::Statements,
    pin_ttl: Ttl,
    instance: String,
    now: Statement,
    purge: Statement,
    manual_clock: bool,
}

impl PgStore {
    /// Opens the store, and makes its schema where it is missing; any number of first users at once is fine.
    ///
    /// Fails with [`InvalidArgument`](ErrorKind::InvalidArgument) where the options or the schema that is there
    /// cannot be used, and with [`Database`](ErrorKind::Database) where the server cannot. Dropping the future leaves
    /// the schema made or not.
    pub async fn open(options: PgOptions) -> Result<Self> {
        options.check()?;
        let schema = Schema::new(&options.schema);
        let connections = Connections::new(&options)?;
        schema.open(&connections, &options).await?;
        Ok(Self(Arc::new(Shared {
            gate: Gate::open(),
            locks: locks::Statements::new(&schema, options.relaxed_release),
            entries: entries::Statements::new(&schema),
            changesets: changeset::Statements::new(&schema),
            window: window::Statements::new(&schema),
            reclaim: reclaim::Statements::new(&schema),
            fleet: options.fleet,
            sources: Mutex::default(),
            lookup: sources::lookup(),
            sweeper: sweeper::Sweeper::new(&schema),
            sweep: fleet::Statements::new(&schema),
            joint: joint::Statements::new(&schema),
            pins: pins::Statements::new(&schema),
            pin_ttl: Ttl::new(options.pin_ttl)?,
            instance: fleet::mint(),
            now: Statement::reads(schema.fill("SELECT {schema}.clock()"), []),
            purge: Statement::writes(schema.fill(PURGE), [Type::INT8]),
            manual_clock: options.manual_clock.is_some(),
            connections,
            schema,
        })))
    }

    /// The schema that holds the store.
    pub fn schema(&self) -> &str {
        self.0.schema.name()
    }

    /// Sets the clock of a store that was made with [`PgOptions::manual_clock`], backwards too; on any other it is
    /// [`InvalidArgument`](ErrorKind::InvalidArgument).
    pub async fn set_clock(&self, to: Timestamp) -> Result<()> {
        self.0.gate.check()?;
        if !self.0.manual_clock {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "the clock of this store is the server's: only one that was made with a manual clock can be set",
            ));
        }
        let statement = Statement::writes(schema::set_manual_clock(&self.0.schema, to), []);
        self.0.connections.rows(&statement, &[]).await?;
        Ok(())
    }
}

impl Lifecycle for PgStore {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        Box::pin(async {
            self.0.gate.check()?;
            let row = self.0.connections.row(&self.0.now, &[]).await?;
            Ok(Timestamp::from_nanos(column(&row, 0)?))
        })
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move {
            self.0.gate.check()?;
            let row = self
                .0
                .connections
                .row(&self.0.purge, &[&bounded(limit)])
                .await?;
            count(column(&row, 0)?)
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async {
            if self.0.gate.close() {
                self.0.connections.close();
                // Where this fails, the lock goes with its session.
                let _ = self.0.sweeper.release(&self.0.connections, None).await;
            }
            Ok(())
        })
    }
}

/// Rows that somebody is at work on are passed over; those that were chosen are locked, so the predicate still holds.
/// Each name or key is judged at one instant, and nobody is waited for.
const PURGE: &str = "\
WITH at AS MATERIALIZED (SELECT {schema}.clock() AS now), \
lapsed_locks AS MATERIALIZED ( \
  SELECT l.name FROM {schema}.locks l WHERE l.deadline <= (SELECT now FROM at) LIMIT $1 FOR UPDATE SKIP LOCKED \
), lapsed_entries AS MATERIALIZED ( \
  SELECT e.key FROM {schema}.entries e WHERE e.expires_at <= (SELECT now FROM at) \
  LIMIT $1 - (SELECT count(*) FROM lapsed_locks) FOR UPDATE SKIP LOCKED \
), lapsed_pins AS MATERIALIZED ( \
  SELECT p.key, p.owner FROM {schema}.gc_pins p WHERE p.expires_at <= (SELECT now FROM at) \
  LIMIT $1 - (SELECT count(*) FROM lapsed_locks) - (SELECT count(*) FROM lapsed_entries) FOR UPDATE SKIP LOCKED \
), purged_locks AS ( \
  DELETE FROM {schema}.locks l USING lapsed_locks d WHERE l.name = d.name RETURNING 1 \
), purged_entries AS ( \
  DELETE FROM {schema}.entries e USING lapsed_entries d WHERE e.key = d.key RETURNING 1 \
), purged_pins AS ( \
  DELETE FROM {schema}.gc_pins p USING lapsed_pins d WHERE p.key = d.key AND p.owner = d.owner RETURNING 1 \
) \
SELECT (SELECT count(*) FROM purged_locks) + (SELECT count(*) FROM purged_entries) \
  + (SELECT count(*) FROM purged_pins)";

fn bounded(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

fn count(rows: i64) -> Result<usize> {
    usize::try_from(rows).map_err(|_| error::Failure::Answer.into_error(error::Stage::Reading))
}

fn revision(number: i64) -> Result<alkstore::Revision> {
    u64::try_from(number)
        .ok()
        .and_then(alkstore::Revision::new)
        .ok_or_else(|| error::Failure::Answer.into_error(error::Stage::Reading))
}

/// A revision as the server takes it: never above 2^53, so nothing is lost.
fn number(revision: alkstore::Revision) -> i64 {
    i64::try_from(revision.get()).unwrap_or(i64::MAX)
}

impl fmt::Debug for PgStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgStore")
            .field("schema", &self.0.schema.name())
            .field("open", &self.0.gate.check().is_ok())
            .finish_non_exhaustive()
    }
}
