//! Instants and durations, as every engine keeps them.

use core::fmt;
use core::time::Duration;

use crate::{Error, ErrorKind, Result};

const NANOS_PER_MILLI: i64 = 1_000_000;

/// An instant: signed nanoseconds from the Unix epoch. Years 1677 to 2262; earlier than 1970 is negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(transparent)
)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The earliest instant.
    pub const MIN: Self = Self(i64::MIN);
    /// The latest instant; a deadline that would lie beyond it is set to it.
    pub const MAX: Self = Self(i64::MAX);

    /// The instant `nanos` nanoseconds from the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds from the epoch.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The instant `millis` milliseconds from the epoch, as JavaScript gives it. Fractions are kept to the nanosecond,
    /// what lies outside the range is set to its end; `None` for what is not a number.
    pub fn from_millis(millis: f64) -> Option<Self> {
        (!millis.is_nan()).then(|| Self(nanos_from_millis(millis)))
    }

    /// Milliseconds from the epoch, as JavaScript takes it. Exact to the microsecond or better in this century.
    #[allow(clippy::cast_precision_loss)] // the whole milliseconds are exact until the year 2262
    pub fn as_millis(self) -> f64 {
        let whole = self.0 / NANOS_PER_MILLI;
        let rest = self.0 - whole * NANOS_PER_MILLI;
        whole as f64 + rest as f64 / NANOS_PER_MILLI as f64
    }

    /// The instant `ttl` after this one, or [`MAX`](Self::MAX) where that is nearer.
    #[must_use]
    pub const fn after(self, ttl: Ttl) -> Self {
        Self(self.0.saturating_add(ttl.0))
    }

    /// The instant `duration` after this one, or [`MAX`](Self::MAX) where that is nearer.
    #[must_use]
    pub fn plus(self, duration: Duration) -> Self {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Self(self.0.saturating_add_unsigned(nanos))
    }

    /// The time from `earlier` to this instant; zero where `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        let nanos = i128::from(self.0) - i128::from(earlier.0);
        Duration::from_nanos(u64::try_from(nanos.max(0)).unwrap_or(u64::MAX))
    }

    /// Whether a deadline at this instant has passed at `now`. At the very instant it has.
    pub const fn lapsed(self, now: Self) -> bool {
        self.0 <= now.0
    }
}

/// A time to live that passed the duration guard: above zero, at most 100 years (3,155,760,000 s).
///
/// ```
/// use alkstore::{ErrorKind, Ttl};
/// use std::time::Duration;
/// assert!(Ttl::new(Duration::from_secs(30)).is_ok());
/// let refused = Ttl::new(Duration::ZERO).unwrap_err();
/// assert_eq!(refused.kind(), ErrorKind::Database);
/// assert!(refused.is_invalid_duration());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ttl(i64);

/// A number of milliseconds as JavaScript gives it: anything at all, until [`Ttl`] has checked it.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct Millis(pub f64);

impl TryFrom<Duration> for Ttl {
    type Error = Error;

    fn try_from(duration: Duration) -> Result<Self> {
        Self::new(duration)
    }
}

impl TryFrom<Millis> for Ttl {
    type Error = Error;

    fn try_from(millis: Millis) -> Result<Self> {
        Self::from_millis(millis.0)
    }
}

/// Why a duration was refused: the source of the error that [`Ttl::new`] gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TtlError {
    /// Zero or less: the lease would have lapsed before its holder knew of it.
    NotPositive,
    /// Above 100 years.
    TooLong,
    /// Not a number.
    NotANumber,
}

impl Ttl {
    /// The longest time to live: 100 years.
    pub const MAX: Self = Self(3_155_760_000 * 1_000_000_000);

    /// Checks `duration` once.
    pub fn new(duration: Duration) -> Result<Self> {
        if duration.is_zero() {
            return Err(TtlError::NotPositive.into());
        }
        if duration > Self::MAX.as_duration() {
            return Err(TtlError::TooLong.into());
        }
        i64::try_from(duration.as_nanos())
            .map(Self)
            .map_err(|_| TtlError::TooLong.into())
    }

    /// Checks a JavaScript number of milliseconds. Fractions are kept to the nanosecond; less than half a nanosecond
    /// is zero.
    pub fn from_millis(millis: f64) -> Result<Self> {
        if millis.is_nan() {
            return Err(TtlError::NotANumber.into());
        }
        let nanos = nanos_from_millis(millis);
        if nanos <= 0 {
            return Err(TtlError::NotPositive.into());
        }
        if nanos > Self::MAX.0 {
            return Err(TtlError::TooLong.into());
        }
        Ok(Self(nanos))
    }

