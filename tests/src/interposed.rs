//! A store with steps between its calls, and the hooks of a sweep: whatever a case wants done, failed or never answered.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use alkstore::{
    BoxFuture, Candidate, Claim, EngineWindowState, Entries, Entry, EntryMeta, Error, ErrorKind,
    HookError, HookFuture, Key, Lifecycle, LivenessSource, Put, PutOptions, Reclaim, Reclaimed,
    Reclaimer, Restage, Result, Revision, Store, Timer, Timestamp, WindowRow, WindowStats,
};
use futures_util::future::{pending, poll_fn, ready};
use futures_util::FutureExt as _;

use crate::fixture::Fixture;

/// A place before or after one call of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Moment {
    /// The name of the operation.
    pub op: &'static str,
    /// The how manieth call of this operation it is, from 1.
    pub nth: usize,
    /// The how manieth call of all, from 1.
    pub call: usize,
    pub after: bool,
}

impl Moment {
    pub(crate) fn is_before(self, op: &str, nth: usize) -> bool {
        !self.after && self.op == op && self.nth == nth
    }

    pub(crate) fn is_after(self, op: &str, nth: usize) -> bool {
        self.after && self.op == op && self.nth == nth
    }
}

/// A store as a sweep and a mark pass see it. The step is taken before and after each call; where it fails, so does the
/// call, done or not.
pub(crate) struct Interposed<'a, F> {
    store: &'a dyn Store,
    step: F,
    calls: Mutex<Vec<&'static str>>,
}

impl<'a, F> Interposed<'a, F>
where
    F: Fn(Moment) -> BoxFuture<'a, Result<()>> + Send + Sync,
{
    pub(crate) fn new(store: &'a dyn Store, step: F) -> Self {
        Self {
            store,
            step,
            calls: Mutex::default(),
        }
    }

    /// The names of all calls so far.
    pub(crate) fn calls(&self) -> Vec<&'static str> {
        held(&self.calls).clone()
    }

    fn around<'b, T: Send + 'b>(
        &'b self,
        op: &'static str,
        work: impl FnOnce() -> BoxFuture<'b, Result<T>> + Send + 'b,
    ) -> BoxFuture<'b, Result<T>> {
        async move {
            let mut moment = {
                let mut calls = held(&self.calls);
                calls.push(op);
                Moment {
                    op,
                    nth: calls.iter().filter(|call| **call == op).count(),
                    call: calls.len(),
                    after: false,
                }
            };
            (self.step)(moment).await?;
            let answer = work().await;
            moment.after = true;
            (self.step)(moment).await?;
            answer
        }
        .boxed()
    }
}

pub(crate) fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// No step at all.
pub(crate) fn on<'a>() -> BoxFuture<'a, Result<()>> {
    ready(Ok(())).boxed()
}

/// The step that fails the call.
pub(crate) fn fail<'a>() -> BoxFuture<'a, Result<()>> {
    ready(Err(Error::new(ErrorKind::Database, "the disk is gone"))).boxed()
}

/// The end of a process at some step: whoever awaits it never goes on.
#[derive(Debug, Default)]
pub(crate) struct Crash(AtomicBool);

