//! What a whole store is.

use core::sync::atomic::{AtomicBool, Ordering};

use crate::{
    BoxFuture, EngineWindowState, Entries, Error, Locks, Result, Timestamp, Transactions, Tx,
};

/// Opening, closing and time. One store is one open handle on one namespace of state.
pub trait Lifecycle: Send + Sync {
    /// The store clock: the server's where there is one, else that of the engine. Deadlines are judged by it alone.
    fn now(&self) -> BoxFuture<'_, Result<Timestamp>>;

    /// Deletes up to `limit` rows of lapsed locks and lapsed entries, and answers how many went. Nothing needs it to
    /// be called: lapsed rows only take room. After it the stale holder's release finds no row.
    fn purge_lapsed(&self, limit: usize) -> BoxFuture<'_, Result<usize>>;

    /// Closes this handle; closing twice is fine. After it every operation fails with
    /// [`is_closed`](Error::is_closed), those of handles that it gave out too. Leases stay until they lapse.
    fn close(&self) -> BoxFuture<'_, Result<()>>;
}

/// Everything that a single engine offers. Implemented for whatever implements the parts.
pub trait Store: Locks + Entries + Transactions + EngineWindowState {}

impl<S: Locks + Entries + Transactions + EngineWindowState + ?Sized> Store for S {}

/// What is built on the contract alone, and so behaves the same on every engine.
pub trait StoreExt: Transactions {
    /// Opens a transaction: see [`Tx`].
    fn begin(&self) -> Tx<'_, Self> {
        Tx::new(self)
    }
}

impl<S: Transactions + ?Sized> StoreExt for S {}

/// Whether a store is open: the flag that the validator asks, in the place that the contract gives it.
#[derive(Debug, Default)]
pub struct Gate(AtomicBool);

impl Gate {
    /// An open gate.
    pub const fn open() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Closes the gate; false where it was closed already.
    pub fn close(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// Fails once the gate is closed.
    pub fn check(&self) -> Result<()> {
        if self.0.load(Ordering::SeqCst) {
            return Err(Error::closed());
        }
        Ok(())
    }
}
