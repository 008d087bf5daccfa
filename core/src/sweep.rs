//! A sweep's options and its report.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use core::sync::atomic::AtomicBool;
use core::time::Duration;

use crate::hook::Hook;
use crate::sweeping::Terms;
use crate::{Error, LivenessSource, Reclaimer, Timer};

/// How to [sweep](crate::sweep()).
///
/// ```
/// use alkstore::SweepOptions;
/// use std::time::Duration;
///
/// // Nothing asks for references here: what was staged and not published since is garbage.
/// let options = SweepOptions::new()
///     .window_decides()
///     .limit(10_000)
///     .time_limit(Duration::from_secs(60));
/// ```
#[derive(Default)]
pub struct SweepOptions<'a> {
    pub(crate) terms: Terms,
    pub(crate) sources: Vec<&'a dyn LivenessSource>,
    pub(crate) reclaimer: Option<&'a dyn Reclaimer>,
    pub(crate) timer: Option<&'a dyn Timer>,
    pub(crate) cancel: Option<&'a AtomicBool>,
    pub(crate) progress: Option<&'a mut dyn Progress>,
}

/// Who is told how a sweep goes: any closure over a report that can go to another thread.
pub trait Progress: Hook {
    /// Called after every batch.
    fn report(&mut self, so_far: &SweepReport);
}

impl<F: FnMut(&SweepReport) + Hook> Progress for F {
    fn report(&mut self, so_far: &SweepReport) {
        self(so_far);
    }
}

impl<'a> SweepOptions<'a> {
    /// Every default, and nobody who knows what is live: add a [`source`](Self::source), or say that the
    /// [window decides](Self::window_decides).
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks `source` too: what any source calls live is not deleted.
    #[must_use]
    pub fn source(mut self, source: &'a dyn LivenessSource) -> Self {
        self.sources.push(source);
        self.terms.sources += 1;
        self
    }

    /// Nobody need be asked: what was staged, has become due and was not published since is garbage. Without this, and
    /// without any source, a sweep deletes nothing.
    #[must_use]
    pub fn window_decides(mut self) -> Self {
        self.terms.window_decides = true;
        self
    }

    /// Has `reclaimer` delete what each key stands for before its entry goes.
    #[must_use]
    pub fn reclaimer(mut self, reclaimer: &'a dyn Reclaimer) -> Self {
        self.reclaimer = Some(reclaimer);
        self.terms.reclaims = true;
        self
    }

    /// Who waits for the sweep: needed for a [`rate`](Self::rate) and for a [`hook_timeout`](Self::hook_timeout). With a
    /// timer the sweep also lets others have their turn between batches.
    #[must_use]
    pub fn timer(mut self, timer: &'a dyn Timer) -> Self {
        self.timer = Some(timer);
        self.terms.waits = true;
        self
    }

    /// Examines at most so many candidates; no limit by default.
    #[must_use]
    pub fn limit(mut self, candidates: u64) -> Self {
        self.terms.limit = Some(candidates);
        self
    }

    /// How many candidates are worked on at once: 1,000 by default, or 64 with a reclaimer, and 10,000 at most.
    #[must_use]
    pub fn batch(mut self, candidates: usize) -> Self {
        self.terms.batch = Some(candidates);
        self
    }

    /// Begins no batch later than this after the start, by the store clock.
    #[must_use]
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.terms.time_limit = Some(limit);
        self
    }

    /// Examines at most so many candidates a second, on average since the start.
    #[must_use]
    pub fn rate(mut self, per_second: NonZeroU32) -> Self {
        self.terms.rate = Some(per_second);
        self
    }

    /// How long a source, or the reclaimer, may take for one call. A source that takes longer counts as failed, and a
    /// payload whose deletion takes longer as not deleted. Must be shorter than the [`claim_lease`](Self::claim_lease).
    #[must_use]
    pub fn hook_timeout(mut self, timeout: Duration) -> Self {
        self.terms.hook_timeout = Some(timeout);
        self
    }

    /// For how long candidates are claimed, and for how long a sweep that vanished keeps others from sweeping: 60 s by
    /// default. A batch must be through within it.
    #[must_use]
    pub fn claim_lease(mut self, lease: Duration) -> Self {
        self.terms.claim_lease = Some(lease);
        self
    }

    /// For how long a key that is pinned or could not be deleted waits: `first` (1 s by default), twice as long each time
    /// up to `most` (15 min).
    #[must_use]
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.terms.backoff = Some((first, most));
        self
    }

    /// Changes nothing, and reports what a sweep would do now.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.terms.dry_run = true;
        self
    }

    /// Ends the sweep soon after the flag is set; what it has in hand is put back.
    #[must_use]
    pub fn cancel(mut self, flag: &'a AtomicBool) -> Self {
        self.cancel = Some(flag);
        self
    }

    /// Who is told how it goes.
    #[must_use]
    pub fn progress(mut self, progress: &'a mut dyn Progress) -> Self {
        self.progress = Some(progress);
        self
    }
}

impl fmt::Debug for SweepOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SweepOptions").finish_non_exhaustive()
    }
}

/// What a sweep did, or, of a dry run, would have done.
///
/// Every candidate that was examined is in exactly one of `deleted`, `already_absent`, the three `protected_by_...`,
/// `failed` and `lost_lease`, except those that were in hand when the sweep ended early: these are put back and not
/// counted.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct SweepReport {
    /// Whether nothing was changed.
    pub dry_run: bool,
    /// Candidates that were looked at.
    pub examined: u64,
    /// Entries that were deleted.
    pub deleted: u64,
    /// The bytes of the deleted entries' values; with a reclaimer, what it says that it freed.
    pub bytes_freed: u64,
    /// Candidates without a live entry: they left the window.
    pub already_absent: u64,
    /// Candidates with a live pin: they were put back.
    pub protected_by_pin: u64,
    /// Candidates that something refers to: they left the window.
    pub protected_by_liveness: u64,
    /// Candidates that were published, moved or unstaged while they were in hand.
    pub protected_by_publication: u64,
    /// Candidates whose payload could not be deleted, or whose deletion another sweep began with a reclaimer that this
    /// one lacks: they were put back.
    pub failed: u64,
    /// Candidates whose claim lapsed while they were in hand.
    pub lost_lease: u64,
    /// How many of the examined were put back for later.
    pub requeued: u64,
    /// How long the oldest candidate had been due when the sweep began; `None` where none was.
    pub oldest_overdue: Option<Duration>,
    /// Why it ended.
    pub stop: SweepStop,
    /// What failed, where something did: why a source, the reclaimer or the engine could not do its work. The last such
    /// failure.
    pub error: Option<Error>,
}

/// Why a sweep ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SweepStop {
    /// It has not.
    #[default]
    Running,
    /// Nothing that was due when it began was left.
    Drained,
    /// It had examined as many as it was allowed.
    Limit,
    /// Its time was over.
    TimeLimit,
    /// It was told to end.
    Cancelled,
    /// It had to.
    Aborted(GcAbortCause),
}

/// Why a sweep had to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum GcAbortCause {
    /// Another sweep is under way.
    SweeperLock,
    /// Nobody knows what is live, and it was not said that the window decides.
    NoLivenessSources,
    /// A source failed, took too long, or answered for another number of keys.
    LivenessFailed,
    /// It is no longer the current sweep, because it stalled or its connection broke.
    LostLease,
    /// The engine failed: see [`SweepReport::error`].
    EngineFailed,
}
