//! The garbage-collection window: candidates that wait for their deadline before anything deletes them.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{BoxFuture, Key, Lifecycle, Result, Revision, Timestamp};

/// The state of an engine that safe deletion rests on.
///
/// A mark pass stages the keys that nothing refers to, each with an instant before which it must not go. A sweep later
/// claims what is due, decides, deletes and settles: [`sweep`](crate::sweep()) does that over any engine. Publishing a
/// key (a put in mode [`Create`](crate::PutMode::Create)) takes it out of the window and voids its claim.
///
/// Where a key stands for something outside the store, as an object in an object store, that must go before the entry
/// does, and no writer may trust the entry while it goes. So a sweep first [marks](Self::window_mark) the row; from then
/// on no put of the key succeeds ([`Conflict`](crate::ErrorKind::Conflict), retryable) until the entry is gone
/// ([`window_finish`](Self::window_finish)). A marked row is not taken, unstaged, moved or settled; when its claim
/// lapses it is claimed again and its deletion finished.
///
/// Whether a row is due is judged against the `now` that the caller passes, which should be the store's own
/// [`now`](Lifecycle::now); whether a claim has lapsed is always judged by the store clock.
pub trait EngineWindowState: Lifecycle {
    /// Makes the tables of the window where they are missing; repeating it, also by two first users at once, is safe.
    /// A store that is open has them already.
    fn ensure_gc_schema(&self) -> BoxFuture<'_, Result<()>>;

    /// Adds candidates. A key that is there with the same deadline stays as it is; with another one it moves or stays
    /// as `restage` says. A key named twice is staged twice, in that order.
    fn window_stage<'a>(
        &'a self,
        candidates: &'a [Candidate],
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>>;

    /// The same for keys that become due `grace` after the instant, by the store clock, at which they are staged. A mark
    /// pass needs this: between reading a clock and staging, a publication could come, and a sweep would follow it sooner
    /// than `grace` later.
    fn window_stage_after<'a>(
        &'a self,
        keys: &'a [Key<'a>],
        grace: Duration,
        restage: Restage,
    ) -> BoxFuture<'a, Result<()>>;

    /// Removes and returns the rows that are due at `now` and not under a live claim, oldest first, `limit` at most,
    /// all of them where `None`. No row is handed out twice. Nothing due is an empty answer.
    fn window_take(
        &self,
        now: Timestamp,
        limit: Option<usize>,
    ) -> BoxFuture<'_, Result<Vec<Candidate>>>;

    /// Takes keys out of the window, claimed or not; answers how many were there.
    fn window_unstage<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<usize>>;

    /// Hands out the rows that are due at `now` and not under a live claim, oldest first, without removing them. Until
    /// `lease` from now nobody else gets them; then they can be claimed again, so that a crash loses no candidate.
    fn window_claim(
        &self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> BoxFuture<'_, Result<Vec<Claim>>>;

    /// Removes the rows of claims that still stand; answers how many. A claim that lapsed, or was voided by a
    /// publication or a move, removes nothing; nor does one whose row is marked.
    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>>;

    /// Puts the rows of claims that still stand back, due at `visible_after`; answers how many. A mark stays, and the
    /// row counts how often it was put back.
    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>>;

    /// Begins the deletion of what the keys of `claims` stand for: arbitrates and marks their rows, each in one atomic
    /// step. Answers for each claim, in order: [`Marked`](Reclaim::Marked), also where it was marked already; else why
    /// not.
    ///
    /// With a `fence`, the epoch of a sweep ([`sweep_begin`](Self::sweep_begin)), the call fails with
    /// [`LeaseLost`](crate::ErrorKind::LeaseLost) and changes nothing once that sweep is no longer the current one.
    ///
    /// Arbitration is the engine's: on Postgres live pins and the registered tables of references protect a key. Memory
    /// and SQLite have neither, so a claim that stands is enough there.
    fn window_mark<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>>;

    /// Deletes the entries of marked `claims` and removes their rows, once what they stood for is gone. Answers for each
    /// claim: [`Deleted`](Reclaim::Deleted) or [`Absent`](Reclaim::Absent); else why not. `fence` as in
    /// [`window_mark`](Self::window_mark).
    fn window_finish<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>>;

    /// Marks and finishes in one step, for keys that stand for nothing outside the store: arbitrates, deletes the entries
    /// of `claims` and removes their rows. A row that is marked already is left alone
    /// ([`Marked`](Reclaim::Marked)): something outside belongs to it. `fence` as in
    /// [`window_mark`](Self::window_mark).
    fn window_delete<'a>(
        &'a self,
        claims: &'a [Claim],
        fence: Option<Revision>,
    ) -> BoxFuture<'a, Result<Vec<Reclaim>>>;

    /// What deleting these keys now would meet, without claims and without changing anything: for each
    /// [`Deleted`](Reclaim::Deleted), [`Absent`](Reclaim::Absent), [`Pinned`](Reclaim::Pinned) or
    /// [`Referenced`](Reclaim::Referenced).
    fn window_judge<'a>(&'a self, keys: &'a [Key<'a>]) -> BoxFuture<'a, Result<Vec<Reclaim>>>;

    /// The rows after `after` in the order in which they become due (by key where at one instant), claimed or not,
    /// `limit` at most.
    fn window_list<'a>(
        &'a self,
        after: Option<&'a WindowRow>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<WindowRow>>>;

    /// The row of `key`, where it waits in the window.
    fn window_info<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<Option<WindowRow>>>;

    /// The window in numbers. What is due is counted at `now`.
    fn window_stats(&self, now: Timestamp) -> BoxFuture<'_, Result<WindowStats>>;

    /// Whether the engine itself knows what refers to keys, as Postgres does once a table is registered.
    fn has_liveness_sources(&self) -> bool;

    /// Whether the engine has pins, as a [fleet's](crate::EngineFleetState) does. A sweep looks at them before it asks
    /// sources of its own.
    fn has_pins(&self) -> bool;

    /// Becomes the one sweep of this store: its epoch, or `None` where another sweep is under way. It lasts until `ttl`
    /// from now, or as long as the connection that holds it where the engine is a [fleet's](crate::EngineFleetState).
    ///
    /// Nothing but the fence of [`window_mark`](Self::window_mark) and its like asks for it: claims alone keep sweepers
    /// apart.
    fn sweep_begin(&self, ttl: Duration) -> BoxFuture<'_, Result<Option<Revision>>>;

    /// Extends the sweep `epoch` until `ttl` from now; false where it is no longer the current one.
    fn sweep_extend(&self, epoch: Revision, ttl: Duration) -> BoxFuture<'_, Result<bool>>;

    /// Ends the sweep `epoch`; false where it was no longer the current one.
    fn sweep_end(&self, epoch: Revision) -> BoxFuture<'_, Result<bool>>;
}

