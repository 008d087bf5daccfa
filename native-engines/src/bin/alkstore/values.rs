//! Values of arguments, parsed once.

use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::str::FromStr;
use std::time::Duration;

use alkstore::{LockName, Revision};

/// A duration with its unit.
pub fn duration(text: &str) -> Result<Duration, String> {
    if text.parse::<f64>().is_ok() {
        return Err(format!(
            "a duration needs its unit: write {text}s, {text}m or {text}h"
        ));
    }
    humantime::parse_duration(text)
        .map_err(|_| "write a number and its unit, such as 500ms, 30s, 5m, 2h or 1h30m".to_owned())
}

/// A duration above zero.
pub fn ttl(text: &str) -> Result<Duration, String> {
    let ttl = duration(text)?;
    alkstore::Ttl::new(ttl).map_err(|error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        cause.unwrap_or_else(|| error.to_string())
    })?;
    Ok(ttl)
}

/// How long a key waits, which may be no time.
pub fn grace(text: &str) -> Result<Duration, String> {
    let grace = duration(text)?;
    if grace.is_zero() {
        return Ok(grace);
    }
    ttl(text)
}

/// The time to live of a lock that a process keeps: a shorter one would be lost to the delays of a busy machine.
pub fn kept_ttl(text: &str) -> Result<Duration, String> {
    let ttl = ttl(text)?;
    if ttl < Duration::from_secs(1) {
        return Err("a lock that is kept by renewing it needs at least 1s".to_owned());
    }
    Ok(ttl)
}

pub fn revision(text: &str) -> Result<Revision, String> {
    let number = text.parse().ok().and_then(Revision::new);
    number.ok_or_else(|| "a token or version is a number from 1 to 9007199254740991".to_owned())
}

/// A whole number; of a type without 0, one above it.
pub fn count<N: FromStr<Err = ParseIntError>>(text: &str) -> Result<N, String> {
    text.parse().map_err(|error: ParseIntError| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow => "so many there cannot be",
            IntErrorKind::Zero => "write a whole number above zero",
            _ => "write a whole number, in digits",
        };
        why.to_owned()
    })
}

/// A lock and its token, `NAME:TOKEN`. The name may have colons of its own.
#[derive(Clone)]
pub struct Guard {
    pub name: String,
    pub token: Revision,
}

pub fn guard(text: &str) -> Result<Guard, String> {
    let (name, token) = text.rsplit_once(':').ok_or(
        "write NAME:TOKEN, under `alkstore lock` \"$ALKSTORE_LOCK_NAME:$ALKSTORE_LOCK_TOKEN\"",
    )?;
    Ok(Guard {
        name: lock_name(name)?,
        token: revision(token)?,
    })
}

pub fn lock_name(text: &str) -> Result<String, String> {
    LockName::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

pub fn owner(text: &str) -> Result<String, String> {
    alkstore::Owner::new(text).map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// The bytes of a key: those of the argument, or what its hexadecimal digits say.
pub fn key(argument: OsString, hex: bool) -> Result<Vec<u8>, String> {
    let bytes = os_bytes(argument)?;
    if !hex {
        return Ok(bytes);
    }
    unhex(&bytes)
        .ok_or_else(|| "with --hex a key is an even number of hexadecimal digits".to_owned())
}

/// What hexadecimal digits say.
pub fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let digits: Option<Vec<u32>> = digits.iter().map(|&b| char::from(b).to_digit(16)).collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    let pairs = digits.chunks_exact(2);
    Some(
        pairs
            .filter_map(|pair| u8::try_from(pair[0] << 4 | pair[1]).ok())
            .collect(),
    )
}

#[cfg(unix)]
#[allow(clippy::unnecessary_wraps)] // elsewhere it can fail
pub fn os_bytes(argument: OsString) -> Result<Vec<u8>, String> {
    use std::os::unix::ffi::OsStringExt;
    Ok(argument.into_vec())
}

#[cfg(not(unix))]
pub fn os_bytes(argument: OsString) -> Result<Vec<u8>, String> {
    match argument.into_string() {
        Ok(text) => Ok(text.into_bytes()),
        Err(_) => Err("the key is not valid Unicode: write it with --hex".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_their_unit() {
        assert_eq!(duration("1m30s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        for bare in ["30", "0", "1.5", "-3", "1e9"] {
            let told = duration(bare).unwrap_err();
            assert!(told.contains("unit"), "{bare}: {told}");
        }
        for wrong in ["", "s", "30 parsecs", "nightly", "-3s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(ttl("0s").unwrap_err().contains("above zero"));
        assert!(ttl("101y").unwrap_err().contains("100 years"));
        assert_eq!(grace("0s"), Ok(Duration::ZERO));
        assert!(grace("101y").unwrap_err().contains("100 years"));
        assert!(kept_ttl("999ms").is_err());
        assert!(kept_ttl("1s").is_ok());
    }

    #[test]
    fn counts_are_whole_numbers() {
        assert_eq!(count("0"), Ok(0_u64));
        for wrong in ["", "-1", "1e3", "1.5", "ten"] {
            assert!(
                count::<u64>(wrong).unwrap_err().contains("digits"),
                "{wrong}"
            );
        }
        let zero = count::<std::num::NonZeroU32>("0").unwrap_err();
        assert!(zero.contains("above zero"), "{zero}");
        assert!(count::<u32>("4294967296")
            .unwrap_err()
            .contains("cannot be"));
    }

    #[test]
    fn a_guard_splits_at_the_last_colon() {
        let guard = guard("a:b:7").ok().unwrap();
        assert_eq!((guard.name.as_str(), guard.token.get()), ("a:b", 7));
        for wrong in ["7", ":7", "a:", "a:0", "a:x", "__alkstore_a:1"] {
            assert!(super::guard(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn keys_in_hex() {
        assert_eq!(key("00fF".into(), true).unwrap(), [0, 255]);
        assert_eq!(key("00fF".into(), false).unwrap(), b"00fF");
        for wrong in ["0", "0g", "0x00"] {
            assert!(key(wrong.into(), true).is_err(), "{wrong}");
        }
    }
}
