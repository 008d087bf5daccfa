//! Versioned entries.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{BoxFuture, Key, Result, Revision, Timestamp, Value};

/// The entries of a store: keys to values, each write with a version, each optionally with a time to live.
///
/// A lapsed entry is absent to every read, compare and listing, whether or not its row is still there.
///
/// Every call is checked in the same order: key, value, duration, guard, closed store, then the work. Dropping a
/// future leaves the whole of the write done or nothing of it.
pub trait Entries: Send + Sync {
    /// The live entry of `key`.
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>>>;

    /// Writes `value` as [`PutOptions`] say; by default the first writer wins.
    ///
    /// A put in mode [`Create`](PutMode::Create) that is stored, or that finds the key there, also takes the key out
    /// of the garbage-collection window in the same atomic step, so that what a writer relies on is not swept.
    fn put<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        options: PutOptions<'a>,
    ) -> BoxFuture<'a, Result<Put>>;

    /// Moves the deadline of a live entry to `ttl` from now; its version stays. False where there is none.
    fn touch<'a>(&'a self, key: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<bool>>;

    /// Deletes the live entry of `key`, where `if_version` is given only that version. False where there was none.
    fn delete<'a>(
        &'a self,
        key: &'a [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'a, Result<bool>>;

    /// The live entries whose keys begin with `prefix` and come after `after`, in bytewise order, `limit` at most,
    /// without their values. A page is one consistent snapshot; the next begins after the last key of this one.
    fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<EntryMeta>>>;
}

/// An entry as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry<V = Value> {
    /// The bytes, shared with the store where it is in memory.
    pub value: V,
    /// The version that the write got.
    pub version: Revision,
    /// When it lapses, if ever.
    pub expires_at: Option<Timestamp>,
}

/// An entry as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct EntryMeta {
    /// The key.
    pub key: Key<'static>,
    /// The version that the write got.
    pub version: Revision,
    /// When it lapses, if ever.
    pub expires_at: Option<Timestamp>,
    /// The length of the value, in bytes.
    pub size: u64,
}

/// When a put writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PutMode {
    /// Only where the key is absent: the first writer wins.
    #[default]
    Create,
    /// Always.
    Replace,
    /// Only over this version.
    Update(Revision),
}

/// How to put; `PutOptions::default()` is create, without time to live, without guard.
///
/// ```
/// use alkstore::{PutOptions, Revision};
/// use std::time::Duration;
/// let token = Revision::new(7).unwrap();
/// let options = PutOptions::replace().ttl(Duration::from_secs(60)).guard("shard-3", token);
/// # let _ = options;
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct PutOptions<'a> {
    /// When to write.
    pub mode: PutMode,
    /// How long the entry lives; for ever where `None`.
    pub ttl: Option<Duration>,
    /// The grant that must be live at the instant of the write: lock name and token.
    pub guard: Option<(&'a str, Revision)>,
}

impl<'a> PutOptions<'a> {
    /// The first writer wins.
    pub fn create() -> Self {
        Self::default()
    }

    /// The last writer wins.
    pub fn replace() -> Self {
        Self::with_mode(PutMode::Replace)
    }

    /// Compare and swap: only over `version`.
    pub fn update(version: Revision) -> Self {
        Self::with_mode(PutMode::Update(version))
    }

    /// The options that write as `mode` says.
    pub fn with_mode(mode: PutMode) -> Self {
        Self {
            mode,
            ..Self::default()
        }
    }

    /// The same, with a time to live.
    #[must_use]
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The same, as a fenced write: it happens only if the grant `token` of the lock `name` is live at the instant of
    /// the write, else it fails with [`LeaseLost`](crate::ErrorKind::LeaseLost).
    #[must_use]
    pub fn guard(mut self, name: &'a str, token: Revision) -> Self {
        self.guard = Some((name, token));
        self
    }
}

/// The answer of a put. Losing is a value, never an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Put {
    /// The write happened.
    Stored {
        /// Its version.
        version: Revision,
    },
    /// The write did not happen, and nothing changed.
    NotStored {
        /// The version that stands in its way; `None` where an update found no entry.
        current: Option<Revision>,
    },
}

impl Put {
    /// Whether the write happened.
    pub fn is_stored(self) -> bool {
        matches!(self, Self::Stored { .. })
    }

    /// The version of the entry after the put: the new one, or the one in the way.
    pub fn version(self) -> Option<Revision> {
        match self {
            Self::Stored { version } => Some(version),
            Self::NotStored { current } => current,
        }
    }
}
