//! The steps of a history that are about the window and the sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use alkstore::rules::lock::{self, Acquisition};
use alkstore::rules::window::{self, Row};
use alkstore::{
    Candidate, Claim, Key, LockName, Reclaim, Restage, Revision, Timestamp, WindowRow, WindowStats,
};

use super::history::{How, KEYS};
use super::play::{guarded, Run};
use crate::failure::{refused, Refusal};
use crate::fixture::Capability;
use crate::{ensure, ensure_eq, CaseResult, Failure};

impl Run<'_> {
    pub(crate) async fn stage(
        &mut self,
        rows: &[(usize, Timestamp)],
        restage: Restage,
    ) -> CaseResult {
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
        may: impl Fn(&Row, Timestamp, Timestamp) -> bool,
    ) -> CaseResult {
        let model = &self.model;
        let available: BTreeMap<_, _> = model
            .window
            .iter()
            .filter(|(_, row)| may(row, now, model.now))
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

    pub(crate) async fn take(&mut self, now: Timestamp, limit: Option<usize>) -> CaseResult {
        let taken = self.other.window_take(now, limit).await?;
        let rows: Vec<_> = taken
            .iter()
            .map(|row| (&row.key, row.visible_after))
            .collect();
        let limit = limit.unwrap_or(usize::MAX);
        self.handed_out(&rows, now, limit, window::takeable)?;
        for row in &taken {
            self.model.window.remove(row.key.as_bytes());
        }
        Ok(())
    }

    pub(crate) async fn unstage(&mut self, keys: &[usize]) -> CaseResult {
        let mut gone = 0;
        let mut named = Vec::new();
        for key in keys {
            let key = KEYS[*key].as_bytes();
            gone += usize::from(self.model.unstage(key));
            named.push(Key::new(key)?);
        }
        ensure_eq!(self.store.window_unstage(&named).await?, gone);
        Ok(())
    }

    pub(crate) async fn claim(
        &mut self,
        now: Timestamp,
        lease: Duration,
        limit: usize,
    ) -> CaseResult {
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
        self.handed_out(&rows, now, limit, window::available)?;
        let until = self.model.now.after(lease);
        for claim in &claims {
            ensure_eq!(claim.until, until);
            self.model.fresh(claim.id)?;
            if let Some(row) = self.model.window.get_mut(claim.key.as_bytes()) {
                ensure_eq!(
                    (claim.reclaiming, claim.requeues),
                    (row.reclaiming, row.requeues)
                );
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

    pub(crate) async fn settle(&mut self, claims: &[usize]) -> CaseResult {
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

    pub(crate) async fn requeue(&mut self, claims: &[usize], at: Timestamp) -> CaseResult {
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

    pub(crate) async fn reclaim(
        &mut self,
        how: How,
        claims: &[usize],
        fence: Option<usize>,
    ) -> CaseResult {
        let claims = self.picked(claims);
        let fence = fence.and_then(|back| self.epoch(back));
        let answer = match how {
            How::Mark => self.store.window_mark(&claims, fence).await,
            How::Finish => self.store.window_finish(&claims, fence).await,
            How::Delete => self.store.window_delete(&claims, fence).await,
        };
        if fence.is_some_and(|epoch| !self.is_current(epoch)) {
            return refused(answer, Refusal::LeaseLost);
        }
        let now = self.model.now;
        let mut expected = Vec::new();
        for claim in &claims {
            let key = claim.key.as_bytes();
            let row = self.model.window.get(key);
            let why_not = match how {
                How::Mark => Some(window::mark(row, claim.id, now)),
                How::Finish => window::finish(row, claim.id, now),
                How::Delete => window::delete(row, claim.id, now),
            };
            expected.push(why_not.unwrap_or_else(|| self.model.what_goes(key)));
            match (how, why_not) {
                (How::Mark, Some(Reclaim::Marked)) => {
                    if let Some(row) = self.model.window.get_mut(key) {
                        row.reclaiming = true;
                    }
                }
                (How::Finish | How::Delete, None) => {
                    self.model.window.remove(key);
                    self.model.entries.remove(key);
                }
                _ => {}
            }
        }
        ensure_eq!(answer?, expected);
        Ok(())
    }

    pub(crate) async fn judge(&mut self, keys: &[usize]) -> CaseResult {
        let mut named = Vec::new();
        let mut expected = Vec::new();
        for key in keys {
            let key = KEYS[*key].as_bytes();
            named.push(Key::new(key)?);
            expected.push(self.model.what_goes(key));
        }
        ensure_eq!(self.other.window_judge(&named).await?, expected);
        Ok(())
    }

    pub(crate) async fn list_window(
        &mut self,
        after: Option<(usize, Timestamp)>,
        limit: usize,
    ) -> CaseResult {
        let mut expected = self.model.waiting()?;
        let mut cursor = None;
        if let Some((key, visible_after)) = after {
            let key = Key::new(KEYS[key].as_bytes())?.into_owned();
            expected.retain(|row| (row.visible_after, &row.key) > (visible_after, &key));
            cursor = Some(WindowRow {
                key,
                visible_after,
                claimed_until: None,
                reclaiming: false,
                requeues: 0,
            });
        }
        expected.truncate(limit);
        let listed = self.other.window_list(cursor.as_ref(), limit).await?;
        ensure_eq!(listed, expected);
        Ok(())
    }

    pub(crate) async fn window_info(&mut self, key: &[u8]) -> CaseResult {
        let mut rows = self.model.waiting()?.into_iter();
        let expected = rows.find(|row| row.key.as_bytes() == key);
        ensure_eq!(self.store.window_info(key).await?, expected);
        Ok(())
    }

    pub(crate) async fn window_stats(&mut self, now: Timestamp) -> CaseResult {
        let rows = self.model.waiting()?;
        let count =
            |is: &dyn Fn(&WindowRow) -> bool| rows.iter().filter(|row| is(row)).count() as u64;
        let live = |until: Timestamp| !until.lapsed(self.model.now);
        let expected = WindowStats {
            rows: rows.len() as u64,
            due: count(&|row| row.visible_after <= now),
            claimed: count(&|row| row.claimed_until.is_some_and(live)),
            reclaiming: count(&|row| row.reclaiming),
            requeued: count(&|row| row.requeues > 0),
            oldest: rows.first().map(|row| row.visible_after),
        };
        ensure_eq!(self.other.window_stats(now).await?, expected);
        Ok(())
    }

    /// A sweep is a lock like any other where the engine says so, and shows up as one.
    pub(crate) async fn sweep_begin(&mut self, ttl: Duration) -> CaseResult {
        let answer = self.store.sweep_begin(ttl).await;
        let ttl = match guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        let begun = answer?;
        self.epochs.extend(begun);
        if !self.leased() {
            ensure_eq!(begun.is_some(), self.model.sweep.is_none());
            if let Some(epoch) = begun {
                self.model.fresh(epoch)?;
                self.model.sweep = begun;
            }
            return Ok(());
        }
        let name = LockName::SWEEP;
        let row = self.model.locks.get(name.as_str());
        // Nobody is its owner who could ask again.
        let acquired = lock::acquire(row, &String::new(), ttl, self.model.now);
        match (acquired, begun) {
            (Acquisition::Granted(deadline), Some(epoch)) => {
                let listed = self.other.list_locks(name.as_str(), None, 1).await?;
                let owner = listed.first().map(|row| row.owner.clone());
                let owner = owner.unwrap_or_default();
                self.model.granted(name.as_str(), &owner, epoch, deadline)
            }
            (Acquisition::HeldElsewhere, None) => Ok(()),
            (expected, got) => Err(Failure::new(format_args!(
                "expected {expected:?}, got {got:?}"
            ))),
        }
    }

    pub(crate) async fn sweep_extend(&mut self, epoch: usize, ttl: Duration) -> CaseResult {
        let Some(epoch) = self.epoch(epoch) else {
            return Ok(());
        };
        let answer = self.store.sweep_extend(epoch, ttl).await;
        let ttl = match guarded(ttl) {
            Ok(ttl) => ttl,
            Err(refusal) => return refused(answer, refusal),
        };
        let current = self.is_current(epoch);
        ensure_eq!(answer?, current);
        let row = self.model.locks.get_mut(LockName::SWEEP.as_str());
        if let (true, Some(row)) = (current, row) {
            row.deadline = self.model.now.after(ttl);
        }
        Ok(())
    }

    pub(crate) async fn sweep_end(&mut self, epoch: usize) -> CaseResult {
        let Some(epoch) = self.epoch(epoch) else {
            return Ok(());
        };
        let name = LockName::SWEEP;
        let expected = if self.leased() {
            // One that has lapsed may still be cleared away, as any lock.
            lock::force_release(self.model.locks.get(name.as_str()), epoch)
        } else {
            self.is_current(epoch)
        };
        ensure_eq!(self.store.sweep_end(epoch).await?, expected);
        if expected {
            self.model.sweep = None;
            self.model.locks.remove(name.as_str());
        }
        Ok(())
    }

    fn leased(&self) -> bool {
        self.fixture.engine().has(Capability::SweepLease)
    }

    /// The epoch that many back from the latest.
    fn epoch(&self, back: usize) -> Option<Revision> {
        let last = self.epochs.len().checked_sub(1)?;
        self.epochs.get(last - back % self.epochs.len()).copied()
    }

    fn is_current(&self, epoch: Revision) -> bool {
        self.model.sweep == Some(epoch) || self.model.guard_holds(LockName::SWEEP.as_str(), epoch)
    }
}