impl Crash {
    /// Never resolves.
    pub(crate) fn now<'a, T: Send + 'a>(&'a self) -> BoxFuture<'a, T> {
        self.0.store(true, Ordering::SeqCst);
        pending().boxed()
    }

    /// Drives `work` to its end, or until it crashes; then drops it.
    pub(crate) async fn survive<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let mut work = Box::pin(work);
        poll_fn(|context| match work.as_mut().poll(context) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending if self.0.load(Ordering::SeqCst) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

/// Somebody who knows what is live, by any function.
pub(crate) struct Source<'f>(Box<Ask<'f>>);

type Ask<'f> =
    dyn Fn(Vec<Key<'static>>) -> HookFuture<'f, Result<Vec<bool>, HookError>> + Send + Sync + 'f;

impl<'f> Source<'f> {
    pub(crate) fn new(
        ask: impl Fn(Vec<Key<'static>>) -> HookFuture<'f, Result<Vec<bool>, HookError>>
            + Send
            + Sync
            + 'f,
    ) -> Self {
        Self(Box::new(ask))
    }

    /// What is live is answered at once.
    pub(crate) fn by(is_live: impl Fn(&[u8]) -> bool + Send + Sync + 'f) -> Self {
        Self::new(move |keys| {
            let live = keys.iter().map(|key| is_live(key.as_bytes())).collect();
            Box::pin(ready(Ok(live)))
        })
    }
}

impl LivenessSource for Source<'_> {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        (self.0)(keys.iter().map(|key| key.clone().into_owned()).collect())
    }
}

/// Payloads outside the store, by key.
#[derive(Default)]
pub(crate) struct Outside<'f> {
    pub payloads: Mutex<BTreeMap<Vec<u8>, u64>>,
    /// Those that cannot be deleted.
    pub stuck: BTreeSet<Vec<u8>>,
    /// The keys of each call.
    pub asked: Mutex<Vec<Vec<Vec<u8>>>>,
    /// What happens after the payloads are gone and before that is said.
    pub then: Option<Box<Then<'f>>>,
}

type Then<'f> = dyn Fn() -> HookFuture<'f, ()> + Send + Sync + 'f;

impl Outside<'_> {
    pub(crate) fn with(payloads: &[(&[u8], u64)]) -> Self {
        let payloads = payloads.iter().map(|(key, size)| (key.to_vec(), *size));
        Self {
            payloads: Mutex::new(payloads.collect()),
            ..Self::default()
        }
    }

    fn answer(&self, key: &Key<'_>, delete: bool) -> Result<Reclaimed, HookError> {
        if self.stuck.contains(key.as_bytes()) {
            return Err("the payload is stuck".into());
        }
        let mut payloads = held(&self.payloads);
        let bytes = if delete {
            payloads.remove(key.as_bytes())
        } else {
            payloads.get(key.as_bytes()).copied()
        };
        Ok(bytes.map_or(Reclaimed::NotFound, |bytes| Reclaimed::Freed { bytes }))
    }
}

impl Reclaimer for Outside<'_> {
    fn reclaim<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        Box::pin(async move {
            let asked = keys.iter().map(|key| key.as_bytes().to_vec()).collect();
            held(&self.asked).push(asked);
            let answers = keys.iter().map(|key| self.answer(key, true)).collect();
            if let Some(then) = &self.then {
                then().await;
            }
            answers
        })
    }

    fn measure<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        let answers = keys.iter().map(|key| self.answer(key, false)).collect();
        Box::pin(ready(answers))
    }
}

/// A timer that moves the fixture's clock instead of waiting.
pub(crate) struct Clockwork<'f> {
    pub fixture: &'f dyn Fixture,
    /// How long each sleep was that came to its end.
    pub slept: Mutex<Vec<Duration>>,
}

impl<'f> Clockwork<'f> {
    pub(crate) fn of(fixture: &'f dyn Fixture) -> Self {
        Self {
            fixture,
            slept: Mutex::default(),
        }
    }

    pub(crate) fn total(&self) -> Duration {
        held(&self.slept).iter().sum()
    }
}

impl Timer for Clockwork<'_> {
    fn sleep(&self, duration: Duration) -> HookFuture<'_, ()> {
        Box::pin(async move {
            if self.fixture.advance(duration).await.is_ok() {
                held(&self.slept).push(duration);
            }
        })
    }
}

impl<'a, F> Lifecycle for Interposed<'a, F>
where
    F: Fn(Moment) -> BoxFuture<'a, Result<()>> + Send + Sync,
{
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>> {
        self.around("now", || self.store.now())
    }

    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>> {
        self.around("purge_lapsed", move || self.store.purge_lapsed(limit))
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        self.around("close", || self.store.close())
    }
}

