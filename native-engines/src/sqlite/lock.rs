//! Handles on locks.

use std::sync::Arc;
use std::time::Duration;

use alkstore::{validate, BoxFuture, Lock, LockName, Owner, Result, Revision, Timestamp};

use super::locks;
use super::store::{Kind, Shared};

struct SqliteLock {
    shared: Arc<Shared>,
    name: LockName<'static>,
    owner: Owner<'static>,
    token: Revision,
    deadline: Option<Timestamp>,
}

pub(super) fn boxed(
    shared: &Arc<Shared>,
    name: LockName<'static>,
    owner: Owner<'static>,
    token: Revision,
    deadline: Option<Timestamp>,
) -> Box<dyn Lock> {
    Box::new(SqliteLock {
        shared: shared.clone(),
        name,
        owner,
        token,
        deadline,
    })
}

impl Lock for SqliteLock {
    fn name(&self) -> &str {
        self.name.as_str()
    }

    fn owner(&self) -> &str {
        self.owner.as_str()
    }

    fn token(&self) -> Revision {
        self.token
    }

    fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move {
            let ttl = validate::duration(&self.shared.gate, ttl)?;
            let (name, owner, token) = (self.name.clone(), self.owner.clone(), self.token);
            let renewed = self
                .shared
                .write(Kind::Short, move |txn| {
                    locks::renew(txn, &name, &owner, token, ttl)
                })
                .await?;
            if renewed.is_some() {
                self.deadline = renewed;
            }
            Ok(renewed.is_some())
        })
    }

    fn release(self: Box<Self>) -> BoxFuture<'static, Result<bool>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let Self {
                shared,
                name,
                owner,
                token,
                ..
            } = *self;
            shared
                .write(Kind::Release, move |txn| {
                    locks::release(txn, &name, &owner, token)
                })
                .await
        })
    }
}
