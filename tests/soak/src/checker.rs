//! The checker: no committed reference without its entry and its payload, and nothing otherwise than writers were told.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alkstore::{EngineWindowState, Entries, SweepStop};
use tokio::sync::Mutex;

use crate::journal::{Journal, Journals};
use crate::marker;
use crate::model::Model;
use crate::place::{text, Failure, Outcome, Place, Seen, GRACE};
use crate::sweeper::{self, Files};

/// How long the last sweeps may take until everything that must go is gone: pins, claims and backoffs are over within
/// some seconds.
const PROGRESS: Duration = Duration::from_secs(30);

/// What must not be, and the words by which its history is found.
#[derive(Clone, Debug)]
pub(crate) struct Violation {
    pub(crate) what: String,
    pub(crate) about: Vec<String>,
}

/// What a check came to.
pub(crate) type Verdict = Result<(), Violation>;

#[derive(Debug)]
pub(crate) struct Checker {
    journals: Journals,
    pub(crate) model: Model,
    payloads: PathBuf,
    pub(crate) checks: u64,
    /// Checks that could not be made, as while the server is down.
    pub(crate) missed: u64,
    pub(crate) references: usize,
}

/// How the end came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) took: Duration,
    pub(crate) entries: usize,
    pub(crate) references: usize,
    /// Payloads that were uploaded and never published.
    pub(crate) orphans: usize,
}

impl Checker {
    pub(crate) fn new(journals: &Path, payloads: &Path) -> Self {
        Self {
            journals: Journals::new(journals),
            model: Model::default(),
            payloads: payloads.to_owned(),
            checks: 0,
            missed: 0,
            references: 0,
        }
    }

    /// One check in the midst of everything. `Err` is where the world could not be looked at.
    pub(crate) async fn check<P: Place>(&mut self, witness: &mut P) -> Result<Verdict, Failure> {
        self.model.learn(&self.journals.more()?);
        let certain = self.model.certain();
        let seen = match witness.snapshot().await {
            Ok(seen) => seen,
            Err(failure) => {
                self.missed += 1;
                return Err(failure);
            }
        };
        self.checks += 1;
        self.references = seen.len();
        if let Err(violation) = self.dangling(&seen) {
            return Ok(Err(violation));
        }
        let names: HashSet<&str> = seen.iter().map(|seen| seen.reference.as_str()).collect();
        for seen in &seen {
            if let Some(why) = self.model.forbids(&seen.reference) {
                let what = format!(
                    "the reference {} of {} is there, but {why}",
                    seen.reference, seen.key
                );
                return Ok(Err(violation(what, &[&seen.reference, &seen.key])));
            }
        }
        // Who has begun to drop one meanwhile has said so before.
        self.model.learn(&self.journals.more()?);
        for (reference, key) in certain {
            if !names.contains(reference.as_str()) && self.model.is_certain(&reference) {
                let what = format!("the acknowledged reference {reference} of {key} is gone");
                return Ok(Err(violation(what, &[&reference, &key])));
            }
        }
        self.model.forget_the_dropped(&names);
        self.payloads(&seen, witness).await
    }

    /// G5, of entries: both sides of one snapshot.
    #[allow(clippy::unused_self)]
    fn dangling(&self, seen: &[Seen]) -> Verdict {
        match seen.iter().find(|seen| seen.payload.is_none()) {
            Some(seen) => {
                let what = format!(
                    "the reference {} points at {}, which has no entry",
                    seen.reference, seen.key
                );
                Err(violation(what, &[&seen.reference, &seen.key]))
            }
            None => Ok(()),
        }
    }

    /// G5, of payloads. They are looked at after the snapshot, so a reference may be gone by then: only one that is still
    /// there afterwards, and so was all the time, counts. Names of references are used once.
    async fn payloads<P: Place>(&self, seen: &[Seen], witness: &mut P) -> Result<Verdict, Failure> {
        let gone: Vec<&Seen> = seen.iter().filter(|seen| self.is_gone(seen)).collect();
        if gone.is_empty() {
            return Ok(Ok(()));
        }
        let again = witness.snapshot().await?;
        for seen in gone {
            if again.iter().any(|again| again.reference == seen.reference) {
                let payload = seen.payload.as_deref().unwrap_or_default();
                let what = format!(
                    "the reference {} points at {}, whose payload {payload} is gone",
                    seen.reference, seen.key
                );
                return Ok(Err(violation(what, &[&seen.reference, &seen.key, payload])));
            }
        }
        Ok(Ok(()))
    }

