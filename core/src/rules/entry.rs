//! The rules of entries.

use crate::{PutMode, Revision, Timestamp, Ttl};

/// An entry's row without its value, as the rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The version of the last write.
    pub version: Revision,
    /// When it lapses, if ever.
    pub expires_at: Option<Timestamp>,
}

/// What becomes of a put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutPlan {
    /// Write the value, a new version and the deadline; or leave the row and answer the version that stands in the way.
    pub outcome: Result<Option<Timestamp>, Option<Revision>>,
    /// Take the key out of the window, voiding its claim, in the same atomic step.
    pub publish: bool,
}

/// E3: the row, where it is live. To every rule a lapsed row is an absent one.
pub fn live(row: Option<Head>, now: Timestamp) -> Option<Head> {
    row.filter(|head| !head.expires_at.is_some_and(|deadline| deadline.lapsed(now)))
}

/// E2 and E6: whether a put writes, and whether it publishes.
pub fn put(row: Option<Head>, mode: PutMode, ttl: Option<Ttl>, now: Timestamp) -> PutPlan {
    let current = live(row, now).map(|head| head.version);
    PutPlan {
        outcome: if wins(current.map(Some), mode) {
            Ok(deadline(ttl, now))
        } else {
            Err(current)
        },
        publish: publishes(mode),
    }
}

/// E2: whether a put in `mode` writes over what is there. `Some(None)` is an entry that has no version yet, because
/// the asking transaction itself wrote it.
pub fn wins(current: Option<Option<Revision>>, mode: PutMode) -> bool {
    match mode {
        PutMode::Create => current.is_none(),
        PutMode::Replace => true,
        PutMode::Update(version) => current == Some(Some(version)),
    }
}

/// E6: whether a put in `mode` takes its key out of the window, stored or not.
pub fn publishes(mode: PutMode) -> bool {
    mode == PutMode::Create
}

/// The deadline of an entry that is written at `now`.
pub fn deadline(ttl: Option<Ttl>, now: Timestamp) -> Option<Timestamp> {
    ttl.map(|ttl| now.after(ttl))
}

/// E3: the new deadline, where the entry is live.
pub fn touch(row: Option<Head>, ttl: Ttl, now: Timestamp) -> Option<Timestamp> {
    live(row, now).map(|_| now.after(ttl))
}

/// E4: whether a delete finds what it is to delete.
pub fn delete(row: Option<Head>, if_version: Option<Revision>, now: Timestamp) -> bool {
    live(row, now).is_some_and(|head| if_version.is_none_or(|version| version == head.version))
}
