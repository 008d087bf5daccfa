//! Named locks with a time to live.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use crate::{BoxFuture, Result, Revision, Timestamp};

/// The named locks of a store.
///
/// A lock is a lease: it excludes others until its deadline, by the store's clock, and then lapses in silence; nobody
/// is told. What a holder does to the world outside after its deadline is fenced only where the outside checks the
/// [token](Lock::token), or where the write is an entry with a [guard](crate::PutOptions::guard).
///
/// Every call is checked in the same order: name, owner, duration, closed store, then the work.
pub trait Locks: Send + Sync {
    /// Takes the lock `name` for `owner` until `ttl` from now, or answers `None` where another owner's lease is live.
    ///
    /// The owner of a live lease gets that very lease again: same token, same deadline, nothing refreshed. So a call
    /// whose answer was lost is simply repeated.
    ///
    /// Dropping the future leaves either nothing or a lease that the same owner gets back by calling again, and that
    /// lapses otherwise. Holding a lock holds no connection.
    fn try_lock<'a>(
        &'a self,
        name: &'a str,
        owner: &'a str,
        ttl: Duration,
    ) -> BoxFuture<'a, Result<Option<Box<dyn Lock>>>>;

    /// A handle on the grant (`name`, `owner`, `token`), so that another thread, tab or process may renew or release
    /// what somebody took. The store is not asked: whether the grant still stands is answered by each call.
    fn lock_handle(&self, name: &str, owner: &str, token: Revision) -> Result<Box<dyn Lock>>;

    /// Who holds `name`, or held it last where the lapsed row is still there.
    fn lock_info<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<Option<LockInfo>>>;

    /// The locks whose names begin with `prefix` and come after `after`, in bytewise order, `limit` at most; lapsed
    /// ones too, while their rows are there.
    fn list_locks<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a str>,
        limit: usize,
    ) -> BoxFuture<'a, Result<Vec<LockInfo>>>;

    /// Frees exactly the grant `token` of `name`, whoever holds it; false where that grant is not there.
    fn force_release<'a>(&'a self, name: &'a str, token: Revision) -> BoxFuture<'a, Result<bool>>;
}

/// A grant of a named lock.
///
/// A handle remembers name, owner and token, never whether it is held: each call asks the store. Dropping it does
/// nothing; the lease lapses by itself at its deadline.
pub trait Lock: Send + Sync {
    /// The lock's name.
    fn name(&self) -> &str;

    /// Whose grant it is.
    fn owner(&self) -> &str;

    /// The fencing token: of two grants of a name the later has the higher.
    fn token(&self) -> Revision;

    /// The deadline that the store last told this handle; `None` for a handle made by
    /// [`lock_handle`](Locks::lock_handle) that has not renewed yet. A hint for planning the next renewal.
    fn deadline(&self) -> Option<Timestamp>;

    /// Moves the deadline to `ttl` from now: absolute, not added, so it may also shorten. False, and nothing changed,
    /// where this grant has lapsed, is gone, or was followed by another: a lapsed lease is never resurrected.
    ///
    /// Dropping the future leaves the deadline moved or not; nothing else.
    fn renew(&mut self, ttl: Duration) -> BoxFuture<'_, Result<bool>>;

    /// Deletes this grant. True where its row was there, lapsed or not; false where it was gone or another's. A newer
    /// grant, also of the same owner, is not touched.
    ///
    /// Dropping the future leaves the grant released or not; in the latter case it lapses by itself.
    fn release(self: Box<Self>) -> BoxFuture<'static, Result<bool>>;
}

/// A lock's row as [`lock_info`](Locks::lock_info) and [`list_locks`](Locks::list_locks) show it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct LockInfo {
    /// The lock's name.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::name::serialised::lock_name")
    )]
    pub name: String,
    /// Who took it.
    #[cfg_attr(
        feature = "serde",
        serde(deserialize_with = "crate::name::serialised::owner")
    )]
    pub owner: String,
    /// The grant's token.
    pub token: Revision,
    /// When it lapses, or lapsed.
    pub deadline: Timestamp,
    /// Whether it had lapsed at the instant of the answer.
    pub lapsed: bool,
}
