//! The rules of the garbage-collection window.

use crate::{Restage, Revision, Timestamp};

/// A candidate's row, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// From when it is due.
    pub visible_after: Timestamp,
    /// The number and deadline of the last claim on it, if any.
    pub claim: Option<(Revision, Timestamp)>,
}

impl Row {
    /// An unclaimed row.
    pub const fn new(visible_after: Timestamp) -> Self {
        Self {
            visible_after,
            claim: None,
        }
    }

    fn claimed_by(&self, id: Revision, store_now: Timestamp) -> bool {
        self.claim
            .is_some_and(|(claim, until)| claim == id && !until.lapsed(store_now))
    }
}

/// W2: the row to write; `None` leaves things as they are.
pub fn stage(row: Option<&Row>, visible_after: Timestamp, restage: Restage) -> Option<Row> {
    match row {
        None => Some(Row::new(visible_after)),
        Some(old) if old.visible_after == visible_after => None,
        Some(_) => (restage == Restage::Move).then_some(Row::new(visible_after)),
    }
}

/// W3 and W5: whether the row may be taken or claimed: due at the caller's `now`, and under no claim that is live by
/// the store clock.
pub fn available(row: &Row, now: Timestamp, store_now: Timestamp) -> bool {
    row.visible_after <= now && row.claim.is_none_or(|(_, until)| until.lapsed(store_now))
}

/// W5: whether settling the claim `id` removes the row.
pub fn settle(row: Option<&Row>, id: Revision, store_now: Timestamp) -> bool {
    row.is_some_and(|row| row.claimed_by(id, store_now))
}

/// W5: the row to write when the claim `id` is put back; `None` leaves things as they are.
pub fn requeue(
    row: Option<&Row>,
    id: Revision,
    visible_after: Timestamp,
    store_now: Timestamp,
) -> Option<Row> {
    settle(row, id, store_now).then_some(Row::new(visible_after))
}
