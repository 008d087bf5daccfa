//! Opening: places that are no store, and stores in other places than a file.

use std::error::Error as _;
use std::path::Path;
use std::process::Stdio;

use alkstore::{Entries as _, ErrorKind, Lifecycle as _, Locks as _, PutOptions};
use alkstore_native::sqlite::rusqlite::Connection;
use alkstore_native::sqlite::{SqliteOptions, SqliteStore};

use crate::support::{block_on, command, connect, fresh, open, quick, role, TTL};
use crate::upgrade::FIRST;

fn refused(path: &Path) -> alkstore::Error {
    let error = block_on(SqliteStore::open(path)).expect_err("it must not open");
    let text = error.to_string();
    assert!(!error.is_retryable() && !error.is_closed(), "{error:?}");
    if let Some(source) = error.source() {
        assert!(!text.contains(&source.to_string()), "{text}: {source}");
    }
    error
}

/// Everything in a folder, with what the files hold.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().to_string_lossy().into_owned();
            (name, std::fs::read(entry.path()).unwrap_or_default())
        })
        .collect();
    all.sort();
    all
}

#[test]
fn bad_input_paths_that_are_no_database() {
    let (folder, path) = fresh();
    assert!(refused(folder.path())
        .to_string()
        .contains("it is a folder"));
    let missing = folder.path().join("no").join("store.db");
    assert!(refused(&missing).to_string().contains("does not exist"));
    for name in ["", ":memory:"] {
        assert_eq!(refused(Path::new(name)).kind(), ErrorKind::InvalidArgument);
    }
    std::fs::write(
        &path,
        "certainly not a database, but long enough to be one\n".repeat(100),
    )
    .unwrap();
    let before = contents(folder.path());
    let error = refused(&path);
    assert!(
        error.to_string().contains("it is not a SQLite database"),
        "{error}"
    );
    assert!(error.to_string().contains("store.db"), "{error}");
    assert_eq!(contents(folder.path()), before);
    // An empty file is an empty database.
    std::fs::write(&path, "").unwrap();
    block_on(open(&path).close()).unwrap();
}

#[test]
fn e7_what_is_not_this_version_is_refused_untouched() {
    let changes = [
        (
            "UPDATE alkstore_state SET version = version + 1",
            "update alkstore",
        ),
        (
            "UPDATE alkstore_state SET version = 0",
            "never was such a version",
        ),
        ("DELETE FROM alkstore_state", "its row is missing"),
        (
            "DROP TABLE alkstore_state",
            "the table alkstore_state is missing",
        ),
        (
            "DROP TABLE alkstore_state; CREATE TABLE alkstore_state (other)",
            "not of this crate",
        ),
    ];
    for (change, words) in changes {
        let (folder, path) = fresh();
        block_on(open(&path).close()).unwrap();
        let connection = connect(&path);
        connection.execute_batch(change).unwrap();
        drop(connection);
        let before = contents(folder.path());
        let error = refused(&path);
        assert_eq!(error.kind(), ErrorKind::Database);
        assert!(error.to_string().contains(words), "{change}: {error}");
        assert_eq!(contents(folder.path()), before, "{change}");
    }
}

#[test]
fn e7_a_newer_version_stops_a_store_that_is_open() {
    let (_folder, path) = fresh();
    let store = open(&path);
    connect(&path)
        .execute_batch("UPDATE alkstore_state SET version = version + 1")
        .unwrap();
    block_on(async {
        let put = store.put(b"k", b"v", PutOptions::create()).await;
        assert!(put.unwrap_err().to_string().contains("update alkstore"));
        assert!(store
            .now()
            .await
            .unwrap_err()
            .to_string()
            .contains("update alkstore"));
    });
}

