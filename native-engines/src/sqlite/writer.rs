//! The thread that owns the connection that writes.
//!
//! Requests that wait while a transaction commits share the next one: each is answered only after its commit. A
//! request that fails half-way takes the shared transaction back with it; then each of its companions is carried out
//! in a transaction of its own, so that none suffers from another.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::Result;
use futures_channel::oneshot;
use rusqlite::Connection;

use super::clock::StoreClock;
use super::connection::{Desk, WriteConnection};
use super::failure::{is_busy, Failure};
use super::txn::Txn;

/// The most requests that share a transaction, and the longest that a transaction takes in more of them. Other
/// processes wait that long for the write lock, and callers for their answer.
const BATCH: usize = 1024;
const BATCH_TIME: Duration = Duration::from_millis(5);

/// How often a busy database is tried again. SQLite offers no queue for its write lock; its own busy handler waits up
/// to 100 ms between tries, which is slow and unfair against whoever tries more often.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How long the thread looks out for a next request before it sleeps.
const WATCH: Duration = Duration::from_micros(30);

/// What the thread is asked for.
pub(super) enum Message {
    /// A request that may write.
    Write(Box<dyn Request>),
    /// A read, where the store has no connections that only read.
    Read(ReadTask),
    /// To carry the log over into the file.
    Checkpoint,
    /// To end, once everything that was asked before is done.
    Close(oneshot::Sender<()>),
}

/// A read that answers its caller itself; it is given the connection, or why there is none.
pub(super) type ReadTask = Box<dyn FnOnce(std::result::Result<&Connection, Failure>) + Send>;

/// Something to do in a write transaction. It may be carried out again after a rollback.
pub(super) trait Request: Send {
    /// Since when the caller waits.
    fn since(&self) -> Instant;

    /// Whether the caller has gone.
    fn is_abandoned(&self) -> bool;

    /// Whether the commit need not wait for the disk.
    fn is_relaxed(&self) -> bool;

    /// Does it, and keeps the answer. Fails only where the transaction must be rolled back.
    fn run(&mut self, txn: &mut Txn<'_>) -> std::result::Result<(), Failure>;

    /// Tells the caller: the kept answer, or why there is none.
    fn finish(self: Box<Self>, committed: std::result::Result<(), Failure>);
}

/// A request made of a function.
struct Call<T, F> {
    since: Instant,
    relaxed: bool,
    work: F,
    answer: Option<Result<T>>,
    reply: oneshot::Sender<Result<T>>,
}

impl<T, F> Request for Call<T, F>
where
    T: Send,
    F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Failure> + Send,
{
    fn since(&self) -> Instant {
        self.since
    }

    fn is_abandoned(&self) -> bool {
        self.reply.is_canceled()
    }

    fn is_relaxed(&self) -> bool {
        self.relaxed
    }

    fn run(&mut self, txn: &mut Txn<'_>) -> std::result::Result<(), Failure> {
        self.answer = Some(match (self.work)(txn) {
            Ok(answer) => Ok(answer),
            Err(Failure::Refused(error)) => Err(error),
            Err(failure) => return Err(failure),
        });
        Ok(())
    }

    fn finish(self: Box<Self>, committed: std::result::Result<(), Failure>) {
        let answer = match committed {
            Ok(()) => self.answer.unwrap_or_else(|| Err(Failure::Gone.into())),
            Err(failure) => Err(failure.into()),
        };
        // The caller may have gone meanwhile; then the work is done all the same.
        let _ = self.reply.send(answer);
    }
}

/// The thread's state.
pub(super) struct Writer {
    desk: Arc<Desk>,
    clock: Arc<StoreClock>,
    busy_limit: Duration,
    inbox: Receiver<Message>,
    /// What was taken out of the inbox.
    waiting: VecDeque<Box<dyn Request>>,
    reads: Vec<ReadTask>,
    checkpoint: bool,
    closing: Option<oneshot::Sender<()>>,
    /// How many of the waiting must have a transaction of their own.
    alone: usize,
    /// How long to look out for the next request before going to sleep.
    watch: Duration,
}

impl Writer {
    pub(super) fn new(
        desk: Arc<Desk>,
        clock: Arc<StoreClock>,
        busy_limit: Duration,
        inbox: Receiver<Message>,
    ) -> Self {
        let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self {
            desk,
            clock,
            busy_limit,
            inbox,
            waiting: VecDeque::new(),
            reads: Vec::new(),
            checkpoint: false,
            closing: None,
            alone: 0,
            watch: if processors > 1 {
                WATCH
            } else {
                Duration::ZERO
            },
        }
    }

