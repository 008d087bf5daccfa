//! What a case needs from an engine: fresh stores, more handles on them, and a clock that is moved by hand.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{BoxFuture, Result, Store, Timestamp};

/// What every fixture's clock shows at first. Early enough for a JavaScript number of milliseconds to keep each
/// nanosecond, which it does not in this century.
pub const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000_000);

/// One engine under test, with a clock of its own. A runner makes a new one for every case.
pub trait Fixture: Send + Sync {
    /// Which column of the table of [capabilities](Engine::has) holds for it.
    fn engine(&self) -> Engine;

    /// Opens a fresh, empty store on the fixture's clock, which shows [`START`] at first.
    ///
    /// An engine without [`Capability::Limits`] fails with `InvalidArgument` where one of `limits` is set, and never
    /// ignores it.
    fn open(&self, limits: Limits) -> BoxFuture<'_, Result<Opened>>;

    /// One more handle on the state of a store that this fixture opened; on a [durable](Capability::Durable) engine
    /// also after all its handles were closed.
    fn another<'a>(&'a self, of: &'a Opened) -> BoxFuture<'a, Result<Opened>>;

    /// Sets the clock, backwards too.
    fn set_clock(&self, to: Timestamp) -> BoxFuture<'_, Result<()>>;

    /// Moves the clock forward.
    fn advance(&self, by: Duration) -> BoxFuture<'_, Result<()>>;
}

/// A store that a fixture opened; used like the store itself.
pub struct Opened {
    /// The store.
    pub store: Arc<dyn Store>,
    /// Its snapshots: there exactly where the engine [has](Engine::has) [`Capability::Snapshots`].
    pub snapshots: Option<Arc<dyn Snapshots>>,
    /// By which the fixture knows the state again, for [`Fixture::another`].
    pub state: usize,
}

impl std::fmt::Debug for Opened {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Opened")
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Deref for Opened {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

/// Snapshots of a whole store as bytes.
pub trait Snapshots: Send + Sync {
    /// The store's state.
    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<u8>>>;

    /// Puts a state in the place of the store's own.
    fn restore<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<()>>;
}

/// How much a store takes before it answers `CapacityExceeded`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Rows of locks.
    pub locks: Option<usize>,
    /// Rows of entries.
    pub entries: Option<usize>,
    /// Bytes of keys and values.
    pub bytes: Option<usize>,
}

/// The engines that the list runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// `alkstore-mem`.
    Mem,
    /// The npm package `alkstore`.
    Npm,
    /// SQLite, in a file.
    Sqlite,
    /// Postgres.
    Postgres,
    /// Postgres, opened for a fleet.
    Fleet,
}

/// What only some engines can do. A case about a capability that the engine lacks checks that it lacks it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capability {
    /// A snapshot and its restoration.
    Snapshots,
    /// Limits that are set when the store is opened.
    Limits,
    /// The state outlives its handles, and closing one handle leaves the others open.
    Durable,
    /// The store clock follows a clock that is set back. Without it, it never runs back: it stands still until the
    /// clock has caught up.
    StepsBack,
    /// A sweep is a lease by the store clock, with a row among the locks. Without it, it lasts as long as the connection
    /// that holds it.
    SweepLease,
}

impl Engine {
    /// The table of capabilities: an engine cannot opt out of a case on its own.
    pub const fn has(self, capability: Capability) -> bool {
        match self {
            Self::Mem | Self::Npm => match capability {
                Capability::Snapshots
                | Capability::Limits
                | Capability::StepsBack
                | Capability::SweepLease => true,
                Capability::Durable => false,
            },
            Self::Sqlite => match capability {
                Capability::Snapshots | Capability::Limits | Capability::StepsBack => false,
                Capability::Durable | Capability::SweepLease => true,
            },
            Self::Postgres => match capability {
                Capability::Snapshots | Capability::Limits => false,
                Capability::Durable | Capability::StepsBack | Capability::SweepLease => true,
            },
            Self::Fleet => match capability {
                Capability::Snapshots | Capability::Limits | Capability::SweepLease => false,
                Capability::Durable | Capability::StepsBack => true,
            },
        }
    }
}
