//! Opening: connections, their settings, and the first look at a file.

use std::path::{Path, PathBuf};
use std::sync::mpsc::{channel, Sender};
use std::sync::Arc;
use std::thread::Builder;
use std::time::{Duration, Instant};

use futures_channel::oneshot;
use rusqlite::{Connection, OpenFlags};

use super::clock::StoreClock;
use super::connection::{self as write, Desk, Sync};
use super::failure::Failure;
use super::options::Synchronous;
use super::schema;
use super::writer::{Message, Writer};

const STATEMENTS: usize = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// What a store is opened on.
pub(super) enum Place {
    File(PathBuf),
    Memory,
    Connection(Connection),
}

/// Starts the writer's thread, which opens the place; answers when that is done with the way to the thread, and the
/// connection that it shares.
pub(super) async fn writer(
    place: Place,
    clock: Arc<StoreClock>,
    busy_limit: Duration,
    synchronous: Synchronous,
) -> Result<(Sender<Message>, Arc<Desk>, Sync), Failure> {
    let sync = match (&place, synchronous) {
        (Place::File(_), Synchronous::Full) => Sync::Each,
        (Place::File(_), Synchronous::Normal) | (Place::Memory, _) => Sync::None,
        (Place::Connection(_), _) => Sync::Unknown,
    };
    let (sender, inbox) = channel();
    let (opened, answer) = oneshot::channel();
    spawn("alkstore-write", move || {
        match open(place, busy_limit, synchronous) {
            Ok(connection) => {
                let desk = Arc::new(Desk::new(connection, sync, busy_limit));
                if opened.send(Ok(desk.clone())).is_ok() {
                    Writer::new(desk, clock, busy_limit, inbox).serve();
                }
            }
            Err(failure) => {
                let _ = opened.send(Err(failure));
            }
        }
    })?;
    let desk = answer.await.unwrap_or(Err(Failure::Gone))?;
    Ok((sender, desk, sync))
}

/// What the connection that writes keeps in memory of the file, at most. With SQLite's own 2 MB, the writes of a large
/// window, which lie all over its tables, read and write the same pages again and again.
const CACHE_KILOBYTES: u32 = 16_384;

/// Starts a thread that nobody waits for: it ends when its work does.
pub(super) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    Builder::new()
        .name(name.to_owned())
        .spawn(work)
        .map(drop)
        .map_err(|source| Failure::System {
            what: "a thread for the store could not be started",
            source,
        })
}

fn open(
    place: Place,
    busy_limit: Duration,
    synchronous: Synchronous,
) -> Result<Connection, Failure> {
    match place {
        Place::File(path) => {
            file(&path, busy_limit, synchronous).map_err(|failure| match failure {
                Failure::Sqlite(source) => Failure::Open { path, source },
                other => other,
            })
        }
        Place::Memory => {
            let connection = Connection::open_in_memory()?;
            prepare(&connection, busy_limit)?;
            Ok(connection)
        }
        Place::Connection(connection) => {
            if !connection.is_autocommit() {
                return Err(Failure::Unfit(
                    "the connection is inside a transaction: commit it first",
                ));
            }
            if connection.is_readonly(rusqlite::MAIN_DB)? {
                return Err(Failure::Unfit(
                    "the connection may only read, and a store must write",
                ));
            }
            connection.busy_timeout(Duration::ZERO)?;
            prepare(&connection, busy_limit)?;
            Ok(connection)
        }
    }
}

fn file(
    path: &Path,
    busy_limit: Duration,
    synchronous: Synchronous,
) -> Result<Connection, Failure> {
    let refuse = |why| {
        Err(Failure::Path {
            path: path.to_owned(),
            why,
        })
    };
    if path.is_dir() {
        return refuse("it is a folder; name a file in it");
    }
    if !path.parent().is_none_or(Path::is_dir) {
        return refuse("the folder that it should be in does not exist");
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_CREATE)?;
    let since = Instant::now();
    // The first look only reads: what is not a database, or is a newer one, stays as it is.
    patiently(since, busy_limit, || schema::is_complete(&connection))?;
    if connection.is_readonly(rusqlite::MAIN_DB)? {
        return refuse("it may only be read, and a store must write");
    }
    let mode = patiently(since, busy_limit, || {
        let mode: String =
            connection.query_row("PRAGMA main.journal_mode", [], |row| row.get(0))?;
        if mode == "wal" {
            return Ok(mode);
        }
        Ok(connection.query_row("PRAGMA main.journal_mode = WAL", [], |row| row.get(0))?)
    })?;
    if mode != "wal" {
        return refuse("its file system, or the SQLite library, has no write-ahead log");
    }
    let level = match synchronous {
        Synchronous::Full => "PRAGMA main.synchronous = FULL",
        Synchronous::Normal => "PRAGMA main.synchronous = NORMAL",
    };
    connection.execute_batch(level)?;
    // It would happen inside of somebody's commit: we see to it ourselves, after the answers.
    connection.query_row("PRAGMA main.wal_autocheckpoint = 0", [], |_| Ok(()))?;
    connection.execute_batch(&format!("PRAGMA main.cache_size = -{CACHE_KILOBYTES}"))?;
    prepare(&connection, busy_limit)?;
    Ok(connection)
}

/// Makes the tables that are missing.
fn prepare(connection: &Connection, busy_limit: Duration) -> Result<(), Failure> {
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let since = Instant::now();
    if patiently(since, busy_limit, || schema::is_complete(connection))? {
        return Ok(());
    }
    patiently(since, busy_limit, || Ok(write::begin(connection)?))?;
    let made = schema::complete(connection)
        .and_then(|()| write::commit(connection, busy_limit.saturating_sub(since.elapsed())));
    if made.is_err() && !connection.is_autocommit() {
        connection.execute_batch("ROLLBACK")?;
    }
    made
}

/// A connection that only reads. It is opened for writing all the same, as the log's index beside the file needs it.
pub(super) fn reader(path: &Path) -> Result<Connection, Failure> {
    let open = || -> rusqlite::Result<Connection> {
        // It must be there already: a file that was taken away is not made anew, empty, behind the writer's back.
        let connection = connect(path, OpenFlags::empty())?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.execute_batch("PRAGMA query_only = ON")?;
        Ok(connection)
    };
    open().map_err(|source| Failure::Open {
        path: path.to_owned(),
        source,
    })
}

/// Every connection is used by one thread at a time, and waits by our own rules.
fn connect(path: &Path, create: OpenFlags) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags | create)?;
    connection.busy_timeout(Duration::ZERO)?;
    Ok(connection)
}

/// Repeats what a locked database stands in the way of.
fn patiently<T>(
    since: Instant,
    limit: Duration,
    mut step: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    loop {
        match step() {
            Err(failure) if failure.is_busy() && since.elapsed() < limit => {
                std::thread::sleep(PAUSE);
            }
            answer => return answer,
        }
    }
}
