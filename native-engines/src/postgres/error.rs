//! From what went wrong to the contract's error: once, here.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use alkstore::{Error, ErrorKind};
use deadpool_postgres::{HookError, PoolError};
use tokio_postgres::error::{DbError, Severity, SqlState};

/// What the server, or the connection to it, said: the cause of an [`Error`] of this engine.
///
/// It keeps the server's code and message. Details, hints and contexts, which may quote values, are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgCause {
    sqlstate: Option<String>,
    text: String,
}

impl PgCause {
    /// The cause in an error's source chain, where this engine put one.
    pub fn of(error: &Error) -> Option<&Self> {
        error.source()?.downcast_ref()
    }

    /// The server's five-character code; `None` where no server answered.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }
}

impl fmt::Display for PgCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sqlstate {
            Some(code) => write!(f, "{} (SQLSTATE {code})", self.text),
            None => f.write_str(&self.text),
        }
    }
}

impl StdError for PgCause {}

/// How far a call had come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Nothing was sent.
    Connecting,
    /// Nothing could be changed.
    Reading,
    /// Something may have been changed.
    Writing,
}

/// The engine's own error.
#[derive(Debug)]
pub(super) enum Failure {
    Driver(tokio_postgres::Error),
    Pool(PoolError),
    Elapsed(Duration),
    /// The server answered something that these statements cannot give.
    Answer,
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Self::Driver(error)
    }
}

impl Failure {
    /// Whether the connection can be used again: the server refused one statement and nothing else happened.
    pub(super) fn spares_connection(&self) -> bool {
        match self {
            Self::Driver(error) => error.as_db_error().is_some_and(|db| {
                !ends_session(db) && *db.code() != SqlState::READ_ONLY_SQL_TRANSACTION
            }),
            Self::Answer => true,
            Self::Pool(_) | Self::Elapsed(_) => false,
        }
    }

    /// Whether the statement lost against another one and nothing of it was applied.
    pub(super) fn lost_a_race(&self) -> bool {
        matches!(self, Self::Driver(error) if error.as_db_error().is_some_and(|db| is_race(db.code())))
    }

    #[cold]
    pub(super) fn into_error(self, at: Stage) -> Error {
        match self {
            Self::Driver(error) => driver(&error, at),
            Self::Pool(PoolError::Closed) => Error::closed(),
            Self::Pool(PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error))) => {
                driver(&error, Stage::Connecting)
            }
            Self::Pool(PoolError::PostCreateHook(HookError::Message(text))) => {
                Error::new(ErrorKind::Database, text)
            }
            Self::Pool(PoolError::Timeout(_) | PoolError::NoRuntimeSpecified) => {
                Error::new(ErrorKind::Database, "no connection became free").retryable()
            }
            Self::Elapsed(timeout) => elapsed(timeout, at),
            Self::Answer => Error::new(
                ErrorKind::Database,
                "the server's answer makes no sense: the schema was changed, or is another program's",
            ),
        }
    }
}

fn elapsed(timeout: Duration, at: Stage) -> Error {
    let text = match at {
        Stage::Connecting => {
            format!("no connection was to be had within {timeout:?}: nothing was sent")
        }
        Stage::Reading => format!("the server did not answer within {timeout:?}"),
        Stage::Writing => {
            format!("the server did not answer within {timeout:?}: the call may have taken effect all the same")
        }
    };
    unknown_if_writing(Error::new(ErrorKind::Database, text).retryable(), at)
}

fn driver(error: &tokio_postgres::Error, at: Stage) -> Error {
    if let Some(db) = error.as_db_error() {
        return server(db, at);
    }
    let cause = PgCause {
        sqlstate: None,
        text: chain(error),
    };
    let io = io_error(error);
    // A wrong certificate arrives as an io error too, and stays wrong.
    let tls = io.is_some_and(|io| {
        io.get_ref()
            .is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
    });
    let may_pass = !tls && (io.is_some() || error.is_closed() || error.source().is_none());
    let text = match (at, may_pass) {
        (Stage::Connecting, true) => "the server cannot be reached",
        (Stage::Connecting, false) => "the connection cannot be set up",
        (Stage::Reading, _) => "the connection to the server broke",
        (Stage::Writing, _) => {
            "the connection to the server broke: the call may have taken effect all the same"
        }
    };
    let mut failed = Error::new(ErrorKind::Database, text).with_source(cause);
    if may_pass {
        failed = failed.retryable();
    }
    unknown_if_writing(failed, at)
}

fn server(db: &DbError, at: Stage) -> Error {
    let code = db.code();
    let cause = PgCause {
        sqlstate: Some(code.code().to_owned()),
        text: db.message().to_owned(),
    };
    if code.code() == super::changeset::NOT_READ_COMMITTED {
        return Error::new(
            ErrorKind::InvalidArgument,
            "a changeset can join a transaction of isolation level READ COMMITTED alone",
        )
        .with_source(cause);
    }
    if is_race(code) {
        return Error::new(
            ErrorKind::Conflict,
            "the server gave way to another transaction: nothing was applied; retry",
        )
        .with_source(cause);
    }
    let failed = |text| Error::new(ErrorKind::Database, text).with_source(cause);
    if ends_session(db) {
        let failed = match at {
            Stage::Connecting if *code == SqlState::PROTOCOL_VIOLATION => {
                return failed(
                    "the settings of the session were refused: where that is a pooler, connect to the server itself, \
                     or open the store with transaction_pooler(true)",
                )
            }
            Stage::Connecting if final_login(code) => {
                return failed("the server refused the login")
            }
            Stage::Connecting => failed("the server takes no connection now"),
            _ => failed("the server ended the connection"),
        };
        return unknown_if_writing(failed.retryable(), at);
    }
    if *code == SqlState::QUERY_CANCELED {
        return failed("the server gave the call up, as it took too long or was cancelled: nothing was applied")
            .retryable();
    }
    let passes = code.code().starts_with("53")
        || *code == SqlState::LOCK_NOT_AVAILABLE
        || *code == SqlState::READ_ONLY_SQL_TRANSACTION;
    if passes {
        return failed("the server cannot do it now: nothing was applied").retryable();
    }
    failed("the server refused the statement")
}

fn unknown_if_writing(error: Error, at: Stage) -> Error {
    if at == Stage::Writing {
        error.outcome_unknown()
    } else {
        error
    }
}

fn is_race(code: &SqlState) -> bool {
    *code == SqlState::T_R_DEADLOCK_DETECTED || *code == SqlState::T_R_SERIALIZATION_FAILURE
}

/// After these the backend is gone; whether it had committed before is not said.
fn ends_session(db: &DbError) -> bool {
    let code = db.code().code();
    matches!(
        db.parsed_severity(),
        Some(Severity::Fatal | Severity::Panic)
    ) || code.starts_with("08")
        || code.starts_with("57P")
        || *db.code() == SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
}

/// Wrong password, role or database, and settings that this server does not take.
fn final_login(code: &SqlState) -> bool {
    let code = code.code();
    ["28", "3D", "42", "22"]
        .iter()
        .any(|class| code.starts_with(class))
}

fn io_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a std::io::Error> {
    causes(error).find_map(<dyn StdError>::downcast_ref)
}

fn chain(error: &(dyn StdError + 'static)) -> String {
    let texts: Vec<_> = causes(error).map(ToString::to_string).collect();
    texts.join(": ")
}

fn causes<'a>(
    error: &'a (dyn StdError + 'static),
) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}
