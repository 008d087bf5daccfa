//! What safe deletion needs across a fleet: pins, joint transactions, arbitration and one sweeper at a time.

use core::time::Duration;

use crate::{BoxFuture, EngineWindowState, Key, Owner, Put, Reclaim, Result, Revision};

/// The state that a fleet of publishers and a sweeper share.
///
/// A writer that is about to refer to a key *publishes* it and *pins* it in one transaction: it opens a
/// [joint transaction](Self::begin_joint_tx), puts the key, and [commits](Self::pin_commit) entry and pins together. While
/// the pin is live nothing deletes the key; the writer commits its reference meanwhile and lets the pin lapse. The
/// sweeper *arbitrates* at the instant of the deletion: live pins and the registered tables of references protect, and
/// a failure to read them protects too.
///
/// The embedder's part: a reference is committed while a pin of its key is live, or inside the SQL transaction that
/// published the key. Then no committed reference ever points at a deleted entry, whatever crashes where.
///
/// The engine never makes or owns the tables of references; it reads them.
pub trait EngineFleetState: EngineWindowState {
    /// An open joint transaction. It belongs to the caller and holds a connection; dropping it rolls back.
    type JointTx: Send;

    /// Opens a joint transaction, uncommitted until [`pin_commit`](Self::pin_commit).
    fn begin_joint_tx(&self) -> BoxFuture<'_, Result<Self::JointTx>>;

    /// Puts an entry in mode [`Create`](crate::PutMode::Create) inside the transaction. The key is locked until the end of
    /// the transaction, also where it was there already, so that no sweep deletes it before the commit.
    ///
    /// After an error the transaction can only be dropped.
    ///
    /// Whoever publishes several keys locks them all at once first, where the engine offers that (`joint_lock` of the
    /// Postgres engine): publishers that lock one after the other may meet a deadlock, which is
    /// [`Conflict`](crate::ErrorKind::Conflict), retryable, for one of them.
    fn joint_put<'a>(
        &'a self,
        tx: &'a mut Self::JointTx,
        key: &'a [u8],
        value: &'a [u8],
    ) -> BoxFuture<'a, Result<Put>>;

    /// Writes the pins and commits, in one step. A pin that its owner has already is renewed. Its deadline is computed by
    /// the server at the commit, so no pin is born lapsed, however long the transaction took. A pinned key leaves the
    /// window, as a published one does.
    ///
    /// A key that has no live entry, or is being reclaimed, cannot be pinned: [`Conflict`](crate::ErrorKind::Conflict),
    /// retryable; publish it again. On any failure there are no pins and no entries; dropping the future leaves all or
    /// nothing.
    fn pin_commit<'a>(
        &'a self,
        tx: Self::JointTx,
        pins: &'a [Pin<'a>],
    ) -> BoxFuture<'a, Result<()>>;

    /// Moves the deadline of a live pin to now + the store's pin ttl. False, and nothing changed, where it has lapsed or
    /// is absent: then publish and pin anew, since the entry may be gone.
    fn pin_renew<'a>(&'a self, key: &'a [u8], owner: &'a str) -> BoxFuture<'a, Result<bool>>;

    /// Whether any live pin protects `key`.
    fn pin_check<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<PinState>>;

    /// Registers a table of references as a liveness source of this handle: `column` of `table` holds keys as `bytea`.
    /// `table` is a name, or a schema and a name with a dot between; each part is quoted as it is. Registering twice is
    /// one registration. A table or column that is not there, a view, and a malformed name are errors.
    fn register_liveness_source<'a>(
        &'a self,
        table: &'a str,
        column: &'a str,
    ) -> BoxFuture<'a, Result<()>>;

    /// Whether something protects `key` at this instant: a live pin, or a row in a registered table. An error protects:
    /// whoever gets one must not delete.
    fn arbitrate<'a>(&'a self, key: &'a [u8]) -> BoxFuture<'a, Result<bool>>;

    /// Arbitrates and deletes the entry of `key` in one transaction, which also removes the lapsed pins of the key:
    /// [`Deleted`](Reclaim::Deleted), [`Absent`](Reclaim::Absent), [`Pinned`](Reclaim::Pinned),
    /// [`Referenced`](Reclaim::Referenced), or [`Marked`](Reclaim::Marked) where a sweep is deleting what the key stands
    /// for. Fails with [`LeaseLost`](crate::ErrorKind::LeaseLost) where `epoch` is not that of the current sweep.
    fn sweep_delete<'a>(&'a self, key: &'a [u8], epoch: Revision)
        -> BoxFuture<'a, Result<Reclaim>>;

    /// Becomes the fleet's one sweeper, and starts a new epoch. False where another is, or this handle already. The lock
    /// belongs to a connection of its own: losing that loses it, and closing the store releases it.
    fn sweep_lock_acquire(&self) -> BoxFuture<'_, Result<bool>>;

    /// Stops being the sweeper; nothing happens where this handle is not.
    fn sweep_lock_release(&self) -> BoxFuture<'_, Result<()>>;

    /// The epoch that this handle's [`sweep_lock_acquire`](Self::sweep_lock_acquire) started, until it is released. That it
    /// is still the current one is not promised.
    fn sweep_epoch(&self) -> Option<Revision>;
}

/// Protection of a key for an owner, until it lapses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pin<'a> {
    /// What is protected.
    pub key: Key<'a>,
    /// For whom: a key can have a pin of each owner.
    pub owner: Owner<'a>,
    /// For how long from the commit on.
    pub ttl: Duration,
}

/// Whether pins protect a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinState {
    /// At least one live pin does.
    Protected,
    /// None does.
    Unprotected,
}
