//! The store of this instance as core's sweep sees it: each future is ready at once.

use std::cell::Cell;
use std::future::ready;
use std::time::Duration;

use alkstore::{
    validate, BoxFuture, Candidate, Claim, EngineWindowState, Key, Lifecycle, Reclaim, Restage,
    Result, Revision, Timestamp, WindowRow, WindowStats,
};

use crate::boundary::{attempt, Store};

thread_local! {
    static NOW: Cell<Timestamp> = const { Cell::new(Timestamp::MIN) };
}

/// The store of this instance.
pub(crate) struct Here;

impl Here {
    /// Sets the time of what follows, which JavaScript has read.
    pub(crate) fn set_time(now: Timestamp) {
        NOW.set(now);
    }
}

/// One operation on the store, where it is open.
fn done<T: Send + 'static>(
    operation: impl FnOnce(&mut Store, Timestamp) -> Result<T>,
) -> BoxFuture<'static, Result<T>> {
    Box::pin(ready(attempt(|store| {
        store.gate.check()?;
        operation(store, NOW.get())
    })))
}

impl Lifecycle for Here {
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        done(|_, now| Ok(now))
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        done(|store, now| Ok(store.state.purge_lapsed(limit, now)))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        crate::lifecycle::close();
        Box::pin(ready(Ok(())))
    }
}

impl EngineWindowState for Here {
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        done(|_, _| Ok(()))
    }

    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>> {
        done(|store, now| store.state.window_stage(candidates, restage, now))
    }

    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        done(|store, store_now| Ok(store.state.window_take(now, limit, store_now)))
    }

    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>> {
        done(|store, _| Ok(store.state.window_unstage(keys)))
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        done(|store, store_now| {
            let lease = validate::duration(&store.gate, lease)?;
            store.state.window_claim(now, lease, limit, store_now)
        })
    }

    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>> {
        done(|store, now| Ok(store.state.window_settle(claims, now)))
    }

    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>> {
        done(|store, now| Ok(store.state.window_requeue(claims, visible_after, now)))
    }

    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        done(|store, now| store.state.window_mark(claims, fence, now))
    }

    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        done(|store, now| store.state.window_finish(claims, fence, now))
    }

    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        done(|store, now| store.state.window_delete(claims, fence, now))
    }

    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>> {
        done(|store, now| Ok(store.state.window_judge(keys, now)))
    }

    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>> {
        done(|store, _| Ok(store.state.window_list(after, limit)))
    }

    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>> {
        done(|store, _| {
            let key = validate::key(&store.gate, key)?;
            Ok(store.state.window_info(&key))
        })
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        done(|store, store_now| Ok(store.state.window_stats(now, store_now)))
    }

    fn has_liveness_sources(&self) -> bool {
        false
    }

    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        done(|store, now| {
            let ttl = validate::duration(&store.gate, ttl)?;
            store.state.sweep_begin(ttl, now)
        })
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        done(|store, now| {
            let ttl = validate::duration(&store.gate, ttl)?;
            Ok(store.state.sweep_extend(epoch, ttl, now))
        })
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        done(|store, _| Ok(store.state.sweep_end(epoch)))
    }
}