/// E7: whoever opens a complete store needs no right to make tables.
#[test]
fn e7_only_what_is_missing_is_made() {
    let (_folder, path) = fresh();
    let connection = connect(&path);
    connection
        .execute_batch(
            "CREATE TABLE other (x); INSERT INTO other VALUES (1); PRAGMA user_version = 7",
        )
        .unwrap();
    block_on(open(&path).close()).unwrap();
    let schema = |connection: &Connection| -> i64 {
        connection
            .query_row("PRAGMA schema_version", [], |row| row.get(0))
            .unwrap()
    };
    let complete = schema(&connection);
    block_on(open(&path).close()).unwrap();
    assert_eq!(schema(&connection), complete);
    connection
        .execute_batch("DROP INDEX alkstore_window_waiting")
        .unwrap();
    block_on(open(&path).close()).unwrap();
    let indexes: i64 = connection
        .query_row(
            "SELECT count(*) FROM sqlite_master WHERE name = 'alkstore_window_waiting'",
            [],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(indexes, 1);
    let version: i64 = connection
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, 7, "it belongs to the application");
}

/// As a user who may only read: the superuser may write whatever the permissions say.
#[cfg(unix)]
#[test]
fn bad_input_a_file_that_may_only_be_read() {
    const TEST: &str = "open::bad_input_a_file_that_may_only_be_read";
    if let Some((path, _)) = role() {
        let error = refused(&path);
        assert!(error.to_string().contains("may only be read"), "{error}");
        return;
    }
    // One that would have to be made a store, and one that would have to be brought up to this version.
    for tables in ["CREATE TABLE other (x)", FIRST] {
        read_only(TEST, tables);
    }
}

#[cfg(unix)]
fn read_only(test: &str, tables: &str) {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt};
    use std::os::unix::process::CommandExt as _;
    let (folder, path) = fresh();
    // Without a log, so that it can be read without making files beside it.
    connect(&path).execute_batch(tables).unwrap();
    let permit = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
    };
    permit(&path, 0o444);
    permit(folder.path(), 0o555);
    let before = contents(folder.path());
    let mut child = command(test, &path, "");
    // The file is ours, so its owner is who we are.
    let superuser = std::fs::metadata(&path).unwrap().uid() == 0;
    if superuser {
        // Where the test program itself lies is closed to others: they get a copy.
        let copy = tempfile::tempdir().unwrap();
        permit(copy.path(), 0o755);
        let program = copy.path().join("test");
        std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
        let mut as_nobody = std::process::Command::new(&program);
        as_nobody
            .args(child.get_args())
            .uid(65_534)
            .gid(65_534)
            .stdout(Stdio::null())
            .current_dir("/");
        for (name, value) in child.get_envs() {
            as_nobody.env(name, value.unwrap_or_default());
        }
        child = as_nobody;
        assert!(child.status().unwrap().success());
    } else {
        assert!(child.status().unwrap().success());
    }
    assert_eq!(contents(folder.path()), before);
    permit(folder.path(), 0o755);
}

/// A limit on the size of files, which stands for a full disk: the write fails, and what was acknowledged is there.
#[cfg(unix)]
#[test]
fn bad_input_no_space() {
    const TEST: &str = "open::bad_input_no_space";
    if let Some((path, _)) = role() {
        let store = open(&path);
        let big = vec![7; 256 << 10];
        block_on(async {
            store
                .put(b"small", b"v", PutOptions::create())
                .await
                .unwrap();
            let error = store
                .put(b"big", &big, PutOptions::create())
                .await
                .unwrap_err();
            assert!(error.source().is_some(), "{error:?}");
            assert!(store
                .put(b"small", b"w", PutOptions::replace())
                .await
                .unwrap()
                .is_stored());
            assert!(store.get(b"big").await.unwrap().is_none());
        });
        return;
    }
    let (_folder, path) = fresh();
    block_on(open(&path).close()).unwrap();
    let child = command(TEST, &path, "");
    let mut limited = std::process::Command::new("sh");
    // Without the signal, a write beyond the limit of 256 blocks of 512 bytes fails as one to a full disk does.
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$@\""])
        .stdout(Stdio::null())
        .arg(child.get_program())
        .args(child.get_args());
    for (name, value) in child.get_envs() {
        limited.env(name, value.unwrap_or_default());
    }
    assert!(limited.status().unwrap().success());
    let store = open(&path);
    let entry = block_on(store.get(b"small")).unwrap().unwrap();
    assert_eq!(&*entry.value, b"w");
}