    fn is_gone(&self, seen: &Seen) -> bool {
        let payload = seen.payload.as_deref().unwrap_or_default();
        !payload.is_empty() && !self.payloads.join(payload).exists()
    }

    /// The end: everybody is quiet. Half of the references are dropped, and then whatever nothing refers to must go, and
    /// nothing else.
    pub(crate) async fn end<P: Place>(
        &mut self,
        mut witness: P,
        journal: &Journal,
        files: &Files<P::Store>,
    ) -> Result<Result<Ending, Violation>, Failure> {
        let begun = Instant::now();
        if let Err(violation) = self.check(&mut witness).await? {
            return Ok(Err(violation));
        }
        for seen in witness.snapshot().await?.iter().step_by(2) {
            journal.note("drop?", &seen.key, &seen.reference, "");
            if witness.drop_reference(&seen.reference).await == Outcome::Done {
                journal.note("dropped", &seen.key, &seen.reference, "");
            }
        }
        let witness = Mutex::new(witness);
        let mut last;
        loop {
            last = Self::mark_and_sweep(&witness, files).await?;
            if last.is_none() {
                break;
            }
            if begun.elapsed() > PROGRESS {
                let left = last.unwrap_or_default();
                let what =
                    format!("everything is quiet, and after {PROGRESS:?} there is still {left}");
                let key = left.split(' ').nth(1).unwrap_or_default().to_owned();
                return Ok(Err(violation(what, &[&key])));
            }
        }
        let took = begun.elapsed();
        let mut witness = witness.into_inner();
        if let Err(violation) = self.check(&mut witness).await? {
            return Ok(Err(violation));
        }
        let store = witness.store();
        let entries = store.list(b"", None, usize::MAX >> 1).await?;
        let mut named = HashSet::new();
        for meta in &entries {
            if let Some(entry) = store.get(meta.key.as_bytes()).await? {
                named.insert(String::from_utf8_lossy(&entry.value).into_owned());
            }
        }
        let mut orphans = 0;
        for file in fs::read_dir(&self.payloads)? {
            let name = file?.file_name().to_string_lossy().into_owned();
            if named.contains(&name) {
                continue;
            }
            if self.model.was_stored(&name) {
                let what =
                    format!("the payload {name} was published, its entry is gone, and it is left");
                return Ok(Err(violation(what, &[&name])));
            }
            orphans += 1;
        }
        Ok(Ok(Ending {
            took,
            entries: entries.len(),
            references: self.references,
            orphans,
        }))
    }

    /// Answers what is left that must go.
    async fn mark_and_sweep<P: Place>(
        witness: &Mutex<P>,
        files: &Files<P::Store>,
    ) -> Result<Option<String>, Failure> {
        marker::mark(witness, Duration::ZERO).await?;
        tokio::time::sleep(GRACE + Duration::from_millis(50)).await;
        let (store, sources) = {
            let place = witness.lock().await;
            (place.store(), Vec::from_iter(place.source()))
        };
        let report = sweeper::once(&*store, &sources, files, (64, u64::MAX)).await?;
        if report.stop != SweepStop::Drained {
            return Ok(Some(format!("a sweep that ends with {:?}", report.stop)));
        }
        let live: HashSet<Vec<u8>> = witness.lock().await.live().await?.into_iter().collect();
        for meta in store.list(b"", None, usize::MAX >> 1).await? {
            if !live.contains(meta.key.as_bytes()) {
                let key = String::from_utf8_lossy(meta.key.as_bytes()).into_owned();
                let row = store.window_info(meta.key.as_bytes()).await?;
                return Ok(Some(format!(
                    "entry {key} without a reference; in the window: {row:?}"
                )));
            }
        }
        let rows = store.window_list(None, 1).await?;
        Ok(rows.first().map(|row| {
            let key = String::from_utf8_lossy(row.key.as_bytes()).into_owned();
            format!("row {key} in the window: {row:?}")
        }))
    }

    /// The journal lines about a violation.
    pub(crate) fn history(&self, violation: &Violation) -> Vec<String> {
        let words: Vec<&str> = violation.about.iter().map(String::as_str).collect();
        self.journals.history(&words, 60).unwrap_or_default()
    }
}

fn violation(what: String, about: &[&str]) -> Violation {
    let about = about.iter().map(|word| (*word).to_owned()).collect();
    Violation { what, about }
}

/// A failure as one line.
pub(crate) fn told(failure: &Failure) -> String {
    failure
        .downcast_ref::<alkstore::Error>()
        .map_or_else(|| failure.to_string(), text)
}
