//! Requests that share a transaction.

use alkstore::{Entries as _, ErrorKind, ManualClock, Put, PutMode, PutOptions, Revision};
use alkstore_native::sqlite::SqliteStore;
use futures_util::future::join_all;
use std::path::Path;

use crate::support::{assert_intact, assert_waits, block_on, connect, fresh, open_at, START};

/// Ten puts that wait for the write lock together, and so share a transaction; the answers in their order.
fn together(
    store: &SqliteStore,
    path: &Path,
    options: &PutOptions<'_>,
) -> Vec<Result<bool, ErrorKind>> {
    let other = connect(path);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    let keys: Vec<String> = (0..10).map(|n| format!("k{n}")).collect();
    let puts = keys
        .iter()
        .map(|key| store.put(key.as_bytes(), b"v", options.clone()));
    let mut puts = join_all(puts);
    assert_waits(&mut puts);
    other.execute_batch("COMMIT").unwrap();
    let answers = block_on(puts);
    let kinds = answers
        .into_iter()
        .map(|put| put.map(Put::is_stored).map_err(|error| error.kind()));
    kinds.collect()
}

#[test]
fn a_refused_request_does_not_disturb_its_companions() {
    let (_folder, path) = fresh();
    let store = open_at(&path, &ManualClock::new(START));
    block_on(store.put(b"k4", b"first", PutOptions::create())).unwrap();
    let answers = together(&store, &path, &PutOptions::create());
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Ok(n != 4));
    }
    let lost = PutOptions::replace().guard("absent", Revision::new(7).unwrap());
    let answers = together(&store, &path, &lost);
    assert!(answers
        .iter()
        .all(|answer| *answer == Err(ErrorKind::LeaseLost)));
    let entry = block_on(store.get(b"k4")).unwrap().unwrap();
    assert_eq!(&*entry.value, b"first");
}

/// A write that SQLite itself refuses, once leaving the transaction as it is and once ending it.
#[test]
fn a_request_that_fails_half_way_does_not_take_its_companions_with_it() {
    for resolution in ["ABORT", "ROLLBACK", "FAIL"] {
        let (_folder, path) = fresh();
        let store = open_at(&path, &ManualClock::new(START));
        connect(&path)
            .execute_batch(&format!(
                "CREATE TRIGGER refuse AFTER INSERT ON alkstore_entry WHEN new.key = x'6b34'
                 BEGIN SELECT RAISE({resolution}, 'refused by the test'); END"
            ))
            .unwrap();
        let answers = together(&store, &path, &PutOptions::with_mode(PutMode::Replace));
        for (n, answer) in answers.iter().enumerate() {
            let expected = if n == 4 {
                Err(ErrorKind::Database)
            } else {
                Ok(true)
            };
            assert_eq!(*answer, expected, "{n}, {resolution}");
        }
        block_on(async {
            let list = store.list(b"", None, 100).await.unwrap();
            assert_eq!(list.len(), 9, "{resolution}");
            let mut versions: Vec<_> = list.iter().map(|meta| meta.version).collect();
            versions.dedup();
            assert_eq!(versions.len(), 9, "each with a version of its own");
        });
        assert_intact(&path);
    }
}
