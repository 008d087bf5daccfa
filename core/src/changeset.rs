//! Changesets: what a transaction hands to the engine, all or nothing.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::order::Order;
use crate::{
    rules, BoxFuture, Entries, Entry, Error, ErrorKind, Key, LockName, PutMode, Restage, Result,
    Revision, Timestamp, Ttl, Value,
};

/// The most keys and guards that one changeset may name.
pub const MAX_CHANGESET_ITEMS: usize = 10_000;

/// The most bytes that the keys and values of one changeset may have: 128 MiB.
pub const MAX_CHANGESET_BYTES: usize = 128 << 20;

/// Transactions: see [`Tx`](crate::Tx), which [`StoreExt::begin`](crate::StoreExt::begin) opens.
pub trait Transactions: Entries {
    /// Applies `changeset` whole, or not at all: all its guards and checks hold at one instant together with its
    /// writes.
    ///
    /// A guard that fails gives [`LeaseLost`](ErrorKind::LeaseLost); a check that fails gives
    /// [`Conflict`](ErrorKind::Conflict), which is retryable. Guards are judged first. Dropping the future leaves the
    /// whole of it applied or nothing.
    fn commit_changeset(&self, changeset: Changeset) -> BoxFuture<'_, Result<Commit>>;
}

/// What the rules must know of a value that an engine keeps.
pub trait Payload: Clone {
    /// Its length in bytes.
    fn size(&self) -> usize;
}

impl Payload for Arc<[u8]> {
    fn size(&self) -> usize {
        self.len()
    }
}

/// What must be true of a key at the commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Expect {
    /// There is no live entry.
    Absent,
    /// The live entry has this version.
    Version(Revision),
}

/// What a commit does to an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EntryWrite<V = Value> {
    /// Writes it.
    Put {
        /// The bytes.
        value: V,
        /// How long it lives from the commit on.
        ttl: Option<Ttl>,
    },
    /// Deletes it, where it is there.
    Delete,
}

/// Everything that one changeset does with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyOps<V = Value> {
    /// What must hold.
    pub check: Option<Expect>,
    /// What is written.
    pub write: Option<EntryWrite<V>>,
    /// Whether the key leaves the window; before [`stage`](Self::stage).
    pub unstage: bool,
    /// Whether the key enters the window.
    pub stage: Option<(Timestamp, Restage)>,
    /// While a transaction gathers this: what the store said of the key, where it was asked.
    pub(crate) read: Option<Option<Entry<V>>>,
}

impl<V> Default for KeyOps<V> {
    fn default() -> Self {
        Self {
            check: None,
            write: None,
            unstage: false,
            stage: None,
            read: None,
        }
    }
}

/// The versions that a commit gave to what it wrote, in the bytewise order of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// Key and version of every put.
    pub versions: Vec<(Key<'static>, Revision)>,
}

impl Commit {
    /// The version that `key` got.
    pub fn version(&self, key: &[u8]) -> Option<Revision> {
        self.versions
            .binary_search_by(|(written, _)| written.as_bytes().cmp(key))
            .ok()
            .and_then(|at| self.versions.get(at))
            .map(|(_, version)| *version)
    }
}

