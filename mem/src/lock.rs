//! Handles on locks in memory.

use std::fmt;
use std::time::Duration;

use alkstore::{validate, BoxFuture, Clock, Lock, LockName, Owner, Result, Revision, Timestamp};

use crate::index::Handle;
use crate::locks::Granted;
use crate::store::MemStore;

/// A grant of a lock in a [`MemStore`]. Dropping it does nothing: the lease lapses at its deadline.
pub struct MemLock<C = Box<dyn Clock>> {
    store: MemStore<C>,
    /// The name, and behind it the owner.
    text: Box<str>,
    name_bytes: usize,
    token: Revision,
    deadline: Option<Timestamp>,
    /// Where the name was at the grant; without one, or where it has ended, the name is looked up.
    at: Option<Handle>,
}

impl<C: Clock> MemLock<C> {
    pub(crate) fn granted(store: MemStore<C>, name: &str, owner: &str, grant: Granted) -> Self {
        Self {
            deadline: Some(grant.deadline),
            at: Some(grant.handle),
            ..Self::rebuilt(store, name, owner, grant.token)
        }
    }

    pub(crate) fn rebuilt(store: MemStore<C>, name: &str, owner: &str, token: Revision) -> Self {
        Self {
            store,
            text: [name, owner].concat().into(),
            name_bytes: name.len(),
            token,
            deadline: None,
            at: None,
        }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.text[..self.name_bytes]
    }

    /// Whose grant it is.
    pub fn owner(&self) -> &str {
        &self.text[self.name_bytes..]
    }

    /// The fencing token.
    pub fn token(&self) -> Revision {
        self.token
    }

    /// The deadline that the store last told this handle.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    /// Moves the deadline to `ttl` from now: see [`Lock::renew`].
    pub fn renew(&mut self, ttl: Duration) -> Result<bool> {
        let ttl = validate::duration(self.store.gate(), ttl)?;
        let renewed = self.store.with(|state, now| {
            if let Some(deadline) = self
                .at
                .and_then(|at| state.renew_by(at, self.token, ttl, now))
            {
                return Ok(Some(deadline));
            }
            let (name, owner) = (LockName::new(self.name())?, Owner::new(self.owner())?);
            Ok(state.renew(&name, &owner, self.token, ttl, now))
        })?;
        if renewed.is_some() {
            self.deadline = renewed;
        }
        Ok(renewed.is_some())
    }

    /// Deletes this grant: see [`Lock::release`].
    #[allow(clippy::needless_pass_by_value)] // a released handle is of no more use
    pub fn release(self) -> Result<bool> {
        self.store.gate().check()?;
        self.store.with_timeless(|state| {
            if self.at.is_some_and(|at| state.release_by(at, self.token)) {
                return Ok(true);
            }
            let (name, owner) = (LockName::new(self.name())?, Owner::new(self.owner())?);
            Ok(state.release(&name, &owner, self.token))
        })
    }
}

impl<C: Clock + 'static> Lock for MemLock<C> {
    fn name(&self) -> &str {
        self.name()
    }

    fn owner(&self) -> &str {
        self.owner()
    }

    fn token(&self) -> Revision {
        self.token
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.renew(ttl) })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async move { (*self).release() })
    }
}

impl<C> fmt::Debug for MemLock<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemLock")
            .field("name", &&self.text[..self.name_bytes])
            .field("owner", &&self.text[self.name_bytes..])
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
