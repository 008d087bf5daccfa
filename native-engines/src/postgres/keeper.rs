//! Keeping a pin alive.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{Key, Owner, Result};
use tokio::task::JoinHandle;
use tokio::time::{sleep_until, timeout_at, Instant};

use super::{pins, PgStore, Shared};

/// Renews a pin in the background, at a third of the store's [pin ttl](super::PgOptions::pin_ttl), until it is released,
/// dropped or lost. [`PgStore::keep_pin`] makes one.
///
/// Dropping it stops the renewals, and the pin lapses.
///
/// ```no_run
/// # use alkstore::{EngineFleetState, Key, Owner, Pin, Result};
/// # use alkstore_native::postgres::PgStore;
/// # async fn example(store: &PgStore, number: u64, commit_reference: impl std::future::Future<Output = ()>) -> Result<()> {
/// // An owner for this publication alone: a release would end the protection of all that share it.
/// let owner = format!("{}-{number}", store.instance_id());
/// let mut tx = store.begin_joint_tx().await?;
/// store.joint_put(&mut tx, b"blob/1", b"...").await?;
/// let (key, ttl) = (Key::new(&b"blob/1"[..])?, std::time::Duration::from_secs(60));
/// store.pin_commit(tx, &[Pin { key, owner: Owner::new(&*owner)?, ttl }]).await?;
/// let Some(mut keeper) = store.keep_pin(b"blob/1", &owner).await? else {
///     return Ok(()); // it lapsed already: publish anew
/// };
/// tokio::select! {
///     () = keeper.lost() => {} // do not commit the reference: publish anew
///     () = commit_reference => { // in a transaction that asks `pin_hold_in` first
///         keeper.release().await?;
///     }
/// }
/// # Ok(()) }
/// ```
pub struct PinKeeper {
    shared: Arc<Shared>,
    key: Key<'static>,
    owner: Owner<'static>,
    /// Ends when the pin is lost.
    renewals: JoinHandle<()>,
    lost: bool,
}

impl PgStore {
    /// Renews the pin of `key` for `owner` now, and from now on; `None` where it has lapsed or is absent.
    pub async fn keep_pin(&self, key: &[u8], owner: &str) -> Result<Option<PinKeeper>> {
        let (key, owner) = pins::parse(&self.0, key, owner)?;
        let begun = Instant::now();
        if !pins::renew(&self.0, key.as_bytes(), owner.as_str()).await? {
            return Ok(None);
        }
        let (key, owner) = (key.into_owned(), owner.into_owned());
        let shared = Arc::clone(&self.0);
        let renewals = {
            let (shared, key, owner) = (Arc::clone(&shared), key.clone(), owner.clone());
            tokio::spawn(async move {
                let renew = || pins::renew(&shared, key.as_bytes(), owner.as_str());
                keep(begun, shared.pin_ttl.as_duration(), renew).await;
            })
        };
        Ok(Some(PinKeeper {
            shared,
            key,
            owner,
            renewals,
            lost: false,
        }))
    }
}

impl PinKeeper {
    /// What is pinned.
    pub fn key(&self) -> &[u8] {
        self.key.as_bytes()
    }

    /// For whom.
    pub fn owner(&self) -> &str {
        self.owner.as_str()
    }

    /// Returns when the pin is lost: at once when a renewal finds that it has lapsed or is gone, and at its deadline when
    /// no renewal came through until then. May be dropped and called again.
    pub async fn lost(&mut self) {
        if !self.lost {
            // An error is the end of the runtime, and so of the renewals.
            let _ = (&mut self.renewals).await;
            self.lost = true;
        }
    }

    /// Whether the pin is lost, as far as is known.
    pub fn is_lost(&self) -> bool {
        self.lost || self.renewals.is_finished()
    }

