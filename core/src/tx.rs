//! Transactions: an overlay over a store, committed as one changeset.

use core::time::Duration;

use crate::changeset::{Changeset, Commit, EntryWrite, Expect, Payload};
use crate::{rules, validate};
use crate::{
    Entry, Key, LockName, PutMode, Restage, Result, Revision, Timestamp, Transactions, Ttl, Value,
};

/// An open transaction.
///
/// Reads go to the store once and are remembered with their versions; writes stay here and are seen by this
/// transaction alone. [`commit`](Self::commit) applies everything at one instant, or fails with
/// [`Conflict`](crate::ErrorKind::Conflict) where something that was read has changed. An open transaction holds no
/// lock and no connection; dropping it, like [`rollback`](Self::rollback), forgets it.
///
/// ```
/// # use alkstore::{Result, Store, StoreExt, PutMode};
/// async fn move_one(store: &dyn Store) -> Result<()> {
///     let mut tx = store.begin();
///     if let Some(job) = tx.get(b"inbox/1").await? {
///         tx.put(b"done/1", &job.value, PutMode::Create, None).await?;
///         tx.delete(b"inbox/1").await?;
///     }
///     tx.commit().await?;
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Tx<'s, S: ?Sized> {
    store: &'s S,
    overlay: Overlay<Value>,
}

/// An entry as a transaction sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxEntry<V = Value> {
    /// The bytes.
    pub value: V,
    /// The version; `None` for what this transaction itself wrote, which has one only after the commit.
    pub version: Option<Revision>,
}

/// The answer of a put in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxPut {
    /// It will be written at the commit.
    Staged,
    /// It will not be written.
    NotStored {
        /// The version in the way; `None` where there is none yet, because this transaction itself wrote or deleted the
        /// entry, or because an update found nothing.
        current: Option<Revision>,
    },
}

impl<'s, S: Transactions + ?Sized> Tx<'s, S> {
    pub(crate) fn new(store: &'s S) -> Self {
        Self {
            store,
            overlay: Overlay::default(),
        }
    }

    /// The entry of `key`: this transaction's own write, or what the store held when it was first read here.
    pub async fn get(&mut self, key: &[u8]) -> Result<Option<TxEntry>> {
        let key = Key::new(key)?;
        self.read(&key).await?;
        Ok(self.overlay.get(&key).unwrap_or_default())
    }

    /// Writes `value` at the commit, if `mode` allows it by what the transaction sees.
    pub async fn put(
        &mut self,
        key: &[u8],
        value: &[u8],
        mode: PutMode,
        ttl: Option<Duration>,
    ) -> Result<TxPut> {
        let key = Key::new(key)?;
        validate::value(value.len())?;
        let ttl = ttl.map(Ttl::new).transpose()?;
        if mode != PutMode::Replace {
            self.read(&key).await?;
        }
        Ok(self.overlay.put(&key, value.into(), mode, ttl))
    }

    /// Deletes the entry at the commit; false where the transaction sees none.
    pub async fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let key = Key::new(key)?;
        self.read(&key).await?;
        Ok(self.overlay.delete(&key))
    }

    /// Adds `key` to the garbage-collection window at the commit.
    pub fn stage(&mut self, key: &[u8], visible_after: Timestamp, restage: Restage) -> Result<()> {
        self.overlay.stage(&Key::new(key)?, visible_after, restage);
        Ok(())
    }

    /// Takes `key` out of the garbage-collection window at the commit.
    pub fn unstage(&mut self, key: &[u8]) -> Result<()> {
        self.overlay.unstage(&Key::new(key)?);
        Ok(())
    }

    /// Commits only if the grant `token` of the lock `name` is live then.
    pub fn guard(&mut self, name: &str, token: Revision) -> Result<()> {
        self.overlay.guard(LockName::new(name)?, token)
    }

    /// Applies everything at one instant, or nothing.
    pub async fn commit(self) -> Result<Commit> {
        let store = self.store;
        store.commit_changeset(self.into_changeset()?).await
    }

    /// What [`commit`](Self::commit) would apply, for an engine that also applies changesets elsewhere, as inside the
    /// caller's own SQL transaction. Fails where it is larger than a changeset may be.
    pub fn into_changeset(self) -> Result<Changeset> {
        self.overlay.into_changeset()
    }

    /// Forgets everything, as dropping does.
    pub fn rollback(self) {}

    async fn read(&mut self, key: &Key<'_>) -> Result<()> {
        if self.overlay.get(key).is_none() {
            let entry = self.store.get(key.as_bytes()).await?;
            self.overlay.remember(key, entry);
        }
        Ok(())
    }
}

