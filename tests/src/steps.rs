//! Steps that many cases take.

use std::time::Duration;

use alkstore::{
    BoxFuture, Candidate, Claim, Entry, Key, Lock, LockInfo, Put, PutOptions, Reclaim, Restage,
    Revision, Store, Timestamp, WindowRow,
};
use futures_util::FutureExt as _;

use crate::failure::Failure;
use crate::fixture::{Fixture, Limits, Opened};
use crate::{ensure, ensure_eq, CaseResult};

pub(crate) const NANO: Duration = Duration::from_nanos(1);
pub(crate) const TTL: Duration = Duration::from_secs(30);
pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// The longest time to live.
pub(crate) const CENTURY: Duration = alkstore::Ttl::MAX.as_duration();

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

pub(crate) async fn open(f: &dyn Fixture) -> CaseResult<Opened> {
    Ok(f.open(Limits::default()).await?)
}

/// The same instant, moved back.
pub(crate) fn before(instant: Timestamp, by: Duration) -> Timestamp {
    let nanos = i64::try_from(by.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(instant.as_nanos().saturating_sub(nanos))
}

/// Takes a lock that must be free.
#[track_caller]
pub(crate) fn grant<'a>(
    store: &'a dyn Store,
    name: &'a str,
    owner: &'a str,
    ttl: Duration,
) -> BoxFuture<'a, CaseResult<Box<dyn Lock>>> {
    let not_granted = Failure::new(format_args!("{owner:?} was not granted {name:?}"));
    async move { store.try_lock(name, owner, ttl).await?.ok_or(not_granted) }.boxed()
}

/// Tries for a lock that somebody else must be holding.
#[track_caller]
pub(crate) fn lose<'a>(
    store: &'a dyn Store,
    name: &'a str,
    owner: &'a str,
    ttl: Duration,
) -> BoxFuture<'a, CaseResult> {
    let granted = Failure::new(format_args!(
        "{owner:?} was granted {name:?}, which another must be holding"
    ));
    async move {
        match store.try_lock(name, owner, ttl).await? {
            None => Ok(()),
            Some(_) => Err(granted),
        }
    }
    .boxed()
}

/// The row of a lock that must have one.
#[track_caller]
pub(crate) fn row<'a>(store: &'a dyn Store, name: &'a str) -> BoxFuture<'a, CaseResult<LockInfo>> {
    let absent = Failure::new(format_args!("there is no row of the lock {name:?}"));
    async move { store.lock_info(name).await?.ok_or(absent) }.boxed()
}

/// Everything that the store shows: to see that nothing, or only the expected, has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sight {
    pub locks: Vec<LockInfo>,
    pub entries: Vec<(Key<'static>, Vec<u8>, Revision, Option<Timestamp>)>,
}

pub(crate) async fn sight(store: &dyn Store) -> CaseResult<Sight> {
    let locks = store.list_locks("", None, 10_000).await?;
    let mut entries = Vec::new();
    for meta in store.list(b"", None, 10_000).await? {
        let Some(entry) = store.get(meta.key.as_bytes()).await? else {
            return Err(Failure::new(format_args!(
                "{:?} is listed but absent",
                meta.key
            )));
        };
        ensure_eq!(
            (entry.version, entry.expires_at),
            (meta.version, meta.expires_at)
        );
        ensure_eq!(entry.value.len() as u64, meta.size);
        entries.push((
            meta.key,
            entry.value.to_vec(),
            meta.version,
            meta.expires_at,
        ));
    }
    Ok(Sight { locks, entries })
}

/// A revision that must exist.
#[track_caller]
pub(crate) fn revision(number: u64) -> CaseResult<Revision> {
    Revision::new(number).ok_or_else(|| Failure::new(format_args!("no revision {number}")))
}

/// A revision that is neither of those that a store has given out.
#[track_caller]
pub(crate) fn other_than(revision: Revision) -> CaseResult<Revision> {
    self::revision(revision.get() + 1_000_000)
}

