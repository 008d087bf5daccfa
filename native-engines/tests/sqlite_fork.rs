//! A handle that was opened before a fork. In a program of its own, so that no other test's threads are about.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test may stop where it stands

use std::time::Duration;

use alkstore::{Entries as _, Lifecycle as _, Locks as _, PutOptions};
use alkstore_native::sqlite::rusqlite::Connection;
use alkstore_native::sqlite::SqliteStore;
use fork::Fork;
use futures_executor::block_on;

#[test]
fn bad_input_a_handle_is_refused_in_a_forked_child() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.db");
    let ttl = Duration::from_secs(30);
    let store = block_on(SqliteStore::open(&path)).unwrap();
    let lock = block_on(store.try_lock("a", "o", ttl)).unwrap().unwrap();
    // A read, so that there are connections that must not be closed in the child.
    assert!(block_on(store.lock_info("a")).unwrap().is_some());
    match fork::fork().unwrap() {
        Fork::Child => {
            let refused = [
                block_on(store.try_lock("b", "o", ttl)).is_err(),
                block_on(store.get(b"k")).is_err(),
                block_on(store.list(b"", None, 1)).is_err(),
                block_on(store.put(b"k", b"v", PutOptions::create())).is_err(),
                block_on(store.now()).is_err(),
                block_on(lock.release()).is_err(),
                block_on(store.close()).is_ok(),
            ];
            drop(store);
            // The child may open the file anew.
            let anew = block_on(SqliteStore::open(&path)).and_then(|anew| {
                let row = block_on(anew.lock_info("a"))?;
                Ok(row.is_some())
            });
            let well = refused.iter().all(|refused| *refused) && anew.is_ok_and(|there| there);
            std::process::exit(if well { 42 } else { 1 });
        }
        Fork::Parent(child) => {
            let status = fork::waitpid(child).unwrap();
            assert_eq!((status & 0x7f, status >> 8), (0, 42), "what the child saw");
        }
    }
    block_on(async {
        assert!(store
            .put(b"k", b"v", PutOptions::create())
            .await
            .unwrap()
            .is_stored());
        assert!(lock.release().await.unwrap());
        store.close().await.unwrap();
    });
    let check: String = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(check, "ok");
}
