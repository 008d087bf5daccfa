//! Sweepers, and the reclaimer that fails them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alkstore::{
    sweep, HookError, HookFuture, Key, LivenessSource, Reclaimed, Reclaimer, Store, SweepOptions,
    SweepReport, Timer,
};
use tokio::sync::Notify;

use crate::journal::Journal;
use crate::place::{text, Place, HOOK_TIMEOUT, LEASE};
use crate::random::Random;

/// Waits by the runtime's clock.
pub(crate) struct TokioTimer;

impl Timer for TokioTimer {
    fn sleep(&self, duration: Duration) -> HookFuture<'_, ()> {
        if duration.is_zero() {
            return Box::pin(tokio::task::yield_now());
        }
        Box::pin(tokio::time::sleep(duration))
    }
}

pub(crate) async fn run<P: Place>(
    mut place: P,
    mut files: Files<P::Store>,
    random: &mut Random,
    stop: &AtomicBool,
) {
    let journal = Arc::clone(&files.journal);
    let vanished = Arc::clone(&files.vanished);
    while !stop.load(Ordering::Relaxed) {
        if random.percent(20) {
            let deleted = place.sweep_otherwise().await;
            if deleted > 0 {
                journal.note("swept", "", "", &format!("deleted={deleted} by key"));
            }
        }
        // A stalled hook is cut off in some sweeps and not in others.
        files.is_timed = random.percent(70);
        let most = usize::try_from(1 + random.below(8)).unwrap_or(1);
        let store = place.store();
        let unsure = Unsure(Mutex::new(random.clone()));
        let sources: Vec<Box<dyn LivenessSource>> = place
            .source()
            .into_iter()
            .chain([Box::new(unsure) as _])
            .collect();
        let once = once(&*store, &sources, &files, (most, 1 + random.below(60)));
        // Where the reclaimer vanished, the sweep is dropped as it is.
        tokio::select! {
            () = vanished.notified() => journal.note("vanished", "", "", ""),
            swept = once => match swept {
                Ok(report) => tell(&journal, &report),
                Err(error) => journal.note("sweep-failed", "", "", &text(&error)),
            }
        }
        tokio::time::sleep(random.millis(1, 30)).await;
    }
}

/// One sweep.
pub(crate) async fn once<S: Store>(
    store: &S,
    sources: &[Box<dyn LivenessSource>],
    files: &Files<S>,
    (batch, limit): (usize, u64),
) -> alkstore::Result<SweepReport> {
    let mut options = SweepOptions::new()
        .reclaimer(files)
        .timer(&TokioTimer)
        .batch(batch)
        .limit(limit)
        .claim_lease(LEASE)
        .backoff(Duration::from_millis(50), Duration::from_millis(400));
    if files.is_timed {
        options = options.hook_timeout(HOOK_TIMEOUT);
    }
    for source in sources {
        options = options.source(&**source);
    }
    sweep(store, options).await
}

fn tell(journal: &Journal, report: &SweepReport) {
    if report.examined == 0 {
        return;
    }
    journal.note(
        "swept",
        "",
        "",
        &format!(
            "deleted={} absent={} pin={} live={} republished={} failed={} lost={} stop={:?}",
            report.deleted,
            report.already_absent,
            report.protected_by_pin,
            report.protected_by_liveness,
            report.protected_by_publication,
            report.failed,
            report.lost_lease,
            report.stop
        ),
    );
}

/// A further source, which knows of nothing. It takes its time between the claim and the mark, so that a writer may come
/// by, and fails.
struct Unsure(Mutex<Random>);

impl LivenessSource for Unsure {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        Box::pin(async {
            let (roll, pause) = {
                let mut random = self.0.lock().unwrap_or_else(PoisonError::into_inner);
                (random.below(100), random.millis(1, 40))
            };
            if roll < 20 {
                tokio::time::sleep(pause).await;
            }
            if roll == 99 {
                return Err("nobody knows".into());
            }
            Ok(keys.iter().map(|_| false).collect())
        })
    }
}

