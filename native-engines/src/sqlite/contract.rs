//! The traits of the contract, but for that of the window.

use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Changeset, Commit, Entries, Entry, EntryMeta, Lifecycle, Lock, LockInfo,
    Locks, Put, PutOptions, Result, Revision, Timestamp, Transactions,
};

use super::entries::Found;
use super::locks::Held;
use super::store::{Kind, SqliteStore};
use super::{changeset, entries, lock, locks, txn};

/// The longest value that is read or written on the caller's thread.
const SHORT_VALUE: usize = 64 << 10;

impl Locks for SqliteStore {
    fn try_lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lock>>>> {
        Box::pin(async move {
            let request = validate::acquire(&self.shared.gate, name, owner, ttl)?;
            let (name, owner, ttl) = (request.name, request.owner, request.ttl);
            let look = self
                .shared
                .look(|connection, clock| locks::peek(connection, clock, &name, &owner, ttl))?;
            let (name, owner) = (name.into_owned(), owner.into_owned());
            let held = if let Some(decided) = look.flatten() {
                decided
            } else {
                let (name, owner) = (name.clone(), owner.clone());
                self.shared
                    .write(Kind::Short, move |txn| {
                        locks::acquire(txn, &name, &owner, ttl)
                    })
                    .await?
            };
            Ok(held.map(|Held { token, deadline }| {
                lock::boxed(&self.shared, name, owner, token, Some(deadline))
            }))
        })
    }

    fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<Box<dyn Lock>> {
        let (name, owner) = validate::handle(&self.shared.gate, name, owner)?;
        Ok(lock::boxed(&self.shared, name, owner, token, None))
    }

    fn lock_info<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<LockInfo>>> {
        Box::pin(async move {
            let name = validate::lock(&self.shared.gate, name)?;
            let look = self.shared.look(|connection, clock| {
                let reading = clock.read();
                locks::info(connection, clock, reading, name.as_str())
            })?;
            if let Some(info) = look {
                return Ok(info);
            }
            let name = name.into_owned();
            self.shared
                .read(move |connection, clock, reading| {
                    locks::info(connection, clock, reading, name.as_str())
                })
                .await
        })
    }

    fn list_locks<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LockInfo>>> {
        Box::pin(async move {
            validate::list_locks(&self.shared.gate, prefix, after)?;
            let (from, to) = txn::range(prefix.as_bytes(), after.map(str::as_bytes));
            self.shared
                .read(move |connection, clock, reading| {
                    locks::list(connection, clock, reading, &from, &to, limit)
                })
                .await
        })
    }

    fn force_release<'a>(&'a self, name: &'a str, token: Revision) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let name = validate::lock(&self.shared.gate, name)?.into_owned();
            self.shared
                .write(Kind::Short, move |txn| {
                    locks::force_release(txn, &name, token)
                })
                .await
        })
    }
}

impl Entries for SqliteStore {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move {
            let key = validate::key(&self.shared.gate, key)?;
            let look = self.shared.look(|connection, clock| {
                let reading = clock.read();
                entries::get(connection, clock, reading, &key, SHORT_VALUE)
            })?;
            if let Some(Found::Entry(entry)) = look {
                return Ok(entry);
            }
            let key = key.into_owned();
            let found = self
                .shared
                .read(move |connection, clock, reading| {
                    entries::get(connection, clock, reading, &key, usize::MAX)
                })
                .await?;
            match found {
                Found::Entry(entry) => Ok(entry),
                Found::TooLong => Ok(None),
            }
        })
    }

    fn put<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        options: PutOptions<'a>,
    ) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async move {
            let request = entries::owned(validate::put(
                &self.shared.gate,
                key,
                value.len(),
                &options,
            )?);
            let kind = if value.len() <= SHORT_VALUE {
                Kind::Short
            } else {
                Kind::Long
            };
            let value = value.to_vec();
            self.shared
                .write(kind, move |txn| entries::put(txn, &request, &value))
                .await
        })
    }

    fn touch<'a>(&'a self, key: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (key, ttl) = validate::touch(&self.shared.gate, key, ttl)?;
            let key = key.into_owned();
            self.shared
                .write(Kind::Short, move |txn| entries::touch(txn, &key, ttl))
                .await
        })
    }

    fn delete<'a>(
        &'a self,
        key: &'a [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let key = validate::key(&self.shared.gate, key)?.into_owned();
            self.shared
                .write(Kind::Short, move |txn| {
                    entries::delete(txn, &key, if_version)
                })
                .await
        })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<EntryMeta>>> {
        Box::pin(async move {
            validate::list(&self.shared.gate, prefix, after)?;
            let (from, to) = txn::range(prefix, after);
            self.shared
                .read(move |connection, clock, reading| {
                    entries::list(connection, clock, reading, &from, &to, limit)
                })
                .await
        })
    }
}

impl Transactions for SqliteStore {
    fn commit_changeset(&self, changeset: Changeset) -> BoxFuture<'_, Result<Commit>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            self.shared
                .write(Kind::Long, move |txn| changeset::apply(txn, &changeset))
                .await
        })
    }
}

impl Lifecycle for SqliteStore {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            let look = self
                .shared
                .look(|connection, clock| txn::present(connection, clock, clock.read()))?;
            match look {
                Some(now) => Ok(now),
                None => self.shared.read(txn::present).await,
            }
        })
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move {
            self.shared.gate.check()?;
            self.shared
                .write(Kind::Long, move |txn| {
                    let locks = locks::purge(txn, limit)?;
                    Ok(locks + entries::purge(txn, limit - locks)?)
                })
                .await
        })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            // In a forked child there is nothing to wait for.
            self.shared.gate.close();
            if self.shared.enter().is_ok() {
                self.shared.close().await;
            }
            Ok(())
        })
    }
}
