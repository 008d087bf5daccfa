//! Everything that a store in memory holds, as one value.

use std::sync::Arc;

use alkstore::{Error, ErrorKind, Payload, Result, Revision, Timestamp, Value};

use crate::entries::EntryRow;
use crate::index::Place;
use crate::locks::{LockRow, Mint};
use crate::table::Table;
use crate::window::Window;

/// Where a full store refuses to grow. Lapsed rows are purged before anything is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Options {
    /// The most lock rows, lapsed ones included.
    pub max_locks: usize,
    /// The most entry rows, lapsed ones included.
    pub max_entries: usize,
    /// The most bytes of lock names, owners, keys, values and window keys together. The store's own bookkeeping, about
    /// a hundred bytes a row, comes on top.
    pub max_bytes: usize,
}

impl Default for Options {
    /// No limit but the machine's memory.
    fn default() -> Self {
        Self {
            max_locks: usize::MAX,
            max_entries: usize::MAX,
            max_bytes: usize::MAX,
        }
    }
}

/// What a store holds, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Lock rows, lapsed ones included.
    pub locks: usize,
    /// Entry rows, lapsed ones included.
    pub entries: usize,
    /// Rows of the window.
    pub window: usize,
    /// Bytes of names, owners, keys and values.
    pub bytes: usize,
    /// The last revision that was given; 0 where none was.
    pub revision: u64,
}

/// The guarded state of a store in memory, without a guard and without a clock.
///
/// [`MemStore`](crate::MemStore) puts it behind a mutex and reads its clock while it holds that. Use it directly only
/// to bring a guard and a clock of your own, as the JavaScript binding does: `now` must not run backwards more than
/// the caller can bear, and no method may be called while another runs, which `&mut` sees to.
///
/// `V` is how values are kept: [`Value`] natively, a reference into the JavaScript heap in the binding.
#[derive(Debug)]
pub struct State<V = Value> {
    pub(crate) locks: Table<LockRow>,
    pub(crate) entries: Table<EntryRow<V>>,
    pub(crate) window: Window,
    pub(crate) revision: u64,
    pub(crate) bytes: usize,
    pub(crate) mint: Mint,
    pub(crate) last_owner: Arc<str>,
    options: Options,
    seed: u64,
}

/// By how much a change would grow the store.
#[derive(Clone, Copy, Default)]
pub(crate) struct Growth {
    pub(crate) locks: isize,
    pub(crate) entries: isize,
    pub(crate) bytes: isize,
}

/// Random numbers that a state needs: draw both from the system, and keep them to yourself.
#[derive(Clone, Copy)]
pub struct Seeds {
    /// Keys the hash tables: whoever cannot guess it cannot choose names that collide.
    pub hash: u64,
    /// Tells the owners that this state mints from those of others. It shows in their names.
    pub mint: u64,
}

impl core::fmt::Debug for Seeds {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Seeds").finish_non_exhaustive()
    }
}

impl<V: Payload> State<V> {
    /// An empty state.
    pub fn new(seeds: Seeds, options: Options) -> Self {
        Self {
            locks: Table::new(seeds.hash, 0),
            entries: Table::new(seeds.hash, 0),
            window: Window::new(seeds.hash),
            revision: 0,
            bytes: 0,
            mint: Mint::new(seeds.mint),
            last_owner: Arc::default(),
            options,
            seed: seeds.hash,
        }
    }

    /// What it holds.
    pub fn stats(&self) -> Stats {
        Stats {
            locks: self.locks.len(),
            entries: self.entries.len(),
            window: self.window.len(),
            bytes: self.bytes,
            revision: self.revision,
        }
    }

    /// Deletes up to `limit` lapsed rows, of locks and of entries; answers how many.
    pub fn purge_lapsed(&mut self, limit: usize, now: Timestamp) -> usize {
        let mut purged = 0;
        while purged < limit && self.purge_one(now) {
            purged += 1;
        }
        purged
    }

    /// Draws the next revision.
    pub(crate) fn draw(&mut self) -> Result<Revision> {
        next(&mut self.revision)
    }

    /// Fails where fewer than `count` revisions are left, so that a change of several parts fails before its first.
    pub(crate) fn check_revisions(&self, count: usize) -> Result<()> {
        let last = self.revision.saturating_add(count as u64);
        if last > Revision::MAX {
            return Err(exhausted());
        }
        Ok(())
    }

    /// Forgets every row. Handles that were given before are accepted no more.
    pub(crate) fn clear(&mut self) {
        self.locks = Table::new(self.seed, self.locks.next_generation());
        self.entries = Table::new(self.seed, self.entries.next_generation());
        self.window = Window::new(self.seed);
        self.bytes = 0;
    }

    fn purge_one(&mut self, now: Timestamp) -> bool {
        if let Some((slot, deadline)) = self.locks.deadlines.earliest() {
            if deadline.lapsed(now) {
                self.remove_lock(Place::At(slot));
                return true;
            }
        }
        if let Some((slot, deadline)) = self.entries.deadlines.earliest() {
            if deadline.lapsed(now) {
                self.remove_entry(Place::At(slot));
                return true;
            }
        }
        false
    }

    /// What stands in the way of growing so, if anything.
    #[inline]
    pub(crate) fn refuses(&self, growth: Growth) -> Option<&'static str> {
        let over =
            |len: usize, more: isize, max: usize| more > 0 && len.saturating_add_signed(more) > max;
        if over(self.locks.len(), growth.locks, self.options.max_locks) {
            Some("the limit of locks is reached (max_locks)")
        } else if over(self.entries.len(), growth.entries, self.options.max_entries) {
            Some("the limit of entries is reached (max_entries)")
        } else if over(self.bytes, growth.bytes, self.options.max_bytes) {
            Some("the limit of bytes is reached (max_bytes)")
        } else {
            None
        }
    }

    /// Purges lapsed rows until a change fits. `growth` is asked again after each, since a purge may delete the very
    /// rows that the change would have replaced.
    #[cold]
    pub(crate) fn make_room(
        &mut self,
        now: Timestamp,
        growth: impl Fn(&Self) -> Growth,
    ) -> Result<()> {
        while let Some(reason) = self.refuses(growth(self)) {
            if !self.purge_one(now) {
                return Err(Error::new(ErrorKind::CapacityExceeded, reason));
            }
        }
        Ok(())
    }
}

pub(crate) fn next(revision: &mut u64) -> Result<Revision> {
    let next = Revision::new(*revision + 1).ok_or_else(exhausted)?;
    *revision = next.get();
    Ok(next)
}

#[cold]
fn exhausted() -> Error {
    Error::new(
        ErrorKind::CapacityExceeded,
        "the store has given its last revision (2^53 - 1)",
    )
}

/// A length as a difference; no length in memory exceeds `isize`.
#[inline]
pub(crate) fn signed(len: usize) -> isize {
    isize::try_from(len).unwrap_or(isize::MAX)
}