/// Deletes payloads, which are files of a folder, and does so as badly as a reclaimer may.
pub(crate) struct Files<S> {
    store: Arc<S>,
    folder: PathBuf,
    journal: Arc<Journal>,
    random: Mutex<Random>,
    faults: Faults,
    vanished: Arc<Notify>,
    is_timed: bool,
}

/// What goes wrong with the reclaimer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Faults {
    /// Nothing.
    None,
    /// What can without ending the process: in its place the sweep is dropped.
    InProcess,
    /// The process ends too.
    Deadly,
}

impl<S: Store> Files<S> {
    pub(crate) fn new(
        store: Arc<S>,
        folder: &Path,
        journal: Journal,
        random: Random,
        faults: Faults,
    ) -> Self {
        Self {
            store,
            folder: folder.to_owned(),
            journal: Arc::new(journal),
            random: Mutex::new(random),
            faults,
            vanished: Arc::default(),
            is_timed: true,
        }
    }

    fn roll(&self) -> u64 {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        match self.faults {
            Faults::None => u64::MAX,
            Faults::InProcess | Faults::Deadly => random.below(1000),
        }
    }

    async fn delete(&self, key: &Key<'_>) -> Result<Reclaimed, HookError> {
        let roll = self.roll();
        if roll < 40 {
            return Err("the payload's keeper is out".into());
        }
        let name = match self.store.get(key.as_bytes()).await? {
            Some(entry) => String::from_utf8_lossy(&entry.value).into_owned(),
            None => return Ok(Reclaimed::NotFound),
        };
        // This process may have stood still since the sweep marked the key. Then the entry that was read is perhaps a new
        // one, whose payload is nobody's to delete; but not if the key is marked after the read.
        let row = self.store.window_info(key.as_bytes()).await?;
        if !row.is_some_and(|row| row.reclaiming) {
            return Err("the key is not marked any more".into());
        }
        let text = String::from_utf8_lossy(key.as_bytes());
        match roll {
            // Longer than a sweep waits.
            40..=47 => tokio::time::sleep(HOOK_TIMEOUT * 3 / 2).await,
            // Later than the answer, or than the time limit.
            48..=55 => {
                let path = self.folder.join(&name);
                self.journal.note("reclaim-late", &text, &name, "");
                tokio::spawn(async move {
                    tokio::time::sleep(HOOK_TIMEOUT * 2).await;
                    let _ = fs::remove_file(path);
                });
                return Err("no answer about the payload".into());
            }
            // Longer than the claims, with this thread.
            56..=58 => {
                self.journal.note("stalled", &text, &name, "");
                std::thread::sleep(LEASE * 5 / 4);
            }
            // Long enough for a writer to come by.
            100..=300 => tokio::time::sleep(Duration::from_millis(roll / 20)).await,
            _ => {}
        }
        let done = if name.is_empty() {
            Reclaimed::Freed { bytes: 0 }
        } else {
            match fs::remove_file(self.folder.join(&name)) {
                Ok(()) => Reclaimed::Freed {
                    bytes: name.len() as u64,
                },
                Err(error) if error.kind() == io::ErrorKind::NotFound => Reclaimed::NotFound,
                Err(error) => return Err(error.into()),
            }
        };
        self.journal
            .note("reclaimed", &text, &name, &format!("{done:?}"));
        if (59..63).contains(&roll) {
            self.vanish().await;
        }
        Ok(done)
    }

    /// Between the payload and the end of the entry.
    async fn vanish(&self) {
        if self.faults == Faults::Deadly {
            let _ =
                nix::sys::signal::kill(nix::unistd::Pid::this(), nix::sys::signal::Signal::SIGKILL);
        }
        self.vanished.notify_one();
        std::future::pending::<()>().await;
    }
}

impl<S: Store> Reclaimer for Files<S> {
    fn reclaim<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        Box::pin(async move {
            let mut answers = Vec::new();
            for key in keys {
                answers.push(self.delete(key).await);
            }
            answers
        })
    }

    fn measure<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        Box::pin(std::future::ready(
            keys.iter().map(|_| Ok(Reclaimed::NotFound)).collect(),
        ))
    }
}
