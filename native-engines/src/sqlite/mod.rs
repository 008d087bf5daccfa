//! The contract in a SQLite database.
//!
//! [`SqliteStore`] keeps locks, entries and the garbage-collection window in tables of its own (all named
//! `alkstore_...`) in a file that any number of threads and processes of one machine may have open, and that may hold
//! the application's own tables too: see [`SqliteStore::apply_in`].
//!
//! ```
//! use alkstore::{Locks, Entries, Lifecycle, PutOptions};
//! use alkstore_native::sqlite::SqliteStore;
//! use std::time::Duration;
//!
//! # fn main() -> alkstore::Result<()> { futures_executor::block_on(async {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("jobs.db");
//! let store = SqliteStore::open(&path).await?;
//! if let Some(lock) = store.try_lock("nightly", "worker-1", Duration::from_secs(30)).await? {
//!     // Refused with `LeaseLost` should this worker have stalled past its lease.
//!     let fenced = PutOptions::replace().guard("nightly", lock.token());
//!     store.put(b"nightly/last-run", b"2031-05-06", fenced).await?;
//!     lock.release().await?;
//! }
//! store.close().await
//! # }) }
//! ```
//!
//! # Time
//!
//! Leases lapse by the time of day of the machine, or by the [clock](SqliteOptions::clock) that was given. It never runs
//! back: not within a process, and not from one to the next, because every transaction that writes leaves its instant
//! in the file as a floor. When the machine's clock is set back, time goes on from the floor at the pace of the
//! monotonic clock; when it is set forward, leases lapse early by that step, and time does not come back with the clock.
//!
//! # Durability
//!
//! By default a call is answered when its commit is on the disk: see [`Synchronous`].
//!
//! # What it does not do
//!
//! It is no store for a network file system, where SQLite's log cannot work, and a lease excludes other leases, not
//! effects on the outside world: check the token where the effect happens.

// The store.
mod contract;
mod lock;
mod options;
mod store;
mod window_state;

// Its threads and connections.
mod connection;
mod open;
mod readers;
mod schema;
mod writer;

// What happens in a transaction.
mod changeset;
mod clock;
mod entries;
mod failure;
mod locks;
mod reclaim;
mod txn;
mod window;
mod window_rows;

pub use options::{SqliteOptions, Synchronous};
pub use store::SqliteStore;

/// The version of rusqlite whose connections [`SqliteOptions::on`] and [`SqliteStore::apply_in`] take.
pub use rusqlite;
