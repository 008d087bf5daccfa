//! The rules of the garbage-collection window.

use crate::{Error, ErrorKind, Reclaim, Restage, Revision, Timestamp};

/// A candidate's row, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// From when it is due.
    pub visible_after: Timestamp,
    /// The number and deadline of the last claim on it, if any.
    pub claim: Option<(Revision, Timestamp)>,
    /// Whether a sweep has begun to delete what the key stands for. Such a row goes in one way: its sweep, or a later
    /// one, finishes. Until then nothing may write the key.
    pub reclaiming: bool,
    /// How often it was put back since it was staged.
    pub requeues: u32,
}

impl Row {
    /// A row that was just staged.
    pub const fn new(visible_after: Timestamp) -> Self {
        Self {
            visible_after,
            claim: None,
            reclaiming: false,
            requeues: 0,
        }
    }

    fn claimed_by(&self, id: Revision, store_now: Timestamp) -> bool {
        self.claim
            .is_some_and(|(claim, until)| claim == id && !until.lapsed(store_now))
    }
}

/// W2: the row to write; `None` leaves things as they are. What is being reclaimed is past staging.
pub fn stage(row: Option<&Row>, visible_after: Timestamp, restage: Restage) -> Option<Row> {
    match row {
        None => Some(Row::new(visible_after)),
        Some(old) if old.reclaiming || old.visible_after == visible_after => None,
        Some(_) => (restage == Restage::Move).then_some(Row::new(visible_after)),
    }
}

/// W4: whether the row leaves the window. What is being reclaimed stays until that is finished.
pub fn unstage(row: Option<&Row>) -> bool {
    row.is_some_and(|row| !row.reclaiming)
}

/// W8: whether the key may be written. What is being reclaimed is about to go: a writer that trusted it would be left
/// with nothing.
pub fn write(row: Option<&Row>) -> Result<(), Error> {
    if row.is_some_and(|row| row.reclaiming) {
        return Err(reclaiming());
    }
    Ok(())
}

/// W5: whether the row may be claimed: due at the caller's `now`, and under no claim that is live by the store clock.
pub fn available(row: &Row, now: Timestamp, store_now: Timestamp) -> bool {
    row.visible_after <= now && row.claim.is_none_or(|(_, until)| until.lapsed(store_now))
}

/// W3: whether the row may be taken: available, and not being reclaimed.
pub fn takeable(row: &Row, now: Timestamp, store_now: Timestamp) -> bool {
    !row.reclaiming && available(row, now, store_now)
}

/// W5: whether settling the claim `id` removes the row.
pub fn settle(row: Option<&Row>, id: Revision, store_now: Timestamp) -> bool {
    row.is_some_and(|row| row.claimed_by(id, store_now) && !row.reclaiming)
}

/// W5: the row to write when the claim `id` is put back; `None` leaves things as they are.
pub fn requeue(
    row: Option<&Row>,
    id: Revision,
    visible_after: Timestamp,
    store_now: Timestamp,
) -> Option<Row> {
    row.filter(|row| row.claimed_by(id, store_now))
        .map(|row| Row {
            visible_after,
            claim: None,
            reclaiming: row.reclaiming,
            requeues: row.requeues.saturating_add(1),
        })
}

/// W8: why the claim `id` does not stand, where it does not.
fn fallen(row: Option<&Row>, id: Revision, store_now: Timestamp) -> Option<Reclaim> {
    match row.and_then(|row| row.claim) {
        Some((claim, until)) if claim == id => until.lapsed(store_now).then_some(Reclaim::Lapsed),
        // Whoever claimed it since could do so only after the claim had lapsed or was void.
        Some(_) => Some(Reclaim::Lapsed),
        None => Some(Reclaim::Voided),
    }
}

/// W8: [`Marked`](Reclaim::Marked) where the row is to be marked, or is already; else why it is not. What arbitrates
/// (pins, tables of references) is asked by the engine before the mark is written, and not for a row that is marked.
pub fn mark(row: Option<&Row>, id: Revision, store_now: Timestamp) -> Reclaim {
    fallen(row, id, store_now).unwrap_or(Reclaim::Marked)
}

/// W8: `None` where the entry and the row go; else why they do not.
pub fn finish(row: Option<&Row>, id: Revision, store_now: Timestamp) -> Option<Reclaim> {
    let unmarked = || (!row.is_some_and(|row| row.reclaiming)).then_some(Reclaim::Unmarked);
    fallen(row, id, store_now).or_else(unmarked)
}

/// W8: `None` where the entry and the row go in this one step, because nothing outside has to go before them; else why
/// they do not. A row that was marked has something outside, so it is left to those who know what.
pub fn delete(row: Option<&Row>, id: Revision, store_now: Timestamp) -> Option<Reclaim> {
    let marked = || {
        row.is_some_and(|row| row.reclaiming)
            .then_some(Reclaim::Marked)
    };
    fallen(row, id, store_now).or_else(marked)
}

/// The error of a write to a key that is being reclaimed: every engine's words.
#[cold]
pub fn reclaiming() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "the key is being deleted with what it stands for: nothing was written; retry when the sweep is through",
    )
}
