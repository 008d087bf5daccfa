//! Random histories of an engine, against a plain model of the contract: maps, and the rules of core.
//!
//! The model never foresees a revision. It says that a grant, a write or a claim must get one, takes what the engine
//! gave, and holds it to being new and, for its name or key, the highest. Where the contract leaves a choice (which of
//! several rows of one age are taken, which lapsed rows go first), the model checks that the engine's choice is one of
//! them and follows it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use alkstore::rules::entry::{self, Head};
use alkstore::rules::lock::{self, Acquisition, Grant};
use alkstore::rules::window::{self, Row};
use alkstore::{
    Candidate, Changeset, Claim, Commit, Entry, EntryMeta, Expect, Key, Lock, LockInfo, LockName,
    Put, PutMode, PutOptions, Restage, Result, Revision, StoreExt as _, Timestamp, Ttl, Tx,
    TxEntry, TxPut, Value,
};
use proptest::prelude::*;
use proptest::sample::select;

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Limits, Opened, START};
use crate::{ensure, ensure_eq, CaseResult, Failure};

const NAMES: [&str; 3] = ["a", "ab", "b"];
const OWNERS: [&str; 3] = ["o", "p", "q"];
const KEYS: [&str; 5] = ["a", "a\0", "ab", "b", "\u{ff}"];

/// One step of a history. Numbers that stand for grants, versions and claims count those that the history has seen,
/// from the latest backwards, so that they mean something however a history is shortened.
#[derive(Clone, Debug)]
pub enum Op {
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
    /// Purges what has lapsed.
    Purge { limit: usize },
    /// Moves the clock forward.
    Advance { by: Duration },
    /// Sets the clock back.
    StepBack { by: Duration },
}

