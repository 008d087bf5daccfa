//! The store: checks, then a request to the writer, or a read.

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use alkstore::{Changeset, Commit, Error, Gate, Result, Revision};
use rusqlite::Connection;

use super::changeset;
use super::clock::{self, Reading, StoreClock};
use super::connection::{Desk, Sync};
use super::failure::{is_busy, Failure};
use super::locks;
use super::open::{self, Place};
use super::options::{SqliteOptions, Synchronous};
use super::readers::Readers;
use super::txn::Txn;
use super::writer::Queue;

/// How many rows of the window are written in one transaction, so that others get a turn in between.
const WINDOW_BATCH: usize = 10_000;

/// A store in a SQLite database, shared with the other threads and processes that have the same file open.
///
/// Everything that the contract of [`alkstore`] promises holds across processes. Calls need no particular runtime, and
/// none of them keeps a runtime's thread waiting for the disk's sync or for another process: a thread of the store's own
/// does that, and commits together what waits together. What takes microseconds and waits for neither is done on the
/// caller's thread: a look at one row (a lock that another holds, an entry of up to 64 KiB), and the write of one
/// where its commit need not reach the disk. Listings and longer values are read by a second thread.
///
/// Dropping the store ends its threads once what was begun is done; [`close`](alkstore::Lifecycle::close) waits for it.
///
/// # The window
///
/// A call about many candidates, claims or keys takes a transaction for every 10,000 of them, so that others get a turn
/// in between. What happens to one of them is atomic, its entry included; where the call fails or its future is dropped,
/// some may be through and others not. Repeating the call is safe: those that were through answer
/// [`Voided`](alkstore::Reclaim::Voided), or [`Marked`](alkstore::Reclaim::Marked) where they were marked. A fence is
/// judged in each transaction. Taking and claiming are one transaction each, whatever their limit.
///
/// [`window_stats`](alkstore::EngineWindowState::window_stats) reads all rows, some tenths of a second for a million;
/// only other long reads wait for it, and writes too where the store has but one connection. The lock of a sweep is an
/// ordinary one, `__alkstore_sweep`.
///
/// # Forks
///
/// A handle that was opened before a fork fails in the child, without touching the file. Open the store after forking.
pub struct SqliteStore {
    pub(super) shared: Arc<Shared>,
}

pub(super) struct Shared {
    pub(super) gate: Gate,
    pub(super) clock: Arc<StoreClock>,
    process: u32,
    desk: Arc<Desk>,
    sync: Sync,
    pub(super) relaxed_release: bool,
    writer: Queue,
    /// How many calls are writing or waiting to.
    writing: AtomicUsize,
    /// `None` where there is one connection alone, so that the writer reads.
    readers: Option<Readers>,
}

