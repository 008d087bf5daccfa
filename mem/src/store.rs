//! The store: the state behind a guard, with a clock.

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use alkstore::{
    validate, Candidate, Changeset, Claim, Clock, Commit, Entry, EntryMeta, Error, ErrorKind, Gate,
    Key, LockInfo, Put, PutOptions, Reclaim, Restage, Result, Revision, Timestamp, WindowRow,
    WindowStats,
};

use crate::entries::PutRow;
use crate::lock::MemLock;
use crate::locks::Claimant;
use crate::state::{Options, Seeds, State, Stats};
use crate::tx::MemTx;

/// A store in this process's memory, on a clock.
///
/// Its methods are synchronous and never wait for anything but each other. The traits of `alkstore` are implemented on
/// top of them, for code that runs on any engine. Clones are the same handle: closing one closes all. Nothing outlives
/// the last of them but what was [snapshotted](Self::snapshot).
///
/// Every operation is atomic, and reads the clock once, while it has the state to itself. An operation that the clock
/// itself starts is refused. If a clock panics, the store counts as damaged, and every later operation fails.
pub struct MemStore<C = DefaultClock> {
    shared: Arc<Shared<C>>,
}

#[cfg(feature = "clock")]
type DefaultClock = crate::SystemClock;
#[cfg(not(feature = "clock"))]
type DefaultClock = Box<dyn Clock>;

struct Shared<C> {
    gate: Gate,
    clock: C,
    state: Mutex<State>,
    /// The thread that is reading the clock, by [`this_thread`]; 0 for none.
    reading: AtomicUsize,
}

#[cfg(feature = "clock")]
impl MemStore {
    /// An empty store on the system's clock, without limits.
    pub fn open() -> Self {
        Self::new(crate::SystemClock::new())
    }
}

impl<C: Clock> MemStore<C> {
    /// An empty store on `clock`, without limits.
    pub fn new(clock: C) -> Self {
        Self::with_options(clock, Options::default())
    }

    /// An empty store on `clock`, with limits.
    pub fn with_options(clock: C, options: Options) -> Self {
        let random = RandomState::new();
        let seeds = Seeds {
            hash: random.hash_one(0_u8),
            mint: random.hash_one(1_u8),
        };
        Self {
            shared: Arc::new(Shared {
                gate: Gate::open(),
                clock,
                state: Mutex::new(State::new(seeds, options)),
                reading: AtomicUsize::new(0),
            }),
        }
    }

    /// Takes the lock `name`: see [`Locks::try_lock`](alkstore::Locks::try_lock).
    pub fn try_lock(&self, name: &str, owner: &str, ttl: Duration) -> Result<Option<MemLock<C>>> {
        let request = validate::acquire(&self.shared.gate, name, owner, ttl)?;
        let granted = self.with(|state, now| {
            state.try_lock(
                &request.name,
                Claimant::Named(&request.owner),
                request.ttl,
                now,
            )
        })?;
        Ok(granted.map(|grant| MemLock::granted(self.clone(), name, owner, grant)))
    }

    /// A handle on a grant: see [`Locks::lock_handle`](alkstore::Locks::lock_handle).
    pub fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<MemLock<C>> {
        let (name, owner) = validate::handle(&self.shared.gate, name, owner)?;
        Ok(MemLock::rebuilt(
            self.clone(),
            name.as_str(),
            owner.as_str(),
            token,
        ))
    }

    /// Who holds `name`: see [`Locks::lock_info`](alkstore::Locks::lock_info).
    pub fn lock_info(&self, name: &str) -> Result<Option<LockInfo>> {
        let name = validate::lock(&self.shared.gate, name)?;
        self.with(|state, now| Ok(state.lock_info(&name, now)))
    }

