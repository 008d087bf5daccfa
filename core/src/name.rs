//! Lock names and owners.

use alloc::borrow::Cow;
use alloc::format;
use core::fmt::{self, Write as _};

use crate::{Error, ErrorKind, Result};

/// The longest lock name or owner, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 512;

/// The beginning of the lock names that the engines keep for themselves.
pub const RESERVED_PREFIX: &str = "__alkstore_";

/// A valid lock name: 1 to 512 bytes of UTF-8, no U+0000, not white space alone, not beginning with `__alkstore_`.
///
/// Two names are the same when their bytes are: case, spaces and Unicode normalisation forms all count.
///
/// ```
/// use alkstore::{ErrorKind, LockName};
/// assert_eq!(LockName::new("jobs/nightly")?.as_str(), "jobs/nightly");
/// assert_eq!(LockName::new(" ").unwrap_err().kind(), ErrorKind::InvalidName);
/// assert_eq!(LockName::new("__alkstore_x").unwrap_err().kind(), ErrorKind::ReservedName);
/// # Ok::<(), alkstore::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockName<'a>(Cow<'a, str>);

/// A valid owner: 1 to 512 bytes of UTF-8, no U+0000, not white space alone. Unlike a lock name it may begin with
/// anything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner<'a>(Cow<'a, str>);

impl<'a> LockName<'a> {
    /// Checks `name` once; what comes back can be trusted everywhere.
    pub fn new(name: impl Into<Cow<'a, str>>) -> Result<Self> {
        let name = name.into();
        check("lock name", &name)?;
        if name.starts_with(RESERVED_PREFIX) {
            return Err(Error::new(
                ErrorKind::ReservedName,
                format!("lock name \"{}\" is reserved: choose one that does not begin with {RESERVED_PREFIX}", Printable(&name)),
            ));
        }
        Ok(Self(name))
    }

    /// The lock of the one sweep of a store: reserved, so for engines alone.
    pub const SWEEP: LockName<'static> = LockName(Cow::Borrowed("__alkstore_sweep"));

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same name, borrowing nothing.
    pub fn into_owned(self) -> LockName<'static> {
        LockName(Cow::Owned(self.0.into_owned()))
    }

    /// The same name, borrowed from this one.
    pub fn borrowed(&self) -> LockName<'_> {
        LockName(Cow::Borrowed(&self.0))
    }
}

impl<'a> Owner<'a> {
    /// Checks `owner` once; what comes back can be trusted everywhere.
    pub fn new(owner: impl Into<Cow<'a, str>>) -> Result<Self> {
        let owner = owner.into();
        check("owner", &owner)?;
        Ok(Self(owner))
    }

    /// The owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The same owner, borrowing nothing.
    pub fn into_owned(self) -> Owner<'static> {
        Owner(Cow::Owned(self.0.into_owned()))
    }
}

/// So that a map of owned names can be asked with borrowed text; order and equality are those of the bytes.
impl core::borrow::Borrow<str> for LockName<'_> {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for LockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

impl fmt::Display for Owner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Printable(&self.0).fmt(f)
    }
}

fn check(what: &'static str, text: &str) -> Result<()> {
    check_length(what, text.len())?;
    let wrong = if text.contains('\0') {
        "contains U+0000"
    } else if text.chars().all(char::is_whitespace) {
        "is white space alone"
    } else {
        return Ok(());
    };
    Err(invalid(what, wrong))
}

pub(crate) fn check_length(what: &'static str, bytes: usize) -> Result<()> {
    match bytes {
        0 => Err(invalid(what, "is empty")),
        1..=MAX_NAME_BYTES => Ok(()),
        _ => Err(invalid(
            what,
            &format!("is {bytes} bytes long, above the limit of {MAX_NAME_BYTES}"),
        )),
    }
}

#[cold]
fn invalid(what: &str, wrong: &str) -> Error {
    Error::new(ErrorKind::InvalidName, format!("the {what} {wrong}"))
}

/// Text for a message: control characters, and those that direct how text runs, are escaped, so that a hostile name can
/// neither break a line of a log nor turn its reading order round.
pub(crate) struct Printable<'a>(pub(crate) &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            if c.is_control()
                || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
            {
                write!(f, "\\u{{{:x}}}", u32::from(c))?;
            } else {
                f.write_char(c)?;
            }
        }
        Ok(())
    }
}

#[cfg(feature = "serde")]
pub(crate) mod serialised {
    use super::{LockName, Owner};
    use alloc::string::String;
    use serde::{de::Error as _, Deserialize, Deserializer, Serialize, Serializer};

    macro_rules! as_text {
        ($type:ident) => {
            impl Serialize for $type<'_> {
                fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    serializer.serialize_str(self.as_str())
                }
            }

            impl<'de> Deserialize<'de> for $type<'static> {
                fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    $type::new(String::deserialize(deserializer)?).map_err(D::Error::custom)
                }
            }
        };
    }
    as_text!(LockName);
    as_text!(Owner);

    /// A lock name, for types that keep it as plain text: a valid one, or one of the engines' own, which listings show
    /// too.
    pub(crate) fn lock_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        let name = String::deserialize(from)?;
        super::check("lock name", &name).map_err(D::Error::custom)?;
        Ok(name)
    }

    /// The same for an owner.
    pub(crate) fn owner<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Owner::deserialize(from).map(|owner| owner.0.into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn control_characters_are_escaped_in_messages() {
        let error = LockName::new("__alkstore_\n\u{202e}x\u{200f}").unwrap_err();
        let shown = "\\u{a}\\u{202e}x\\u{200f}\"";
        assert!(error.to_string().contains(shown), "{error}");
    }
}
