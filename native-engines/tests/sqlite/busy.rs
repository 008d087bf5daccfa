//! Another connection holds the write lock.

use std::time::{Duration, Instant};

use alkstore::{
    Candidate, EngineWindowState as _, Entries as _, ErrorKind, Key, Locks as _, ManualClock,
    PutOptions, Restage,
};
use alkstore_native::sqlite::rusqlite::Connection;
use alkstore_native::sqlite::SqliteOptions;

use crate::support::{assert_waits, block_on, connect, fresh, open_at, quick, START, TTL};

const LIMIT: Duration = Duration::from_millis(50);

fn lock_out(connection: &Connection) {
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
}

fn let_in(connection: &Connection) {
    connection.execute_batch("COMMIT").unwrap();
}

#[test]
fn l3_w3_busy_is_an_error_that_may_be_retried_and_no_answer() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let options = quick().clock(clock.clone()).busy_limit(LIMIT);
    let store = block_on(options.open(&path)).unwrap();
    block_on(async {
        let row = Candidate {
            key: Key::new(&b"k"[..]).unwrap(),
            visible_after: START,
        };
        store.window_stage(&[row], Restage::Move).await.unwrap();
        store.try_lock("held", "a", TTL).await.unwrap().unwrap();
    });
    let other = connect(&path);
    lock_out(&other);
    block_on(async {
        let since = Instant::now();
        let errors = [
            store
                .try_lock("free", "a", TTL)
                .await
                .map(drop)
                .unwrap_err(),
            store.window_take(START, None).await.map(drop).unwrap_err(),
            store
                .window_claim(START, TTL, 1)
                .await
                .map(drop)
                .unwrap_err(),
            store
                .put(b"k", b"v", PutOptions::create())
                .await
                .map(drop)
                .unwrap_err(),
        ];
        assert!(
            since.elapsed() >= LIMIT * 4,
            "each waits for its whole limit"
        );
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::Database);
            assert!(
                error.is_retryable() && !error.is_outcome_unknown(),
                "{error:?}"
            );
        }
        // Reads wait for nobody, and so does an answer that needs no write.
        assert!(store.lock_info("held").await.unwrap().is_some());
        assert!(store.try_lock("held", "b", TTL).await.unwrap().is_none());
        assert!(store.try_lock("held", "a", TTL).await.unwrap().is_some());
        assert_eq!(store.list(b"", None, 10).await.unwrap(), []);
    });
    let_in(&other);
    block_on(async {
        assert!(store.try_lock("free", "a", TTL).await.unwrap().is_some());
        assert_eq!(store.window_take(START, None).await.unwrap().len(), 1);
    });
}

/// The time of a decision is read after the wait for the write lock.
#[test]
fn l11_k3_a_renewal_that_waits_past_its_deadline_is_refused() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let mut lock = block_on(store.try_lock("a", "o", TTL)).unwrap().unwrap();
    let other = connect(&path);
    lock_out(&other);
    let mut renewal = lock.renew(TTL);
    assert_waits(&mut renewal);
    clock.advance(TTL);
    let_in(&other);
    assert!(!block_on(renewal).unwrap());
    let row = block_on(store.lock_info("a")).unwrap().unwrap();
    assert_eq!((row.deadline, row.lapsed), (START.plus(TTL), true));
}

#[test]
fn l11_k4_a_deadline_counts_from_after_the_wait() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let other = connect(&path);
    lock_out(&other);
    let mut grant = store.try_lock("a", "o", TTL);
    assert_waits(&mut grant);
    clock.advance(TTL * 2);
    let_in(&other);
    let lock = block_on(grant).unwrap().unwrap();
    assert_eq!(lock.deadline(), Some(START.plus(TTL * 3)));
}

/// A fenced write that waits until its lease has lapsed and passed on.
#[test]
fn l11_k13_a_fenced_write_that_waits_past_its_lease_is_refused() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let first = block_on(store.try_lock("a", "o", TTL)).unwrap().unwrap();
    let fenced = PutOptions::replace().guard("a", first.token());
    let other = connect(&path);
    lock_out(&other);
    let mut write = store.put(b"k", b"late", fenced);
    assert_waits(&mut write);
    clock.advance(TTL);
    let_in(&other);
    assert_eq!(block_on(write).unwrap_err().kind(), ErrorKind::LeaseLost);
    assert_eq!(block_on(store.get(b"k")).unwrap(), None);
}

/// L12: a call whose future was dropped while it waited is not carried out.
#[test]
fn l12_a_call_that_is_dropped_while_it_waits_does_nothing() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let other = connect(&path);
    lock_out(&other);
    let mut grant = store.try_lock("a", "o", TTL);
    assert_waits(&mut grant);
    drop(grant);
    let_in(&other);
    // Requests are served in order: when this one has been answered, the other would have been carried out.
    assert!(block_on(store.try_lock("b", "o", TTL)).unwrap().is_some());
    assert_eq!(block_on(store.lock_info("a")).unwrap(), None);
}

/// Without a log, readers stand in the way of commits: a commit waits for them as well, up to the limit.
#[test]
fn l3_a_commit_that_readers_hold_up_is_busy_and_not_lost() {
    let (_folder, path) = fresh();
    let options = || SqliteOptions::new().busy_limit(LIMIT);
    let store = block_on(options().on(connect(&path))).unwrap();
    let reader = connect(&path);
    reader
        .execute_batch("BEGIN; SELECT * FROM alkstore_state")
        .unwrap();
    let since = Instant::now();
    let error = block_on(store.try_lock("a", "o", TTL))
        .map(drop)
        .unwrap_err();
    assert!(since.elapsed() >= LIMIT);
    assert!(
        error.is_retryable() && !error.is_outcome_unknown(),
        "{error:?}"
    );
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(
        block_on(store.lock_info("a")).unwrap(),
        None,
        "nothing was done"
    );
    assert!(block_on(store.try_lock("a", "o", TTL)).unwrap().is_some());
}
