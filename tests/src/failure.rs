//! How a case says that a rule was broken: as a value with a message, so that every runner can show it.

use std::error::Error as _;
use std::fmt;
use std::panic::Location;

use alkstore::{Error, ErrorKind, Result, TtlError};

/// The answer of a case.
pub type CaseResult<T = ()> = std::result::Result<T, Failure>;

/// What was broken, and where the case noticed.
#[derive(Clone, Debug)]
pub struct Failure(String);

impl Failure {
    /// A failure with the caller's place in the source.
    #[track_caller]
    pub fn new(message: impl fmt::Display) -> Self {
        let at = Location::caller();
        Self(format!("{}:{}: {message}", at.file(), at.line()))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// For `?` on what must not fail.
impl From<Error> for Failure {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::new(format_args!("unexpected error: {error:?}"))
    }
}

/// Fails the case unless the condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr) => {
        if !$condition {
            return ::std::result::Result::Err($crate::Failure::new(concat!("not true: ", stringify!($condition))));
        }
    };
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return ::std::result::Result::Err($crate::Failure::new(format_args!($($message)+)));
        }
    };
}

/// Fails the case unless both sides are equal; shows both.
#[macro_export]
macro_rules! ensure_eq {
    ($left:expr, $right:expr $(,)?) => {
        $crate::ensure_eq!($left, $right, "{}", concat!(stringify!($left), " == ", stringify!($right)))
    };
    ($left:expr, $right:expr, $($message:tt)+) => {
        match (&$left, &$right) {
            (left, right) => {
                if *left != *right {
                    return ::std::result::Result::Err($crate::Failure::new(format_args!(
                        "{}\n  got:      {left:?}\n  expected: {right:?}", format_args!($($message)+)
                    )));
                }
            }
        }
    };
}

/// How a call must fail: its kind and all its flags follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    Name,
    Reserved,
    Argument,
    Conflict,
    LeaseLost,
    Capacity,
    Closed,
    Duration(TtlError),
}

/// Fails the case unless the call failed in exactly this way.
#[track_caller]
pub(crate) fn refused<T>(result: Result<T>, refusal: Refusal) -> CaseResult {
    let Err(error) = result else {
        return Err(Failure::new(format_args!(
            "the call went through; expected {refusal:?}"
        )));
    };
    let kind = match refusal {
        Refusal::Name => ErrorKind::InvalidName,
        Refusal::Reserved => ErrorKind::ReservedName,
        Refusal::Argument => ErrorKind::InvalidArgument,
        Refusal::Conflict => ErrorKind::Conflict,
        Refusal::LeaseLost => ErrorKind::LeaseLost,
        Refusal::Capacity => ErrorKind::CapacityExceeded,
        Refusal::Closed | Refusal::Duration(_) => ErrorKind::Database,
    };
    let mut wrong = Vec::new();
    let mut flag = |what: &str, got: bool, expected: bool| {
        if got != expected {
            wrong.push(format!("{what} is {got}"));
        }
    };
    flag("the kind", error.kind() == kind, true);
    flag("is_closed", error.is_closed(), refusal == Refusal::Closed);
    flag(
        "is_retryable",
        error.is_retryable(),
        refusal == Refusal::Conflict,
    );
    flag("is_outcome_unknown", error.is_outcome_unknown(), false);
    flag(
        "is_invalid_duration",
        error.is_invalid_duration(),
        matches!(refusal, Refusal::Duration(_)),
    );
    if let Refusal::Duration(reason) = refusal {
        let source = error.source().and_then(|s| s.downcast_ref::<TtlError>());
        flag("the source's reason", source == Some(&reason), true);
    }
    let text = error.to_string();
    flag("the text's being empty", text.is_empty(), false);
    if let Some(source) = error.source() {
        let repeated = text.contains(&source.to_string());
        flag("the source's being repeated in the text", repeated, false);
    }
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "expected {refusal:?}, got {error:?}: {}",
        wrong.join(", ")
    )))
}