    /// Stops the renewals and ends the protection; whether the pin was still there. Not before the reference is
    /// committed. Dropping the future may leave the pin to lapse.
    pub async fn release(self) -> Result<bool> {
        // A renewal under way comes before the release, or finds nothing.
        self.renewals.abort();
        pins::release(&self.shared, self.key(), self.owner()).await
    }
}

impl Drop for PinKeeper {
    fn drop(&mut self) {
        self.renewals.abort();
    }
}

impl fmt::Debug for PinKeeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PinKeeper")
            .field("key", &self.key)
            .field("owner", &self.owner)
            .field("lost", &self.is_lost())
            .finish_non_exhaustive()
    }
}

/// Renews what was renewed at `begun`, and returns when it is lost. Deadlines count from before each renewal was sent, so
/// they are not later here than on the server.
async fn keep<F: Future<Output = Result<bool>>>(
    begun: Instant,
    ttl: Duration,
    renew: impl Fn() -> F,
) {
    let mut deadline = begun + ttl;
    let mut next = begun + ttl / 3;
    loop {
        sleep_until(next.min(deadline)).await;
        let asked = Instant::now();
        if asked >= deadline {
            return;
        }
        match timeout_at(deadline, renew()).await {
            Ok(Ok(true)) => {
                deadline = asked + ttl;
                next = asked + ttl / 3;
            }
            Ok(Ok(false)) | Err(_) => return,
            Ok(Err(_)) => next = Instant::now() + ttl / 12,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::future::pending;

    use alkstore::{Error, ErrorKind};

    use super::*;

    const TTL: Duration = Duration::from_secs(60);

    /// When renewals were asked for, and when the loss was told, in seconds from the begin. `answer` gets the second.
    fn run<F: Future<Output = Result<bool>>>(answer: impl Fn(u64) -> F) -> (Vec<u64>, u64) {
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(async {
                let begun = Instant::now();
                let asked = RefCell::new(Vec::new());
                let renew = || {
                    let at = begun.elapsed().as_secs();
                    asked.borrow_mut().push(at);
                    answer(at)
                };
                keep(begun, TTL, renew).await;
                (asked.into_inner(), begun.elapsed().as_secs())
            })
    }

    fn failed() -> Error {
        Error::new(ErrorKind::Database, "the server cannot be reached")
    }

    #[test]
    fn a_refusal_is_told_at_once() {
        let (asked, lost) = run(|at| async move { Ok(at < 60) });
        assert_eq!((asked, lost), (vec![20, 40, 60], 60));
    }

    #[test]
    fn a_failing_server_is_told_at_the_deadline_and_tried_until_then() {
        let (asked, lost) = run(|at| async move {
            if at == 20 {
                Ok(true)
            } else {
                Err(failed())
            }
        });
        // Renewed at 20, so it lives until 80.
        assert_eq!(
            (asked, lost),
            (vec![20, 40, 45, 50, 55, 60, 65, 70, 75], 80)
        );
    }

    #[test]
    fn one_failure_loses_nothing() {
        let (asked, lost) = run(|at| async move {
            match at {
                20 => Err(failed()),
                65 => Ok(false),
                _ => Ok(true),
            }
        });
        assert_eq!((asked, lost), (vec![20, 25, 45, 65], 65));
    }

    #[test]
    fn a_silent_server_is_told_at_the_deadline() {
        let (asked, lost) = run(|_| pending());
        assert_eq!((asked, lost), (vec![20], 60));
    }

    #[test]
    fn a_slow_answer_counts_from_when_it_was_asked_for() {
        let slow = Cell::new(true);
        let (asked, lost) = run(|_| {
            let slow = slow.replace(false);
            async move {
                if slow {
                    tokio::time::sleep(Duration::from_secs(30)).await;
                    Ok(true)
                } else {
                    pending().await
                }
            }
        });
        // Asked for at 20, answered at 50: it lives until 80, and the next renewal is overdue at once.
        assert_eq!((asked, lost), (vec![20, 50], 80));
    }
}