/// When a put writes.
#[derive(Clone, Copy, Debug)]
pub enum Mode {
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
pub enum Part {
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
pub enum Step {
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
pub enum Now {
    /// The store clock's.
    Store,
    /// An instant of its own.
    Own(Timestamp),
}

/// Histories of `length` steps on average; they may be shortened down to one.
pub fn histories(length: usize) -> impl Strategy<Value = Vec<Op>> {
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

/// Runs a history on a fresh store of the fixture and on the model, side by side.
pub async fn run(fixture: &dyn Fixture, history: &[Op]) -> CaseResult {
    let opened = fixture.open(Limits::default()).await?;
    let other = fixture.another(&opened).await?;
    let mut run = Run {
        fixture,
        store: &opened,
        other: &other,
        model: Model::default(),
        grants: Vec::new(),
        versions: Vec::new(),
        claims: Vec::new(),
        open: [None, None],
        clock: START,
    };
    for (at, op) in history.iter().enumerate() {
        let named = |broken| Failure::new(format_args!("step {at}, {op:?}: {broken}"));
        run.step(op).await.map_err(named)?;
        if at % 8 == 7 {
            run.compare().await.map_err(named)?;
        }
    }
    run.compare().await?;
    // Once no claim stands any more, everything that waits can be seen by taking it.
    run.set_clock(run.model.now.plus(Duration::from_secs(3600)))
        .await?;
    run.take(Timestamp::MAX, None).await?;
    ensure_eq!(run.model.window.len(), 0);
    Ok(())
}

/// What the contract says is in a store.
#[derive(Debug)]
struct Model {
    now: Timestamp,
    locks: BTreeMap<String, Grant<String>>,
    entries: BTreeMap<Vec<u8>, Stored>,
    window: BTreeMap<Vec<u8>, Row>,
    /// Every revision that was given, and the last one of each lock and each entry.
    given: BTreeSet<Revision>,
    last_token: BTreeMap<String, Revision>,
    last_version: BTreeMap<Vec<u8>, Revision>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    value: Vec<u8>,
    head: Head,
}

/// A changeset, as the model sees it.
#[derive(Debug, Default)]
struct Plan {
    guards: BTreeMap<String, Revision>,
    checks: BTreeMap<Vec<u8>, Expect>,
    writes: BTreeMap<Vec<u8>, Option<(Vec<u8>, Option<Ttl>)>>,
    unstage: BTreeSet<Vec<u8>>,
    stage: BTreeMap<Vec<u8>, (Timestamp, Restage)>,
}

/// An open transaction, as the model sees it.
#[derive(Debug, Default)]
struct Pending {
    reads: BTreeMap<Vec<u8>, Option<Stored>>,
    plan: Plan,
}

struct Run<'a> {
    fixture: &'a dyn Fixture,
    store: &'a Opened,
    /// A second handle, through which every other call goes.
    other: &'a Opened,
    model: Model,
    grants: Vec<(String, String, Revision, Option<Box<dyn Lock>>)>,
    versions: Vec<Revision>,
    claims: Vec<Claim>,
    open: [Option<(Tx<'a, dyn alkstore::Store>, Pending)>; 2],
    /// What the fixture's clock shows; the store clock is ahead of it where it does not step back with it.
    clock: Timestamp,
}

impl Default for Model {
    fn default() -> Self {
        Self {
            now: START,
            locks: BTreeMap::new(),
            entries: BTreeMap::new(),
            window: BTreeMap::new(),
            given: BTreeSet::new(),
            last_token: BTreeMap::new(),
            last_version: BTreeMap::new(),
        }
    }
}

impl Model {
    fn head(&self, key: &[u8]) -> Option<Head> {
        self.entries.get(key).map(|stored| stored.head)
    }

    fn live(&self, key: &[u8]) -> Option<&Stored> {
        entry::live(self.head(key), self.now)?;
        self.entries.get(key)
    }

    fn guard_holds(&self, name: &str, token: Revision) -> bool {
        let row = self.locks.get(name);
        row.is_some_and(|grant| grant.token == token && !grant.deadline.lapsed(self.now))
    }

    /// Takes note of a revision that the engine gave: never given before, and the highest of its name or key.
    fn fresh(&mut self, revision: Revision) -> CaseResult {
        ensure!(
            self.given.insert(revision),
            "the revision {revision} was given before"
        );
        Ok(())
    }

    fn granted(
        &mut self,
        name: &str,
        owner: &str,
        token: Revision,
        deadline: Timestamp,
    ) -> CaseResult {
        self.fresh(token)?;
        let last = self.last_token.insert(name.to_owned(), token);
        ensure!(last < Some(token), "the token {token} came after {last:?}");
        let owner = owner.to_owned();
        self.locks.insert(
            name.to_owned(),
            Grant {
                owner,
                token,
                deadline,
            },
        );
        Ok(())
    }

    fn written(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: Revision,
        ttl: Option<Ttl>,
    ) -> CaseResult {
        self.fresh(version)?;
        let last = self.last_version.insert(key.to_vec(), version);
        ensure!(
            last < Some(version),
            "the version {version} came after {last:?}"
        );
        let expires_at = entry::deadline(ttl, self.now);
        let head = Head {
            version,
            expires_at,
        };
        self.entries.insert(
            key.to_vec(),
            Stored {
                value: value.to_vec(),
                head,
            },
        );
        Ok(())
    }

    fn stage(&mut self, key: &[u8], at: Timestamp, restage: Restage) {
        if let Some(row) = window::stage(self.window.get(key), at, restage) {
            self.window.insert(key.to_vec(), row);
        }
    }

    fn info(&self, name: &str) -> Option<LockInfo> {
        let grant = self.locks.get(name)?;
        Some(LockInfo {
            name: name.to_owned(),
            owner: grant.owner.clone(),
            token: grant.token,
            deadline: grant.deadline,
            lapsed: grant.deadline.lapsed(self.now),
        })
    }

    fn lapsed_entries(&self) -> Vec<Vec<u8>> {
        let dead = |(key, stored): (&Vec<u8>, &Stored)| {
            entry::live(Some(stored.head), self.now)
                .is_none()
                .then(|| key.clone())
        };
        self.entries.iter().filter_map(dead).collect()
    }

    fn lapsed_locks(&self) -> Vec<String> {
        let dead = |(name, grant): (&String, &Grant<String>)| {
            grant.deadline.lapsed(self.now).then(|| name.clone())
        };
        self.locks.iter().filter_map(dead).collect()
    }

    /// Whether a changeset may be applied: guards, then checks.
    fn judge(&self, plan: &Plan) -> Option<Refusal> {
        if !plan
            .guards
            .iter()
            .all(|(name, token)| self.guard_holds(name, *token))
        {
            return Some(Refusal::LeaseLost);
        }
        let holds = |(key, expect): (&Vec<u8>, &Expect)| {
            let current = self.live(key).map(|stored| stored.head.version);
            match expect {
                Expect::Absent => current.is_none(),
                Expect::Version(version) => current == Some(*version),
            }
        };
        (!plan.checks.iter().all(holds)).then_some(Refusal::Conflict)
    }

    fn apply(&mut self, plan: Plan, commit: &Commit) -> CaseResult {
        let puts: Vec<_> = plan
            .writes
            .iter()
            .filter(|(_, write)| write.is_some())
            .map(|(key, _)| &**key)
            .collect();
        let written: Vec<_> = commit
            .versions
            .iter()
            .map(|(key, _)| key.as_bytes())
            .collect();
        ensure_eq!(written, puts, "the keys that the commit says it wrote");
        for (key, write) in &plan.writes {
            match write {
                Some((value, ttl)) => {
                    let Some(version) = commit.version(key) else {
                        return Err(Failure::new("a write without a version"));
                    };
                    self.written(key, value, version, *ttl)?;
                }
                None => drop(self.entries.remove(key)),
            }
        }
        for key in &plan.unstage {
            self.window.remove(key);
        }
        for (key, (at, restage)) in &plan.stage {
            self.stage(key, *at, *restage);
        }
        Ok(())
    }
}

/// The guard's verdict on a duration that is zero, as the only one that histories hold; else the checked duration.
fn guarded(ttl: Duration) -> std::result::Result<Ttl, Refusal> {
    Ttl::new(ttl).map_err(|_| Refusal::Duration(alkstore::TtlError::NotPositive))
}

fn opt_guarded(ttl: Option<Duration>) -> std::result::Result<Option<Ttl>, Refusal> {
    ttl.map(guarded).transpose()
}

impl Run<'_> {
    async fn step(&mut self, op: &Op) -> CaseResult {
        match op {
            Op::TryLock { name, owner, ttl } => {
                self.try_lock(NAMES[*name], OWNERS[*owner], *ttl).await
            }
            Op::Renew {
                grant,
                rebuilt,
                ttl,
            } => self.renew(*grant, *rebuilt, *ttl).await,
            Op::Release { grant, rebuilt } => self.release(*grant, *rebuilt).await,
            Op::ForceRelease { grant, name } => self.force_release(*grant, *name).await,
            Op::LockInfo { name } => {
                let name = NAMES[*name];
                ensure_eq!(self.other.lock_info(name).await?, self.model.info(name));
                Ok(())
            }
            Op::ListLocks {
                prefix,
                after,
                limit,
            } => self.list_locks(*prefix, *after, *limit).await,
            Op::Get { key } => self.get(KEYS[*key].as_bytes()).await,
            Op::Put {
                key,
                value,
                mode,
                ttl,
                guard,
            } => {
                self.put(KEYS[*key].as_bytes(), *value, *mode, *ttl, *guard)
                    .await
            }
            Op::Touch { key, ttl } => self.touch(KEYS[*key].as_bytes(), *ttl).await,
            Op::Delete { key, version } => self.delete(KEYS[*key].as_bytes(), *version).await,
            Op::List {
                prefix,
                after,
                limit,
            } => self.list(*prefix, *after, *limit).await,
            Op::Commit { guards, parts } => self.commit(guards, parts).await,
            Op::Tx { slot, step } => self.transact(*slot, step).await,
            Op::Stage { rows, restage } => self.stage(rows, *restage).await,
            Op::Take { now, limit } => self.take(self.instant(*now), *limit).await,
            Op::Unstage { keys } => self.unstage(keys).await,
            Op::Claim { now, lease, limit } => self.claim(self.instant(*now), *lease, *limit).await,
            Op::Settle { claims } => self.settle(claims).await,
            Op::Requeue { claims, at } => self.requeue(claims, *at).await,
            Op::Purge { limit } => self.purge(*limit).await,
            Op::Advance { by } => {
                self.set_clock(self.clock.plus(*by)).await?;
                ensure_eq!(self.other.now().await?, self.model.now);
                Ok(())
            }
            Op::StepBack { by } => {
                // Each handle has seen the present, and so is bound by it where time never runs back.
                ensure_eq!(self.store.now().await?, self.model.now);
                ensure_eq!(self.other.now().await?, self.model.now);
                self.set_clock(crate::steps::before(self.clock, *by)).await
            }
        }
    }

    async fn set_clock(&mut self, to: Timestamp) -> CaseResult {
        self.fixture.set_clock(to).await?;
        self.clock = to;
        self.model.now = if self.fixture.engine().has(Capability::StepsBack) {
            to
        } else {
            to.max(self.model.now)
        };
        Ok(())
    }

    fn instant(&self, now: Now) -> Timestamp {
        match now {
            Now::Store => self.model.now,
            Now::Own(instant) => instant,
        }
    }

    /// The grant that many back from the latest.
    fn grant(&self, back: usize) -> Option<usize> {
        (!self.grants.is_empty()).then(|| self.grants.len() - 1 - back % self.grants.len())
    }

    fn version(&self, back: usize) -> Option<Revision> {
        let last = self.versions.len().checked_sub(1)?;
        self.versions
            .get(last - back % self.versions.len())
            .copied()
    }

    fn mode(&self, key: &[u8], mode: Mode) -> Option<PutMode> {
        Some(match mode {
            Mode::Create => PutMode::Create,
            Mode::Replace => PutMode::Replace,
            Mode::Current => PutMode::Update(self.model.head(key)?.version),
            Mode::Old(back) => PutMode::Update(self.version(back)?),
        })
    }

    async fn try_lock(&mut self, name: &str, owner: &str, ttl: Duration) -> CaseResult {
        let answer = self.store.try_lock(name, owner, ttl).await;
        let ttl = match guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        let row = self.model.locks.get(name);
        let lock = match (
            lock::acquire(row, &owner.to_owned(), ttl, self.model.now),
            answer?,
        ) {
            (Acquisition::Granted(deadline), Some(lock)) => {
                ensure_eq!(lock.deadline(), Some(deadline));
                self.model.granted(name, owner, lock.token(), deadline)?;
                lock
            }
            (Acquisition::Kept, Some(lock)) => {
                let kept = row.map(|grant| (grant.token, Some(grant.deadline)));
                ensure_eq!(Some((lock.token(), lock.deadline())), kept);
                lock
            }
            (Acquisition::HeldElsewhere, None) => return Ok(()),
            (expected, got) => {
                let got = got.map(|lock| lock.token());
                return Err(Failure::new(format_args!(
                    "expected {expected:?}, got {got:?}"
                )));
            }
        };
        ensure_eq!((lock.name(), lock.owner()), (name, owner));
        self.grants
            .push((name.to_owned(), owner.to_owned(), lock.token(), Some(lock)));
        Ok(())
    }

    async fn renew(&mut self, grant: usize, rebuilt: Option<usize>, ttl: Duration) -> CaseResult {
        let Some(at) = self.grant(grant) else {
            return Ok(());
        };
        let (name, own, token, handle) = &mut self.grants[at];
        let owner = rebuilt.map_or(&**own, |owner| OWNERS[owner]);
        let mut other;
        let handle = match (rebuilt, handle) {
            (None, Some(handle)) => handle,
            _ => {
                other = self.other.lock_handle(name, owner, *token)?;
                &mut other
            }
        };
        let answer = handle.renew(ttl).await;
        let ttl = match guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        let row = self.model.locks.get_mut(&*name);
        let deadline = lock::renew(
            row.as_deref(),
            &owner.to_owned(),
            *token,
            ttl,
            self.model.now,
        );
        ensure_eq!(answer?, deadline.is_some());
        if let (Some(deadline), Some(row)) = (deadline, row) {
            ensure_eq!(handle.deadline(), Some(deadline));
            row.deadline = deadline;
        }
        Ok(())
    }

    async fn release(&mut self, grant: usize, rebuilt: Option<usize>) -> CaseResult {
        let Some(at) = self.grant(grant) else {
            return Ok(());
        };
        let (name, own, token, handle) = &mut self.grants[at];
        let owner = rebuilt.map_or(&**own, |owner| OWNERS[owner]);
        let handle = match (rebuilt, handle.take()) {
            (None, Some(handle)) => handle,
            (_, back) => {
                *handle = back;
                self.other.lock_handle(name, owner, *token)?
            }
        };
        let expected = lock::release(self.model.locks.get(&*name), &owner.to_owned(), *token);
        ensure_eq!(handle.release().await?, expected);
        if expected {
            self.model.locks.remove(&*name);
        }
        Ok(())
    }

    async fn force_release(&mut self, grant: usize, name: Option<usize>) -> CaseResult {
        let Some(at) = self.grant(grant) else {
            return Ok(());
        };
        let (own, _, token, _) = &self.grants[at];
        let name = name.map_or(&**own, |name| NAMES[name]);
        let expected = lock::force_release(self.model.locks.get(name), *token);
        ensure_eq!(self.other.force_release(name, *token).await?, expected);
        if expected {
            self.model.locks.remove(name);
        }
        Ok(())
    }

    async fn list_locks(
        &mut self,
        prefix: usize,
        after: Option<usize>,
        limit: usize,
    ) -> CaseResult {
        let prefix = NAMES.get(prefix).copied().unwrap_or_default();
        let after = after.map(|after| NAMES[after]);
        let expected: Vec<_> = self
            .model
            .locks
            .keys()
            .filter(|name| name.starts_with(prefix) && after.is_none_or(|after| &***name > after))
            .filter_map(|name| self.model.info(name))
            .take(limit)
            .collect();
        ensure_eq!(self.other.list_locks(prefix, after, limit).await?, expected);
        Ok(())
    }

    async fn get(&mut self, key: &[u8]) -> CaseResult {
        let expected = self.model.live(key).map(|stored| Entry {
            value: Value::from(&*stored.value),
            version: stored.head.version,
            expires_at: stored.head.expires_at,
        });
        ensure_eq!(self.store.get(key).await?, expected);
        Ok(())
    }

    async fn put(
        &mut self,
        key: &[u8],
        value: u8,
        mode: Mode,
        ttl: Option<Duration>,
        guard: Option<(usize, Option<usize>)>,
    ) -> CaseResult {
        let Some(mode) = self.mode(key, mode) else {
            return Ok(());
        };
        let value = vec![value; usize::from(value % 4)];
        let mut options = PutOptions::with_mode(mode);
        options.ttl = ttl;
        options.guard = guard.and_then(|(grant, name)| {
            let (own, _, token, _) = &self.grants[self.grant(grant)?];
            Some((name.map_or(&**own, |name| NAMES[name]), *token))
        });
        let fenced = options
            .guard
            .is_some_and(|(name, token)| !self.model.guard_holds(name, token));
        let answer = self.store.put(key, &value, options).await;
        let ttl = match opt_guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        if fenced {
            return refused(answer, Refusal::LeaseLost);
        }
        let plan = entry::put(self.model.head(key), mode, ttl, self.model.now);
        match (answer?, plan.outcome) {
            (Put::Stored { version }, Ok(_)) => {
                self.model.written(key, &value, version, ttl)?;
                self.versions.push(version);
            }
            (Put::NotStored { current }, Err(expected)) => ensure_eq!(current, expected),
            (got, expected) => {
                return Err(Failure::new(format_args!(
                    "expected {expected:?}, got {got:?}"
                )));
            }
        }
        if plan.publish {
            self.model.window.remove(key);
        }
        Ok(())
    }

    async fn touch(&mut self, key: &[u8], ttl: Duration) -> CaseResult {
        let answer = self.other.touch(key, ttl).await;
        let ttl = match guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        let deadline = entry::touch(self.model.head(key), ttl, self.model.now);
        ensure_eq!(answer?, deadline.is_some());
        if let (Some(deadline), Some(stored)) = (deadline, self.model.entries.get_mut(key)) {
            stored.head.expires_at = Some(deadline);
        }
        Ok(())
    }

    async fn delete(&mut self, key: &[u8], version: Option<usize>) -> CaseResult {
        // Half of the versions are the current one.
        let version = version.and_then(|back| match self.model.head(key) {
            Some(head) if back % 2 == 0 => Some(head.version),
            _ => self.version(back),
        });
        let expected = entry::delete(self.model.head(key), version, self.model.now);
        ensure_eq!(self.store.delete(key, version).await?, expected);
        if expected {
            self.model.entries.remove(key);
        }
        Ok(())
    }

    async fn list(&mut self, prefix: usize, after: Option<usize>, limit: usize) -> CaseResult {
        let prefix = KEYS.get(prefix).copied().unwrap_or_default().as_bytes();
        let after = after.map(|after| KEYS[after].as_bytes());
        let mut expected = Vec::new();
        for (key, stored) in &self.model.entries {
            let listed = key.starts_with(prefix) && after.is_none_or(|after| &**key > after);
            if listed && self.model.live(key).is_some() && expected.len() < limit {
                expected.push(EntryMeta {
                    key: Key::new(key.clone())?,
                    version: stored.head.version,
                    expires_at: stored.head.expires_at,
                    size: stored.value.len() as u64,
                });
            }
        }
        ensure_eq!(self.other.list(prefix, after, limit).await?, expected);
        Ok(())
    }

    /// Parts that contradict earlier ones are left out by both sides alike.
    async fn commit(&mut self, guards: &[usize], parts: &[Part]) -> CaseResult {
        let mut changeset = Changeset::new();
        let mut plan = Plan::default();
        for guard in guards {
            let Some(at) = self.grant(*guard) else {
                continue;
            };
            let (name, _, token, _) = &self.grants[at];
            if changeset.guard(LockName::new(&**name)?, *token).is_ok() {
                plan.guards.insert(name.clone(), *token);
            }
        }
        for part in parts {
            self.add(&mut changeset, &mut plan, part)?;
        }
        let answer = self.store.commit_changeset(changeset).await;
        self.committed(plan, answer)
    }

    fn add(&self, changeset: &mut Changeset, plan: &mut Plan, part: &Part) -> CaseResult {
        match part {
            Part::Check { key, absent, old } => {
                let key = KEYS[*key].as_bytes();
                let expect = match (absent, old, self.model.live(key)) {
                    (false, None, Some(stored)) => Expect::Version(stored.head.version),
                    (false, Some(back), _) if self.version(*back).is_some() => {
                        self.version(*back).map_or(Expect::Absent, Expect::Version)
                    }
                    _ => Expect::Absent,
                };
                if changeset.check(Key::new(key)?, expect).is_ok() {
                    plan.checks.insert(key.to_vec(), expect);
                }
            }
            Part::Put {
                key,
                value,
                mode,
                ttl,
            } => {
                let key = KEYS[*key].as_bytes();
                let (Some(mode), Ok(ttl)) = (self.mode(key, *mode), opt_guarded(*ttl)) else {
                    return Ok(());
                };
                if plan.writes.contains_key(key) {
                    return Ok(());
                }
                let value = vec![*value; 2];
                if changeset
                    .put(Key::new(key)?, Value::from(&*value), mode, ttl)
                    .is_err()
                {
                    // Its check contradicts an earlier one.
                    return Ok(());
                }
                match mode {
                    PutMode::Create => {
                        plan.checks.insert(key.to_vec(), Expect::Absent);
                        plan.unstage.insert(key.to_vec());
                    }
                    PutMode::Update(version) => {
                        plan.checks.insert(key.to_vec(), Expect::Version(version));
                    }
                    PutMode::Replace => {}
                }
                plan.writes.insert(key.to_vec(), Some((value, ttl)));
            }
            Part::Delete { key } => {
                let key = KEYS[*key].as_bytes();
                if changeset.delete(Key::new(key)?).is_ok() {
                    plan.writes.insert(key.to_vec(), None);
                }
            }
            Part::Stage { key, at, restage } => {
                let key = KEYS[*key].as_bytes();
                if changeset.stage(Key::new(key)?, *at, *restage).is_ok() {
                    plan.stage.insert(key.to_vec(), (*at, *restage));
                }
            }
            Part::Unstage { key } => {
                let key = KEYS[*key].as_bytes();
                changeset.unstage(Key::new(key)?)?;
                plan.unstage.insert(key.to_vec());
            }
        }
        Ok(())
    }

    fn committed(&mut self, plan: Plan, answer: Result<Commit>) -> CaseResult {
        if let Some(refusal) = self.model.judge(&plan) {
            return refused(answer, refusal);
        }
        let commit = answer?;
        self.versions
            .extend(commit.versions.iter().map(|(_, version)| *version));
        self.model.apply(plan, &commit)
    }

    async fn transact(&mut self, slot: usize, step: &Step) -> CaseResult {
        let store = if slot == 0 { self.store } else { self.other };
        let (mut tx, mut pending) = match self.open[slot].take() {
            Some(open) => open,
            None => (store.begin(), Pending::default()),
        };
        match step {
            Step::Get { key } => {
                let key = KEYS[*key].as_bytes();
                let expected = pending.see(&self.model, key);
                ensure_eq!(tx.get(key).await?, expected);
            }
            Step::Put {
                key,
                value,
                mode,
                ttl,
            } => {
                let key = KEYS[*key].as_bytes();
                if let Some(mode) = self.mode(key, *mode) {
                    let value = vec![*value; 3];
                    let answer = tx.put(key, &value, mode, *ttl).await;
                    match opt_guarded(*ttl) {
                        Err(refusal) => refused(answer, refusal)?,
                        Ok(ttl) => {
                            ensure_eq!(answer?, pending.put(&self.model, key, value, mode, ttl))
                        }
                    }
                }
            }
            Step::Delete { key } => {
                let key = KEYS[*key].as_bytes();
                let there = pending.see(&self.model, key).is_some();
                if there {
                    pending.plan.writes.insert(key.to_vec(), None);
                }
                ensure_eq!(tx.delete(key).await?, there);
            }
            Step::Stage { key, at, restage } => {
                let key = KEYS[*key].as_bytes();
                tx.stage(key, *at, *restage)?;
                let staged = pending.plan.stage.contains_key(key);
                if *restage == Restage::Move || !staged {
                    pending.plan.stage.insert(key.to_vec(), (*at, *restage));
                }
            }
            Step::Unstage { key } => {
                let key = KEYS[*key].as_bytes();
                tx.unstage(key)?;
                pending.unstage(key);
            }
            Step::Guard { grant } => {
                if let Some(at) = self.grant(*grant) {
                    let (name, _, token, _) = &self.grants[at];
                    let answer = tx.guard(name, *token);
                    if pending
                        .plan
                        .guards
                        .get(name)
                        .is_some_and(|other| other != token)
                    {
                        refused(answer, Refusal::Argument)?;
                    } else {
                        answer?;
                        pending.plan.guards.insert(name.clone(), *token);
                    }
                }
            }
            Step::Commit => {
                let answer = tx.commit().await;
                return self.committed(pending.finish(), answer);
            }
            Step::End { roll_back } => {
                if *roll_back {
                    tx.rollback();
                }
                return Ok(());
            }
        }
        self.open[slot] = Some((tx, pending));
        Ok(())
    }

    async fn stage(&mut self, rows: &[(usize, Timestamp)], restage: Restage) -> CaseResult {
        let mut candidates = Vec::new();
        for (key, visible_after) in rows {
            let key = KEYS[*key].as_bytes();
            self.model.stage(key, *visible_after, restage);
            candidates.push(Candidate {
                key: Key::new(key.to_vec())?,
                visible_after: *visible_after,
            });
        }
        Ok(self.store.window_stage(&candidates, restage).await?)
    }

    /// Whether these are rows that may be handed out, in an order and number that they may be handed out in.
    fn handed_out(
        &self,
        rows: &[(&Key<'static>, Timestamp)],
        now: Timestamp,
        limit: usize,
    ) -> CaseResult {
        let model = &self.model;
        let available: BTreeMap<_, _> = model
            .window
            .iter()
            .filter(|(_, row)| window::available(row, now, model.now))
            .collect();
        ensure_eq!(
            rows.len(),
            available.len().min(limit),
            "rows of {available:?}"
        );
        ensure!(
            rows.windows(2).all(|pair| pair[0].1 <= pair[1].1),
            "oldest first: {rows:?}"
        );
        let mut chosen = BTreeSet::new();
        for (key, visible_after) in rows {
            let row = available.get(&key.as_bytes().to_vec());
            ensure_eq!(
                row.map(|row| row.visible_after),
                Some(*visible_after),
                "{key:?}"
            );
            ensure!(
                chosen.insert(key.as_bytes()),
                "{key:?} was handed out twice"
            );
        }
        let latest = rows.last().map_or(Timestamp::MIN, |(_, at)| *at);
        let passed_over = available
            .iter()
            .find(|(key, row)| !chosen.contains(key.as_slice()) && row.visible_after < latest);
        ensure!(
            passed_over.is_none(),
            "{passed_over:?} is older than what was handed out"
        );
        Ok(())
    }

    async fn take(&mut self, now: Timestamp, limit: Option<usize>) -> CaseResult {
        let taken = self.other.window_take(now, limit).await?;
        let rows: Vec<_> = taken
            .iter()
            .map(|row| (&row.key, row.visible_after))
            .collect();
        self.handed_out(&rows, now, limit.unwrap_or(usize::MAX))?;
        for row in &taken {
            self.model.window.remove(row.key.as_bytes());
        }
        Ok(())
    }

    async fn unstage(&mut self, keys: &[usize]) -> CaseResult {
        let mut gone = 0;
        let mut named = Vec::new();
        for key in keys {
            let key = KEYS[*key].as_bytes();
            gone += usize::from(self.model.window.remove(key).is_some());
            named.push(Key::new(key)?);
        }
        ensure_eq!(self.store.window_unstage(&named).await?, gone);
        Ok(())
    }

    async fn claim(&mut self, now: Timestamp, lease: Duration, limit: usize) -> CaseResult {
        let answer = self.store.window_claim(now, lease, limit).await;
        let lease = match guarded(lease) {
            Ok(lease) => lease,
            Err(refusal) => return refused(answer, refusal),
        };
        let claims = answer?;
        let rows: Vec<_> = claims
            .iter()
            .map(|claim| (&claim.key, claim.visible_after))
            .collect();
        self.handed_out(&rows, now, limit)?;
        let until = self.model.now.after(lease);
        for claim in &claims {
            ensure_eq!(claim.until, until);
            self.model.fresh(claim.id)?;
            if let Some(row) = self.model.window.get_mut(claim.key.as_bytes()) {
                row.claim = Some((claim.id, until));
            }
        }
        self.claims.extend(claims);
        Ok(())
    }

    fn picked(&self, claims: &[usize]) -> Vec<Claim> {
        let pick = |back: &usize| {
            let last = self.claims.len().checked_sub(1)?;
            self.claims.get(last - back % self.claims.len()).cloned()
        };
        claims.iter().filter_map(pick).collect()
    }

    async fn settle(&mut self, claims: &[usize]) -> CaseResult {
        let claims = self.picked(claims);
        let mut settled = 0;
        for claim in &claims {
            let key = claim.key.as_bytes();
            if window::settle(self.model.window.get(key), claim.id, self.model.now) {
                self.model.window.remove(key);
                settled += 1;
            }
        }
        ensure_eq!(self.other.window_settle(&claims).await?, settled);
        Ok(())
    }

    async fn requeue(&mut self, claims: &[usize], at: Timestamp) -> CaseResult {
        let claims = self.picked(claims);
        let mut back = 0;
        for claim in &claims {
            let key = claim.key.as_bytes();
            let row = window::requeue(self.model.window.get(key), claim.id, at, self.model.now);
            if let Some(row) = row {
                self.model.window.insert(key.to_vec(), row);
                back += 1;
            }
        }
        ensure_eq!(self.store.window_requeue(&claims, at).await?, back);
        Ok(())
    }

    /// Which lapsed rows go first is the engine's choice, and those of entries cannot be seen; so the rest of them is
    /// purged right after.
    async fn purge(&mut self, limit: usize) -> CaseResult {
        let (locks, entries) = (self.model.lapsed_locks(), self.model.lapsed_entries());
        let all = locks.len() + entries.len();
        let first = self.other.purge_lapsed(limit).await?;
        ensure_eq!(first, all.min(limit));
        ensure_eq!(self.store.purge_lapsed(usize::MAX).await?, all - first);
        for name in locks {
            self.model.locks.remove(&name);
        }
        for key in entries {
            self.model.entries.remove(&key);
        }
        Ok(())
    }

    /// Everything that can be seen without changing it.
    async fn compare(&mut self) -> CaseResult {
        self.list_locks(NAMES.len(), None, usize::MAX).await?;
        self.list(KEYS.len(), None, usize::MAX).await?;
        for key in KEYS {
            self.get(key.as_bytes()).await?;
        }
        ensure_eq!(self.store.now().await?, self.model.now);
        Ok(())
    }
}

impl Pending {
    /// What the transaction sees of a key, asking the store where it has not yet.
    fn see(&mut self, model: &Model, key: &[u8]) -> Option<TxEntry> {
        if let Some(write) = self.plan.writes.get(key) {
            let value = write.as_ref().map(|(value, _)| Value::from(&**value))?;
            return Some(TxEntry {
                value,
                version: None,
            });
        }
        let read = self
            .reads
            .entry(key.to_vec())
            .or_insert_with(|| model.live(key).cloned());
        read.as_ref().map(|stored| TxEntry {
            value: Value::from(&*stored.value),
            version: Some(stored.head.version),
        })
    }

    fn put(
        &mut self,
        model: &Model,
        key: &[u8],
        value: Vec<u8>,
        mode: PutMode,
        ttl: Option<Ttl>,
    ) -> TxPut {
        let stored = if mode == PutMode::Replace {
            true
        } else {
            let current = self.see(model, key);
            if mode == PutMode::Create {
                self.unstage(key);
            }
            let wins = match mode {
                PutMode::Update(version) => current
                    .as_ref()
                    .is_some_and(|entry| entry.version == Some(version)),
                _ => current.is_none(),
            };
            if !wins {
                return TxPut::NotStored {
                    current: current.and_then(|entry| entry.version),
                };
            }
            wins
        };
        if stored {
            self.plan.writes.insert(key.to_vec(), Some((value, ttl)));
        }
        TxPut::Staged
    }

    fn unstage(&mut self, key: &[u8]) {
        self.plan.unstage.insert(key.to_vec());
        self.plan.stage.remove(key);
    }

    fn finish(mut self) -> Plan {
        for (key, read) in self.reads {
            let expect = read.map_or(Expect::Absent, |stored| {
                Expect::Version(stored.head.version)
            });
            self.plan.checks.insert(key, expect);
        }
        self.plan
    }
}

/// Checks random histories, and panics with the shortest one that fails. The seed is kept, and printed, by proptest in
/// `tests/proptest-regressions`; the same history is tried first the next time.
///
/// `PROPTEST_CASES` and `MODEL_STEPS` change how many histories are tried and how long they are.
pub fn check(engine: &str, cases: u32, steps: usize, run: impl Fn(&[Op]) -> CaseResult) {
    use proptest::test_runner::{Config, FileFailurePersistence, TestError, TestRunner};

    let asked = |variable: &str| {
        std::env::var(variable)
            .ok()
            .and_then(|value| value.parse().ok())
    };
    let file = format!(
        "{}/proptest-regressions/model_{engine}.txt",
        env!("CARGO_MANIFEST_DIR")
    );
    let config = Config {
        cases: asked("PROPTEST_CASES").unwrap_or(cases),
        max_shrink_iters: 100_000,
        failure_persistence: Some(Box::new(FileFailurePersistence::Direct(Box::leak(
            file.into_boxed_str(),
        )))),
        ..Config::default()
    };
    let steps = asked("MODEL_STEPS").map_or(steps, |steps: u32| steps as usize);
    let outcome = TestRunner::new(config).run(&histories(steps), |history| {
        run(&history).map_err(|broken| TestCaseError::fail(broken.to_string()))
    });
    match outcome {
        Ok(()) => {}
        Err(TestError::Fail(broken, history)) => {
            let steps: Vec<_> = history
                .iter()
                .enumerate()
                .map(|(at, op)| format!("  {at}: {op:?}"))
                .collect();
            panic!(
                "{engine} departs from the model: {broken}\n{}",
                steps.join("\n")
            );
        }
        Err(aborted) => panic!("{engine}: {aborted}"),
    }
}