/// The bookkeeping of a transaction, without a store: synchronous callers and other languages drive it themselves.
///
/// Before [`put`](Self::put) in a mode other than replace, and before [`delete`](Self::delete), the key must be known:
/// where [`get`](Self::get) answers `None`, read the store and [`remember`](Self::remember) what it said.
#[derive(Debug)]
pub struct Overlay<V>(Changeset<V>);

impl<V> Default for Overlay<V> {
    fn default() -> Self {
        Self(Changeset::default())
    }
}

impl<V: Payload> Overlay<V> {
    /// What the transaction sees of `key`; the outer `None` where the store must be asked first.
    pub fn get(&self, key: &Key<'_>) -> Option<Option<TxEntry<V>>> {
        let seen = self.0.seen(key)?;
        match &seen.write {
            Some(EntryWrite::Put { value, .. }) => Some(Some(TxEntry {
                value: value.clone(),
                version: None,
            })),
            Some(EntryWrite::Delete) => Some(None),
            None => seen.read.as_ref().map(|entry| {
                entry.as_ref().map(|entry| TxEntry {
                    value: entry.value.clone(),
                    version: Some(entry.version),
                })
            }),
        }
    }

    /// Keeps what the store said of `key`, to be checked at the commit. The first answer stands.
    pub fn remember(&mut self, key: &Key<'_>, entry: Option<Entry<V>>) {
        let seen = self.0.see(key.borrowed());
        if seen.read.is_none() {
            seen.check = Some(
                entry
                    .as_ref()
                    .map_or(Expect::Absent, |entry| Expect::Version(entry.version)),
            );
            seen.read = Some(entry);
        }
    }

    /// See [`Tx::put`].
    pub fn put(&mut self, key: &Key<'_>, value: V, mode: PutMode, ttl: Option<Ttl>) -> TxPut {
        let sight = self.get(key).flatten();
        let version = sight.map(|entry| entry.version);
        let seen = self.0.see(key.borrowed());
        if rules::entry::publishes(mode) {
            seen.unstage = true;
            seen.stage = None;
        }
        if !rules::entry::wins(version, mode) {
            return TxPut::NotStored {
                current: version.flatten(),
            };
        }
        seen.write = Some(EntryWrite::Put { value, ttl });
        TxPut::Staged
    }

    /// See [`Tx::delete`].
    pub fn delete(&mut self, key: &Key<'_>) -> bool {
        let there = self.get(key).flatten().is_some();
        if there {
            self.0.see(key.borrowed()).write = Some(EntryWrite::Delete);
        }
        there
    }

    /// See [`Tx::stage`].
    pub fn stage(&mut self, key: &Key<'_>, visible_after: Timestamp, restage: Restage) {
        let seen = self.0.see(key.borrowed());
        match (&seen.stage, restage) {
            // This transaction's own earlier staging is what would be kept.
            (Some(_), Restage::Keep) => {}
            _ => seen.stage = Some((visible_after, restage)),
        }
    }

    /// See [`Tx::unstage`].
    pub fn unstage(&mut self, key: &Key<'_>) {
        let seen = self.0.see(key.borrowed());
        seen.unstage = true;
        seen.stage = None;
    }

    /// See [`Tx::guard`].
    pub fn guard(&mut self, name: LockName<'_>, token: Revision) -> Result<()> {
        self.0.guard(name, token)
    }

    /// The changeset that commits this transaction. Fails where it is larger than a changeset may be.
    pub fn into_changeset(self) -> Result<Changeset<V>> {
        self.0.seal()
    }
}
