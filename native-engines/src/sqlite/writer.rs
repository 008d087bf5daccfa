//! The thread that owns the connection that writes.
//!
//! Requests that wait while a transaction commits share the next one: each is answered only after its commit. A
//! request that fails half-way takes the shared transaction back with it; then each of its companions is carried out
//! in a transaction of its own, so that none suffers from another.

use std::collections::VecDeque;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::Result;
use futures_channel::oneshot;
use rusqlite::Connection;

use super::clock::StoreClock;
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

/// What the thread is asked for.
pub(super) enum Message {
    /// A request that may write.
    Write(Box<dyn Request>),
    /// A read, where the store has no connections that only read.
    Read(ReadTask),
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

    /// Does it, and keeps the answer. Fails only where the transaction must be rolled back.
    fn run(&mut self, txn: &mut Txn<'_>) -> std::result::Result<(), Failure>;

    /// Tells the caller: the kept answer, or why there is none.
    fn finish(self: Box<Self>, committed: std::result::Result<(), Failure>);
}

/// A request made of a function.
pub(super) struct Call<T, F> {
    pub(super) since: Instant,
    pub(super) work: F,
    pub(super) answer: Option<Result<T>>,
    pub(super) reply: oneshot::Sender<Result<T>>,
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
    pub(super) connection: Connection,
    pub(super) clock: Arc<StoreClock>,
    pub(super) busy_limit: Duration,
    pub(super) inbox: Receiver<Message>,
    /// Requests that were taken out of the inbox.
    pub(super) waiting: VecDeque<Box<dyn Request>>,
    /// How many of the waiting must have a transaction of their own.
    pub(super) alone: usize,
    pub(super) closing: Option<oneshot::Sender<()>>,
}

/// How an attempt to get the write lock ended.
enum Lock {
    Held,
    Busy,
}

impl Writer {
    pub(super) fn new(
        connection: Connection,
        clock: Arc<StoreClock>,
        busy_limit: Duration,
        inbox: Receiver<Message>,
    ) -> Self {
        Self {
            connection,
            clock,
            busy_limit,
            inbox,
            waiting: VecDeque::new(),
            alone: 0,
            closing: None,
        }
    }

    /// Serves until the store is closed or its last handle is gone.
    pub(super) fn serve(mut self) {
        while self.await_request() {
            match self.lock() {
                Ok(Lock::Held) => self.transaction(),
                Ok(Lock::Busy) => {}
                Err(failure) => self.fail_first(failure),
            }
            if !self.connection.is_autocommit() {
                // The rollback failed too: nothing more can be done on this connection.
                break;
            }
        }
        // Whoever asked after the closing learns that the store is closed when his request is dropped.
        drop(self.inbox);
        drop(self.waiting);
        drop(self.connection);
        if let Some(closed) = self.closing {
            let _ = closed.send(());
        }
    }

    /// Waits until there is a request; false where there will be none.
    fn await_request(&mut self) -> bool {
        while self.waiting.is_empty() {
            if self.closing.is_some() {
                return false;
            }
            match self.inbox.recv() {
                Ok(message) => self.sort(message),
                Err(_) => return false,
            }
        }
        true
    }

    /// Outside a transaction.
    fn sort(&mut self, message: Message) {
        match message {
            Message::Write(request) => self.waiting.push_back(request),
            Message::Read(read) => read(Ok(&self.connection)),
            Message::Close(closed) => self.closing = Some(closed),
        }
    }

    /// Gets the write lock. While others have it, requests whose time is over are told so.
    fn lock(&mut self) -> std::result::Result<Lock, Failure> {
        let mut pause = FIRST_PAUSE;
        loop {
            match begin(&self.connection) {
                Ok(()) => return Ok(Lock::Held),
                Err(error) if is_busy(&error) => {}
                Err(error) => return Err(error.into()),
            }
            self.give_up();
            if self.waiting.is_empty() {
                return Ok(Lock::Busy);
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
    fn transaction(&mut self) {
        let mut reads = Vec::new();
        let mut done = Vec::new();
        match self.batch(&mut done, &mut reads) {
            Ok(()) => {
                for request in done {
                    request.finish(Ok(()));
                }
            }
            Err(failure) => {
                self.roll_back();
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
        }
        for read in reads {
            read(Ok(&self.connection));
        }
    }

    /// Carries out requests until there are no more, and commits. `done` are those that were begun.
    fn batch(
        &mut self,
        done: &mut Vec<Box<dyn Request>>,
        reads: &mut Vec<ReadTask>,
    ) -> std::result::Result<(), Failure> {
        let started = Instant::now();
        let mut txn = Txn::begin(&self.connection, &self.clock)?;
        loop {
            let request = match self.waiting.pop_front() {
                Some(request) => request,
                None => match self.inbox.try_recv() {
                    Ok(Message::Write(request)) => request,
                    Ok(Message::Read(read)) => {
                        reads.push(read);
                        continue;
                    }
                    Ok(Message::Close(closed)) => {
                        self.closing = Some(closed);
                        break;
                    }
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                },
            };
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
                request.run(&mut txn)?;
            }
            if alone || self.alone > 0 || done.len() >= BATCH || started.elapsed() >= BATCH_TIME {
                break;
            }
        }
        if txn.finish()? {
            commit(&self.connection)
        } else {
            self.roll_back();
            Ok(())
        }
    }

    fn roll_back(&self) {
        // Some failures have rolled back already.
        if !self.connection.is_autocommit() {
            if let Ok(mut statement) = self.connection.prepare_cached("ROLLBACK") {
                let _ = statement.execute([]);
            }
        }
    }
}

/// A deferred transaction that first reads and then writes fails at once where another wrote in between, busy limit or
/// not: hence always immediate.
pub(super) fn begin(connection: &Connection) -> rusqlite::Result<()> {
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    Ok(())
}

pub(super) fn commit(connection: &Connection) -> std::result::Result<(), Failure> {
    match connection.prepare_cached("COMMIT")?.execute([]) {
        Ok(_) => Ok(()),
        Err(error) => Err(Failure::Commit(error)),
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
    pub(super) async fn write<T, F>(&self, work: F) -> Option<Result<T>>
    where
        T: Send + 'static,
        F: FnMut(&mut Txn<'_>) -> std::result::Result<T, Failure> + Send + 'static,
    {
        let (reply, answer) = oneshot::channel();
        let call = Call {
            since: Instant::now(),
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

    /// Waits until everything that was asked before is done and the connection is closed.
    pub(super) async fn close(&self) {
        let (reply, closed) = oneshot::channel();
        if self.sender.send(Message::Close(reply)).is_ok() {
            let _ = closed.await;
        }
    }
}