    /// Serves until the store is closed or its last handle is gone.
    pub(super) fn serve(mut self) {
        let shared = self.desk.clone();
        while self.await_message() {
            let Some(mut desk) = shared.take() else { break };
            let Some(connection) = desk.as_mut() else {
                break;
            };
            self.read(connection);
            if !self.waiting.is_empty() {
                let relaxed = self.waiting.iter().all(|request| request.is_relaxed());
                match self.lock(connection, relaxed) {
                    Ok(true) => self.transaction(connection, relaxed),
                    Ok(false) => {}
                    Err(failure) => self.fail_first(failure),
                }
                self.read(connection);
            }
            if std::mem::take(&mut self.checkpoint) || connection.wants_checkpoint() {
                connection.checkpoint();
            }
            if !connection.is_idle() {
                break;
            }
        }
        // Whoever asked after the closing learns that the store is closed when the request is dropped.
        drop(self.inbox);
        drop(self.waiting);
        shared.close();
        if let Some(closed) = self.closing {
            let _ = closed.send(());
        }
    }

    /// Waits until there is something to do; false where there will be nothing.
    fn await_message(&mut self) -> bool {
        let mut since = None;
        while self.waiting.is_empty() && self.reads.is_empty() && !self.checkpoint {
            if self.closing.is_some() {
                return false;
            }
            match self.inbox.try_recv() {
                Ok(message) => {
                    self.sort(message);
                    continue;
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => {}
            }
            // To be woken takes longer than most transactions without a sync do.
            if since.get_or_insert_with(Instant::now).elapsed() < self.watch {
                std::hint::spin_loop();
                continue;
            }
            match self.inbox.recv() {
                Ok(message) => self.sort(message),
                Err(_) => return false,
            }
        }
        // Whatever else has come by now shares the transaction.
        while let Ok(message) = self.inbox.try_recv() {
            self.sort(message);
        }
        true
    }

    fn sort(&mut self, message: Message) {
        match message {
            Message::Write(request) => self.waiting.push_back(request),
            Message::Read(read) => self.reads.push(read),
            Message::Checkpoint => self.checkpoint = true,
            Message::Close(closed) => self.closing = Some(closed),
        }
    }

    /// Outside a transaction: what is read has been committed.
    fn read(&mut self, connection: &WriteConnection) {
        for read in self.reads.drain(..) {
            read(Ok(connection.connection()));
        }
    }

    /// Gets the write lock. While others have it, requests whose time is over are told so; false where none is left.
    fn lock(
        &mut self,
        connection: &mut WriteConnection,
        relaxed: bool,
    ) -> std::result::Result<bool, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            match connection.begin(relaxed) {
                Ok(()) => return Ok(true),
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(error.into()),
            }
            self.give_up();
            if self.waiting.is_empty() {
                return Ok(false);
            }
            // More requests are sorted in the meantime, so that reads are served and each limit is kept.
            let next = Instant::now() + pause;
            while let Some(rest) = next.checked_duration_since(Instant::now()) {
                match self.inbox.recv_timeout(rest) {
                    Ok(message) => self.sort(message),
                    Err(RecvTimeoutError::Timeout) => break,
                    Err(RecvTimeoutError::Disconnected) => {
                        std::thread::sleep(rest);
                        break;
                    }
                }
            }
            self.read(connection);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Tells the requests that have waited for the whole of the busy limit.
    fn give_up(&mut self) {
        let limit = self.busy_limit;
        let mut kept = VecDeque::with_capacity(self.waiting.len());
        for request in self.waiting.drain(..) {
            if request.is_abandoned() {
                continue;
            }
            if request.since().elapsed() >= limit {
                request.finish(Err(Failure::Busy(limit)));
            } else {
                kept.push_back(request);
            }
        }
        self.waiting = kept;
        self.alone = self.alone.min(self.waiting.len());
    }

    fn fail_first(&mut self, failure: Failure) {
        if let Some(request) = self.waiting.pop_front() {
            self.alone = self.alone.saturating_sub(1);
            request.finish(Err(failure));
        }
    }

    /// One transaction, whose write lock is held, for as many requests as wait.
    fn transaction(&mut self, connection: &mut WriteConnection, relaxed: bool) {
        let clock = self.clock.clone();
        // Those that were begun.
        let mut done = Vec::new();
        let outcome = connection.transact(&clock, |txn| self.batch(txn, relaxed, &mut done));
        let Err(failure) = outcome else {
            for request in done {
                request.finish(Ok(()));
            }
            return;
        };
        if failure.is_outcome_unknown() {
            for request in done {
                request.finish(Err(failure.again()));
            }
        } else if done.len() > 1 {
            self.alone += done.len();
            for request in done.into_iter().rev() {
                self.waiting.push_front(request);
            }
        } else if let Some(request) = done.pop() {
            request.finish(Err(failure));
        } else {
            self.fail_first(failure);
        }
    }

    /// Carries out requests until there are no more, or the transaction has lasted long enough.
    fn batch(
        &mut self,
        txn: &mut Txn<'_>,
        relaxed: bool,
        done: &mut Vec<Box<dyn Request>>,
    ) -> std::result::Result<(), Failure> {
        let started = Instant::now();
        loop {
            while self.waiting.is_empty() && self.closing.is_none() {
                match self.inbox.try_recv() {
                    Ok(message) => self.sort(message),
                    Err(_) => return Ok(()),
                }
            }
            let Some(request) = self.waiting.pop_front() else {
                return Ok(());
            };
            if relaxed && !request.is_relaxed() {
                // This one's commit must reach the disk: it begins the next transaction.
                self.waiting.push_front(request);
                return Ok(());
            }
            let alone = self.alone > 0;
            self.alone = self.alone.saturating_sub(1);
            if request.is_abandoned() {
                continue;
            }
            if !done.is_empty() {
                txn.tick();
            }
            done.push(request);
            if let Some(request) = done.last_mut() {
                request.run(txn)?;
            }
            if alone || self.alone > 0 || done.len() >= BATCH || started.elapsed() >= BATCH_TIME {
                return Ok(());
            }
        }
    }
}

/// The caller's end of the thread.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    sender: Sender<Message>,
    busy_limit: Duration,
}

impl Queue {
    pub(super) fn new(sender: Sender<Message>, busy_limit: Duration) -> Self {
        Self { sender, busy_limit }
    }

