//! What a clock of the user's own can do to a store.
#![allow(clippy::unwrap_used)] // in a test an unwrap is its failure

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alkstore::{Clock, ErrorKind, Timestamp};
use alkstore_mem::MemStore;

const TTL: Duration = Duration::from_secs(1);

/// A clock that uses a store each time it is read.
#[derive(Clone, Default)]
struct Meddler(Arc<OnceLock<MemStore<Meddler>>>, Arc<OnceLock<ErrorKind>>);

impl Clock for Meddler {
    fn now(&self) -> Timestamp {
        if let Some(store) = self.0.get() {
            if let Err(error) = store.try_lock("n", "clock", TTL) {
                let _ = self.1.set(error.kind());
            }
        }
        Timestamp::from_nanos(0)
    }
}

#[test]
fn bad_a_clock_that_calls_back_is_refused() {
    let clock = Meddler::default();
    let store = MemStore::new(clock.clone());
    assert!(clock.0.set(store.clone()).is_ok());
    let lock = store.try_lock("n", "o", TTL).unwrap().unwrap();
    assert_eq!(clock.1.get(), Some(&ErrorKind::Database));
    assert!(lock.release().unwrap(), "the store goes on working");
}

#[test]
fn a_clock_may_use_another_store() {
    let clock = Meddler::default();
    let other = MemStore::new(Meddler::default());
    let store = MemStore::new(clock.clone());
    assert!(clock.0.set(other.clone()).is_ok());
    store.try_lock("n", "o", TTL).unwrap().unwrap();
    assert_eq!(clock.1.get(), None);
    assert_eq!(other.lock_info("n").unwrap().unwrap().owner, "clock");
}

struct Broken;

impl Clock for Broken {
    fn now(&self) -> Timestamp {
        panic!("the clock broke")
    }
}

#[test]
fn a_store_whose_clock_panicked_says_so() {
    let store = MemStore::new(Broken);
    let again = store.clone();
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| store.now())).unwrap_err();
    let error = again.now().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(error.to_string().contains("damaged"), "{error}");
}