impl<'a, F> Entries for Interposed<'a, F>
where
    F: Fn(Moment) -> BoxFuture<'a, Result<()>> + Send + Sync,
{
    fn get<'b>(&'b self, key: &'b [u8]) -> BoxFuture<'b, Result<Option<Entry>>> {
        self.around("get", move || self.store.get(key))
    }

    fn put<'b>(
        &'b self,
        key: &'b [u8],
        value: &'b [u8],
        options: PutOptions<'b>,
    ) -> BoxFuture<'b, Result<Put>> {
        self.around("put", move || self.store.put(key, value, options))
    }

    fn touch<'b>(&'b self, key: &'b [u8], ttl: Duration) -> BoxFuture<'b, Result<bool>> {
        self.around("touch", move || self.store.touch(key, ttl))
    }

    fn delete<'b>(
        &'b self,
        key: &'b [u8],
        if_version: Option<Revision>,
    ) -> BoxFuture<'b, Result<bool>> {
        self.around("delete", move || self.store.delete(key, if_version))
    }

    fn list<'b>(
        &'b self,
        prefix: &'b [u8],
        after: Option<&'b [u8]>,
        limit: usize,
    ) -> BoxFuture<'b, Result<Vec<EntryMeta>>> {
        self.around("list", move || self.store.list(prefix, after, limit))
    }
}

impl<'a, F> EngineWindowState for Interposed<'a, F>
where
    F: Fn(Moment) -> BoxFuture<'a, Result<()>> + Send + Sync,
{
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>> {
        self.around("ensure_gc_schema", || self.store.ensure_gc_schema())
    }

    fn window_stage<'b>(
        &'b self,
        candidates: &'b [Candidate],
        restage: Restage,
    ) -> BoxFuture<'b, Result<()>> {
        self.around("window_stage", move || {
            self.store.window_stage(candidates, restage)
        })
    }

    fn window_stage_after<'b>(
        &'b self,
        keys: &'b [Key<'b>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'b, Result<()>> {
        self.around("window_stage_after", move || {
            self.store.window_stage_after(keys, grace, restage)
        })
    }

    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>> {
        self.around("window_take", move || self.store.window_take(now, limit))
    }

    fn window_unstage<'b>(&'b self, keys: &'b [Key<'b>]) -> BoxFuture<'b, Result<usize>> {
        self.around("window_unstage", move || self.store.window_unstage(keys))
    }

    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>> {
        self.around("window_claim", move || {
            self.store.window_claim(now, lease, limit)
        })
    }

    fn window_settle<'b>(&'b self, claims: &'b [Claim]) -> BoxFuture<'b, Result<usize>> {
        self.around("window_settle", move || self.store.window_settle(claims))
    }

    fn window_requeue<'b>(
        &'b self,
        claims: &'b [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'b, Result<usize>> {
        self.around("window_requeue", move || {
            self.store.window_requeue(claims, visible_after)
        })
    }

    fn window_mark<'b>(
        &'b self,
        claims: &'b [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'b, Result<Vec<Reclaim>>> {
        self.around("window_mark", move || self.store.window_mark(claims, fence))
    }

    fn window_finish<'b>(
        &'b self,
        claims: &'b [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'b, Result<Vec<Reclaim>>> {
        self.around("window_finish", move || {
            self.store.window_finish(claims, fence)
        })
    }

    fn window_delete<'b>(
        &'b self,
        claims: &'b [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'b, Result<Vec<Reclaim>>> {
        self.around("window_delete", move || {
            self.store.window_delete(claims, fence)
        })
    }

    fn window_judge<'b>(&'b self, keys: &'b [Key<'b>]) -> BoxFuture<'b, Result<Vec<Reclaim>>> {
        self.around("window_judge", move || self.store.window_judge(keys))
    }

    fn window_list<'b>(
        &'b self,
        after: Option<&'b WindowRow>,
        limit: usize,
    ) -> BoxFuture<'b, Result<Vec<WindowRow>>> {
        self.around("window_list", move || self.store.window_list(after, limit))
    }

    fn window_info<'b>(&'b self, key: &'b [u8]) -> BoxFuture<'b, Result<Option<WindowRow>>> {
        self.around("window_info", move || self.store.window_info(key))
    }

    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>> {
        self.around("window_stats", move || self.store.window_stats(now))
    }

    fn has_pins(&self) -> bool {
        self.store.has_pins()
    }

    fn has_liveness_sources(&self) -> bool {
        self.store.has_liveness_sources()
    }

    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>> {
        self.around("sweep_begin", move || self.store.sweep_begin(ttl))
    }

    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>> {
        self.around("sweep_extend", move || self.store.sweep_extend(epoch, ttl))
    }

    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>> {
        self.around("sweep_end", move || self.store.sweep_end(epoch))
    }
}
