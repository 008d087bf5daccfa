//! The fixture of the memory engine, natively and in wasm.
#![allow(dead_code)] // every runner is a program of its own, and uses a part of this

/// One test a case, for wherever wasm runs.
#[cfg(target_arch = "wasm32")]
macro_rules! wasm_tests {
    ($($case:ident)*) => {
        mod mem {
            use wasm_bindgen_test::wasm_bindgen_test;

            $(#[wasm_bindgen_test]
            fn $case() {
                crate::support::check(stringify!($case));
            })*
        }
    };
}

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use alkstore::{BoxFuture, ManualClock, Result, Timestamp};
use alkstore_mem::{MemStore, Options};
use alkstore_tests::{Engine, Fixture, Limits, Opened, Snapshots, START};
use futures_util::FutureExt as _;

/// Stores in memory, all on one manual clock.
#[derive(Debug)]
pub(crate) struct Memory {
    clock: ManualClock,
    stores: Mutex<Vec<MemStore<ManualClock>>>,
}

impl Memory {
    pub(crate) fn new() -> Self {
        Self {
            clock: ManualClock::new(START),
            stores: Mutex::default(),
        }
    }

    fn opened(store: &MemStore<ManualClock>, state: usize) -> Opened {
        Opened {
            store: std::sync::Arc::new(store.clone()),
            snapshots: Some(std::sync::Arc::new(InMemory(store.clone()))),
            state,
        }
    }
}

impl Fixture for Memory {
    fn engine(&self) -> Engine {
        Engine::Mem
    }

    fn open(&self, limits: Limits) -> BoxFuture<'_, Result<Opened>> {
        async move {
            let mut options = Options::default();
            options.max_locks = limits.locks.unwrap_or(options.max_locks);
            options.max_entries = limits.entries.unwrap_or(options.max_entries);
            options.max_bytes = limits.bytes.unwrap_or(options.max_bytes);
            let store = MemStore::with_options(self.clock.clone(), options);
            let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            stores.push(store.clone());
            Ok(Self::opened(&store, stores.len() - 1))
        }
        .boxed()
    }

    fn another<'a>(&'a self, of: &'a Opened) -> BoxFuture<'a, Result<Opened>> {
        async move {
            let stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
            Ok(Self::opened(&stores[of.state], of.state))
        }
        .boxed()
    }

    fn set_clock(&self, to: Timestamp) -> BoxFuture<'_, Result<()>> {
        self.clock.set(to);
        async { Ok(()) }.boxed()
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, Result<()>> {
        self.clock.advance(by);
        async { Ok(()) }.boxed()
    }
}

struct InMemory(MemStore<ManualClock>);

impl Snapshots for InMemory {
    fn snapshot(&self) -> BoxFuture<'_, Result<Vec<u8>>> {
        async { self.0.snapshot() }.boxed()
    }

    fn restore<'a>(&'a self, bytes: &'a [u8]) -> BoxFuture<'a, Result<()>> {
        async { self.0.restore(bytes) }.boxed()
    }
}

/// Runs one case on a fresh fixture. The engine is synchronous underneath: a future of it that waits is a fault.
pub(crate) fn check(case: &str) {
    let fixture = Memory::new();
    match alkstore_tests::run(case, &fixture).now_or_never() {
        Some(Ok(())) => {}
        Some(Err(broken)) => panic!("{broken}"),
        None => panic!("{case} waits for something"),
    }
}
