//! The garbage-collection window in memory.

use alkstore::rules::window::{self as rule, Row};
use alkstore::{Candidate, Claim, Key, Restage, Revision, Timestamp};

use crate::deadlines::Deadlines;
use crate::index::Place;
use crate::table::Table;

/// Rows by key, and the slots of the same rows in the order in which they can be handed out.
///
/// A row under a claim stands in `claimed` instead of `waiting`, so that handing out never passes over claimed rows
/// one by one. It comes back to `waiting` when somebody asks after its claim has lapsed.
#[derive(Debug)]
pub(crate) struct Window {
    rows: Table<Row>,
    waiting: Deadlines,
    claimed: Deadlines,
}

impl Window {
    /// An empty window; `seed` keys its hash.
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            rows: Table::new(seed, 0),
            waiting: Deadlines::default(),
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
            let row = self.rows.row(Place::At(slot));
            self.waiting.set(slot, row.map(|row| row.visible_after));
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
            let Some((slot, row)) = self.next_available(now, store_now) else {
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
        let Some((slot, row)) = self.next_available(now, store_now) else {
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

    /// Writes a row as it is. Answers whether the key is new here.
    pub(crate) fn put(&mut self, key: &[u8], row: Row) -> bool {
        self.put_at(self.rows.find(key), key, row)
    }

    /// `key` may be empty where `place` has it.
    fn put_at(&mut self, place: Place, key: &[u8], row: Row) -> bool {
        let (slot, old) = self.rows.occupy(place, key, row, None);
        let claimed = row.claim.map(|(_, until)| until);
        self.claimed.set(slot, claimed);
        let waits = claimed.is_none().then_some(row.visible_after);
        self.waiting.set(slot, waits);
        old.is_none()
    }

    fn remove(&mut self, slot: u32) -> bool {
        self.waiting.set(slot, None);
        self.claimed.set(slot, None);
        self.rows.vacate(slot).is_some()
    }

    /// The oldest row that may be handed out; after [`ripen`](Self::ripen).
    fn next_available(&mut self, now: Timestamp, store_now: Timestamp) -> Option<(u32, Row)> {
        while let Some((slot, visible_after)) = self.waiting.earliest() {
            let row = *self.rows.row(Place::At(slot))?;
            if visible_after > now || rule::available(&row, now, store_now) {
                return (visible_after <= now).then_some((slot, row));
            }
            // A claim that had lapsed lives again, because a clock was set back.
            self.waiting.set(slot, None);
            self.claimed.set(slot, row.claim.map(|(_, until)| until));
        }
        None
    }

    /// Every key here came in as a valid one.
    fn key(&self, slot: u32) -> Option<Key<'static>> {
        Key::new(self.rows.name(slot).to_vec()).ok()
    }
}
