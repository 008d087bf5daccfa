//! The fixture of the SQLite engine: each state is a file of its own, in a folder that goes with the fixture.
#![allow(dead_code)] // every runner is a program of its own, and uses a part of this
#![allow(clippy::expect_used)] // what no case can go on without

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;
use std::time::Duration;

use alkstore::{BoxFuture, Error, ErrorKind, ManualClock, Result, Timestamp};
use alkstore_native::sqlite::{SqliteOptions, Synchronous};
use alkstore_tests::{Engine, Fixture, Limits, Opened, START};
use tempfile::TempDir;

/// Stores in files, all on one manual clock.
///
/// The first handle on a file commits without waiting for the disk, and so mostly on the caller's thread; the further
/// ones wait for it, and so commit on a thread of their own.
#[derive(Debug)]
pub(crate) struct Files {
    clock: ManualClock,
    folder: TempDir,
    states: AtomicUsize,
}

impl Files {
    pub(crate) fn new() -> Self {
        Self {
            clock: ManualClock::new(START),
            folder: TempDir::new().expect("a temporary folder"),
            states: AtomicUsize::new(0),
        }
    }

    async fn opened(&self, state: usize, synchronous: Synchronous) -> Result<Opened> {
        let path = self.folder.path().join(format!("{state}.db"));
        let store = SqliteOptions::new()
            .clock(self.clock.clone())
            .synchronous(synchronous)
            .open(path)
            .await?;
        Ok(Opened {
            store: Arc::new(store),
            snapshots: None,
            state,
        })
    }
}

impl Fixture for Files {
    fn engine(&self) -> Engine {
        Engine::Sqlite
    }

    /// The engine has no option that could limit it but the size of the disk.
    fn open(&self, limits: Limits) -> BoxFuture<'_, Result<Opened>> {
        if limits != Limits::default() {
            let refused = Error::new(ErrorKind::InvalidArgument, "a file knows no such limits");
            return Box::pin(async { Err(refused) });
        }
        let state = self.states.fetch_add(1, Ordering::Relaxed);
        Box::pin(self.opened(state, Synchronous::Normal))
    }

    fn another<'a>(&'a self, of: &'a Opened) -> BoxFuture<'a, Result<Opened>> {
        Box::pin(self.opened(of.state, Synchronous::Full))
    }

    fn set_clock(&self, to: Timestamp) -> BoxFuture<'_, Result<()>> {
        self.clock.set(to);
        Box::pin(async { Ok(()) })
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, Result<()>> {
        self.clock.advance(by);
        Box::pin(async { Ok(()) })
    }
}