    /// Lists locks: see [`Locks::list_locks`](alkstore::Locks::list_locks).
    pub fn list_locks(
        &self,
        prefix: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<LockInfo>> {
        validate::list_locks(&self.shared.gate, prefix, after)?;
        self.with(|state, now| Ok(state.list_locks(prefix, after, limit, now)))
    }

    /// Frees a grant: see [`Locks::force_release`](alkstore::Locks::force_release).
    pub fn force_release(&self, name: &str, token: Revision) -> Result<bool> {
        let name = validate::lock(&self.shared.gate, name)?;
        self.with_timeless(|state| Ok(state.force_release(&name, token)))
    }

    /// Reads an entry: see [`Entries::get`](alkstore::Entries::get).
    pub fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let key = validate::key(&self.shared.gate, key)?;
        self.with(|state, now| Ok(state.get(&key, now)))
    }

    /// Writes an entry: see [`Entries::put`](alkstore::Entries::put).
    pub fn put(&self, key: &[u8], value: &[u8], options: &PutOptions<'_>) -> Result<Put> {
        let request = validate::put(&self.shared.gate, key, value.len(), options)?;
        let put = PutRow {
            value: value.into(),
            mode: request.mode,
            ttl: request.ttl,
            guard: request.guard,
        };
        self.with(|state, now| state.put(&request.key, put, now))
    }

    /// Moves an entry's deadline: see [`Entries::touch`](alkstore::Entries::touch).
    pub fn touch(&self, key: &[u8], ttl: Duration) -> Result<bool> {
        let (key, ttl) = validate::touch(&self.shared.gate, key, ttl)?;
        self.with(|state, now| Ok(state.touch(&key, ttl, now)))
    }

    /// Deletes an entry: see [`Entries::delete`](alkstore::Entries::delete).
    pub fn delete(&self, key: &[u8], if_version: Option<Revision>) -> Result<bool> {
        let key = validate::key(&self.shared.gate, key)?;
        self.with(|state, now| Ok(state.delete(&key, if_version, now)))
    }

    /// Lists entries: see [`Entries::list`](alkstore::Entries::list).
    pub fn list(
        &self,
        prefix: &[u8],
        after: Option<&[u8]>,
        limit: usize,
    ) -> Result<Vec<EntryMeta>> {
        validate::list(&self.shared.gate, prefix, after)?;
        self.with(|state, now| Ok(state.list(prefix, after, limit, now)))
    }

