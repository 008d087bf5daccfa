//! How a store is opened.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{Clock, Result};
use rusqlite::Connection;

use super::clock::StoreClock;
use super::failure::Failure;
use super::open::Place;
use super::store::{Shared, SqliteStore};

/// How a [`SqliteStore`] is opened. The default is what most want: every commit on the disk before it is answered, the
/// system's clock, 5 seconds of patience.
///
/// ```
/// use alkstore_native::sqlite::{SqliteOptions, Synchronous};
/// use std::time::Duration;
///
/// # async fn open() -> alkstore::Result<()> {
/// let store = SqliteOptions::new()
///     .busy_limit(Duration::from_secs(30))
///     .synchronous(Synchronous::Normal)
///     .open("jobs.db")
///     .await?;
/// # drop(store); Ok(()) }
/// ```
#[derive(Default)]
#[must_use]
pub struct SqliteOptions {
    clock: Option<Box<dyn Clock>>,
    busy_limit: Option<Duration>,
    synchronous: Synchronous,
    relaxed_release: bool,
}

/// When a commit counts as done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Synchronous {
    /// When it is on the disk: what was answered survives a loss of power.
    #[default]
    Full,
    /// When the operating system has it, which is several times faster. What was answered survives the death of the
    /// process. A loss of power, or a crash of the system, may take the last commits back, though never half of one,
    /// and nothing before them. Then a token may be given out twice: once to a holder that the power took as well, or
    /// that ran on another machine.
    Normal,
}

impl SqliteOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// The clock by which leases lapse, instead of the system's. All processes that share a file must share their time.
    ///
    /// It is read in the middle of transactions: it must be quick, and must not call the store, which refuses that. If
    /// it panics, the store fails for good, and can be opened anew.
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// How long a call waits while other connections have the database locked, before it fails with an error that is
    /// [retryable](alkstore::Error::is_retryable); 5 seconds by default. Nothing is done then: a call that fails so is
    /// not an answer about a lock, an entry or the window.
    pub fn busy_limit(mut self, limit: Duration) -> Self {
        self.busy_limit = Some(limit);
        self
    }

    /// When a commit counts as done; [`Synchronous::Full`] by default.
    pub fn synchronous(mut self, synchronous: Synchronous) -> Self {
        self.synchronous = synchronous;
        self
    }

    /// Whether the [`release`](alkstore::Lock::release) of a lock, and it alone, is answered before it is on the disk;
    /// false by default. It halves the price of a lock. After a loss of power a released lock may then be held until it
    /// lapses; a later grant of it is never on the disk without the release. Tokens and exclusion are not touched. It
    /// makes no difference with [`Synchronous::Normal`], nor [`on`](Self::on) a connection of the caller's.
    pub fn relaxed_release(mut self, relaxed: bool) -> Self {
        self.relaxed_release = relaxed;
        self
    }

    /// Opens the file `path`, which is made where it is missing; its folder must be there. Several processes may do so
    /// at once. The file is put into the mode with a write-ahead log (WAL), which stays set, and which needs a file
    /// system of this machine: no network share.
    ///
    /// A file of an earlier version of this crate is brought up to this one, by one of those who open it while the others
    /// wait up to their busy limit: it takes some seconds where a million rows are in the window. Stores of the earlier
    /// version that still have it open fail from then on.
    ///
    /// A folder, a file that is no database or that may only be read, and a file of a newer version of this crate are
    /// refused with an error that says so, and left as they are.
    pub async fn open(self, path: impl AsRef<Path>) -> Result<SqliteStore> {
        let path = path.as_ref();
        let name = path.as_os_str();
        if name.is_empty() || name == ":memory:" {
            return Err(Failure::Unfit(
                "the path names no file; a store in memory is opened by `in_memory`",
            )
            .into());
        }
        // Later connections must find the same file, whatever the working folder is then. An absolute path is also
        // never taken for a URI.
        let path = std::path::absolute(path).map_err(|source| Failure::System {
            what: "the working folder cannot be told",
            source,
        })?;
        self.finish(Place::File(path)).await
    }

    /// A store in memory, which ends with its last handle. Its clock, rules and errors are those of a file.
    pub async fn in_memory(self) -> Result<SqliteStore> {
        self.finish(Place::Memory).await
    }

    /// A store on a connection that the caller has opened, which may carry a key, another file system layer or settings
    /// of its own. Journal mode and `synchronous` stay as they are. The store is the only user of the connection from
    /// now on, and closes it; reads and writes take turns on it.
    ///
    /// A connection inside a transaction, or that may only read, is refused.
    pub async fn on(self, connection: Connection) -> Result<SqliteStore> {
        self.finish(Place::Connection(connection)).await
    }

    async fn finish(self, place: Place) -> Result<SqliteStore> {
        let clock = match self.clock {
            Some(clock) => StoreClock::given(clock),
            None => StoreClock::system(),
        };
        let busy_limit = self.busy_limit.unwrap_or(Duration::from_secs(5));
        let synchronous = self.synchronous;
        let mut shared = Shared::start(place, Arc::new(clock), busy_limit, synchronous).await?;
        shared.relaxed_release = self.relaxed_release;
        Ok(SqliteStore {
            shared: Arc::new(shared),
        })
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("busy_limit", &self.busy_limit)
            .field("synchronous", &self.synchronous)
            .field("relaxed_release", &self.relaxed_release)
            .finish_non_exhaustive()
    }
}
