//! Random histories: what may happen to a store.

use std::time::Duration;

use alkstore::{Restage, Timestamp};
use proptest::prelude::*;
use proptest::sample::select;

use crate::fixture::START;

pub(crate) const NAMES: [&str; 3] = ["a", "ab", "b"];
pub(crate) const OWNERS: [&str; 3] = ["o", "p", "q"];
pub(crate) const KEYS: [&str; 5] = ["a", "a\0", "ab", "b", "\u{ff}"];

/// One step of a history. Numbers that stand for grants, versions and claims count those that the history has seen,
/// from the latest backwards, so that they mean something however a history is shortened.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    /// Asks for a lock.
    TryLock {
        name: usize,
        owner: usize,
        ttl: Duration,
    },
    /// Renews a grant; by its own handle, or by one that is rebuilt, perhaps for another owner.
    Renew {
        grant: usize,
        rebuilt: Option<usize>,
        ttl: Duration,
    },
    /// Releases a grant, likewise.
    Release {
        grant: usize,
        rebuilt: Option<usize>,
    },
    /// Frees a grant by its token, perhaps under another name.
    ForceRelease { grant: usize, name: Option<usize> },
    /// Looks at a lock.
    LockInfo { name: usize },
    /// Lists locks.
    ListLocks {
        prefix: usize,
        after: Option<usize>,
        limit: usize,
    },
    /// Reads an entry.
    Get { key: usize },
    /// Writes an entry.
    Put {
        key: usize,
        value: u8,
        mode: Mode,
        ttl: Option<Duration>,
        guard: Option<(usize, Option<usize>)>,
    },
    /// Moves an entry's deadline.
    Touch { key: usize, ttl: Duration },
    /// Deletes an entry.
    Delete { key: usize, version: Option<usize> },
    /// Lists entries.
    List {
        prefix: usize,
        after: Option<usize>,
        limit: usize,
    },
    /// Commits a changeset.
    Commit {
        guards: Vec<usize>,
        parts: Vec<Part>,
    },
    /// Goes on with one of two open transactions, opening it where need be.
    Tx { slot: usize, step: Step },
    /// Adds to the window.
    Stage {
        rows: Vec<(usize, Timestamp)>,
        restage: Restage,
    },
    /// Takes from the window.
    Take { now: Now, limit: Option<usize> },
    /// Takes keys out of the window.
    Unstage { keys: Vec<usize> },
    /// Claims from the window.
    Claim {
        now: Now,
        lease: Duration,
        limit: usize,
    },
    /// Settles claims.
    Settle { claims: Vec<usize> },
    /// Puts claims back.
    Requeue { claims: Vec<usize>, at: Timestamp },
    /// Marks, finishes or deletes.
    Reclaim {
        how: How,
        claims: Vec<usize>,
        /// Behind which fence: none, or the epoch of a sweep, that many back from the latest.
        fence: Option<usize>,
    },
    /// Asks what deleting would meet.
    Judge { keys: Vec<usize> },
    /// Lists the window, from a row or from a place that may have none.
    ListWindow {
        after: Option<(usize, Timestamp)>,
        limit: usize,
    },
    /// Looks at a row of the window.
    WindowInfo { key: usize },
    /// Counts the window.
    WindowStats { now: Now },
    /// Begins a sweep.
    SweepBegin { ttl: Duration },
    /// Extends a sweep.
    SweepExtend { epoch: usize, ttl: Duration },
    /// Ends a sweep.
    SweepEnd { epoch: usize },
    /// Purges what has lapsed.
    Purge { limit: usize },
    /// Moves the clock forward.
    Advance { by: Duration },
    /// Sets the clock back.
    StepBack { by: Duration },
}

/// What is done with claims.
#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    /// The first step.
    Mark,
    /// The second one.
    Finish,
    /// Both in one.
    Delete,
}

/// When a put writes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// Where the key is absent.
    Create,
    /// Always.
    Replace,
    /// Over the current version.
    Current,
    /// Over some version that was given once.
    Old(usize),
}

