//! The garbage-collection window: candidates that wait for their deadline before anything deletes them.

use alloc::vec::Vec;
use core::time::Duration;

use crate::{BoxFuture, Key, Lifecycle, Result, Revision, Timestamp};

/// The state of an engine that safe deletion rests on.
///
/// A mark pass stages the keys that nothing refers to, each with an instant before which it must not go. A sweep later
/// claims what is due, decides, deletes and settles. Publishing a key (a put in mode
/// [`Create`](crate::PutMode::Create)) takes it out of the window and voids its claim.
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
    /// publication or a move, removes nothing.
    fn window_settle<'a>(&'a self, claims: &'a [Claim]) -> BoxFuture<'a, Result<usize>>;

    /// Puts the rows of claims that still stand back, due at `visible_after`; answers how many.
    fn window_requeue<'a>(
        &'a self,
        claims: &'a [Claim],
        visible_after: Timestamp,
    ) -> BoxFuture<'a, Result<usize>>;
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
}
