//! The garbage-collection window in memory.

use alkstore::order::Order;
use alkstore::rules::window::{self as rule, Row};
use alkstore::{
    Candidate, Claim, Key, Reclaim, Restage, Revision, Timestamp, WindowRow, WindowStats,
};

use crate::deadlines::Deadlines;
use crate::index::Place;
use crate::table::Table;

/// Rows by key, and the slots of the same rows in the order in which they are handed out: by time, then by key, so
/// that what a listing shows first is what goes first.
///
/// A row under a claim stands in `claimed` instead of `waiting`, so that handing out never passes over claimed rows
/// one by one. It comes back when somebody asks after its claim has lapsed. A marked row waits in `marked`, because
/// what is taken passes over it and what is claimed does not.
#[derive(Debug)]
pub(crate) struct Window {
    rows: Table<Row>,
    waiting: Order,
    marked: Order,
    claimed: Deadlines,
}

impl Window {
    /// An empty window; `seed` keys its hash.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rows: Table::new(seed, 0),
            waiting: Order::default(),
            marked: Order::default(),
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
            self.leave(slot);
            self.enter(slot, None);
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
        let after = after.map(|row| due(row.visible_after, row.key.as_bytes()));
        let after = after.as_deref();
        let mut page = Order::default();
        for order in [&self.waiting, &self.marked] {
            for slot in order.page(&[], after, limit) {
                page.insert(&self.due(slot), slot);
            }
        }
        for slot in self.claimed.slots() {
            let due = self.due(slot);
            if after.is_none_or(|after| *due > *after) {
                page.insert(&due, slot);
            }
        }
        let page = page.page(&[], None, limit).into_iter();
        page.filter_map(|slot| Some(shown(self.key(slot)?, self.rows.row(Place::At(slot))?)))
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
        if let Place::At(slot) = place {
            self.leave(slot);
        }
        let (slot, old) = self.rows.occupy(place, key, row, None);
        self.enter(slot, row.claim.map(|(_, until)| until));
        old.is_none()
    }

    fn remove(&mut self, slot: u32) -> bool {
        self.leave(slot);
        self.rows.vacate(slot).is_some()
    }

    /// Takes a row from where it can be found; before it changes.
    fn leave(&mut self, slot: u32) {
        if self.claimed.get(slot).is_some() {
            self.claimed.set(slot, None);
        } else if let Some(row) = self.rows.row(Place::At(slot)) {
            let marked = row.reclaiming;
            let due = self.due(slot);
            self.order(marked).remove(&due);
        }
    }

    /// Puts a row where it can be found: under its claim, or among those that wait.
    fn enter(&mut self, slot: u32, claimed: Option<Timestamp>) {
        if claimed.is_some() {
            self.claimed.set(slot, claimed);
        } else if let Some(row) = self.rows.row(Place::At(slot)) {
            let marked = row.reclaiming;
            let due = self.due(slot);
            self.order(marked).insert(&due, slot);
        }
    }

    fn order(&mut self, marked: bool) -> &mut Order {
        if marked {
            &mut self.marked
        } else {
            &mut self.waiting
        }
    }

    fn due(&self, slot: u32) -> Vec<u8> {
        let visible_after = self.rows.row(Place::At(slot));
        let visible_after = visible_after.map_or(Timestamp::MIN, |row| row.visible_after);
        due(visible_after, self.rows.name(slot))
    }

    /// The oldest row that may be handed out, marked ones included where so wanted; after [`ripen`](Self::ripen).
    fn next(&mut self, now: Timestamp, store_now: Timestamp, marked: bool) -> Option<(u32, Row)> {
        loop {
            let waiting = self.waiting.first();
            let marked = self.marked.first().filter(|_| marked);
            let slot = match (waiting, marked) {
                (Some(waiting), Some(marked)) if self.due(marked) < self.due(waiting) => marked,
                (Some(waiting), _) => waiting,
                (None, marked) => marked?,
            };
            let row = *self.rows.row(Place::At(slot))?;
            if row.visible_after > now {
                return None;
            }
            let may = if row.reclaiming {
                rule::available
            } else {
                rule::takeable
            };
            if may(&row, now, store_now) {
                return Some((slot, row));
            }
            // A claim that had lapsed lives again, because a clock was set back.
            self.leave(slot);
            self.enter(slot, row.claim.map(|(_, until)| until));
        }
    }

    /// Every key here came in as a valid one.
    fn key(&self, slot: u32) -> Option<Key<'static>> {
        Key::new(self.rows.name(slot).to_vec()).ok()
    }
}

/// Where a row stands in the order of handing out: bytes that compare as its instant and then its key do.
fn due(visible_after: Timestamp, key: &[u8]) -> Vec<u8> {
    // The sign bit turned over: negative instants come before the others.
    let mut due = (visible_after.as_nanos() ^ i64::MIN).to_be_bytes().to_vec();
    due.extend_from_slice(key);
    due
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
