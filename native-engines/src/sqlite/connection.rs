//! The connection that writes, shared by the writer's thread and by callers whose work is too short for a thread.

use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::clock::StoreClock;
use super::failure::{is_busy, Failure};
use super::txn::Txn;

/// After about so many pages, 16 MB, the log is carried over into the file. SQLite's own default is a quarter of it;
/// but a lock costs several small commits, and carrying over costs several syncs however little there is.
const CHECKPOINT_PAGES: usize = 4_000;

const PAUSE: Duration = Duration::from_millis(1);

/// When the connection's commits reach the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sync {
    /// Each waits for it, but where one says that it need not.
    Each,
    /// None waits for it.
    None,
    /// As the embedder has set it.
    Unknown,
}

/// The connection, while nobody else has it. `None` once it is closed.
pub(super) struct Desk(Mutex<Option<WriteConnection>>);

pub(super) struct WriteConnection {
    connection: Connection,
    sync: Sync,
    /// How long a commit waits for readers, which stand in its way only where the database keeps no log.
    patience: Duration,
    /// Whether commits do not wait for the disk just now, where they do otherwise.
    relaxed: bool,
    /// About how many pages were written since the last checkpoint.
    pages: usize,
}

impl Desk {
    pub(super) fn new(connection: Connection, sync: Sync, patience: Duration) -> Self {
        Self(Mutex::new(Some(WriteConnection {
            connection,
            sync,
            patience,
            relaxed: false,
            pages: 0,
        })))
    }

    /// Waits for the connection. Fails where a panic, which only an embedder's clock can cause, befell its last user.
    pub(super) fn take(&self) -> Option<MutexGuard<'_, Option<WriteConnection>>> {
        self.0.lock().ok().filter(|desk| desk.is_some())
    }

    /// The connection, if it is free.
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, Option<WriteConnection>>> {
        match self.0.try_lock() {
            Ok(desk) => Some(desk).filter(|desk| desk.is_some()),
            Err(TryLockError::WouldBlock | TryLockError::Poisoned(_)) => None,
        }
    }

    pub(super) fn close(&self) {
        drop(self.0.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

impl WriteConnection {
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Whether the connection can still be used: a rollback that failed leaves it in a transaction.
    pub(super) fn is_idle(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// Gets the write lock of the database, or fails at once where others have it. `relaxed`: the commit need not wait
    /// for the disk.
    pub(super) fn begin(&mut self, relaxed: bool) -> rusqlite::Result<()> {
        if self.sync == Sync::Each && self.relaxed != relaxed {
            let level = if relaxed { "NORMAL" } else { "FULL" };
            // Not from the cache of statements: this one takes effect when it is prepared.
            self.connection
                .execute_batch(&format!("PRAGMA main.synchronous = {level}"))?;
            self.relaxed = relaxed;
        }
        begin(&self.connection)
    }

    /// Does `work` in the transaction that was begun, and commits. Where that fails, nothing is left of it.
    pub(super) fn transact<T>(
        &mut self,
        clock: &StoreClock,
        work: impl FnOnce(&mut Txn<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let undo = Undo(&self.connection);
        let mut txn = Txn::begin(&self.connection, clock)?;
        let answer = work(&mut txn)?;
        let pages = txn.finish()?;
        if pages > 0 {
            commit(&self.connection, self.patience)?;
        }
        drop(undo);
        self.pages += pages;
        Ok(answer)
    }

    /// Whether [`checkpoint`](Self::checkpoint) is due; answers so once.
    pub(super) fn wants_checkpoint(&mut self) -> bool {
        let due = self.pages >= CHECKPOINT_PAGES && self.sync != Sync::Unknown;
        if due {
            self.pages = 0;
        }
        due
    }

    /// Carries the log over into the file, as far as readers allow. It waits for the disk.
    pub(super) fn checkpoint(&self) {
        // Where it fails, the log stays longer, and the next one tries again.
        let _ = self
            .connection
            .execute_batch("PRAGMA main.wal_checkpoint(PASSIVE)");
    }
}

/// Rolls back what was not committed, a panic of the embedder's clock included.
struct Undo<'c>(&'c Connection);

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        // Some failures have rolled back already.
        if !self.0.is_autocommit() {
            let rolled_back = self
                .0
                .prepare_cached("ROLLBACK")
                .and_then(|mut statement| statement.execute([]));
            // Where that failed too, the connection is given up.
            drop(rolled_back);
        }
    }
}

/// A deferred transaction that first reads and then writes fails at once where another wrote in between, busy limit or
/// not: hence always immediate.
pub(super) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

/// Commits; a commit that readers stand in the way of can be tried again.
pub(super) fn commit(connection: &Connection, patience: Duration) -> Result<(), Failure> {
    let mut statement = connection.prepare_cached("COMMIT")?;
    let since = Instant::now();
    loop {
        match statement.execute([]) {
            Ok(_) => return Ok(()),
            Err(error) if is_busy(&error) => {
                if since.elapsed() >= patience {
                    return Err(Failure::Busy(patience));
                }
                std::thread::sleep(PAUSE);
            }
            Err(error) => return Err(Failure::Commit(error)),
        }
    }
}