/// What became of a claim, or would become of a key, when it came to deleting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum Reclaim {
    /// The row is marked.
    Marked,
    /// The row and the live entry are gone.
    Deleted {
        /// The length of the entry's value.
        bytes: u64,
    },
    /// The row is gone; there was no live entry.
    Absent,
    /// Nothing happened: the row was not marked before.
    Unmarked,
    /// Nothing happened: the claim was voided, because the key was published, moved or unstaged since.
    Voided,
    /// Nothing happened: the claim had lapsed.
    Lapsed,
    /// Nothing happened: a live pin protects the key.
    Pinned,
    /// Nothing happened: a registered table of references protects the key.
    Referenced,
}

/// A row of the window, as [`window_list`](EngineWindowState::window_list) shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowRow {
    /// The key.
    pub key: Key<'static>,
    /// From when it is due.
    pub visible_after: Timestamp,
    /// When the last claim on it lapses, or lapsed; `None` where it is not claimed.
    pub claimed_until: Option<Timestamp>,
    /// Whether what the key stands for is being deleted.
    pub reclaiming: bool,
    /// How often it was put back since it was staged.
    pub requeues: u32,
}

/// The window in numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WindowStats {
    /// All rows.
    pub rows: u64,
    /// Rows that are due, claimed or not.
    pub due: u64,
    /// Rows under a live claim.
    pub claimed: u64,
    /// Rows that are marked.
    pub reclaiming: u64,
    /// Rows that were put back at least once.
    pub requeued: u64,
    /// When the oldest row became, or becomes, due.
    pub oldest: Option<Timestamp>,
}

/// A key that may be garbage, and the instant from which it may be deleted.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Candidate {
    /// The key.
    pub key: Key<'static>,
    /// Not before this instant; at this very instant it is due.
    pub visible_after: Timestamp,
}

/// What staging does with a key that waits already, for another deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Restage {
    /// The new deadline replaces the old one and voids a claim.
    #[default]
    Move,
    /// The old deadline stands. Repeated mark passes need this: moving for ever starves the sweep.
    Keep,
}

/// A row of the window that was handed out until its lease lapses.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Claim {
    /// The key.
    pub key: Key<'static>,
    /// When the row became due.
    pub visible_after: Timestamp,
    /// The number of this claim.
    pub id: Revision,
    /// When the claim lapses, by the store clock.
    pub until: Timestamp,
    /// Whether the row is marked: an earlier sweep began to delete what the key stands for and did not finish.
    pub reclaiming: bool,
    /// How often the row was put back since it was staged.
    pub requeues: u32,
}
