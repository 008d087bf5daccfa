//! The garbage-collection window in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alkstore::rules::window::{self as rule, Row};
use alkstore::{Candidate, Claim, Key, Restage, Revision, Timestamp};

type SharedKey = Arc<[u8]>;

/// Rows by key, and the same rows in the order in which they can be handed out.
///
/// A row under a claim stands in `claimed` instead of `waiting`, so that handing out never passes over claimed rows
/// one by one. It comes back to `waiting` when somebody asks after its claim has lapsed.
#[derive(Debug, Default)]
pub(crate) struct Window {
    rows: BTreeMap<SharedKey, Row>,
    waiting: BTreeSet<(Timestamp, SharedKey)>,
    claimed: BTreeSet<(Timestamp, SharedKey)>,
}

impl Window {
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn get(&self, key: &[u8]) -> Option<&Row> {
        self.rows.get(key)
    }

    pub(crate) fn rows(&self) -> impl Iterator<Item = (&[u8], &Row)> {
        self.rows.iter().map(|(key, row)| (&**key, row))
    }

    /// W2. Answers whether the key is new here.
    pub(crate) fn stage(&mut self, key: &[u8], visible_after: Timestamp, restage: Restage) -> bool {
        match rule::stage(self.rows.get(key), visible_after, restage) {
            Some(row) => self.put(key, row),
            None => false,
        }
    }

    /// W4. Answers whether the key was here.
    pub(crate) fn unstage(&mut self, key: &[u8]) -> bool {
        let Some((key, row)) = self.rows.remove_entry(key) else {
            return false;
        };
        self.unplace(key, row);
        true
    }

    /// W3.
    pub(crate) fn take(
        &mut self,
        now: Timestamp,
        limit: Option<usize>,
        store_now: Timestamp,
    ) -> Vec<Candidate> {
        let mut taken = Vec::new();
        while limit.is_none_or(|limit| taken.len() < limit) {
            let Some((key, row)) = self.next_available(now, store_now) else {
                break;
            };
            self.unstage(&key);
            taken.extend(owned(&key).map(|key| Candidate {
                key,
                visible_after: row.visible_after,
            }));
        }
        taken
    }

    /// W5: claims the next row that is available; `id` is drawn only where there is one.
    pub(crate) fn claim<E>(
        &mut self,
        now: Timestamp,
        until: Timestamp,
        store_now: Timestamp,
        id: impl FnOnce() -> Result<Revision, E>,
    ) -> Result<Option<Claim>, E> {
        let Some((key, row)) = self.next_available(now, store_now) else {
            return Ok(None);
        };
        let id = id()?;
        self.put(
            &key,
            Row {
                claim: Some((id, until)),
                ..row
            },
        );
        Ok(owned(&key).map(|key| Claim {
            key,
            visible_after: row.visible_after,
            id,
            until,
        }))
    }

    /// W5. Answers whether the claim still stood.
    pub(crate) fn settle(&mut self, claim: &Claim, store_now: Timestamp) -> bool {
        let key = claim.key.as_bytes();
        rule::settle(self.rows.get(key), claim.id, store_now) && self.unstage(key)
    }

    /// W5. Answers whether the claim still stood.
    pub(crate) fn requeue(
        &mut self,
        claim: &Claim,
        visible_after: Timestamp,
        store_now: Timestamp,
    ) -> bool {
        let key = claim.key.as_bytes();
        match rule::requeue(self.rows.get(key), claim.id, visible_after, store_now) {
            Some(row) => {
                self.put(key, row);
                true
            }
            None => false,
        }
    }

    /// Writes a row as it is. Answers whether the key is new here.
    pub(crate) fn put(&mut self, key: &[u8], row: Row) -> bool {
        let (key, old) = match self.rows.remove_entry(key) {
            Some((key, old)) => (key, Some(old)),
            None => (key.into(), None),
        };
        let new = old.is_none();
        if let Some(old) = old {
            self.unplace(key.clone(), old);
        }
        match row.claim {
            Some((_, until)) => self.claimed.insert((until, key.clone())),
            None => self.waiting.insert((row.visible_after, key.clone())),
        };
        self.rows.insert(key, row);
        new
    }

    fn unplace(&mut self, key: SharedKey, row: Row) {
        let waiting = (row.visible_after, key);
        if !self.waiting.remove(&waiting) {
            if let Some((_, until)) = row.claim {
                self.claimed.remove(&(until, waiting.1));
            }
        }
    }

    /// The oldest row that may be handed out.
    fn next_available(&mut self, now: Timestamp, store_now: Timestamp) -> Option<(SharedKey, Row)> {
        self.return_lapsed_claims(store_now);
        // Rows that wait are available when due, but for those whose lapsed claim lives again because a clock was set
        // back: hence the rule is asked, and such rows are passed over.
        self.waiting
            .iter()
            .take_while(|(visible_after, _)| *visible_after <= now)
            .filter_map(|(_, key)| Some((key.clone(), *self.rows.get(key)?)))
            .find(|(_, row)| rule::available(row, now, store_now))
    }

    fn return_lapsed_claims(&mut self, store_now: Timestamp) {
        while let Some((until, _)) = self.claimed.first() {
            if !until.lapsed(store_now) {
                break;
            }
            let Some((_, key)) = self.claimed.pop_first() else {
                break;
            };
            if let Some(row) = self.rows.get(&key) {
                self.waiting.insert((row.visible_after, key));
            }
        }
    }
}

/// Every key here came in as a valid one.
fn owned(key: &SharedKey) -> Option<Key<'static>> {
    Key::new(key.to_vec()).ok()
}