#[test]
fn a_page_limit_is_a_capacity() {
    let connection = Connection::open_in_memory().unwrap();
    let pages: i64 = connection
        .query_row("PRAGMA max_page_count = 32", [], |row| row.get(0))
        .unwrap();
    assert_eq!(pages, 32);
    let store = block_on(quick().on(connection)).unwrap();
    block_on(async {
        let error = store
            .put(b"big", &vec![7; 1 << 20], PutOptions::create())
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::CapacityExceeded);
        assert!(error.source().is_some());
        assert!(store
            .put(b"small", b"v", PutOptions::create())
            .await
            .unwrap()
            .is_stored());
    });
}

#[test]
fn stores_in_memory_are_apart_from_each_other() {
    let a = block_on(SqliteStore::in_memory()).unwrap();
    let b = block_on(SqliteStore::in_memory()).unwrap();
    block_on(async {
        let lock = a.try_lock("a", "o", TTL).await.unwrap().unwrap();
        assert!(a.try_lock("a", "p", TTL).await.unwrap().is_none());
        assert!(b.try_lock("a", "p", TTL).await.unwrap().is_some());
        a.put(b"k", b"v", PutOptions::create()).await.unwrap();
        assert_eq!(a.list(b"", None, 10).await.unwrap().len(), 1);
        assert_eq!(b.list(b"", None, 10).await.unwrap().len(), 0);
        assert!(a.now().await.is_ok());
        assert!(lock.release().await.unwrap());
        a.close().await.unwrap();
        assert!(a.now().await.unwrap_err().is_closed());
    });
}

#[test]
fn a_connection_of_the_callers_serves_with_its_own_settings() {
    let (_folder, path) = fresh();
    let connection = connect(&path);
    connection
        .execute_batch("PRAGMA journal_mode = TRUNCATE; BEGIN")
        .unwrap();
    let error = block_on(SqliteOptions::new().on(connection)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidArgument);

    let store = block_on(SqliteOptions::new().on(connect(&path))).unwrap();
    let other = open_as_is(&path);
    block_on(async {
        let lock = store.try_lock("a", "o", TTL).await.unwrap().unwrap();
        assert!(other.try_lock("a", "p", TTL).await.unwrap().is_none());
        assert!(lock.release().await.unwrap());
        assert!(other.try_lock("a", "p", TTL).await.unwrap().is_some());
        store.close().await.unwrap();
    });
    let mode: String = connect(&path)
        .query_row("PRAGMA journal_mode", [], |row| row.get(0))
        .unwrap();
    assert_eq!(mode, "delete", "no log was forced on it");
}

fn open_as_is(path: &Path) -> SqliteStore {
    block_on(SqliteOptions::new().on(connect(path))).unwrap()
}

#[test]
fn c1_closing_waits_and_frees_the_file() {
    let (folder, path) = fresh();
    let store = open(&path);
    block_on(async {
        store.put(b"k", b"v", PutOptions::create()).await.unwrap();
        let lock = store.try_lock("a", "o", TTL).await.unwrap().unwrap();
        store.close().await.unwrap();
        store.close().await.unwrap();
        assert!(lock.release().await.unwrap_err().is_closed());
        assert!(store.get(b"k").await.unwrap_err().is_closed());
    });
    // The log was put into the file, and is gone: nobody has it open any more.
    let names: Vec<String> = contents(folder.path())
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names, ["store.db"]);
}
