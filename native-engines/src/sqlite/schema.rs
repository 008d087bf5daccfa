//! The tables, and how they come to be: once, whoever opens an empty file at the same time.

use rusqlite::Connection;

use super::failure::Failure;

/// The version of the tables below.
pub(super) const VERSION: i64 = 2;

/// The version before deletion with an outside payload: its window has fewer columns, and other indexes.
const FIRST_VERSION: i64 = 1;

/// The oldest SQLite with everything that the statements use (`RETURNING`).
const OLDEST_SQLITE: i32 = 3_035_000;

/// Names, owners and keys are blobs: their order and identity are those of the bytes, whatever the encoding of the
/// database. The version of the schema is in a table of our own, because `user_version` and `application_id` belong to
/// the application that shares the file.
///
/// In the window `claim` is the claim that holds a row back; once that is found to have lapsed it moves to `lapsed`. Each
/// row stands in one of three orders of `(visible_after, key)`: it waits, it waits and is marked, or it is claimed. So
/// handing out never passes over claimed rows one by one, nor taking over marked ones; and all rows are listed in order
/// by merging the three, at no cost to staging.
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
            claimed_until INTEGER,
            reclaiming INTEGER NOT NULL DEFAULT 0,
            requeues INTEGER NOT NULL DEFAULT 0,
            lapsed INTEGER
        ) WITHOUT ROWID",
    ),
    (
        "alkstore_window_waiting",
        "CREATE INDEX main.alkstore_window_waiting ON alkstore_window (visible_after, key)
            WHERE claim IS NULL AND reclaiming = 0",
    ),
    (
        "alkstore_window_marked",
        "CREATE INDEX main.alkstore_window_marked ON alkstore_window (visible_after, key)
            WHERE claim IS NULL AND reclaiming = 1",
    ),
    (
        "alkstore_window_held",
        "CREATE INDEX main.alkstore_window_held ON alkstore_window (visible_after, key) WHERE claim IS NOT NULL",
    ),
    (
        "alkstore_window_claimed",
        "CREATE INDEX main.alkstore_window_claimed ON alkstore_window (claimed_until) WHERE claim IS NOT NULL",
    ),
];

/// From the first version to this one. The index is made anew with the others that are missing.
const UPGRADE: &str = "
    ALTER TABLE main.alkstore_window ADD COLUMN reclaiming INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE main.alkstore_window ADD COLUMN requeues INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE main.alkstore_window ADD COLUMN lapsed INTEGER;
    DROP INDEX IF EXISTS main.alkstore_window_waiting;
";

/// One row: the version of the schema, the last revision that was given out, and the floor of the clock.
const STATE: &str = "CREATE TABLE main.alkstore_state (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    clock INTEGER NOT NULL
)";

/// What a file holds of the tables above.
enum State {
    /// Nothing, or something is missing.
    Incomplete,
    /// The tables of the first version.
    First,
    Complete,
}

/// Whether everything is there, in this version. Fails where the file belongs to a newer version; reads only.
pub(super) fn is_complete(connection: &Connection) -> Result<bool, Failure> {
    Ok(matches!(state(connection)?, State::Complete))
}

fn state(connection: &Connection) -> Result<State, Failure> {
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
        return Ok(State::Incomplete);
    }
    let version = connection.query_row("SELECT version FROM main.alkstore_state", [], |row| {
        row.get(0)
    });
    match version.map_err(not_ours)? {
        FIRST_VERSION if is_there("alkstore_window") => Ok(State::First),
        VERSION if OBJECTS.iter().all(|(name, _)| is_there(name)) => Ok(State::Complete),
        FIRST_VERSION | VERSION => Ok(State::Incomplete),
        found if found > VERSION => Err(Failure::Newer {
            found,
            known: VERSION,
        }),
        _ => Err(Failure::Damaged(
            "there never was such a version of the schema",
        )),
    }
}

fn not_ours(error: rusqlite::Error) -> Failure {
    match error.sqlite_error_code() {
        None | Some(rusqlite::ErrorCode::Unknown) => {
            Failure::Damaged("the table alkstore_state is not of this crate, or its row is missing")
        }
        Some(_) => error.into(),
    }
}

/// Makes what is missing, and brings the first version up to this one, inside a write transaction that the caller has
/// begun and will commit: of several processes one does it, and the others find it done.
pub(super) fn complete(connection: &Connection) -> Result<(), Failure> {
    match state(connection)? {
        State::Complete => return Ok(()),
        State::First => connection.execute_batch(UPGRADE)?,
        State::Incomplete => {}
    }
    let there = ours(connection)?;
    for (name, statement) in OBJECTS.iter().chain([&("alkstore_state", STATE)]) {
        if !there.iter().any(|found| found == name) {
            connection.execute(statement, [])?;
        }
    }
    connection.execute(
        "INSERT INTO main.alkstore_state (id, version, revision, clock) VALUES (1, ?1, 0, ?2)
         ON CONFLICT DO UPDATE SET version = ?1",
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
