//! The one error type of every engine.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use core::fmt;

/// The result of every operation of a store.
pub type Result<T, E = Error> = core::result::Result<T, E>;

/// What class of failure an [`Error`] is. Match on it to decide what to do; read the error's text to learn why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A lock name or an owner breaks the rules of [`LockName`](crate::LockName) and [`Owner`](crate::Owner).
    InvalidName,
    /// A lock name begins with `__alkstore_`, which the engines keep for themselves.
    ReservedName,
    /// A key, value, changeset, snapshot or option that no store accepts.
    InvalidArgument,
    /// Somebody else's write came between: nothing was applied; read again and retry.
    Conflict,
    /// The guard's grant is no longer live: nothing was written.
    LeaseLost,
    /// The store is at its configured limit, also after lapsed rows were purged.
    CapacityExceeded,
    /// Everything else: a refused duration, a closed store, a failing disk or server. The detail is in the
    /// [source](core::error::Error::source) chain.
    Database,
}

/// A failure, with its [kind](Error::kind), whether to [retry](Error::is_retryable), and its cause as
/// [`source`](core::error::Error::source).
///
/// The text of an error never repeats its cause's text and never holds a value or a connection string.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    retryable: bool,
    outcome_unknown: bool,
    closed: bool,
    message: Cow<'static, str>,
    source: Option<Box<dyn core::error::Error + Send + Sync>>,
}

impl Error {
    /// A new error of `kind`. [`Conflict`](ErrorKind::Conflict) begins as retryable, every other kind as final.
    #[cold]
    pub fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner {
            kind,
            retryable: matches!(kind, ErrorKind::Conflict),
            outcome_unknown: false,
            closed: false,
            message: message.into(),
            source: None,
        }))
    }

    /// The error that every operation of a closed store gives.
    #[cold]
    pub fn closed() -> Self {
        let mut error = Self::new(ErrorKind::Database, "the store is closed");
        error.0.closed = true;
        error
    }

    /// The same error with `source` as its cause.
    #[must_use]
    pub fn with_source(
        mut self,
        source: impl Into<Box<dyn core::error::Error + Send + Sync>>,
    ) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The same error, marked as one that may pass when the call is repeated.
    #[must_use]
    pub fn retryable(mut self) -> Self {
        self.0.retryable = true;
        self
    }

    /// The same error, marked as one after which nobody knows whether the call took effect.
    #[must_use]
    pub fn outcome_unknown(mut self) -> Self {
        self.0.outcome_unknown = true;
        self
    }

    /// The class of this failure.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether the same call may succeed when it is simply repeated.
    pub fn is_retryable(&self) -> bool {
        self.0.retryable
    }

    /// Whether the call may have taken effect all the same, as when a connection breaks after the commit was sent.
    ///
    /// Repeating a `try_lock` as the same owner settles it: the same grant comes back.
    pub fn is_outcome_unknown(&self) -> bool {
        self.0.outcome_unknown
    }

    /// Whether the store had been closed.
    pub fn is_closed(&self) -> bool {
        self.0.closed
    }

    /// Whether a duration was refused: zero, negative, not a number, or above 100 years.
    pub fn is_invalid_duration(&self) -> bool {
        self.0
            .source
            .as_deref()
            .is_some_and(<dyn core::error::Error + Send + Sync>::is::<crate::TtlError>)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("message", &self.0.message)
            .field("retryable", &self.0.retryable)
            .field("outcome_unknown", &self.0.outcome_unknown)
            .field("source", &self.0.source)
            .finish_non_exhaustive()
    }
}

impl core::error::Error for Error {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        self.0
            .source
            .as_deref()
            .map(|source| source as &(dyn core::error::Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use core::error::Error as _;

    #[test]
    fn display_never_repeats_the_source() {
        let cause = Error::new(ErrorKind::Database, "the disk is full");
        let error = Error::new(ErrorKind::Database, "the write failed").with_source(cause);
        assert_eq!(error.to_string(), "the write failed");
        assert_eq!(
            error.source().map(ToString::to_string).as_deref(),
            Some("the disk is full")
        );
    }

    #[test]
    fn only_conflict_begins_as_retryable() {
        assert!(Error::new(ErrorKind::Conflict, "x").is_retryable());
        assert!(!Error::new(ErrorKind::LeaseLost, "x").is_retryable());
        assert!(Error::closed().is_closed());
    }
}