    /// Opens a transaction whose methods are synchronous, as this store's are.
    pub fn begin(&self) -> MemTx<'_, C> {
        MemTx::new(self)
    }

    /// Applies a changeset: see
    /// [`Transactions::commit_changeset`](alkstore::Transactions::commit_changeset).
    pub fn commit_changeset(&self, changeset: Changeset) -> Result<Commit> {
        self.shared.gate.check()?;
        self.with(|state, now| state.commit(changeset, now))
    }

    /// Stages candidates: see
    /// [`EngineWindowState::window_stage`](alkstore::EngineWindowState::window_stage).
    pub fn window_stage(&self, candidates: &[Candidate], restage: Restage) -> Result<()> {
        self.shared.gate.check()?;
        self.with(|state, now| state.window_stage(candidates, restage, now))
    }

    /// Stages keys for later: see
    /// [`EngineWindowState::window_stage_after`](alkstore::EngineWindowState::window_stage_after).
    pub fn window_stage_after(
        &self,
        keys: &[Key<'_>],
        grace: Duration,
        restage: Restage,
    ) -> Result<()> {
        let grace = validate::duration(&self.shared.gate, grace)?;
        self.with(|state, now| state.window_stage_after(keys, grace, restage, now))
    }

    /// Takes what is due: see
    /// [`EngineWindowState::window_take`](alkstore::EngineWindowState::window_take).
    pub fn window_take(&self, now: Timestamp, limit: Option<usize>) -> Result<Vec<Candidate>> {
        self.shared.gate.check()?;
        self.with(|state, store_now| Ok(state.window_take(now, limit, store_now)))
    }

    /// Takes keys out: see
    /// [`EngineWindowState::window_unstage`](alkstore::EngineWindowState::window_unstage).
    pub fn window_unstage(&self, keys: &[Key<'_>]) -> Result<usize> {
        self.shared.gate.check()?;
        self.with_timeless(|state| Ok(state.window_unstage(keys)))
    }

    /// Claims what is due: see
    /// [`EngineWindowState::window_claim`](alkstore::EngineWindowState::window_claim).
    pub fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> Result<Vec<Claim>> {
        let lease = validate::duration(&self.shared.gate, lease)?;
        self.with(|state, store_now| state.window_claim(now, lease, limit, store_now))
    }

    /// Settles claims: see
    /// [`EngineWindowState::window_settle`](alkstore::EngineWindowState::window_settle).
    pub fn window_settle(&self, claims: &[Claim]) -> Result<usize> {
        self.shared.gate.check()?;
        self.with(|state, now| Ok(state.window_settle(claims, now)))
    }

    /// Puts claims back: see
    /// [`EngineWindowState::window_requeue`](alkstore::EngineWindowState::window_requeue).
    pub fn window_requeue(&self, claims: &[Claim], visible_after: Timestamp) -> Result<usize> {
        self.shared.gate.check()?;
        self.with(|state, now| Ok(state.window_requeue(claims, visible_after, now)))
    }

    /// Begins deletions: see
    /// [`EngineWindowState::window_mark`](alkstore::EngineWindowState::window_mark).
    pub fn window_mark(&self, claims: &[Claim], fence: Option<Revision>) -> Result<Vec<Reclaim>> {
        self.shared.gate.check()?;
        self.with(|state, now| state.window_mark(claims, fence, now))
    }

    /// Finishes deletions: see
    /// [`EngineWindowState::window_finish`](alkstore::EngineWindowState::window_finish).
    pub fn window_finish(&self, claims: &[Claim], fence: Option<Revision>) -> Result<Vec<Reclaim>> {
        self.shared.gate.check()?;
        self.with(|state, now| state.window_finish(claims, fence, now))
    }

    /// Deletes in one step: see
    /// [`EngineWindowState::window_delete`](alkstore::EngineWindowState::window_delete).
    pub fn window_delete(&self, claims: &[Claim], fence: Option<Revision>) -> Result<Vec<Reclaim>> {
        self.shared.gate.check()?;
        self.with(|state, now| state.window_delete(claims, fence, now))
    }

    /// What a deletion would meet: see
    /// [`EngineWindowState::window_judge`](alkstore::EngineWindowState::window_judge).
    pub fn window_judge(&self, keys: &[Key<'_>]) -> Result<Vec<Reclaim>> {
        self.shared.gate.check()?;
        self.with(|state, now| Ok(state.window_judge(keys, now)))
    }

    /// Lists the window: see [`EngineWindowState::window_list`](alkstore::EngineWindowState::window_list).
    pub fn window_list(&self, after: Option<&WindowRow>, limit: usize) -> Result<Vec<WindowRow>> {
        self.shared.gate.check()?;
        self.with_timeless(|state| Ok(state.window_list(after, limit)))
    }

    /// One row of the window: see [`EngineWindowState::window_info`](alkstore::EngineWindowState::window_info).
    pub fn window_info(&self, key: &[u8]) -> Result<Option<WindowRow>> {
        let key = validate::key(&self.shared.gate, key)?;
        self.with_timeless(|state| Ok(state.window_info(&key)))
    }

    /// Counts the window: see [`EngineWindowState::window_stats`](alkstore::EngineWindowState::window_stats).
    pub fn window_stats(&self, now: Timestamp) -> Result<WindowStats> {
        self.shared.gate.check()?;
        self.with(|state, store_now| Ok(state.window_stats(now, store_now)))
    }

    /// Begins a sweep: see [`EngineWindowState::sweep_begin`](alkstore::EngineWindowState::sweep_begin).
    pub fn sweep_begin(&self, ttl: Duration) -> Result<Option<Revision>> {
        let ttl = validate::duration(&self.shared.gate, ttl)?;
        self.with(|state, now| state.sweep_begin(ttl, now))
    }

    /// Extends a sweep: see [`EngineWindowState::sweep_extend`](alkstore::EngineWindowState::sweep_extend).
    pub fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> Result<bool> {
        let ttl = validate::duration(&self.shared.gate, ttl)?;
        self.with(|state, now| Ok(state.sweep_extend(epoch, ttl, now)))
    }

    /// Ends a sweep: see [`EngineWindowState::sweep_end`](alkstore::EngineWindowState::sweep_end).
    pub fn sweep_end(&self, epoch: Revision) -> Result<bool> {
        self.shared.gate.check()?;
        self.with_timeless(|state| Ok(state.sweep_end(epoch)))
    }

    /// The store clock.
    pub fn now(&self) -> Result<Timestamp> {
        self.shared.gate.check()?;
        self.with(|_, now| Ok(now))
    }

    /// Deletes lapsed rows: see [`Lifecycle::purge_lapsed`](alkstore::Lifecycle::purge_lapsed).
    pub fn purge_lapsed(&self, limit: usize) -> Result<usize> {
        self.shared.gate.check()?;
        self.with(|state, now| Ok(state.purge_lapsed(limit, now)))
    }

    /// What the store holds, counted.
    pub fn stats(&self) -> Result<Stats> {
        self.shared.gate.check()?;
        self.with_timeless(|state| Ok(state.stats()))
    }

    /// Everything that the store holds, as bytes: versioned, checksummed, deadlines absolute.
    pub fn snapshot(&self) -> Result<Vec<u8>> {
        self.shared.gate.check()?;
        self.with_timeless(|state| state.snapshot())
    }

    /// Becomes what a snapshot holds; where the bytes are not a whole snapshot of a version that this build reads, it
    /// fails with [`InvalidArgument`](ErrorKind::InvalidArgument), whose source is a
    /// [`SnapshotError`](crate::SnapshotError), and nothing changes.
    ///
    /// What the store held before is gone. Handles taken before remain good where the snapshot has their grant.
    /// Revisions go on above all that either lineage has given.
    pub fn restore(&self, snapshot: &[u8]) -> Result<()> {
        self.shared.gate.check()?;
        self.with_timeless(|state| state.restore(snapshot))
    }

    /// Closes the store, every clone of it, and every handle it gave out. Closing twice is fine.
    pub fn close(&self) {
        self.shared.gate.close();
    }

    pub(crate) fn gate(&self) -> &Gate {
        &self.shared.gate
    }

    /// Runs one operation on the state. The time is read when the wait for the state is over.
    pub(crate) fn with<T>(
        &self,
        operation: impl FnOnce(&mut State, Timestamp) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock()?;
        let now = {
            let _reading = Reading::begin(&self.shared.reading);
            self.shared.clock.now()
        };
        operation(&mut state, now)
    }

    /// The same for an operation whose outcome no time can change.
    pub(crate) fn with_timeless<T>(
        &self,
        operation: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        operation(&mut *self.lock()?)
    }

    fn lock(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock_open_or_closed()?;
        // Another handle may have closed the store while this one waited.
        self.shared.gate.check()?;
        Ok(state)
    }

    fn lock_open_or_closed(&self) -> Result<MutexGuard<'_, State>> {
        if self.shared.reading.load(Ordering::Relaxed) == this_thread() {
            return Err(Error::new(
                ErrorKind::Database,
                "the store was called by its own clock: a clock must not use the store that reads it",
            ));
        }
        self.shared.state.lock().map_err(|_| {
            Error::new(
                ErrorKind::Database,
                "the store is damaged: a panic interrupted an operation; open a new one",
            )
        })
    }
}

impl<C> Clone for MemStore<C> {
    fn clone(&self) -> Self {
        Self {
            shared: self.shared.clone(),
        }
    }
}

impl<C> fmt::Debug for MemStore<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemStore").finish_non_exhaustive()
    }
}

/// Marks the present thread as the one that reads the clock, for as long as it lives.
struct Reading<'a>(&'a AtomicUsize);

impl<'a> Reading<'a> {
    fn begin(reader: &'a AtomicUsize) -> Self {
        reader.store(this_thread(), Ordering::Relaxed);
        Self(reader)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// A number that no other living thread has: the address of something that each thread has one of.
fn this_thread() -> usize {
    thread_local!(static HERE: u8 = const { 0 });
    HERE.with(|here| std::ptr::from_ref(here).addr())
}
