//! The garbage-collection window in memory.

use std::collections::BinaryHeap;

use alkstore::rules::window::{self as rule, Row};
use alkstore::{
    Candidate, Claim, Key, Reclaim, Restage, Revision, Timestamp, WindowRow, WindowStats,
};

use crate::deadlines::Deadlines;
use crate::index::Place;
use crate::table::Table;

/// Rows by key, and the slots of the same rows in the order in which they can be handed out.
///
/// A row under a claim stands in `claimed` instead of `waiting`, so that handing out never passes over claimed rows
/// one by one. It comes back when somebody asks after its claim has lapsed. A marked row waits in `marked`, because
/// what is taken passes over it and what is claimed does not.
#[derive(Debug)]
pub(crate) struct Window {
    rows: Table<Row>,
    waiting: Deadlines,
    marked: Deadlines,
    claimed: Deadlines,
}

impl Window {
    /// An empty window; `seed` keys its hash.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rows: Table::new(seed, 0),
            waiting: Deadlines::default(),
            marked: Deadlines::default(),
            claimed: Deadlines::default(),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Row> {
        self.rows.row(self.rows.find(key))
    }

    /// Keys and rows, in bytewise order of the keys.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[u8], &Row)> {
        let sorted = self.rows.sorted().into_iter();
        sorted.filter_map(|(key, slot)| Some((key, self.rows.row(Place::At(slot))?)))
    }

    /// W2. Answers whether the key is new here.
    pub(crate) fn stage(&mut self, key: &[u8], visible_after: Timestamp, restage: Restage) -> bool {
        let place = self.rows.find(key);
        rule::stage(self.rows.row(place), visible_after, restage)
            .is_some_and(|row| self.put_at(place, key, row))
    }

    /// W4. Answers whether the key was here.
    pub(crate) fn unstage(&mut self, key: &[u8]) -> bool {
        match self.rows.find(key) {
            place @ Place::At(slot) if rule::unstage(self.rows.row(place)) => self.remove(slot),
            _ => false,
        }
    }

    /// Removes the row of a key whose deletion is finished. Answers whether there was one.
    pub(crate) fn drop_row(&mut self, key: &[u8]) -> bool {
        match self.rows.find(key) {
            Place::At(slot) => self.remove(slot),
            Place::New(_) => false,
        }
    }

    /// W5: rows whose claims have lapsed wait again. Called once before rows are handed out, not before each: where a
    /// claim lapses as it is made, because time has come to its end, the row is still handed out once.
    pub(crate) fn ripen(&mut self, store_now: Timestamp) {
        while let Some((slot, until)) = self.claimed.earliest() {
            if !until.lapsed(store_now) {
                break;
            }
            self.claimed.set(slot, None);
            if let Some(&row) = self.rows.row(Place::At(slot)) {
                self.wait(slot, row);
            }
        }
    }

    /// W3.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        limit: Option<usize>,
        store_now: Timestamp,
    ) -> Vec<Candidate> {
        self.ripen(store_now);
        let mut taken = Vec::new();
        while limit.is_none_or(|limit| taken.len() < limit) {
            let Some((slot, row)) = self.next(now, store_now, false) else {
                break;
            };
            taken.extend(self.key(slot).map(|key| Candidate {
                key,
                visible_after: row.visible_after,
            }));
            self.remove(slot);
        }
        taken
    }

    /// W5: claims the next row that is available; `id` is drawn only where there is one. After
    /// [`ripen`](Self::ripen).
    pub(crate) fn claim<E>(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        store_now: Timestamp,
        id: impl FnOnce() -> Result<Revision, E>,
    ) -> Result<Option<Claim>, E> {
        let Some((slot, row)) = self.next(now, store_now, true) else {
            return Ok(None);
        };
        let id = id()?;
        let claimed = Row {
            claim: Some((id, until)),
            ..row
        };
        self.put_at(Place::At(slot), &[], claimed);
        Ok(self.key(slot).map(|key| Claim {
            key,
            visible_after: row.visible_after,
            id,
            until,
            reclaiming: row.reclaiming,
            requeues: row.requeues,
        }))
    }

    /// W5. Answers whether the claim still stood.
    pub(crate) fn settle(&mut self, claim: &Claim, store_now: Timestamp) -> bool {
        let place = self.rows.find(claim.key.as_bytes());
        match place {
            Place::At(slot) if rule::settle(self.rows.row(place), claim.id, store_now) => {
                self.remove(slot)
            }
            _ => false,
        }
    }

    /// W5. Answers whether the claim still stood.
    pub(crate) fn requeue(
        &mut self,
        claim: &Claim,
        visible_after: Timestamp,
        store_now: Timestamp,
    ) -> bool {
        let place = self.rows.find(claim.key.as_bytes());
        let row = rule::requeue(self.rows.row(place), claim.id, visible_after, store_now);
        if let Some(row) = row {
            self.put_at(place, &[], row);
        }
        row.is_some()
    }

    /// W8.
    pub(crate) fn mark(&mut self, claim: &Claim, store_now: Timestamp) -> Reclaim {
        let place = self.rows.find(claim.key.as_bytes());
        let row = self.rows.row(place).copied();
        let outcome = rule::mark(row.as_ref(), claim.id, store_now);
        if let (Reclaim::Marked, Some(row)) = (outcome, row) {
            let marked = Row {
                reclaiming: true,
                ..row
            };
            self.put_at(place, &[], marked);
        }
        outcome
    }

    /// The rows after `after`, as they become due.
    pub(crate) fn list(&self, after: Option<&WindowRow>, limit: usize) -> Vec<WindowRow> {
        let after = after.map(|row| (row.visible_after, row.key.as_bytes()));
        let mut page: BinaryHeap<(Timestamp, &[u8], u32)> = BinaryHeap::new();
        for (key, slot) in self.rows.names() {
            let Some(row) = self.rows.row(Place::At(slot)) else {
                continue;
            };
            if after.is_some_and(|after| (row.visible_after, key) <= after) {
                continue;
            }
            // The heap keeps the first `limit` of what was met so far, the last of them on top.
            page.push((row.visible_after, key, slot));
            if page.len() > limit {
                page.pop();
            }
        }
        let page = page.into_sorted_vec().into_iter();
        page.filter_map(|(_, key, slot)| {
            let key = Key::new(key.to_vec()).ok()?;
            Some(shown(key, self.rows.row(Place::At(slot))?))
        })
        .collect()
    }

    pub(crate) fn stats(&self, now: Timestamp, store_now: Timestamp) -> WindowStats {
        let mut stats = WindowStats::default();
        for (_, slot) in self.rows.names() {
            let Some(row) = self.rows.row(Place::At(slot)) else {
                continue;
            };
            let claimed = row.claim.is_some_and(|(_, until)| !until.lapsed(store_now));
            stats.rows += 1;
            stats.due += u64::from(row.visible_after <= now);
            stats.claimed += u64::from(claimed);
            stats.reclaiming += u64::from(row.reclaiming);
            stats.requeued += u64::from(row.requeues > 0);
            stats.oldest = Some(
                stats
                    .oldest
                    .map_or(row.visible_after, |oldest| oldest.min(row.visible_after)),
            );
        }
        stats
    }

    /// Writes a row as it is. Answers whether the key is new here.
    pub(crate) fn put(&mut self, key: &[u8], row: Row) -> bool {
        self.put_at(self.rows.find(key), key, row)
    }

    /// `key` may be empty where `place` has it.
    fn put_at(&mut self, place: Place, key: &[u8], row: Row) -> bool {
        let (slot, old) = self.rows.occupy(place, key, row, None);
        self.place(slot, row);
        old.is_none()
    }

    /// Puts a row where it can be found: under its claim, or among those that wait.
    fn place(&mut self, slot: u32, row: Row) {
        if let Some((_, until)) = row.claim {
            self.waiting.set(slot, None);
            self.marked.set(slot, None);
            self.claimed.set(slot, Some(until));
        } else {
            self.claimed.set(slot, None);
            self.wait(slot, row);
        }
    }

    fn wait(&mut self, slot: u32, row: Row) {
        let at = |here: bool| here.then_some(row.visible_after);
        self.waiting.set(slot, at(!row.reclaiming));
        self.marked.set(slot, at(row.reclaiming));
    }

    fn remove(&mut self, slot: u32) -> bool {
        self.waiting.set(slot, None);
        self.marked.set(slot, None);
        self.claimed.set(slot, None);
        self.rows.vacate(slot).is_some()
    }

    /// The oldest row that may be handed out, marked ones included where so wanted; after [`ripen`](Self::ripen).
    fn next(&mut self, now: Timestamp, store_now: Timestamp, marked: bool) -> Option<(u32, Row)> {
        loop {
            let waiting = self.waiting.earliest();
            let marked = self.marked.earliest().filter(|_| marked);
            let (slot, visible_after) = match (waiting, marked) {
                (Some(waiting), Some(marked)) if marked.1 < waiting.1 => marked,
                (Some(waiting), _) => waiting,
                (None, marked) => marked?,
            };
            let row = *self.rows.row(Place::At(slot))?;
            if visible_after > now {
                return None;
            }
            let available = if row.reclaiming {
                rule::available
            } else {
                rule::takeable
            };
            if available(&row, now, store_now) {
                return Some((slot, row));
            }
            // A claim that had lapsed lives again, because a clock was set back.
            self.place(slot, row);
        }
    }

    /// Every key here came in as a valid one.
    fn key(&self, slot: u32) -> Option<Key<'static>> {
        Key::new(self.rows.name(slot).to_vec()).ok()
    }
}

/// A row as callers see it.
pub(crate) fn shown(key: Key<'static>, row: &Row) -> WindowRow {
    WindowRow {
        key,
        visible_after: row.visible_after,
        claimed_until: row.claim.map(|(_, until)| until),
        reclaiming: row.reclaiming,
        requeues: row.requeues,
    }
}