    /// Hands the thread a request, and waits for its answer. `None` where the thread is gone.
    pub(super) async fn write<T, F>(&self, relaxed: bool, work: F) -> Option<Result<T>>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Call {
            since: Instant::now(),
            relaxed,
            work,
            answer: None,
            reply,
        };
        self.sender.send(Message::Write(Box::new(call))).ok()?;
        answer.await.ok()
    }

    /// Hands the thread a read, and waits for its answer. `None` where the thread is gone.
    ///
    /// A read waits only where another connection recovers the log, or where the database keeps no log.
    pub(super) async fn read<T, F>(&self, mut read: F) -> Option<std::result::Result<T, Failure>>
    where
        T: Send + 'static,
        F: FnMut(&Connection) -> std::result::Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let (since, limit) = (Instant::now(), self.busy_limit);
        let task: ReadTask = Box::new(move |connection| {
            let answer = connection.and_then(|connection| loop {
                match read(connection) {
                    Err(failure) if failure.is_busy() && since.elapsed() < limit => {
                        std::thread::sleep(LONGEST_PAUSE);
                    }
                    Err(failure) if failure.is_busy() => break Err(Failure::Busy(limit)),
                    answer => break answer,
                }
            });
            let _ = reply.send(answer);
        });
        self.sender.send(Message::Read(task)).ok()?;
        answer.await.ok()
    }

    /// Asks for the log to be carried over.
    pub(super) fn checkpoint(&self) {
        // Where the thread is gone, the next store that opens the file sees to it.
        let _ = self.sender.send(Message::Checkpoint);
    }

    /// Waits until everything that was asked before is done and the connection is closed.
    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.sender.send(Message::Close(reply)).is_ok() {
            let _ = closed.await;
        }
    }
}