impl SqliteStore {
    /// Opens the file `path` with the defaults of [`SqliteOptions`]: see [`SqliteOptions::open`].
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        SqliteOptions::new().open(path).await
    }

    /// A store in memory with the defaults: see [`SqliteOptions::in_memory`].
    pub async fn in_memory() -> Result<Self> {
        SqliteOptions::new().in_memory().await
    }

    /// Applies `changeset` inside the caller's own transaction, so that rows of the application and entries are committed
    /// together or not at all.
    ///
    /// `connection` is any connection to the same file, inside a transaction that was begun with `IMMEDIATE`
    /// ([`TransactionBehavior::Immediate`](rusqlite::TransactionBehavior::Immediate)). All checks and guards are judged,
    /// and all writes made, within a savepoint: where one fails, as by
    /// [`Conflict`](alkstore::ErrorKind::Conflict) or [`LeaseLost`](alkstore::ErrorKind::LeaseLost), the transaction is
    /// as it was before the call, and still open.
    ///
    /// The versions in the answer are provisional: they are given out anew where the transaction is rolled back. Whether
    /// the commit waits for the disk is a setting of that connection. While the transaction is open, nobody else can
    /// write: do not await the store's own writes before its end. This call blocks, as the caller's transaction does.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` where there is no transaction; a retryable `Database` error where the transaction was not begun
    /// with `IMMEDIATE` and another connection has written, or is writing.
    pub fn apply_in(&self, connection: &Connection, changeset: &Changeset) -> Result<Commit> {
        self.shared.gate.check()?;
        self.shared.enter()?;
        if connection.is_autocommit() {
            return Err(Failure::Unfit(
                "the connection is in no transaction: begin one with IMMEDIATE",
            )
            .into());
        }
        Ok(self.shared.apply_in(connection, changeset)?)
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore")
            .field("clock", &self.shared.clock)
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) async fn start(
        place: Place,
        clock: Arc<StoreClock>,
        busy_limit: Duration,
        synchronous: Synchronous,
    ) -> std::result::Result<Self, Failure> {
        let file = match &place {
            Place::File(path) => Some(path.clone()),
            Place::Memory | Place::Connection(_) => None,
        };
        let (sender, desk, sync) =
            open::writer(place, clock.clone(), busy_limit, synchronous).await?;
        let readers = file
            .map(|path| Readers::start(path, busy_limit))
            .transpose()?;
        Ok(Self {
            gate: Gate::open(),
            clock,
            process: std::process::id(),
            desk,
            sync,
            relaxed_release: false,
            writer: Queue::new(sender, busy_limit),
            writing: AtomicUsize::new(0),
            readers,
        })
    }

    /// What comes after the arguments and the closed store: whether this process and this thread may work at all.
    pub(super) fn enter(&self) -> std::result::Result<(), Failure> {
        if std::process::id() != self.process {
            return Err(Failure::Forked);
        }
        if clock::is_reading() {
            return Err(Failure::Reentrant);
        }
        Ok(())
    }

    /// Carries out `work` in a write transaction; it may be done again after a rollback.
    ///
    /// A short transaction whose commit does not wait for the disk takes some microseconds, less than waking a thread
    /// and being woken by it: it is done on the caller's thread, provided that nobody else wants to write. Else it is
    /// the writer's, who commits together what waits together.
    pub(super) async fn write<T, F>(&self, kind: Kind, mut work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        self.enter()?;
        let relaxed = kind == Kind::Release && self.relaxed_release;
        let here = match self.sync {
            Sync::Each => relaxed,
            Sync::None => kind != Kind::Long,
            Sync::Unknown => false,
        };
        let writing = Writing::begin(&self.writing);
        if here {
            // Whoever else is about to write has said so when this is polled again.
            yield_once().await;
            if writing.is_alone() {
                if let Some(answer) = self.write_here(relaxed, &mut work) {
                    return Ok(answer?);
                }
            }
        }
        let answer = self.writer.write(relaxed, work).await;
        answer.unwrap_or_else(|| Err(self.gone()))
    }

    /// `None`, and nothing done, where that would have to wait.
    fn write_here<T>(
        &self,
        relaxed: bool,
        work: impl FnOnce(&mut Txn<'_>) -> std::result::Result<T, Failure>,
    ) -> Option<std::result::Result<T, Failure>> {
        let mut desk = self.desk.try_take()?;
        let connection = desk.as_mut()?;
        match connection.begin(relaxed) {
            Ok(()) => {}
            Err(error) if is_busy(&error) => return None,
            Err(error) => return Some(Err(error.into())),
        }
        let answer = connection.transact(&self.clock, work);
        if connection.wants_checkpoint() {
            self.writer.checkpoint();
        }
        Some(answer)
    }

    /// Does `step` for each of `items`, in transactions of a bounded size. At least one, so that a fence is judged where
    /// there are no items, too.
    pub(super) async fn each<I, T>(
        &self,
        items: Vec<I>,
        fence: Option<Revision>,
        step: impl Fn(&mut Txn<'_>, &I) -> std::result::Result<T, Failure> + Copy + Send + 'static,
    ) -> Result<Vec<T>>
    where
        I: Send + 'static,
        T: Send + 'static,
    {
        let mut items = items.into_iter();
        let mut answers = Vec::with_capacity(items.len());
        loop {
            let batch: Vec<I> = items.by_ref().take(WINDOW_BATCH).collect();
            let write = self.write(Kind::Long, move |txn| {
                locks::check_sweep(txn, fence)?;
                batch
                    .iter()
                    .map(|item| step(txn, item))
                    .collect::<std::result::Result<Vec<T>, _>>()
            });
            answers.extend(write.await?);
            if items.len() == 0 {
                return Ok(answers);
            }
        }
    }

    /// A read that is too long for the caller's thread.
    pub(super) async fn read<T, F>(&self, mut read: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnMut(&Connection, &StoreClock, Reading) -> std::result::Result<T, Failure>
            + Send
            + 'static,
    {
        self.enter()?;
        let clock = self.clock.clone();
        let work = move |connection: &Connection| read(connection, &clock, clock.read());
        let thread = self.readers.as_ref().map_or(&self.writer, Readers::thread);
        match thread.read(work).await {
            Some(answer) => Ok(answer?),
            None => Err(self.gone()),
        }
    }

    /// A look at one row, on the caller's thread. `None` where that is not to be had: then [`read`](Self::read) or
    /// [`write`](Self::write) does it.
    pub(super) fn look<T>(
        &self,
        read: impl FnOnce(&Connection, &StoreClock) -> std::result::Result<T, Failure>,
    ) -> std::result::Result<Option<T>, Failure> {
        self.enter()?;
        let look = match &self.readers {
            Some(readers) => readers.here(|connection| read(connection, &self.clock)),
            None => self.desk.try_take().and_then(|desk| {
                let connection = desk.as_ref()?.connection();
                Some(read(connection, &self.clock)).filter(|answer| !is_busy_answer(answer))
            }),
        };
        look.transpose()
    }

    fn apply_in(
        &self,
        connection: &Connection,
        changeset: &Changeset,
    ) -> std::result::Result<Commit, Failure> {
        connection.execute_batch("SAVEPOINT alkstore")?;
        let applied = self.apply_here(connection, changeset);
        let end = match applied {
            Ok(_) => "RELEASE alkstore",
            Err(_) => "ROLLBACK TO alkstore; RELEASE alkstore",
        };
        // A failing disk may have rolled back the caller's whole transaction already.
        if !connection.is_autocommit() {
            connection.execute_batch(end)?;
        }
        applied
    }

    fn apply_here(
        &self,
        connection: &Connection,
        changeset: &Changeset,
    ) -> std::result::Result<Commit, Failure> {
        // Takes the write lock where the transaction has not got it yet, before anything is read or judged.
        connection.execute(
            "UPDATE main.alkstore_state SET revision = revision WHERE id = 0",
            [],
        )?;
        let mut txn = Txn::begin(connection, &self.clock)?;
        let commit = changeset::apply(&mut txn, changeset)?;
        txn.finish()?;
        Ok(commit)
    }

    pub(super) async fn close(&self) {
        self.gate.close();
        if let Some(readers) = &self.readers {
            readers.close().await;
        }
        self.writer.close().await;
    }

    fn gone(&self) -> Error {
        match self.gate.check() {
            Err(closed) => closed,
            Ok(()) => Failure::Gone.into(),
        }
    }
}

fn is_busy_answer<T>(answer: &std::result::Result<T, Failure>) -> bool {
    answer.as_ref().is_err_and(Failure::is_busy)
}

/// What a write is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A row or two.
    Short,
    /// The release of a lock by its holder, whose commit may be relaxed: where a loss of power takes it back, the lease
    /// lapses at its deadline. Every later commit that waits takes it along to the disk.
    Release,
    /// Anything else.
    Long,
}

/// One call that writes or waits to, until it is dropped.
struct Writing<'a>(&'a AtomicUsize);

impl<'a> Writing<'a> {
    fn begin(all: &'a AtomicUsize) -> Self {
        all.fetch_add(1, Ordering::Relaxed);
        Self(all)
    }

    fn is_alone(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 1
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lets the other tasks of the caller's thread have their turn.
async fn yield_once() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::process::id() != self.process {
            if let Some(readers) = &self.readers {
                readers.forget();
            }
        }
    }
}
