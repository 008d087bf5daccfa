//! What a sweep asks of its surroundings: what is still referred to, the deletion of what lies elsewhere, and time.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::future::Future;
use core::pin::Pin;
use core::time::Duration;

use crate::Key;

/// The future of a hook. It can go to another thread, except on wasm, where it may be JavaScript's.
#[cfg(not(target_family = "wasm"))]
pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;
/// The future of a hook. It can go to another thread, except on wasm, where it may be JavaScript's.
#[cfg(target_family = "wasm")]
pub type HookFuture<'a, T> = Pin<Box<dyn Future<Output = T> + 'a>>;

/// What hooks are: shared between threads, except on wasm, where they may be JavaScript's. Implemented for all that can.
#[cfg(not(target_family = "wasm"))]
pub trait Hook: Send + Sync {}
#[cfg(not(target_family = "wasm"))]
impl<T: Send + Sync + ?Sized> Hook for T {}
/// What hooks are: shared between threads, except on wasm, where they may be JavaScript's. Implemented for all that can.
#[cfg(target_family = "wasm")]
pub trait Hook {}
#[cfg(target_family = "wasm")]
impl<T: ?Sized> Hook for T {}

/// Why a hook failed.
pub type HookError = Box<dyn core::error::Error + Send + Sync>;

/// Somebody who knows what is still referred to.
pub trait LivenessSource: Hook {
    /// Which of `keys` are live: one answer for each, in order; `true` protects. A failure protects all of them and ends
    /// the sweep; so does an answer of another length.
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>>;
}

/// Somebody who deletes what keys stand for outside the store, such as objects in an object store.
///
/// It is called while the keys are [marked](crate::EngineWindowState::window_mark): their entries are still there and
/// cannot be written, so they may be read to learn where the payload lies. A process that was stopped in between may read
/// too late, though, when another sweep has finished and a writer has published anew. So read the entry, then see that
/// [`window_info`](crate::EngineWindowState::window_info) still says `reclaiming`, then delete. A payload whose deletion was asked for twice,
/// because a sweep crashed in between, is [`NotFound`](Reclaimed::NotFound), which is as good.
///
/// A deletion that takes effect long after its answer was awaited could hit what a writer has put there since. Give
/// payloads names that are not used again (a random part, kept in the entry's value), and deletions a time limit below the
/// sweep's [`claim_lease`](crate::SweepOptions::claim_lease).
///
/// ```
/// use alkstore::{HookError, HookFuture, Key, Reclaimed, Reclaimer, Store};
/// use std::{fs, io, path::{Path, PathBuf}};
///
/// /// Blobs as files of one folder; an entry's value is the name of its file, which no other blob ever has.
/// struct Files<'a> {
///     store: &'a dyn Store,
///     folder: &'a Path,
/// }
///
/// impl Files<'_> {
///     /// The file of a key; `None` where there is no entry any more.
///     async fn path(&self, key: &Key<'_>, delete: bool) -> Result<Option<PathBuf>, HookError> {
///         let Some(entry) = self.store.get(key.as_bytes()).await? else { return Ok(None) };
///         // First the entry, then whether it is still this deletion's. A dry run marks nothing.
///         let row = self.store.window_info(key.as_bytes()).await?;
///         if delete && !row.is_some_and(|row| row.reclaiming) {
///             return Err("another sweep has finished this deletion".into());
///         }
///         Ok(Some(self.folder.join(std::str::from_utf8(&entry.value)?)))
///     }
///
///     async fn each(&self, key: &Key<'_>, delete: bool) -> Result<Reclaimed, HookError> {
///         let Some(path) = self.path(key, delete).await? else { return Ok(Reclaimed::NotFound) };
///         let bytes = match fs::metadata(&path) {
///             Ok(file) => file.len(),
///             Err(gone) if gone.kind() == io::ErrorKind::NotFound => return Ok(Reclaimed::NotFound),
///             Err(error) => return Err(error.into()),
///         };
///         if delete {
///             fs::remove_file(&path)?;
///         }
///         Ok(Reclaimed::Freed { bytes })
///     }
/// }
///
/// impl Reclaimer for Files<'_> {
///     fn reclaim<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
///         Box::pin(async move {
///             let mut answers = Vec::new();
///             for key in keys {
///                 answers.push(self.each(key, true).await);
///             }
///             answers
///         })
///     }
///     fn measure<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
///         Box::pin(async move {
///             let mut answers = Vec::new();
///             for key in keys {
///                 answers.push(self.each(key, false).await);
///             }
///             answers
///         })
///     }
/// }
/// ```
pub trait Reclaimer: Hook {
    /// Deletes the payloads: one answer for each key, in order. A key whose payload could not be deleted stays marked and
    /// is tried again later.
    fn reclaim<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>>;

    /// What [`reclaim`](Self::reclaim) would free, for a dry run: nothing may be deleted.
    fn measure<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>>;
}

/// What became of a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reclaimed {
    /// It is gone.
    Freed {
        /// How long it was.
        bytes: u64,
    },
    /// It was gone already.
    NotFound,
}

/// Somebody who can wait, as the runtime's timer can.
pub trait Timer: Hook {
    /// Resolves after `duration`; after zero as soon as others had their turn.
    fn sleep(&self, duration: Duration) -> HookFuture<'_, ()>;
}
