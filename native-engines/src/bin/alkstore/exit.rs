//! Exit codes, and failures on their way to one.

use std::error::Error as _;
use std::io;
use std::process::ExitCode;

use alkstore::ErrorKind;

use crate::output;

/// The answer is no: not there, not stored, not released.
pub const NO: u8 = 1;
/// The arguments make no sense.
pub const USAGE: u8 = 64;
/// The store cannot be opened or used.
pub const STORE: u8 = 69;
/// The system failed: a process, a pipe, a file.
pub const SYSTEM: u8 = 71;
/// Reading the input or writing the output failed.
pub const IO: u8 = 74;
/// Somebody else holds the lock, sweeps, or came between.
pub const BUSY: u8 = 75;
/// The lock was lost.
pub const LOST: u8 = 76;
/// The command is there and cannot be run.
pub const CANNOT_RUN: u8 = 126;
/// There is no such command.
pub const NOT_FOUND: u8 = 127;
/// A process that died of signal n has the code 128 + n.
pub const SIGNALS: u8 = 128;

pub type Result<T = ExitCode> = std::result::Result<T, Failure>;

/// What went wrong, what to do about it, and the exit code.
#[derive(Debug)]
pub struct Failure {
    pub code: u8,
    text: String,
    advice: Option<String>,
}

impl Failure {
    pub fn new(code: u8, text: impl Into<String>) -> Self {
        Self {
            code,
            text: text.into(),
            advice: None,
        }
    }

    /// The same, with what to do next.
    #[must_use]
    pub fn advise(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    /// An error with all its causes, on one line.
    pub fn causes(error: &alkstore::Error) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            text = format!("{text}: {cause}");
            source = cause.source();
        }
        text
    }

    pub fn system(what: &str, error: impl std::fmt::Display) -> Self {
        Self::new(SYSTEM, format!("{what}: {error}"))
    }

    pub fn input(what: &str, error: &io::Error) -> Self {
        Self::new(IO, format!("{what}: {error}"))
    }

    /// Failing to write to the output. A reader who has seen enough is no failure to speak of: `alkstore ... | head`.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            const SIGPIPE: u8 = 13;
            return Self::new(SIGNALS + SIGPIPE, String::new());
        }
        Self::new(IO, format!("writing the output failed: {error}"))
    }

    /// Says it on the error output.
    pub fn report(self) -> ExitCode {
        if !self.text.is_empty() {
            output::complain(&self.text);
            if let Some(advice) = &self.advice {
                output::advise(advice);
            }
        }
        ExitCode::from(self.code)
    }
}

/// With the texts of all causes; stores keep secrets out of them.
impl From<alkstore::Error> for Failure {
    fn from(error: alkstore::Error) -> Self {
        let code = match error.kind() {
            _ if error.is_invalid_duration() => USAGE,
            ErrorKind::InvalidName | ErrorKind::ReservedName | ErrorKind::InvalidArgument => USAGE,
            ErrorKind::Conflict => BUSY,
            ErrorKind::LeaseLost => LOST,
            _ => STORE,
        };
        let failure = Self::new(code, Self::causes(&error));
        if error.is_outcome_unknown() {
            failure.advise(
                "Whether it took effect is not known: look with `alkstore inspect` or `alkstore entries get`.",
            )
        } else if error.is_retryable() {
            failure.advise("Nothing was changed, and it may pass: try again.")
        } else {
            failure
        }
    }
}
