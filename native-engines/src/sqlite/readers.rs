//! Reads that pass by the writer: on connections of their own, which see the last commit and wait for nobody.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Receiver};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::failure::Failure;
use super::open;
use super::writer::{Message, Queue};

/// The most connections that are kept open while nobody reads.
const IDLE: usize = 16;

/// Connections for short reads on the callers' own threads, and a thread for the long ones.
pub(super) struct Readers {
    path: PathBuf,
    /// `None` once the store is closed.
    idle: Mutex<Option<Vec<Connection>>>,
    thread: Queue,
}

impl Readers {
    /// Starts the thread; its connection is opened when it is first needed.
    pub(super) fn start(path: PathBuf, busy_limit: Duration) -> Result<Self, Failure> {
        let (sender, inbox) = channel();
        let of_thread = path.clone();
        open::spawn("alkstore-read", move || serve(&of_thread, &inbox))?;
        Ok(Self {
            path,
            idle: Mutex::new(Some(Vec::new())),
            thread: Queue::new(sender, busy_limit),
        })
    }

    /// A read that takes microseconds, here and now. `None` where it must wait: then it is one for the thread.
    pub(super) fn here<T>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, Failure>,
    ) -> Option<Result<T, Failure>> {
        let idle = self.idle().as_mut().map(Vec::pop)?;
        let connection = match idle {
            Some(connection) => connection,
            None => open::reader(&self.path).ok()?,
        };
        let answer = read(&connection);
        if let Some(idle) = self.idle().as_mut() {
            if idle.len() < IDLE {
                idle.push(connection);
            }
        }
        match answer {
            Err(failure) if failure.is_busy() => None,
            answer => Some(answer),
        }
    }

    /// The thread for reads that take longer.
    pub(super) fn thread(&self) -> &Queue {
        &self.thread
    }

    pub(super) async fn close(&self) {
        drop(self.idle().take());
        self.thread.close().await;
    }

    /// In a forked child the connections must not even be closed, since that would touch the parent's files.
    pub(super) fn forget(&self) {
        std::mem::forget(self.idle().take());
    }

    fn idle(&self) -> MutexGuard<'_, Option<Vec<Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn serve(path: &Path, inbox: &Receiver<Message>) {
    let mut connection = None;
    for message in inbox {
        match message {
            Message::Read(read) => {
                if connection.is_none() {
                    match open::reader(path) {
                        Ok(opened) => connection = Some(opened),
                        Err(failure) => {
                            read(Err(failure));
                            continue;
                        }
                    }
                }
                if let Some(connection) = &connection {
                    read(Ok(connection));
                }
            }
            Message::Close(closed) => {
                drop(connection);
                let _ = closed.send(());
                return;
            }
            // Nobody sends this thread anything else.
            Message::Write(_) | Message::Checkpoint => {}
        }
    }
}
