//! The engine's own failures, and the one place where they become the contract's errors.

use std::path::PathBuf;
use std::time::Duration;

use alkstore::{Error, ErrorKind};
use rusqlite::ErrorCode;

/// Why an operation did not happen.
#[derive(Debug)]
pub(super) enum Failure {
    /// A rule of the contract refused, before anything was written.
    Refused(Error),
    /// SQLite failed before the commit: nothing was applied.
    Sqlite(rusqlite::Error),
    /// The commit itself failed.
    Commit(rusqlite::Error),
    /// Others kept the write lock for the whole of the busy limit.
    Busy(Duration),
    /// What the file holds is not what this engine writes.
    Damaged(&'static str),
    /// The file was written by a newer version of the crate.
    Newer { found: i64, known: i64 },
    /// The counter has reached its end.
    Exhausted,
    /// The path names nothing that can be opened as a database.
    Path { path: PathBuf, why: &'static str },
    /// The file could not be opened.
    Open {
        path: PathBuf,
        source: rusqlite::Error,
    },
    /// Something of the operating system failed.
    System {
        what: &'static str,
        source: std::io::Error,
    },
    /// A connection or a transaction that cannot serve.
    Unfit(&'static str),
    /// The handle was made before a fork.
    Forked,
    /// The call came out of the store's own clock.
    Reentrant,
    /// The thread that owns the connection is gone.
    Gone,
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

/// What a rule refuses, and what a checked value turns out not to be.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl Failure {
    /// Whether waiting may help.
    pub(super) fn is_busy(&self) -> bool {
        match self {
            Self::Sqlite(error) | Self::Open { source: error, .. } => is_busy(error),
            Self::Busy(_) => true,
            _ => false,
        }
    }

    /// Whether what was to be committed may come to light all the same: a commit that could not be synced may be in
    /// the log, and counts when the log is read anew.
    pub(super) fn is_outcome_unknown(&self) -> bool {
        match self {
            Self::Commit(error) => error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure),
            Self::Gone => true,
            _ => false,
        }
    }

    /// The failure of a commit, for one more of the callers who shared it.
    pub(super) fn again(&self) -> Self {
        match self {
            Self::Commit(rusqlite::Error::SqliteFailure(code, text)) => {
                Self::Commit(rusqlite::Error::SqliteFailure(*code, text.clone()))
            }
            _ => Self::Gone,
        }
    }
}

pub(super) fn is_busy(error: &rusqlite::Error) -> bool {
    matches!(
        error.sqlite_error_code(),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked)
    )
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        let unknown = failure.is_outcome_unknown();
        let database = |text: String| Error::new(ErrorKind::Database, text);
        let fixed = |text: &'static str| Error::new(ErrorKind::Database, text);
        let error = match failure {
            Failure::Refused(error) => error,
            Failure::Sqlite(source) | Failure::Commit(source) => of_sqlite(source),
            Failure::Busy(limit) => database(format!(
                "another connection kept the database locked for the whole busy limit of {limit:?}: nothing was done"
            ))
            .retryable(),
            Failure::Damaged(what) => database(format!(
                "the tables of alkstore are damaged: {what}; restore the file from a backup"
            )),
            Failure::Newer { found, known } => database(format!(
                "the file has version {found} of the schema, and this version of alkstore knows {known}: update alkstore"
            )),
            Failure::Exhausted => fixed("the store has given out its last revision, 2^53 - 1"),
            Failure::Path { path, why } => {
                database(format!("cannot open {}: {why}", path.display()))
            }
            Failure::Open { path, source } => {
                let busy = is_busy(&source);
                let why = match source.sqlite_error_code() {
                    Some(ErrorCode::NotADatabase) => "it is not a SQLite database",
                    Some(ErrorCode::CannotOpen) => "the file, or one beside it, can be neither opened nor made",
                    Some(ErrorCode::ReadOnly) => "it may only be read, and a store must write",
                    Some(ErrorCode::PermissionDenied) => "the system does not permit it",
                    _ if busy => "it stayed locked by another connection for the whole busy limit",
                    _ => of_code(source.sqlite_error_code()),
                };
                let full = source.sqlite_error_code() == Some(ErrorCode::DiskFull);
                let kind = if full { ErrorKind::CapacityExceeded } else { ErrorKind::Database };
                let error = Error::new(kind, format!("cannot open {}: {why}", path.display()))
                    .with_source(source);
                if busy { error.retryable() } else { error }
            }
            Failure::System { what, source } => fixed(what).with_source(source),
            Failure::Unfit(why) => Error::new(ErrorKind::InvalidArgument, why),
            Failure::Forked => fixed(
                "the store was opened before this process was forked: open it anew in the child",
            ),
            Failure::Reentrant => fixed("a clock must not call the store that reads it"),
            Failure::Gone => {
                fixed("the thread that serves the store has ended, because a clock panicked or the disk failed: open it anew")
            }
        };
        if unknown {
            error.outcome_unknown()
        } else {
            error
        }
    }
}

fn of_sqlite(source: rusqlite::Error) -> Error {
    let code = source.sqlite_error_code();
    let kind = match code {
        Some(ErrorCode::DiskFull) => ErrorKind::CapacityExceeded,
        _ => ErrorKind::Database,
    };
    let busy = is_busy(&source);
    let error = Error::new(kind, of_code(code)).with_source(source);
    if busy {
        error.retryable()
    } else {
        error
    }
}

/// What a code of SQLite means for a store; the code itself is in the source.
fn of_code(code: Option<ErrorCode>) -> &'static str {
    match code {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "another connection has the database locked: nothing was done"
        }
        Some(ErrorCode::DiskFull) => {
            "the disk, or the page limit of the database, is full: nothing was written"
        }
        Some(ErrorCode::ReadOnly) => "the database may only be read",
        Some(ErrorCode::SystemIoFailure) => "reading or writing the disk failed",
        Some(ErrorCode::DatabaseCorrupt) => {
            "the database is damaged: restore the file from a backup"
        }
        Some(ErrorCode::NotADatabase) => "the file is not a SQLite database",
        Some(ErrorCode::OutOfMemory) => "SQLite has no memory left: nothing was done",
        Some(ErrorCode::TooBig) => "the value is larger than the connection allows",
        _ => "SQLite failed: nothing was done",
    }
}
