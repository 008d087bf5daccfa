//! T5: a changeset inside the caller's own transaction.

use std::path::Path;

use alkstore::{
    Changeset, Entries as _, ErrorKind, Expect, Key, LockName, Locks as _, ManualClock, PutMode,
    PutOptions, StoreExt as _,
};
use alkstore_native::sqlite::rusqlite::{Connection, TransactionBehavior};

use crate::support::{assert_intact, block_on, connect, fresh, open_at, START, TTL};

fn key(name: &str) -> Key<'static> {
    Key::new(name.as_bytes().to_vec()).unwrap()
}

fn create(name: &str) -> Changeset {
    let mut changeset = Changeset::new();
    changeset
        .put(key(name), b"entry"[..].into(), PutMode::Create, None)
        .unwrap();
    changeset
}

/// The application's connection, with a table of its own.
fn business(path: &Path) -> Connection {
    let connection = connect(path);
    connection
        .execute_batch("CREATE TABLE invoice (number INTEGER PRIMARY KEY)")
        .unwrap();
    connection
}

fn invoices(connection: &Connection) -> i64 {
    connection
        .query_row("SELECT count(*) FROM invoice", [], |row| row.get(0))
        .unwrap()
}

#[test]
fn t5_business_rows_and_entries_commit_together() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let mut connection = business(&path);
    let before = block_on(store.put(b"old", b"", PutOptions::default()))
        .unwrap()
        .version();

    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO invoice VALUES (1)", []).unwrap();
    let commit = store.apply_in(&tx, &create("k")).unwrap();
    assert_eq!(
        block_on(store.get(b"k")).unwrap(),
        None,
        "not before the commit"
    );
    tx.commit().unwrap();
    let entry = block_on(store.get(b"k")).unwrap().unwrap();
    assert_eq!(Some(entry.version), commit.version(b"k"));
    assert!(Some(entry.version) > before);
    assert_eq!(invoices(&connection), 1);

    // Rolled back, neither is there, and the version is given out anew.
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO invoice VALUES (2)", []).unwrap();
    store.apply_in(&tx, &create("l")).unwrap();
    tx.rollback().unwrap();
    assert_eq!(block_on(store.get(b"l")).unwrap(), None);
    assert_eq!(invoices(&connection), 1);
    assert_intact(&path);
}

#[test]
fn t5_a_refusal_leaves_the_transaction_as_it_was() {
    let (_folder, path) = fresh();
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    let mut connection = business(&path);
    let lock = block_on(store.try_lock("a", "o", TTL)).unwrap().unwrap();
    block_on(store.put(b"there", b"v", PutOptions::default())).unwrap();

    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO invoice VALUES (1)", []).unwrap();
    // One changeset goes through, the next does not, a third does.
    store.apply_in(&tx, &create("first")).unwrap();
    let mut conflicting = create("second");
    conflicting.check(key("there"), Expect::Absent).unwrap();
    let error = store.apply_in(&tx, &conflicting).unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Conflict, true)
    );
    let mut guarded = create("third");
    guarded
        .guard(LockName::new("a").unwrap(), lock.token())
        .unwrap();
    store.apply_in(&tx, &guarded).unwrap();
    // The guard is judged when it is applied, by the time of that instant.
    clock.advance(TTL);
    let mut late = create("fourth");
    late.guard(LockName::new("a").unwrap(), lock.token())
        .unwrap();
    let error = store.apply_in(&tx, &late).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LeaseLost);
    tx.commit().unwrap();

    assert_eq!(invoices(&connection), 1);
    let keys = block_on(store.list(b"", None, 10)).unwrap();
    let keys: Vec<&[u8]> = keys.iter().map(|meta| meta.key.as_bytes()).collect();
    assert_eq!(keys, [&b"first"[..], b"there", b"third"]);
}

#[test]
fn t5_an_overlay_is_committed_with_the_callers_rows() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let mut connection = business(&path);
    block_on(store.put(b"n", b"1", PutOptions::default())).unwrap();
    let mut tx = store.begin();
    block_on(async {
        assert_eq!(&*tx.get(b"n").await.unwrap().unwrap().value, b"1");
        tx.put(b"n", b"2", PutMode::Replace, None).await.unwrap();
    });
    let changeset = tx.into_changeset().unwrap();
    let own = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    own.execute("INSERT INTO invoice VALUES (2)", []).unwrap();
    store.apply_in(&own, &changeset).unwrap();
    // What was read has changed meanwhile.
    let error = store.apply_in(&own, &changeset).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    own.commit().unwrap();
    let entry = block_on(store.get(b"n")).unwrap().unwrap();
    assert_eq!(&*entry.value, b"2");
}

#[test]
fn t5_without_the_write_lock_it_is_refused() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let mut connection = business(&path);
    let error = store.apply_in(&connection, &create("k")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    // A deferred transaction that has read what another then overwrote.
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Deferred)
        .unwrap();
    assert_eq!(invoices(&tx), 0);
    block_on(store.put(b"other", b"", PutOptions::default())).unwrap();
    let error = store.apply_in(&tx, &create("k")).unwrap_err();
    assert_eq!(
        (error.kind(), error.is_retryable()),
        (ErrorKind::Database, true)
    );
    drop(tx);
    assert_eq!(block_on(store.get(b"k")).unwrap(), None);

    // A database without the tables.
    let elsewhere = Connection::open_in_memory().unwrap();
    elsewhere.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = store.apply_in(&elsewhere, &create("k")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(
        !elsewhere.is_autocommit(),
        "the caller's transaction is still open"
    );
}

/// A failure of SQLite itself in the middle of the writes: what was written before it goes, the caller's rows stay.
#[test]
fn t5_a_failure_half_way_is_undone_and_leaves_the_callers_rows() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    let mut connection = business(&path);
    connection
        .execute_batch(
            "CREATE TRIGGER refuse AFTER INSERT ON alkstore_entry WHEN new.key = x'62'
             BEGIN SELECT RAISE(ABORT, 'refused by the test'); END",
        )
        .unwrap();
    let mut changeset = create("a");
    let put = changeset.put(key("b"), b"entry"[..].into(), PutMode::Create, None);
    put.unwrap();
    let tx = connection
        .transaction_with_behavior(TransactionBehavior::Immediate)
        .unwrap();
    tx.execute("INSERT INTO invoice VALUES (1)", []).unwrap();
    let error = store.apply_in(&tx, &changeset).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Database);
    tx.commit().unwrap();
    assert_eq!(invoices(&connection), 1);
    assert_eq!(block_on(store.list(b"", None, 10)).unwrap(), []);
}
