//! A file of the first version of the schema.

use std::path::Path;

use alkstore::{
    Candidate, EngineWindowState as _, Entries as _, Key, Locks as _, ManualClock, PutOptions,
    Reclaim, Restage, Revision,
};
use alkstore_native::sqlite::rusqlite::Connection;

use crate::support::{
    assert_intact, block_on, connect, fresh, open, open_at, role, say, spawn, Process, START, TTL,
};

/// A waiting row, a claimed one, an entry and a lock, as the first version left them.
pub(crate) const FIRST: &str = "
    CREATE TABLE alkstore_lock (
        name BLOB PRIMARY KEY NOT NULL, owner BLOB NOT NULL, token INTEGER NOT NULL, deadline INTEGER NOT NULL
    ) WITHOUT ROWID;
    CREATE INDEX alkstore_lock_deadline ON alkstore_lock (deadline);
    CREATE TABLE alkstore_entry (
        id INTEGER PRIMARY KEY, key BLOB UNIQUE NOT NULL, version INTEGER NOT NULL, expires_at INTEGER, value BLOB NOT NULL
    );
    CREATE INDEX alkstore_entry_expiry ON alkstore_entry (expires_at) WHERE expires_at IS NOT NULL;
    CREATE TABLE alkstore_window (
        key BLOB PRIMARY KEY NOT NULL, visible_after INTEGER NOT NULL, claim INTEGER, claimed_until INTEGER
    ) WITHOUT ROWID;
    CREATE INDEX alkstore_window_waiting ON alkstore_window (visible_after, key) WHERE claim IS NULL;
    CREATE INDEX alkstore_window_claimed ON alkstore_window (claimed_until) WHERE claim IS NOT NULL;
    CREATE TABLE alkstore_state (
        id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, revision INTEGER NOT NULL, clock INTEGER NOT NULL
    );
    INSERT INTO alkstore_state VALUES (1, 1, 7, 1000000000000000);
    INSERT INTO alkstore_lock VALUES (CAST('a' AS BLOB), CAST('o' AS BLOB), 5, 1000030000000000);
    INSERT INTO alkstore_entry VALUES (1, CAST('k' AS BLOB), 6, NULL, CAST('four' AS BLOB));
    INSERT INTO alkstore_window VALUES
        (CAST('waits' AS BLOB), 1000000000000000, NULL, NULL),
        (CAST('k' AS BLOB), 1000000000000000, 7, 1000030000000000);
";

fn first_version(path: &Path) -> Connection {
    let connection = connect(path);
    connection.execute_batch(FIRST).unwrap();
    connection
}

/// Every table's columns, and every index with its condition, but for how they are spelled.
fn layout(path: &Path) -> Vec<String> {
    let connection = connect(path);
    let mut statement = connection
        .prepare(
            "SELECT m.name || ': ' || group_concat(c.name || ' ' || c.type || ' ' || c.\"notnull\"
                 || ' ' || coalesce(c.dflt_value, '') || ' ' || c.pk)
             FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.type = 'table' GROUP BY m.name
             UNION ALL SELECT sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL
             ORDER BY 1",
        )
        .unwrap();
    let rows = statement.query_map([], |row| row.get(0)).unwrap();
    rows.map(Result::unwrap).collect()
}

#[test]
fn e7_a_file_of_the_first_version_is_brought_up_to_this_one() {
    let (_folder, path) = fresh();
    drop(first_version(&path));
    let clock = ManualClock::new(START);
    let store = open_at(&path, &clock);
    block_on(async {
        let lock = store.try_lock("a", "o", TTL).await.unwrap().unwrap();
        assert_eq!(lock.token(), Revision::new(5).unwrap(), "still held");
        let entry = store.get(b"k").await.unwrap().unwrap();
        assert_eq!((&*entry.value, entry.version.get()), (&b"four"[..], 6));
        let rows = store.window_list(None, 10).await.unwrap();
        let rows: Vec<_> = rows
            .iter()
            .map(|row| (row.key.as_bytes(), row.claimed_until.is_some()))
            .collect();
        assert_eq!(rows, [(&b"k"[..], true), (b"waits", false)]);
        let claims = store.window_claim(START, TTL, 10).await.unwrap();
        assert_eq!(claims.len(), 1, "the other is claimed");
        assert_eq!(claims[0].id.get(), 8, "the counter goes on");
        clock.advance(TTL);
        let claims = store.window_claim(START, TTL, 10).await.unwrap();
        let marked = store.window_mark(&claims, None).await.unwrap();
        assert_eq!(marked, [Reclaim::Marked; 2]);
        let gone = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(gone, [Reclaim::Deleted { bytes: 4 }, Reclaim::Absent]);
    });
    assert_intact(&path);
    let (_other, made) = fresh();
    drop(open(&made));
    assert_eq!(layout(&path), layout(&made));
    // Once is enough.
    let schema = |connection: &Connection| -> i64 {
        connection
            .query_row("PRAGMA schema_version", [], |row| row.get(0))
            .unwrap()
    };
    let before = schema(&connect(&path));
    drop(open(&path));
    assert_eq!(schema(&connect(&path)), before);
}

#[test]
fn e7_an_upgrade_makes_what_was_missing() {
    let (_folder, path) = fresh();
    first_version(&path)
        .execute_batch("DROP INDEX alkstore_window_waiting; DROP INDEX alkstore_lock_deadline")
        .unwrap();
    drop(open(&path));
    let (_other, made) = fresh();
    drop(open(&made));
    assert_eq!(layout(&path), layout(&made));
}

#[test]
fn c2_many_processes_open_a_file_of_the_first_version_at_once() {
    const TEST: &str = "upgrade::c2_many_processes_open_a_file_of_the_first_version_at_once";
    if let Some((path, me)) = role() {
        let store = open(&path);
        block_on(async {
            let row = Candidate {
                key: Key::new(me.into_bytes()).unwrap(),
                visible_after: START,
            };
            store.window_stage(&[row], Restage::Move).await.unwrap();
            let put = store.put(b"new", b"", PutOptions::create()).await.unwrap();
            say(put.is_stored());
        });
        return;
    }
    for _ in 0..5 {
        let (_folder, path) = fresh();
        drop(first_version(&path));
        let children: Vec<Process> = (0..6)
            .map(|n| spawn(TEST, &path, &format!("p{n}")))
            .collect();
        let said: Vec<String> = children.into_iter().flat_map(Process::finish).collect();
        let stored = said.iter().filter(|line| *line == "true").count();
        assert_eq!((said.len(), stored), (6, 1), "{said:?}");
        let store = open(&path);
        assert_eq!(block_on(store.window_stats(START)).unwrap().rows, 8);
        assert_intact(&path);
    }
}