/// One part of a changeset.
#[derive(Clone, Debug)]
pub(crate) enum Part {
    /// What must hold.
    Check {
        key: usize,
        absent: bool,
        old: Option<usize>,
    },
    /// A write.
    Put {
        key: usize,
        value: u8,
        mode: Mode,
        ttl: Option<Duration>,
    },
    /// A deletion.
    Delete { key: usize },
    /// Into the window.
    Stage {
        key: usize,
        at: Timestamp,
        restage: Restage,
    },
    /// Out of the window.
    Unstage { key: usize },
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Reads.
    Get { key: usize },
    /// Writes.
    Put {
        key: usize,
        value: u8,
        mode: Mode,
        ttl: Option<Duration>,
    },
    /// Deletes.
    Delete { key: usize },
    /// Into the window.
    Stage {
        key: usize,
        at: Timestamp,
        restage: Restage,
    },
    /// Out of the window.
    Unstage { key: usize },
    /// Guards.
    Guard { grant: usize },
    /// Commits.
    Commit,
    /// Rolls back, or drops.
    End { roll_back: bool },
}

/// What a sweeper takes for the present.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now {
    /// The store clock's.
    Store,
    /// An instant of its own.
    Own(Timestamp),
}

/// Histories of `length` steps on average; they may be shortened down to one.
pub(crate) fn histories(length: usize) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 1..2 * length)
}

fn op() -> impl Strategy<Value = Op> {
    let grant = || 0..12_usize;
    let owner = || prop_oneof![3 => Just(None), 1 => (0..OWNERS.len()).prop_map(Some)];
    let opt_key = || prop::option::of(0..KEYS.len());
    let guard = prop::option::weighted(
        0.3,
        (
            grant(),
            prop_oneof![4 => Just(None), 1 => name().prop_map(Some)],
        ),
    );
    let now = || prop_oneof![3 => Just(Now::Store), 1 => instant().prop_map(Now::Own)];
    prop_oneof![
        10 => (name(), 0..OWNERS.len(), ttl()).prop_map(|(name, owner, ttl)| Op::TryLock { name, owner, ttl }),
        5 => (grant(), owner(), ttl()).prop_map(|(grant, rebuilt, ttl)| Op::Renew { grant, rebuilt, ttl }),
        4 => (grant(), owner()).prop_map(|(grant, rebuilt)| Op::Release { grant, rebuilt }),
        2 => (grant(), prop::option::weighted(0.2, name())).prop_map(|(grant, name)| Op::ForceRelease { grant, name }),
        2 => name().prop_map(|name| Op::LockInfo { name }),
        2 => (0..NAMES.len() + 1, prop::option::of(name()), limit()).prop_map(|(prefix, after, limit)| Op::ListLocks { prefix, after, limit }),
        4 => key().prop_map(|key| Op::Get { key }),
        12 => (key(), any::<u8>(), mode(), opt_ttl(), guard)
            .prop_map(|(key, value, mode, ttl, guard)| Op::Put { key, value, mode, ttl, guard }),
        3 => (key(), ttl()).prop_map(|(key, ttl)| Op::Touch { key, ttl }),
        4 => (key(), prop::option::of(grant())).prop_map(|(key, version)| Op::Delete { key, version }),
        2 => (0..KEYS.len() + 1, opt_key(), limit()).prop_map(|(prefix, after, limit)| Op::List { prefix, after, limit }),
        6 => (prop::collection::vec(grant(), 0..2), prop::collection::vec(part(), 0..6))
            .prop_map(|(guards, parts)| Op::Commit { guards, parts }),
        22 => (0..2_usize, step()).prop_map(|(slot, step)| Op::Tx { slot, step }),
        6 => (prop::collection::vec((key(), instant()), 0..4), restage()).prop_map(|(rows, restage)| Op::Stage { rows, restage }),
        3 => (now(), prop::option::of(limit())).prop_map(|(now, limit)| Op::Take { now, limit }),
        1 => prop::collection::vec(key(), 0..3).prop_map(|keys| Op::Unstage { keys }),
        5 => (now(), ttl(), limit()).prop_map(|(now, lease, limit)| Op::Claim { now, lease, limit }),
        3 => prop::collection::vec(grant(), 0..4).prop_map(|claims| Op::Settle { claims }),
        2 => (prop::collection::vec(grant(), 0..4), instant()).prop_map(|(claims, at)| Op::Requeue { claims, at }),
        8 => (how(), prop::collection::vec(0..6_usize, 0..4), prop::option::weighted(0.25, 0..3_usize))
            .prop_map(|(how, claims, fence)| Op::Reclaim { how, claims, fence }),
        1 => prop::collection::vec(key(), 0..4).prop_map(|keys| Op::Judge { keys }),
        2 => (prop::option::of((key(), instant())), limit()).prop_map(|(after, limit)| Op::ListWindow { after, limit }),
        1 => key().prop_map(|key| Op::WindowInfo { key }),
        1 => now().prop_map(|now| Op::WindowStats { now }),
        2 => ttl().prop_map(|ttl| Op::SweepBegin { ttl }),
        1 => (0..3_usize, ttl()).prop_map(|(epoch, ttl)| Op::SweepExtend { epoch, ttl }),
        1 => (0..3_usize).prop_map(|epoch| Op::SweepEnd { epoch }),
        2 => limit().prop_map(|limit| Op::Purge { limit }),
        10 => span().prop_map(|by| Op::Advance { by }),
        1 => span().prop_map(|by| Op::StepBack { by }),
    ]
}

