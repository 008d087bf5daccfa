//! Entry keys and values.

use alloc::borrow::Cow;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::{Error, ErrorKind, Result};

/// The longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 1024;

/// The longest value, in bytes: 64 MiB.
pub const MAX_VALUE_BYTES: usize = 64 << 20;

/// A value as stores hand it out: shared, immutable bytes. A reader keeps the whole of it, whatever happens to the
/// entry meanwhile.
pub type Value = Arc<[u8]>;

/// A valid entry key: 1 to 1024 bytes, any bytes.
///
/// Keys sort bytewise, which is the order of every listing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key<'a>(Cow<'a, [u8]>);

impl<'a> Key<'a> {
    /// Checks `key` once; what comes back can be trusted everywhere.
    pub fn new(key: impl Into<Cow<'a, [u8]>>) -> Result<Self> {
        let key = key.into();
        check_length(key.len())?;
        Ok(Self(key))
    }

    /// The key's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The same key, borrowing nothing.
    pub fn into_owned(self) -> Key<'static> {
        Key(Cow::Owned(self.0.into_owned()))
    }

    /// The same key, borrowed from this one.
    pub fn borrowed(&self) -> Key<'_> {
        Key(Cow::Borrowed(&self.0))
    }

    /// The key's bytes, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0.into_owned()
    }
}

pub(crate) fn check_length(bytes: usize) -> Result<()> {
    if bytes == 0 || bytes > MAX_KEY_BYTES {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("the key is {bytes} bytes long; a key has 1 to {MAX_KEY_BYTES} bytes"),
        ));
    }
    Ok(())
}

/// So that a map of owned keys can be asked with borrowed bytes; order and equality are those of the bytes.
impl core::borrow::Borrow<[u8]> for Key<'_> {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(feature = "serde")]
mod serialised {
    use super::Key;
    use alloc::vec::Vec;
    use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};

    impl Serialize for Key<'_> {
        fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_seq(self.as_bytes())
        }
    }

    impl<'de> Deserialize<'de> for Key<'static> {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            Key::new(Vec::<u8>::deserialize(deserializer)?).map_err(D::Error::custom)
        }
    }
}
