//! The rules of changesets.

use super::{entry, lock, window};
use crate::changeset::{Changeset, Commit, EntryWrite, Expect, KeyOps};
use crate::{Error, ErrorKind, Key, LockName, Payload, Restage, Revision, Timestamp};

/// The rows that a changeset touches, lent to the rules for the length of one atomic step.
pub trait Rows<V> {
    /// The engine's own failure; a rule's refusal becomes one of these.
    type Error: From<Error>;

    /// Token and deadline of a lock's row, lapsed or not.
    fn grant(&mut self, name: &LockName<'_>) -> Result<Option<(Revision, Timestamp)>, Self::Error>;

    /// An entry's row without its value, lapsed or not.
    fn head(&mut self, key: &Key<'_>) -> Result<Option<entry::Head>, Self::Error>;

    /// A key's row in the window.
    fn waiting(&mut self, key: &Key<'_>) -> Result<Option<window::Row>, Self::Error>;

    /// Writes an entry with the next revision, which is the answer.
    fn write(
        &mut self,
        key: &Key<'_>,
        value: V,
        expires_at: Option<Timestamp>,
    ) -> Result<Revision, Self::Error>;

    /// Deletes an entry's row, where there is one.
    fn remove(&mut self, key: &Key<'_>) -> Result<(), Self::Error>;

    /// Takes a key out of the window as [`window::unstage`] says.
    fn unstage(&mut self, key: &Key<'_>) -> Result<(), Self::Error>;

    /// Stages a key as [`window::stage`] says.
    fn stage(
        &mut self,
        key: &Key<'_>,
        visible_after: Timestamp,
        restage: Restage,
    ) -> Result<(), Self::Error>;
}

/// T3: whether a changeset may be applied at `now`: guards first ([`LeaseLost`](ErrorKind::LeaseLost)), then checks and
/// what is being reclaimed ([`Conflict`](ErrorKind::Conflict)). Nothing is changed.
pub fn judge<V, R: Rows<V>>(
    changeset: &Changeset<V>,
    rows: &mut R,
    now: Timestamp,
) -> Result<(), R::Error> {
    for (name, token) in changeset.guards() {
        let row = rows.grant(name)?;
        lock::guard(row, name, token, now)?;
    }
    for (key, ops) in changeset.keys() {
        if let Some(expect) = ops.check {
            let row = rows.head(key)?;
            if !holds(expect, row, now) {
                return Err(conflict().into());
            }
        }
        // A create that found an entry writes nothing, and its caller trusts that entry all the same.
        if ops.unstage || matches!(ops.write, Some(EntryWrite::Put { .. })) {
            window::write(rows.waiting(key)?.as_ref())?;
        }
    }
    Ok(())
}

/// Whether a check holds at `now`.
pub fn holds(expect: Expect, row: Option<entry::Head>, now: Timestamp) -> bool {
    let current = entry::live(row, now).map(|head| head.version);
    match expect {
        Expect::Absent => current.is_none(),
        Expect::Version(version) => current == Some(version),
    }
}

/// The error of a changeset whose checks do not hold: every engine's words.
#[cold]
pub fn conflict() -> Error {
    Error::new(
        ErrorKind::Conflict,
        "what the changeset had read was changed meanwhile: nothing was applied; read again and retry",
    )
}

/// T2: carries out a changeset that was [judged](judge) in the same atomic step: per key the entry, then its place in
/// the window.
pub fn apply<V: Payload, R: Rows<V>>(
    changeset: Changeset<V>,
    rows: &mut R,
    now: Timestamp,
) -> Result<Commit, R::Error> {
    let mut commit = Commit::default();
    for (key, ops) in changeset.into_keys() {
        let KeyOps {
            write,
            unstage,
            stage,
            ..
        } = ops;
        match write {
            Some(EntryWrite::Put { value, ttl }) => {
                let version = rows.write(&key, value, entry::deadline(ttl, now))?;
                commit.versions.push((key.clone(), version));
            }
            Some(EntryWrite::Delete) => rows.remove(&key)?,
            None => {}
        }
        if unstage {
            rows.unstage(&key)?;
        }
        if let Some((visible_after, restage)) = stage {
            rows.stage(&key, visible_after, restage)?;
        }
    }
    Ok(commit)
}
