//! One history, step by step, on an engine and on the model.

use std::time::Duration;

use alkstore::rules::entry;
use alkstore::rules::lock::{self, Acquisition};
use alkstore::{
    Changeset, Claim, Commit, Entry, EntryMeta, Expect, Key, Lock, LockName, Put, PutMode,
    PutOptions, Restage, Result, Revision, StoreExt as _, Timestamp, Ttl, Tx, Value,
};

use super::history::{Mode, Now, Op, Part, Step, KEYS, NAMES, OWNERS};
use super::state::{Model, Pending, Plan};
use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, Opened};
use crate::{ensure_eq, CaseResult, Failure};

/// Name, owner and token of a grant, and its handle until that is used up.
type Granted = (String, String, Revision, Option<Box<dyn Lock>>);

pub(crate) struct Run<'a> {
    pub(crate) fixture: &'a dyn Fixture,
    pub(crate) store: &'a Opened,
    /// A second handle, through which every other call goes.
    pub(crate) other: &'a Opened,
    pub(crate) model: Model,
    pub(crate) grants: Vec<Granted>,
    pub(crate) versions: Vec<Revision>,
    pub(crate) claims: Vec<Claim>,
    pub(crate) epochs: Vec<Revision>,
    pub(crate) open: [Option<(Tx<'a, dyn alkstore::Store>, Pending)>; 2],
    /// What the fixture's clock shows; the store clock is ahead of it where it does not step back with it.
    pub(crate) clock: Timestamp,
}

/// The guard's verdict on a duration that is zero, as the only one that histories hold; else the checked duration.
pub(crate) fn guarded(ttl: Duration) -> std::result::Result<Ttl, Refusal> {
    Ttl::new(ttl).map_err(|_| Refusal::Duration(alkstore::TtlError::NotPositive))
}

fn opt_guarded(ttl: Option<Duration>) -> std::result::Result<Option<Ttl>, Refusal> {
    ttl.map(guarded).transpose()
}

impl Run<'_> {
    pub(crate) async fn step(&mut self, op: &Op) -> CaseResult {
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
            Op::Reclaim { how, claims, fence } => self.reclaim(*how, claims, *fence).await,
            Op::Judge { keys } => self.judge(keys).await,
            Op::ListWindow { after, limit } => self.list_window(*after, *limit).await,
            Op::WindowInfo { key } => self.window_info(KEYS[*key].as_bytes()).await,
            Op::WindowStats { now } => self.window_stats(self.instant(*now)).await,
            Op::SweepBegin { ttl } => self.sweep_begin(*ttl).await,
            Op::SweepExtend { epoch, ttl } => self.sweep_extend(*epoch, *ttl).await,
            Op::SweepEnd { epoch } => self.sweep_end(*epoch).await,
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

    pub(crate) async fn set_clock(&mut self, to: Timestamp) -> CaseResult {
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
        let handle = if let (None, Some(handle)) = (rebuilt, handle) {
            handle
        } else {
            other = self.other.lock_handle(name, owner, *token)?;
            &mut other
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
        if !self.model.writable(key) {
            return refused(answer, Refusal::Conflict);
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
            self.model.unstage(key);
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
        self.committed(&plan, answer)
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

    fn committed(&mut self, plan: &Plan, answer: Result<Commit>) -> CaseResult {
        if let Some(refusal) = self.model.judge(plan) {
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
                            ensure_eq!(answer?, pending.put(&self.model, key, value, mode, ttl));
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
                return self.committed(&pending.finish(), answer);
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
    pub(crate) async fn compare(&mut self) -> CaseResult {
        self.list_locks(NAMES.len(), None, usize::MAX).await?;
        self.list(KEYS.len(), None, usize::MAX).await?;
        for key in KEYS {
            self.get(key.as_bytes()).await?;
            self.window_info(key.as_bytes()).await?;
        }
        self.list_window(None, usize::MAX).await?;
        self.window_stats(self.model.now).await?;
        ensure_eq!(self.store.now().await?, self.model.now);
        Ok(())
    }
}