/// When a live entry lapses.
#[track_caller]
pub(crate) fn expiry<'a>(
    store: &'a dyn Store,
    key: &'a [u8],
) -> BoxFuture<'a, CaseResult<Option<Timestamp>>> {
    let absent = Failure::new(format_args!("there is no entry {key:?}"));
    async move { Ok(store.get(key).await?.ok_or(absent)?.expires_at) }.boxed()
}

pub(crate) fn candidates(rows: &[(&str, Timestamp)]) -> CaseResult<Vec<Candidate>> {
    rows.iter()
        .map(|(key, visible_after)| {
            Ok(Candidate {
                key: Key::new(key.as_bytes().to_vec())?,
                visible_after: *visible_after,
            })
        })
        .collect()
}

/// Stages keys; a new deadline moves them.
pub(crate) async fn stage(store: &dyn Store, rows: &[(&str, Timestamp)]) -> CaseResult {
    Ok(store
        .window_stage(&candidates(rows)?, Restage::Move)
        .await?)
}

/// Stages keys and claims them, for [`TTL`] from now, where nothing else is due.
pub(crate) async fn claimed(store: &dyn Store, keys: &[&str]) -> CaseResult<Vec<Claim>> {
    let rows: Vec<_> = keys.iter().map(|key| (*key, Timestamp::MIN)).collect();
    stage(store, &rows).await?;
    let mut claims = store.window_claim(Timestamp::MIN, TTL, keys.len()).await?;
    claims.sort_by(|one, other| one.key.cmp(&other.key));
    ensure_eq!(claims.len(), keys.len());
    Ok(claims)
}

/// The same, and marks them.
pub(crate) async fn marked(store: &dyn Store, keys: &[&str]) -> CaseResult<Vec<Claim>> {
    let claims = claimed(store, keys).await?;
    let marks = store.window_mark(&claims, None).await?;
    ensure!(
        marks.iter().all(|mark| *mark == Reclaim::Marked),
        "{marks:?}"
    );
    Ok(claims)
}

/// All rows of the window.
pub(crate) async fn waiting(store: &dyn Store) -> CaseResult<Vec<WindowRow>> {
    Ok(store.window_list(None, 10_000).await?)
}

/// Takes everything out of the window that is under no live claim: key and deadline, by key.
pub(crate) async fn drain(store: &dyn Store) -> CaseResult<Vec<(String, Timestamp)>> {
    let taken = store.window_take(Timestamp::MAX, None).await?;
    let mut taken: Vec<_> = taken.iter().map(shown).collect();
    taken.sort();
    Ok(taken)
}

pub(crate) fn shown(candidate: &Candidate) -> (String, Timestamp) {
    let key = String::from_utf8_lossy(candidate.key.as_bytes()).into_owned();
    (key, candidate.visible_after)
}

/// The live entry of a key that must have one.
#[track_caller]
pub(crate) fn entry<'a>(store: &'a dyn Store, key: &'a [u8]) -> BoxFuture<'a, CaseResult<Entry>> {
    let absent = Failure::new(format_args!("there is no entry {key:?}"));
    async move { store.get(key).await?.ok_or(absent) }.boxed()
}

/// Creates an entry that must be absent; its version.
#[track_caller]
pub(crate) fn stored<'a>(
    store: &'a dyn Store,
    key: &'a [u8],
    value: &'a [u8],
) -> BoxFuture<'a, CaseResult<Revision>> {
    let at = std::panic::Location::caller();
    async move {
        match store.put(key, value, PutOptions::create()).await? {
            Put::Stored { version } => Ok(version),
            other @ Put::NotStored { .. } => Err(Failure::new(format_args!(
                "{key:?} was not stored at {at}: {other:?}"
            ))),
        }
    }
    .boxed()
}

/// A key that must be valid.
pub(crate) fn key(bytes: &[u8]) -> CaseResult<Key<'static>> {
    Ok(Key::new(bytes.to_vec())?)
}
