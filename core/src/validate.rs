//! The one validator: every engine parses a call's arguments here, so that all refuse the same input in the same
//! order (name, owner, duration, then the closed store) with the same words.

use alloc::format;

use crate::store::Gate;
use crate::{key, name};
use crate::{
    Error, ErrorKind, Key, LockName, Owner, PutMode, PutOptions, Result, Revision, Ttl,
    MAX_KEY_BYTES, MAX_NAME_BYTES, MAX_VALUE_BYTES,
};

/// A `try_lock` whose arguments hold.
#[derive(Clone, Debug)]
pub struct Acquire<'a> {
    /// The lock's name.
    pub name: LockName<'a>,
    /// Who asks.
    pub owner: Owner<'a>,
    /// For how long.
    pub ttl: Ttl,
}

/// A `put` whose arguments hold.
#[derive(Clone, Debug)]
pub struct PutRequest<'a> {
    /// The key.
    pub key: Key<'a>,
    /// When to write.
    pub mode: PutMode,
    /// How long the entry lives.
    pub ttl: Option<Ttl>,
    /// The grant that must be live.
    pub guard: Option<(LockName<'a>, Revision)>,
}

/// The arguments of `try_lock`.
pub fn acquire<'a>(
    gate: &Gate,
    name: &'a str,
    owner: &'a str,
    ttl: impl TryInto<Ttl, Error = Error>,
) -> Result<Acquire<'a>> {
    let request = Acquire {
        name: LockName::new(name)?,
        owner: Owner::new(owner)?,
        ttl: ttl.try_into()?,
    };
    gate.check()?;
    Ok(request)
}

/// The arguments of `renew`, and of every other call that takes a duration alone.
pub fn duration(gate: &Gate, ttl: impl TryInto<Ttl, Error = Error>) -> Result<Ttl> {
    let ttl = ttl.try_into()?;
    gate.check()?;
    Ok(ttl)
}

/// The arguments of a call about one lock.
pub fn lock<'a>(gate: &Gate, name: &'a str) -> Result<LockName<'a>> {
    let name = LockName::new(name)?;
    gate.check()?;
    Ok(name)
}

/// The parts of a handle that is rebuilt.
pub fn handle(gate: &Gate, name: &str, owner: &str) -> Result<(LockName<'static>, Owner<'static>)> {
    let name = LockName::new(name)?.into_owned();
    let owner = Owner::new(owner)?.into_owned();
    gate.check()?;
    Ok((name, owner))
}

/// The arguments of `list_locks`. A prefix is no name: empty is everything.
pub fn list_locks(gate: &Gate, prefix: &str, after: Option<&str>) -> Result<()> {
    bounded("prefix", prefix.len(), MAX_NAME_BYTES)?;
    bounded("`after` name", after.map_or(0, str::len), MAX_NAME_BYTES)?;
    gate.check()
}

/// The argument of a call about one key.
pub fn key<'a>(gate: &Gate, key: &'a [u8]) -> Result<Key<'a>> {
    let key = Key::new(key)?;
    gate.check()?;
    Ok(key)
}

/// The arguments of `touch`.
pub fn touch<'a>(
    gate: &Gate,
    key: &'a [u8],
    ttl: impl TryInto<Ttl, Error = Error>,
) -> Result<(Key<'a>, Ttl)> {
    let key = Key::new(key)?;
    let ttl = ttl.try_into()?;
    gate.check()?;
    Ok((key, ttl))
}

/// The arguments of `put`.
pub fn put<'a>(
    gate: &Gate,
    key: &'a [u8],
    value_bytes: usize,
    options: &PutOptions<'a>,
) -> Result<PutRequest<'a>> {
    let PutOptions { mode, ttl, guard } = *options;
    put_parts(gate, key, value_bytes, mode, ttl, guard)
}

/// The same, for callers whose durations are not [`Duration`](core::time::Duration)s.
pub fn put_parts<'a>(
    gate: &Gate,
    key: &'a [u8],
    value_bytes: usize,
    mode: PutMode,
    ttl: Option<impl TryInto<Ttl, Error = Error>>,
    guard: Option<(&'a str, Revision)>,
) -> Result<PutRequest<'a>> {
    let key = Key::new(key)?;
    value(value_bytes)?;
    let request = PutRequest {
        key,
        mode,
        ttl: ttl.map(TryInto::try_into).transpose()?,
        guard: guard
            .map(|(name, token)| Ok::<_, Error>((LockName::new(name)?, token)))
            .transpose()?,
    };
    gate.check()?;
    Ok(request)
}

/// The length of a lock name, of an owner and of a key, in bytes: for callers that know it before they have the bytes
/// at hand. What passes is not valid yet.
pub fn name_length(bytes: usize) -> Result<()> {
    name::check_length("lock name", bytes)
}

/// See [`name_length`].
pub fn owner_length(bytes: usize) -> Result<()> {
    name::check_length("owner", bytes)
}

/// See [`name_length`].
pub fn key_length(bytes: usize) -> Result<()> {
    key::check_length(bytes)
}

/// The length of a value.
pub fn value(bytes: usize) -> Result<()> {
    bounded("value", bytes, MAX_VALUE_BYTES)
}

/// The arguments of `list`.
pub fn list(gate: &Gate, prefix: &[u8], after: Option<&[u8]>) -> Result<()> {
    bounded("prefix", prefix.len(), MAX_KEY_BYTES)?;
    bounded("`after` key", after.map_or(0, <[u8]>::len), MAX_KEY_BYTES)?;
    gate.check()
}

fn bounded(what: &str, bytes: usize, limit: usize) -> Result<()> {
    if bytes <= limit {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::InvalidArgument,
        format!("the {what} is {bytes} bytes long, above the limit of {limit}"),
    ))
}
