//! The window and safe deletion in memory.

use alkstore::rules::window::{self as rule, Row};
use alkstore::rules::{entry, lock};
use alkstore::{
    Candidate, Claim, Key, LockName, Payload, Reclaim, Restage, Result, Revision, Timestamp, Ttl,
    WindowRow, WindowStats,
};

use crate::index::{sort, Place};
use crate::locks::Claimant;
use crate::state::{signed, Growth, State};
use crate::window::shown;

impl<V: Payload> State<V> {
    /// W2. All or nothing where the store is full.
    pub fn window_stage(
        &mut self,
        candidates: &[Candidate],
        restage: Restage,
        now: Timestamp,
    ) -> Result<()> {
        let upper = Growth {
            bytes: candidates
                .iter()
                .map(|c| signed(c.key.as_bytes().len()))
                .sum(),
            ..Growth::default()
        };
        if self.refuses(upper).is_some() {
            self.make_room(now, |state| {
                let new = candidates
                    .iter()
                    .map(|candidate| (candidate.key.as_bytes(), 0))
                    .filter(|(key, _)| state.window.get(key).is_none());
                let mut new = sort(new.collect());
                new.dedup();
                Growth {
                    bytes: new.iter().map(|(key, _)| signed(key.len())).sum(),
                    ..Growth::default()
                }
            })?;
        }
        for candidate in candidates {
            self.stage_key(candidate.key.as_bytes(), candidate.visible_after, restage);
        }
        Ok(())
    }

    /// W2 for keys that are due `grace` from now.
    pub fn window_stage_after(
        &mut self,
        keys: &[Key<'_>],
        grace: Ttl,
        restage: Restage,
        now: Timestamp,
    ) -> Result<()> {
        let candidate = |key: &Key<'_>| Candidate {
            key: key.clone().into_owned(),
            visible_after: now.after(grace),
        };
        let candidates: Vec<_> = keys.iter().map(candidate).collect();
        self.window_stage(&candidates, restage, now)
    }

