//! One contract for named TTL locks, first-writer-wins entries, transactions and garbage-collection state, which
//! behaves the same in memory, in a SQLite file and in Postgres.
//!
//! This crate is the contract: traits, value types, and the semantics as [pure functions](rules). It keeps no state and
//! needs no operating system (`no_std` with `alloc`). An engine is another crate: `alkstore-mem` for memory, native and
//! wasm; `alkstore-native` for SQLite and Postgres.
//!
//! # The model
//!
//! A [lock](Locks) is a lease on a name: it excludes others until its deadline and then lapses in silence. Every grant
//! has a [token](Revision); later grants of a name have higher ones. An [entry](Entries) is a versioned value under a
//! key. A write may be fenced by a token, so that a holder that stalled past its deadline cannot overwrite its
//! successor. A [transaction](Tx) reads and writes several entries at one instant. The [window](EngineWindowState)
//! holds candidates for deletion until their time has come.
//!
//! # What it does not do
//!
//! A lease excludes other leases, not effects on the outside world: a process that sleeps past its deadline still
//! believes that it holds the lock. Check the token where the effect happens.
//!
//! # Example
//!
//! ```
//! use alkstore::{PutOptions, Result, Store};
//! use std::time::Duration;
//!
//! async fn publish(store: &dyn Store) -> Result<bool> {
//!     let Some(lock) = store.try_lock("publish", "worker-1", Duration::from_secs(30)).await? else {
//!         return Ok(false); // somebody else is at it
//!     };
//!     let fenced = PutOptions::replace().guard("publish", lock.token());
//!     store.put(b"latest", b"v42", fenced).await?; // LeaseLost if we stalled too long
//!     lock.release().await
//! }
//! ```
//!
//! # Features
//!
//! `serde`: `Serialize` and `Deserialize` for the value types.
#![no_std]
#![cfg_attr(docsrs, feature(doc_cfg))]

extern crate alloc;

// The nouns of the contract.
mod changeset;
mod entry;
mod fleet;
mod lock;
mod store;
mod tx;
mod window;

// Safe deletion, over any engine.
mod drive;
mod hook;
mod staging;
mod sweep;

// The values that calls take and give.
mod clock;
mod error;
mod key;
mod name;
mod revision;
mod time;

// For engines and bindings.
pub mod order;
pub mod rules;
pub mod sweeping;
pub mod validate;

pub use changeset::{
    Changeset, Commit, EntryWrite, Expect, KeyOps, Payload, Transactions, MAX_CHANGESET_BYTES,
    MAX_CHANGESET_ITEMS,
};
pub use clock::Clock;
#[cfg(target_has_atomic = "64")]
pub use clock::ManualClock;
pub use drive::sweep;
pub use entry::{Entries, Entry, EntryMeta, Put, PutMode, PutOptions};
pub use error::{Error, ErrorKind, Result};
pub use fleet::{EngineFleetState, Pin, PinState};
pub use hook::{Hook, HookError, HookFuture, LivenessSource, Reclaimed, Reclaimer, Timer};
pub use key::{Key, Value, MAX_KEY_BYTES, MAX_VALUE_BYTES};
pub use lock::{Lock, LockInfo, Locks};
pub use name::{LockName, Owner, MAX_NAME_BYTES, RESERVED_PREFIX};
pub use revision::Revision;
pub use staging::{stage_unreferenced, LiveKeys, StageOptions, StageReport};
pub use store::{Gate, Lifecycle, Store, StoreExt};
pub use sweep::{GcAbortCause, Progress, SweepOptions, SweepReport, SweepStop};
pub use time::{Millis, Timestamp, Ttl, TtlError};
pub use tx::{Overlay, Tx, TxEntry, TxPut};
pub use window::{Candidate, Claim, EngineWindowState, Reclaim, Restage, WindowRow, WindowStats};

/// The future of a store's operation: boxed, so that stores can be used as trait objects.
pub type BoxFuture<'a, T> =
    core::pin::Pin<alloc::boxed::Box<dyn core::future::Future<Output = T> + Send + 'a>>;
