//! The engine of [`alkstore`] that keeps everything in this process's memory: natively, and compiled to wasm.
//!
//! ```
//! use alkstore_mem::MemStore;
//! use alkstore::{ManualClock, PutOptions};
//! use std::time::Duration;
//!
//! let clock = ManualClock::default();
//! let store = MemStore::new(clock.clone());
//! let lease = store.try_lock("shard-3", "worker-1", Duration::from_secs(30))?.expect("nobody holds it");
//! assert!(store.try_lock("shard-3", "worker-2", Duration::from_secs(30))?.is_none());
//!
//! clock.advance(Duration::from_secs(31)); // worker-1 stalls past its lease
//! let stale = PutOptions::replace().guard("shard-3", lease.token());
//! assert!(store.put(b"shard-3/state", b"late", &stale).is_err());
//! # Ok::<(), alkstore::Error>(())
//! ```
//!
//! [`MemStore`] is the store to use. [`State`] is what is inside it, for hosts that bring a guard and a clock of their
//! own.
//!
//! # Features
//!
//! `clock` (default): [`SystemClock`], and `MemStore::open` on it.

// The store.
mod contract;
mod lock;
mod store;
mod tx;

// What it guards.
mod deletion;
mod entries;
mod locks;
mod snapshot;
mod state;

// What that is made of.
mod deadlines;
mod index;
mod table;
mod window;

#[cfg(feature = "clock")]
mod clock;

#[cfg(feature = "clock")]
pub use clock::SystemClock;
pub use entries::PutRow;
pub use index::Handle;
pub use lock::MemLock;
pub use locks::{Claimant, Granted};
pub use snapshot::{SnapshotError, SnapshotPayload};
pub use state::{Options, Seeds, State, Stats};
pub use store::MemStore;
pub use tx::MemTx;
