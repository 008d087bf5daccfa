//! Time that never runs back, and clocks that misbehave.

use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alkstore::{
    Clock, Entries as _, Lifecycle as _, Locks as _, ManualClock, PutOptions, Timestamp,
};
use alkstore_native::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use futures_util::FutureExt as _;

use crate::support::{block_on, fresh, open, open_at, quick, START, TTL};

const HOUR: Duration = Duration::from_secs(3_600);

fn back(from: Timestamp, by: Duration) -> Timestamp {
    Timestamp::from_nanos(from.as_nanos() - i64::try_from(by.as_nanos()).unwrap())
}

#[test]
fn k7_the_floor_in_the_file_holds_for_the_next_process_too() {
    let (_folder, path) = fresh();
    let ahead = ManualClock::new(START);
    let first = open_at(&path, &ahead);
    let lock = block_on(first.try_lock("a", "o", TTL)).unwrap().unwrap();
    // Another handle, as of another process, whose clock is an hour behind.
    let behind = ManualClock::new(back(START, HOUR));
    let second = open_at(&path, &behind);
    block_on(async {
        assert_eq!(second.now().await.unwrap(), START);
        assert!(second.try_lock("a", "p", TTL).await.unwrap().is_none());
        let other = second.try_lock("b", "p", TTL).await.unwrap().unwrap();
        assert_eq!(other.deadline(), Some(START.plus(TTL)));
        assert!(other.token() > lock.token());
        // A lease that lapsed for one has lapsed for all.
        ahead.advance(TTL);
        first.put(b"k", b"v", PutOptions::create()).await.unwrap();
        assert!(second.lock_info("a").await.unwrap().unwrap().lapsed);
        assert!(second.try_lock("a", "p", TTL).await.unwrap().is_some());
        first.close().await.unwrap();
        second.close().await.unwrap();
    });
    let third = open_at(&path, &behind);
    assert_eq!(block_on(third.now()).unwrap(), START.plus(TTL));
}

/// A read leaves nothing in the file, but what this process saw binds it.
#[test]
fn k7_what_has_lapsed_for_a_reader_stays_lapsed() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    block_on(async {
        let put = PutOptions::create().ttl(TTL);
        store.put(b"k", b"v", put).await.unwrap();
        clock.advance(TTL);
        assert_eq!(store.get(b"k").await.unwrap(), None);
        clock.set(START);
        assert_eq!(store.get(b"k").await.unwrap(), None);
        assert_eq!(store.list(b"", None, 10).await.unwrap(), []);
        assert_eq!(store.now().await.unwrap(), START.plus(TTL));
    });
}

/// The time of day, and a floor in the file that lies a century ahead of it: leases lapse all the same.
#[test]
fn k7_time_goes_on_after_a_clock_that_was_far_ahead_is_set_right() {
    let (_folder, path) = fresh();
    let wrong = Timestamp::from_nanos(8_000_000_000_000_000_000);
    let store = open_at(&path, &ManualClock::new(wrong));
    block_on(store.try_lock("a", "o", Duration::from_millis(1)))
        .unwrap()
        .unwrap();
    block_on(store.close()).unwrap();
    let store = open(&path);
    block_on(async {
        while store.try_lock("a", "p", TTL).await.unwrap().is_none() {}
        assert!(store.now().await.unwrap() > wrong);
    });
}

/// A clock that calls the store that reads it.
struct Recursive {
    store: Arc<OnceLock<SqliteStore>>,
    refused: Arc<AtomicBool>,
}

impl Clock for Recursive {
    fn now(&self) -> Timestamp {
        if let Some(store) = self.store.get() {
            let answer = store.try_lock("x", "o", TTL).now_or_never();
            let refused = answer.is_some_and(|answer| answer.is_err());
            self.refused.store(refused, Ordering::SeqCst);
        }
        START
    }
}

#[test]
fn bad_input_a_clock_that_calls_the_store_is_refused() {
    let (_folder, path) = fresh();
    let store = Arc::new(OnceLock::new());
    let refused = Arc::new(AtomicBool::new(false));
    let clock = Recursive {
        store: store.clone(),
        refused: refused.clone(),
    };
    let opened = block_on(quick().clock(clock).open(&path)).unwrap();
    let store = store.get_or_init(|| opened);
    for write in [true, false] {
        refused.store(false, Ordering::SeqCst);
        if write {
            block_on(store.put(b"k", b"v", PutOptions::create())).unwrap();
        } else {
            block_on(store.get(b"k")).unwrap();
        }
        assert!(refused.load(Ordering::SeqCst));
    }
    assert_eq!(block_on(store.lock_info("x")).unwrap(), None);
}

struct Fragile(Arc<AtomicBool>);

impl Clock for Fragile {
    fn now(&self) -> Timestamp {
        assert!(!self.0.load(Ordering::SeqCst), "the test's clock breaks");
        START
    }
}

#[test]
fn a_clock_that_panics_ends_the_store_and_leaves_the_file_usable() {
    for synchronous in [Synchronous::Full, Synchronous::Normal] {
        let (_folder, path) = fresh();
        let broken = Arc::new(AtomicBool::new(false));
        let options = SqliteOptions::new()
            .clock(Fragile(broken.clone()))
            .synchronous(synchronous);
        let store = block_on(options.open(&path)).unwrap();
        let put = |key: &'static str| {
            let put = AssertUnwindSafe(|| {
                block_on(store.put(key.as_bytes(), b"v", PutOptions::create()))
            });
            catch_unwind(put)
        };
        assert!(put("k").unwrap().unwrap().is_stored());
        broken.store(true, Ordering::SeqCst);
        // It breaks on the thread that read it: the writer's, or the caller's.
        match put("l") {
            Ok(answer) => {
                let error = answer.unwrap_err();
                assert!(
                    error.is_outcome_unknown() && !error.is_closed(),
                    "{error:?}"
                );
            }
            Err(_) => assert_eq!(synchronous, Synchronous::Normal),
        }
        broken.store(false, Ordering::SeqCst);
        assert!(
            put("m").unwrap().is_err(),
            "it does not come back by itself"
        );
        // Nobody is locked out, and what was written before is there.
        let other = open(&path);
        block_on(async {
            assert!(other.get(b"k").await.unwrap().is_some());
            let put = other.put(b"l", b"v", PutOptions::create()).await.unwrap();
            assert!(put.is_stored());
            store.close().await.unwrap();
        });
    }
}
