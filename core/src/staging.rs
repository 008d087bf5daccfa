//! The mark pass: whatever nothing refers to is staged.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use crate::hook::{Hook, HookError, HookFuture};
use crate::{EngineWindowState, Entries, Error, ErrorKind, Key, Restage, Result, Ttl};

/// The shortest grace period that is not asked about.
const SHORTEST_GRACE: Duration = Duration::from_secs(60);

/// How many keys are listed, and staged, at once.
const BATCH: usize = 1_000;

/// The keys that are still referred to, in any order, some at a time. Every iterator over keys is one.
pub trait LiveKeys: Hook {
    /// Some more of them; `None` when that was all. Empty answers are fine.
    fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>>;
}

impl<I: Iterator<Item = Key<'static>> + Hook> LiveKeys for I {
    fn next_keys(&mut self) -> HookFuture<'_, Result<Option<Vec<Key<'static>>>, HookError>> {
        let keys: Vec<_> = self.take(BATCH).collect();
        Box::pin(core::future::ready(Ok((!keys.is_empty()).then_some(keys))))
    }
}

/// Which keys a mark pass is about, and how long what it stages has to wait.
#[derive(Clone, Copy, Debug)]
pub struct StageOptions<'a> {
    prefix: &'a [u8],
    grace: Duration,
    any_grace: bool,
}

impl<'a> StageOptions<'a> {
    /// All keys. `grace` is how long a key waits before a sweep may delete it: longer than a writer takes from publishing
    /// a key to committing its reference. Where no liveness source is asked, add the time from the beginning of one mark pass to the end of the next: see
    /// [`sweep`](crate::sweep()).
    pub fn new(grace: Duration) -> Self {
        Self {
            prefix: b"",
            grace,
            any_grace: false,
        }
    }

    /// Only the keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(mut self, prefix: &'a [u8]) -> Self {
        self.prefix = prefix;
        self
    }

    /// Allows a grace period below a minute, as tests want.
    #[must_use]
    pub fn allow_short_grace(mut self) -> Self {
        self.any_grace = true;
        self
    }
}

/// What a mark pass did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StageReport {
    /// Entries that were there when it began.
    pub listed: u64,
    /// Live keys that it was told of.
    pub live: u64,
    /// Live keys that it took out of the window.
    pub unstaged: u64,
    /// Keys that nothing refers to. Those that waited in the window already wait on as before.
    pub staged: u64,
}

/// Stages every entry that was there at the beginning and that `live` does not name, with [`Restage::Keep`], so that
/// repeated passes do not put a key's end off; takes live keys out of the window.
///
/// Entries are listed before the first live key is asked for. So an entry that is published meanwhile is not staged, and
/// one that loses its last reference meanwhile is found by the next pass. The keys are kept in memory until the end.
///
/// Where `live` fails, nothing is staged. A grace period of less than a minute is refused, unless it is
/// [allowed](StageOptions::allow_short_grace).
///
/// ```
/// use alkstore::{stage_unreferenced, Key, Result, StageOptions, Store};
/// use std::time::Duration;
///
/// async fn mark(store: &dyn Store, live: Vec<Key<'static>>) -> Result<u64> {
///     let options = StageOptions::new(Duration::from_secs(24 * 3600)).prefix(b"blob/");
///     let report = stage_unreferenced(store, &mut live.into_iter(), options).await?;
///     Ok(report.staged)
/// }
/// ```
pub async fn stage_unreferenced<S>(
    store: &S,
    live: &mut dyn LiveKeys,
    options: StageOptions<'_>,
) -> Result<StageReport>
where
    S: Entries + EngineWindowState + ?Sized,
{
    Ttl::new(options.grace)?;
    if options.grace < SHORTEST_GRACE && !options.any_grace {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            "a grace period of less than a minute deletes what writers are about to refer to: choose a longer one, or \
             say allow_short_grace",
        ));
    }
    let mut report = StageReport::default();
    let mut unreferenced = BTreeSet::new();
    let mut after: Option<Key<'static>> = None;
    loop {
        let from = after.as_ref().map(Key::as_bytes);
        let page = store.list(options.prefix, from, BATCH).await?;
        let ends = page.len() < BATCH;
        unreferenced.extend(page.into_iter().map(|meta| meta.key));
        after = unreferenced.last().cloned();
        if ends {
            break;
        }
    }
    report.listed = unreferenced.len() as u64;
    let failed = |reason| {
        Error::new(
            ErrorKind::Database,
            "the live keys could not be learnt: nothing was staged",
        )
        .with_source(reason)
    };
    while let Some(keys) = live.next_keys().await.map_err(failed)? {
        report.live += keys.len() as u64;
        for key in &keys {
            unreferenced.remove(key);
        }
        if !keys.is_empty() {
            report.unstaged += store.window_unstage(&keys).await? as u64;
        }
    }
    let mut rest = unreferenced.into_iter();
    loop {
        let batch: Vec<_> = rest.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return Ok(report);
        }
        // A key that was published meanwhile has its whole grace period too.
        store
            .window_stage_after(&batch, options.grace, Restage::Keep)
            .await?;
        report.staged += batch.len() as u64;
    }
}