fn part() -> impl Strategy<Value = Part> {
    prop_oneof![
        3 => (key(), any::<bool>(), prop::option::weighted(0.3, 0..8_usize)).prop_map(|(key, absent, old)| Part::Check { key, absent, old }),
        4 => (key(), any::<u8>(), mode(), opt_ttl()).prop_map(|(key, value, mode, ttl)| Part::Put { key, value, mode, ttl }),
        2 => key().prop_map(|key| Part::Delete { key }),
        2 => (key(), instant(), restage()).prop_map(|(key, at, restage)| Part::Stage { key, at, restage }),
        1 => key().prop_map(|key| Part::Unstage { key }),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => key().prop_map(|key| Step::Get { key }),
        6 => (key(), any::<u8>(), mode(), opt_ttl()).prop_map(|(key, value, mode, ttl)| Step::Put { key, value, mode, ttl }),
        2 => key().prop_map(|key| Step::Delete { key }),
        2 => (key(), instant(), restage()).prop_map(|(key, at, restage)| Step::Stage { key, at, restage }),
        1 => key().prop_map(|key| Step::Unstage { key }),
        1 => (0..6_usize).prop_map(|grant| Step::Guard { grant }),
        5 => Just(Step::Commit),
        1 => any::<bool>().prop_map(|roll_back| Step::End { roll_back }),
    ]
}

fn name() -> impl Strategy<Value = usize> {
    0..NAMES.len()
}

fn key() -> impl Strategy<Value = usize> {
    0..KEYS.len()
}

fn limit() -> impl Strategy<Value = usize> {
    select(vec![usize::MAX, 0, 1, 2, 3])
}

fn restage() -> impl Strategy<Value = Restage> {
    select(vec![Restage::Move, Restage::Keep])
}

fn how() -> impl Strategy<Value = How> {
    prop_oneof![3 => Just(How::Mark), 2 => Just(How::Finish), 2 => Just(How::Delete)]
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        4 => Just(Mode::Create),
        3 => Just(Mode::Replace),
        2 => Just(Mode::Current),
        1 => (0..8_usize).prop_map(Mode::Old),
    ]
}

/// Durations that meet each other, so that deadlines and clock are often the very same instant; now and then none.
fn ttl() -> impl Strategy<Value = Duration> {
    let ms = Duration::from_millis;
    prop_oneof![
        30 => select(vec![ms(1), ms(2), ms(3), ms(5), ms(10), ms(1000), Duration::from_nanos(1)]),
        1 => Just(Duration::ZERO),
    ]
}

fn opt_ttl() -> impl Strategy<Value = Option<Duration>> {
    prop::option::of(ttl())
}

fn span() -> impl Strategy<Value = Duration> {
    let ms = Duration::from_millis;
    select(vec![
        Duration::from_nanos(1),
        ms(1),
        ms(1),
        ms(2),
        ms(3),
        ms(5),
        ms(100),
    ])
}

fn instant() -> impl Strategy<Value = Timestamp> {
    (0..40_u64).prop_map(|millis| START.plus(Duration::from_millis(millis)))
}
