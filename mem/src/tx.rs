//! Transactions without futures.

use std::fmt;
use std::time::Duration;

use alkstore::{
    validate, Clock, Commit, Key, LockName, Overlay, PutMode, Restage, Result, Revision, Timestamp,
    Ttl, TxEntry, TxPut, Value,
};

use crate::store::MemStore;

/// An open transaction on a [`MemStore`]: [`alkstore::Tx`] with synchronous methods. Dropping it is rolling it back.
pub struct MemTx<'s, C> {
    store: &'s MemStore<C>,
    overlay: Overlay<Value>,
}

impl<'s, C: Clock> MemTx<'s, C> {
    pub(crate) fn new(store: &'s MemStore<C>) -> Self {
        Self {
            store,
            overlay: Overlay::default(),
        }
    }

    /// See [`alkstore::Tx::get`].
    pub fn get(&mut self, key: &[u8]) -> Result<Option<TxEntry>> {
        let key = Key::new(key)?;
        self.read(&key)?;
        Ok(self.overlay.get(&key).unwrap_or_default())
    }

    /// See [`alkstore::Tx::put`].
    pub fn put(
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
            self.read(&key)?;
        }
        Ok(self.overlay.put(&key, value.into(), mode, ttl))
    }

    /// See [`alkstore::Tx::delete`].
    pub fn delete(&mut self, key: &[u8]) -> Result<bool> {
        let key = Key::new(key)?;
        self.read(&key)?;
        Ok(self.overlay.delete(&key))
    }

    /// See [`alkstore::Tx::stage`].
    pub fn stage(&mut self, key: &[u8], visible_after: Timestamp, restage: Restage) -> Result<()> {
        self.overlay.stage(&Key::new(key)?, visible_after, restage);
        Ok(())
    }

    /// See [`alkstore::Tx::unstage`].
    pub fn unstage(&mut self, key: &[u8]) -> Result<()> {
        self.overlay.unstage(&Key::new(key)?);
        Ok(())
    }

    /// See [`alkstore::Tx::guard`].
    pub fn guard(&mut self, name: &str, token: Revision) -> Result<()> {
        self.overlay.guard(LockName::new(name)?, token)
    }

    /// See [`alkstore::Tx::commit`].
    pub fn commit(self) -> Result<Commit> {
        self.store.commit_changeset(self.overlay.into_changeset()?)
    }

    /// Forgets everything, as dropping does.
    pub fn rollback(self) {}

    fn read(&mut self, key: &Key<'_>) -> Result<()> {
        if self.overlay.get(key).is_none() {
            let entry = self.store.get(key.as_bytes())?;
            self.overlay.remember(key, entry);
        }
        Ok(())
    }
}

impl<C> fmt::Debug for MemTx<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemTx").finish_non_exhaustive()
    }
}