    /// Nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The same time as a [`Duration`].
    pub const fn as_duration(self) -> Duration {
        Duration::from_nanos(self.0.unsigned_abs())
    }
}

impl fmt::Display for TtlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotPositive => "a time to live must be above zero",
            Self::TooLong => "a time to live must be at most 100 years (3155760000 s)",
            Self::NotANumber => "a time to live must be a number",
        })
    }
}

impl core::error::Error for TtlError {}

impl From<TtlError> for Error {
    fn from(error: TtlError) -> Self {
        Error::new(ErrorKind::Database, "the duration was refused").with_source(error)
    }
}

/// Whole and fractional milliseconds are converted apart: their product in floating point would lose nanoseconds.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss
)] // `as` saturates, which is wanted
#[inline]
fn nanos_from_millis(millis: f64) -> i64 {
    let whole = millis as i64;
    // A saturating multiplication is a long one, and this runs several times in each call from JavaScript.
    if whole.unsigned_abs() >= (i64::MAX / NANOS_PER_MILLI) as u64 {
        return if whole < 0 { i64::MIN } else { i64::MAX };
    }
    let scaled = (millis - whole as f64) * NANOS_PER_MILLI as f64;
    let rounded = (scaled + if scaled < 0.0 { -0.5 } else { 0.5 }) as i64;
    whole * NANOS_PER_MILLI + rounded
}

#[cfg(feature = "serde")]
mod serialised {
    use super::Ttl;
    use core::error::Error as _;
    use core::time::Duration;
    use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};

    impl Serialize for Ttl {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_i64(self.0)
        }
    }

    impl<'de> Deserialize<'de> for Ttl {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            let nanos = i64::deserialize(deserializer)?;
            let duration = Duration::from_nanos(u64::try_from(nanos).unwrap_or(0));
            Ttl::new(duration).map_err(|error| match error.source() {
                Some(reason) => D::Error::custom(reason),
                None => D::Error::custom(error),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn javascript_milliseconds_keep_their_nanoseconds() {
        let instant = Timestamp::from_millis(1_764_432_000_123.25).unwrap();
        assert_eq!(instant.as_nanos(), 1_764_432_000_123_250_000);
        assert_eq!(
            instant.as_millis().to_bits(),
            1_764_432_000_123.25_f64.to_bits()
        );
        assert_eq!(Timestamp::from_millis(-0.5).unwrap().as_nanos(), -500_000);
        assert_eq!(Timestamp::from_millis(1e300), Some(Timestamp::MAX));
        assert_eq!(Timestamp::from_millis(f64::NAN), None);
        assert_eq!(Ttl::from_millis(0.25).unwrap().as_nanos(), 250_000);
        assert_eq!(Ttl::from_millis(3_155_760_000_000.0).unwrap(), Ttl::MAX);
    }

    #[test]
    fn the_guard_names_its_reason() {
        for (millis, reason) in [
            (0.0, TtlError::NotPositive),
            (-0.0, TtlError::NotPositive),
            (-5.0, TtlError::NotPositive),
            (1e-8, TtlError::NotPositive),
            (f64::NEG_INFINITY, TtlError::NotPositive),
            (f64::NAN, TtlError::NotANumber),
            (f64::INFINITY, TtlError::TooLong),
            (1e300, TtlError::TooLong),
            (9_007_199_254_740_992.0, TtlError::TooLong),
            (3_155_760_000_000.5, TtlError::TooLong),
        ] {
            let error = Ttl::from_millis(millis).unwrap_err();
            let source = core::error::Error::source(&error).unwrap();
            assert_eq!(source.downcast_ref::<TtlError>(), Some(&reason), "{millis}");
        }
    }

    #[test]
    fn deadlines_saturate() {
        assert_eq!(Timestamp::MAX.after(Ttl::MAX), Timestamp::MAX);
        assert_eq!(Timestamp::MIN.plus(Duration::MAX), Timestamp::MAX);
        let half = Duration::from_nanos(1 << 63);
        assert_eq!(Timestamp::MIN.plus(half).as_nanos(), 0);
        assert_eq!(Timestamp::from_nanos(-1).plus(half), Timestamp::MAX);
        assert_eq!(
            Timestamp::MAX.since(Timestamp::MIN),
            Duration::from_nanos(u64::MAX)
        );
    }
}
