//! The traits of the contract over the synchronous methods: each future does its whole work when it is first polled.

use std::time::Duration;

use alkstore::{
    BoxFuture, Candidate, Changeset, Claim, Clock, Commit, EngineWindowState, Entries, Entry,
    EntryMeta, Key, Lifecycle, Lock, LockInfo, Locks, Put, PutOptions, Reclaim, Restage, Result,
    Revision, Timestamp, Transactions, WindowRow, WindowStats,
};

use crate::store::MemStore;

impl<C: Clock + 'static> Locks for MemStore<C> {
    fn try_lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lock>>>> {
        Box::pin(async move {
            let lock = self.try_lock(name, owner, ttl)?;
            Ok(lock.map(|lock| Box::new(lock) as Box<dyn Lock>))
        })
    }

    fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<Box<dyn Lock>> {
        Ok(Box::new(self.lock_handle(name, owner, token)?))
    }

    fn lock_info<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<LockInfo>>> {
        Box::pin(async move { self.lock_info(name) })
    }

    fn list_locks<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LockInfo>>> {
        Box::pin(async move { self.list_locks(prefix, after, limit) })
    }

    fn force_release<'a>(&'a self, name: &'a str, token: Revision) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.force_release(name, token) })
    }
}

impl<C: Clock + 'static> Entries for MemStore<C> {
    fn get<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<Entry>>> {
        Box::pin(async move { self.get(key) })
    }

    fn put<'a>(
        &'a self,
        key: &'a [u8],
        value: &'a [u8],
        options: PutOptions<'a>,
    ) -> BoxFuture<'a, Result<Put>> {
        Box::pin(async move { self.put(key, value, &options) })
    }

    fn touch<'a>(&'a self, key: &'a [u8], ttl: Duration) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.touch(key, ttl) })
    }

    fn delete<'a>(
        &'a self,
        key: &'a [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move { self.delete(key, if_version) })
    }

    fn list<'a>(
        &'a self,
        prefix: &'a [u8],
        after: Option<&'a [u8]>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<EntryMeta>>> {
        Box::pin(async move { self.list(prefix, after, limit) })
    }
}

impl<C: Clock + 'static> Transactions for MemStore<C> {
    fn commit_changeset(&self, changeset: Changeset) -> BoxFuture<'_, Result<Commit>> {
        Box::pin(async move { self.commit_changeset(changeset) })
    }
}

impl<C: Clock + 'static> EngineWindowState for MemStore<C> {
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.gate().check() })
    }

    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.window_stage(candidates, restage) })
    }

    fn window_stage_after<'a>(
        &'a self,
        keys: &'a [Key<'a>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move { self.window_stage_after(keys, grace, restage) })
    }

    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        Box::pin(async move { self.window_take(now, limit) })
    }

    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move { self.window_unstage(keys) })
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        Box::pin(async move { self.window_claim(now, lease, limit) })
    }

    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move { self.window_settle(claims) })
    }

    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>> {
        Box::pin(async move { self.window_requeue(claims, visible_after) })
    }

    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move { self.window_mark(claims, fence) })
    }

    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move { self.window_finish(claims, fence) })
    }

    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move { self.window_delete(claims, fence) })
    }

    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        Box::pin(async move { self.window_judge(keys) })
    }

    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>> {
        Box::pin(async move { self.window_list(after, limit) })
    }

    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>> {
        Box::pin(async move { self.window_info(key) })
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        Box::pin(async move { self.window_stats(now) })
    }

    fn has_pins(&self) -> bool {
        false
    }

    fn has_liveness_sources(&self) -> bool {
        false
    }

    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        Box::pin(async move { self.sweep_begin(ttl) })
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.sweep_extend(epoch, ttl) })
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async move { self.sweep_end(epoch) })
    }
}

impl<C: Clock + 'static> Lifecycle for MemStore<C> {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        Box::pin(async move { self.now() })
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        Box::pin(async move { self.purge_lapsed(limit) })
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.close();
            Ok(())
        })
    }
}
