//! The tables, and how they come to be: once, whoever opens an empty file at the same time.

use rusqlite::Connection;

use super::failure::Failure;

/// The version of the tables below.
pub(super) const VERSION: i64 = 1;

/// The oldest SQLite with everything that the statements use (`RETURNING`).
const OLDEST_SQLITE: i32 = 3_035_000;

/// Names, owners and keys are blobs: their order and identity are those of the bytes, whatever the encoding of the
/// database. The version of the schema is in a table of our own, because `user_version` and `application_id` belong to
/// the application that shares the file.
///
/// In the window a row waits in one index or is claimed in the other, so that handing out never passes over claimed
/// rows one by one.
const OBJECTS: &[(&str, &str)] = &[
    (
        "alkstore_lock",
        "CREATE TABLE main.alkstore_lock (
            name BLOB PRIMARY KEY NOT NULL,
            owner BLOB NOT NULL,
            token INTEGER NOT NULL,
            deadline INTEGER NOT NULL
        ) WITHOUT ROWID",
    ),
    (
        "alkstore_lock_deadline",
        "CREATE INDEX main.alkstore_lock_deadline ON alkstore_lock (deadline)",
    ),
    (
        "alkstore_entry",
        "CREATE TABLE main.alkstore_entry (
            id INTEGER PRIMARY KEY,
            key BLOB UNIQUE NOT NULL,
            version INTEGER NOT NULL,
            expires_at INTEGER,
            value BLOB NOT NULL
        )",
    ),
    (
        "alkstore_entry_expiry",
        "CREATE INDEX main.alkstore_entry_expiry ON alkstore_entry (expires_at) WHERE expires_at IS NOT NULL",
    ),
    (
        "alkstore_window",
        "CREATE TABLE main.alkstore_window (
            key BLOB PRIMARY KEY NOT NULL,
            visible_after INTEGER NOT NULL,
            claim INTEGER,
            claimed_until INTEGER
        ) WITHOUT ROWID",
    ),
    (
        "alkstore_window_waiting",
        "CREATE INDEX main.alkstore_window_waiting ON alkstore_window (visible_after, key) WHERE claim IS NULL",
    ),
    (
        "alkstore_window_claimed",
        "CREATE INDEX main.alkstore_window_claimed ON alkstore_window (claimed_until) WHERE claim IS NOT NULL",
    ),
];

/// One row: the version of the schema, the last revision that was given out, and the floor of the clock.
const STATE: &str = "CREATE TABLE main.alkstore_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    clock INTEGER NOT NULL
)";

/// Whether everything is there. Fails where the file belongs to a newer version; reads only.
pub(super) fn is_complete(connection: &Connection) -> Result<bool, Failure> {
    if rusqlite::version_number() < OLDEST_SQLITE {
        return Err(Failure::Unfit(
            "the SQLite library is older than 3.35: link a newer one, or use the feature `bundled`",
        ));
    }
    // One look at everything: between two looks another process may make it all.
    let there = ours(connection)?;
    let is_there = |name: &str| there.iter().any(|found| found == name);
    if !is_there("alkstore_state") {
        // All tables come to be in one transaction. Without the counter, revisions would begin anew.
        if is_there("alkstore_lock") {
            return Err(Failure::Damaged("the table alkstore_state is missing"));
        }
        return Ok(false);
    }
    let version = connection.query_row("SELECT version FROM main.alkstore_state", [], |row| {
        row.get(0)
    });
    match version.map_err(not_ours)? {
        VERSION => {}
        found if found > VERSION => {
            return Err(Failure::Newer {
                found,
                known: VERSION,
            })
        }
        _ => {
            return Err(Failure::Damaged(
                "there never was such a version of the schema",
            ))
        }
    }
    Ok(OBJECTS.iter().all(|(name, _)| is_there(name)))
}

fn not_ours(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        None | Some(rusqlite::ErrorCode::Unknown) => {
            Failure::Damaged("the table alkstore_state is not of this crate, or its row is missing")
        }
        Some(_) => error.into(),
    }
}

/// Makes what is missing, inside a write transaction that the caller has begun and will commit.
pub(super) fn complete(connection: &Connection) -> Result<(), Failure> {
    if is_complete(connection)? {
        return Ok(());
    }
    let there = ours(connection)?;
    for (name, statement) in OBJECTS.iter().chain([&("alkstore_state", STATE)]) {
        if !there.iter().any(|found| found == name) {
            connection.execute(statement, [])?;
        }
    }
    connection.execute(
        "INSERT OR IGNORE INTO main.alkstore_state (id, version, revision, clock) VALUES (1, ?1, 0, ?2)",
        [VERSION, i64::MIN],
    )?;
    Ok(())
}

/// The names of what is there already of the tables and indexes above.
fn ours(connection: &Connection) -> Result<Vec<String>, Failure> {
    let mut statement = connection
        .prepare_cached("SELECT name FROM main.sqlite_master WHERE name GLOB 'alkstore_*'")?;
    let names = statement.query_map([], |row| row.get(0))?;
    Ok(names.collect::<rusqlite::Result<_>>()?)
}