    /// W4.
    pub fn window_unstage(&mut self, keys: &[Key<'_>]) -> usize {
        keys.iter()
            .filter(|key| self.unstage_key(key.as_bytes()))
            .count()
    }

    /// W3. `now` is the caller's, `store_now` that of the store clock.
    pub fn window_take(
        &mut self,
        now: Timestamp,
        limit: Option<usize>,
        store_now: Timestamp,
    ) -> Vec<Candidate> {
        let taken = self.window.take(now, limit, store_now);
        for candidate in &taken {
            self.bytes -= candidate.key.as_bytes().len();
        }
        taken
    }

    /// W5. `now` is the caller's, `store_now` that of the store clock.
    pub fn window_claim(
        &mut self,
        now: Timestamp,
        lease: Ttl,
        limit: usize,
        store_now: Timestamp,
    ) -> Result<Vec<Claim>> {
        self.window.ripen(store_now);
        let until = store_now.after(lease);
        let mut claims = Vec::new();
        while claims.len() < limit {
            let revision = &mut self.revision;
            let next = || crate::state::next(revision);
            match self.window.claim(now, until, store_now, next) {
                Ok(Some(claim)) => claims.push(claim),
                // The last revisions are spent on the claims before this one, which stand.
                Err(error) if claims.is_empty() => return Err(error),
                Ok(None) | Err(_) => break,
            }
        }
        Ok(claims)
    }

    /// W5.
    pub fn window_settle(&mut self, claims: &[Claim], store_now: Timestamp) -> usize {
        let mut settled = 0;
        for claim in claims {
            if self.window.settle(claim, store_now) {
                self.bytes -= claim.key.as_bytes().len();
                settled += 1;
            }
        }
        settled
    }

    /// W5.
    pub fn window_requeue(
        &mut self,
        claims: &[Claim],
        visible_after: Timestamp,
        store_now: Timestamp,
    ) -> usize {
        claims
            .iter()
            .filter(|claim| self.window.requeue(claim, visible_after, store_now))
            .count()
    }

    /// W8. Marks the rows of claims that stand.
    pub fn window_mark(
        &mut self,
        claims: &[Claim],
        fence: Option<Revision>,
        store_now: Timestamp,
    ) -> Result<Vec<Reclaim>> {
        self.check_sweep(fence, store_now)?;
        let mark = |claim| self.window.mark(claim, store_now);
        Ok(claims.iter().map(mark).collect())
    }

    /// W8. Deletes the entries and rows of marked claims.
    pub fn window_finish(
        &mut self,
        claims: &[Claim],
        fence: Option<Revision>,
        store_now: Timestamp,
    ) -> Result<Vec<Reclaim>> {
        self.reclaim(claims, fence, store_now, rule::finish)
    }

    /// W8. Marks and finishes in one step.
    pub fn window_delete(
        &mut self,
        claims: &[Claim],
        fence: Option<Revision>,
        store_now: Timestamp,
    ) -> Result<Vec<Reclaim>> {
        self.reclaim(claims, fence, store_now, rule::delete)
    }

    /// What deleting these keys would meet.
    pub fn window_judge(&self, keys: &[Key<'_>], store_now: Timestamp) -> Vec<Reclaim> {
        let judge = |key: &Key<'_>| self.what_goes(self.entries.find(key.as_bytes()), store_now);
        keys.iter().map(judge).collect()
    }

    /// The rows in the order in which they become due.
    pub fn window_list(&self, after: Option<&WindowRow>, limit: usize) -> Vec<WindowRow> {
        self.window.list(after, limit)
    }

    /// The row of a key.
    pub fn window_info(&self, key: &Key<'_>) -> Option<WindowRow> {
        let row = self.window.get(key.as_bytes())?;
        Some(shown(key.clone().into_owned(), row))
    }

    /// The window in numbers.
    pub fn window_stats(&self, now: Timestamp, store_now: Timestamp) -> WindowStats {
        self.window.stats(now, store_now)
    }

    /// Becomes the one sweep: its epoch, or `None` where there is another.
    pub fn sweep_begin(&mut self, ttl: Ttl, now: Timestamp) -> Result<Option<Revision>> {
        let granted = self.try_lock(&LockName::SWEEP, Claimant::Fresh, ttl, now)?;
        Ok(granted.map(|granted| granted.token))
    }

    /// Whether `epoch` is the current sweep, which then goes on until `ttl` from now.
    pub fn sweep_extend(&mut self, epoch: Revision, ttl: Ttl, now: Timestamp) -> bool {
        self.lock_handle(&LockName::SWEEP)
            .is_some_and(|handle| self.renew_by(handle, epoch, ttl, now).is_some())
    }

    /// Whether `epoch` was the current sweep, which is over.
    pub fn sweep_end(&mut self, epoch: Revision) -> bool {
        self.force_release(&LockName::SWEEP, epoch)
    }

    fn check_sweep(&self, fence: Option<Revision>, now: Timestamp) -> Result<()> {
        fence.map_or(Ok(()), |epoch| {
            let name = LockName::SWEEP;
            lock::guard(self.grant_of(&name), &name, epoch, now)
        })
    }

    fn reclaim(
        &mut self,
        claims: &[Claim],
        fence: Option<Revision>,
        store_now: Timestamp,
        rule: impl Fn(Option<&Row>, Revision, Timestamp) -> Option<Reclaim>,
    ) -> Result<Vec<Reclaim>> {
        self.check_sweep(fence, store_now)?;
        let mut answers = Vec::with_capacity(claims.len());
        for claim in claims {
            let key = claim.key.as_bytes();
            if let Some(why_not) = rule(self.window.get(key), claim.id, store_now) {
                answers.push(why_not);
                continue;
            }
            let place = self.entries.find(key);
            answers.push(self.what_goes(place, store_now));
            self.remove_entry(place);
            if self.window.drop_row(key) {
                self.bytes -= key.len();
            }
        }
        Ok(answers)
    }

    fn what_goes(&self, place: Place, now: Timestamp) -> Reclaim {
        entry::live(self.head_at(place), now)
            .and_then(|_| self.entries.row(place))
            .map_or(Reclaim::Absent, |row| Reclaim::Deleted {
                bytes: row.value.size() as u64,
            })
    }

    pub(crate) fn put_window(&mut self, key: &[u8], row: Row) {
        if self.window.put(key, row) {
            self.bytes += key.len();
        }
    }

    pub(crate) fn stage_key(&mut self, key: &[u8], visible_after: Timestamp, restage: Restage) {
        if self.window.stage(key, visible_after, restage) {
            self.bytes += key.len();
        }
    }

    pub(crate) fn unstage_key(&mut self, key: &[u8]) -> bool {
        let there = self.window.unstage(key);
        if there {
            self.bytes -= key.len();
        }
        there
    }
}