/// Checks, guards and writes that are applied together or not at all.
///
/// A key is written at most once and checked for one thing. Its parts are kept in the order of the keys, which is the
/// order in which engines lock them.
///
/// ```
/// use alkstore::{Changeset, Expect, Key, PutMode};
/// # fn main() -> alkstore::Result<()> {
/// let mut changeset = Changeset::new();
/// changeset.check(Key::new(&b"config"[..])?, Expect::Absent)?;
/// changeset.put(Key::new(&b"job/1"[..])?, (&b"queued"[..]).into(), PutMode::Create, None)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Changeset<V = Value> {
    /// By name.
    guards: Vec<(LockName<'static>, Revision)>,
    keys: Vec<(Key<'static>, KeyOps<V>)>,
    /// Where each key is in `keys`.
    order: Order,
    bytes: usize,
}

impl<V> Default for Changeset<V> {
    fn default() -> Self {
        Self {
            guards: Vec::new(),
            keys: Vec::new(),
            order: Order::default(),
            bytes: 0,
        }
    }
}

impl Changeset {
    /// An empty changeset.
    pub fn new() -> Self {
        Self::default()
    }
}

impl<V: Payload> Changeset<V> {
    /// Commit only if the grant `token` of `name` is live.
    pub fn guard(&mut self, name: LockName<'_>, token: Revision) -> Result<()> {
        let found = self
            .guards
            .binary_search_by(|(other, _)| other.as_str().cmp(name.as_str()));
        match found {
            Ok(at) if self.guards[at].1 != token => Err(contradiction("two tokens guard one lock")),
            Ok(_) => Ok(()),
            Err(at) => {
                self.room(1, 0)?;
                self.guards.insert(at, (name.into_owned(), token));
                Ok(())
            }
        }
    }

    /// Commit only if `expect` is true of `key`.
    pub fn check(&mut self, key: Key<'_>, expect: Expect) -> Result<()> {
        self.ops(key, Some(expect), None)?;
        Ok(())
    }

    /// Write `value`. [`Create`](PutMode::Create) and [`Update`](PutMode::Update) add the check that they imply;
    /// create also takes the key out of the window.
    pub fn put(&mut self, key: Key<'_>, value: V, mode: PutMode, ttl: Option<Ttl>) -> Result<()> {
        let size = value.size();
        crate::validate::value(size)?;
        let check = match mode {
            PutMode::Create => Some(Expect::Absent),
            PutMode::Update(version) => Some(Expect::Version(version)),
            PutMode::Replace => None,
        };
        let ops = self.ops(key, check, Some(size))?;
        ops.write = Some(EntryWrite::Put { value, ttl });
        ops.unstage |= rules::entry::publishes(mode);
        Ok(())
    }

    /// Delete the entry, where it is there.
    pub fn delete(&mut self, key: Key<'_>) -> Result<()> {
        self.ops(key, None, Some(0))?.write = Some(EntryWrite::Delete);
        Ok(())
    }

    /// Add the key to the window; after its writes.
    pub fn stage(
        &mut self,
        key: Key<'_>,
        visible_after: Timestamp,
        restage: Restage,
    ) -> Result<()> {
        let ops = self.ops(key, None, None)?;
        if ops.stage.is_some() {
            return Err(contradiction("one key is staged twice"));
        }
        ops.stage = Some((visible_after, restage));
        Ok(())
    }

    /// Take the key out of the window; before it is [staged](Self::stage), whichever is said first.
    pub fn unstage(&mut self, key: Key<'_>) -> Result<()> {
        self.ops(key, None, None)?.unstage = true;
        Ok(())
    }

    /// What is done with `key`, where anything is.
    pub(crate) fn seen(&self, key: &Key<'_>) -> Option<&KeyOps<V>> {
        let at = self.order.get(key.as_bytes())?;
        self.keys.get(at as usize).map(|(_, ops)| ops)
    }

    /// The same, to be changed by a transaction, which is [sealed](Self::seal) before it is applied.
    pub(crate) fn see(&mut self, key: Key<'_>) -> &mut KeyOps<V> {
        let end = self.keys.len();
        let at = self.order.get(key.as_bytes()).map_or(end, |at| at as usize);
        if at == end {
            // Memory ends before a transaction can see 2^32 keys.
            let number = u32::try_from(at).unwrap_or(u32::MAX);
            self.order.insert(key.as_bytes(), number);
            self.keys.push((key.into_owned(), KeyOps::default()));
        }
        &mut self.keys[at].1
    }

    /// Forgets what was read, of which the checks are left, and sees to it that the size is allowed.
    pub(crate) fn seal(mut self) -> Result<Self> {
        self.bytes = 0;
        for (key, ops) in &mut self.keys {
            ops.read = None;
            let value = match &ops.write {
                Some(EntryWrite::Put { value, .. }) => value.size(),
                _ => 0,
            };
            self.bytes = self.bytes.saturating_add(key.as_bytes().len() + value);
        }
        self.room(0, 0)?;
        Ok(self)
    }

    /// What is done with `key`, to which a check and a write, of so many bytes, are to be added. What is refused
    /// changed nothing: a caller may go on without it.
    fn ops(
        &mut self,
        key: Key<'_>,
        check: Option<Expect>,
        write: Option<usize>,
    ) -> Result<&mut KeyOps<V>> {
        let (mut items, mut bytes) = (0, write.unwrap_or(0));
        if let Some(ops) = self.seen(&key) {
            if write.is_some() && ops.write.is_some() {
                return Err(contradiction("one key is written twice"));
            }
            if ops.check.is_some() && check.is_some() && ops.check != check {
                return Err(contradiction("one key is checked for two things"));
            }
        } else {
            items = 1;
            bytes += key.as_bytes().len();
        }
        self.room(items, bytes)?;
        self.bytes += bytes;
        let ops = self.see(key);
        ops.check = ops.check.or(check);
        Ok(ops)
    }

    fn room(&self, items: usize, bytes: usize) -> Result<()> {
        if self.guards.len() + self.keys.len() + items > MAX_CHANGESET_ITEMS {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!(
                    "a changeset names at most {MAX_CHANGESET_ITEMS} keys and guards: split it"
                ),
            ));
        }
        if self.bytes.saturating_add(bytes) > MAX_CHANGESET_BYTES {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                format!("a changeset holds at most {MAX_CHANGESET_BYTES} bytes: split it"),
            ));
        }
        Ok(())
    }
}

impl<V> Changeset<V> {
    /// The guards, by lock name.
    pub fn guards(&self) -> impl Iterator<Item = (&LockName<'static>, Revision)> {
        self.guards.iter().map(|(name, token)| (name, *token))
    }

    /// What is done with each key, in bytewise order.
    pub fn keys(&self) -> impl Iterator<Item = (&Key<'static>, &KeyOps<V>)> {
        let in_order = self.order.all().into_iter();
        in_order.filter_map(|at| self.keys.get(at as usize).map(|(key, ops)| (key, ops)))
    }

    /// The same, taken apart.
    pub fn into_keys(self) -> impl Iterator<Item = (Key<'static>, KeyOps<V>)> {
        let mut keys: Vec<_> = self.keys.into_iter().map(Some).collect();
        let in_order = self.order.all().into_iter();
        in_order.filter_map(move |at| keys.get_mut(at as usize)?.take())
    }

    /// Whether there is nothing to judge and nothing to write.
    pub fn is_empty(&self) -> bool {
        self.guards.is_empty() && self.keys.is_empty()
    }
}

#[cold]
fn contradiction(what: &'static str) -> Error {
    Error::new(
        ErrorKind::InvalidArgument,
        format!("{what} in one changeset"),
    )
}
