//! The numbers that order grants and writes.

use core::fmt;
use core::num::NonZeroU64;

/// A number that its store never gives twice: lock tokens, entry versions and claim numbers are revisions.
///
/// For one lock name, and for one key, revisions strictly increase in the order in which grants and writes take
/// effect, across release, lapse, purge and reopening. 1 to 2^53 - 1, so that JavaScript holds each exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(NonZeroU64);

impl Revision {
    /// The highest revision: 2^53 - 1.
    pub const MAX: u64 = (1 << 53) - 1;

    /// The revision `number`; `None` outside 1 to 2^53 - 1.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX => Some(Self(number)),
            _ => None,
        }
    }

    /// The number.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(feature = "serde")]
mod serialised {
    use super::Revision;
    use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};

    impl Serialize for Revision {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.serialize_u64(self.get())
        }
    }

    impl<'de> Deserialize<'de> for Revision {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Revision::new(u64::deserialize(deserializer)?)
                .ok_or_else(|| D::Error::custom("a revision is a number from 1 to 2^53 - 1"))
        }
    }
}
