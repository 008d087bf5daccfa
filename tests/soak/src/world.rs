//! One engine's run: a crew, a checker, an end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use alkstore::{EngineWindowState, Entries};

use crate::checker::{told, Checker, Ending, Verdict, Violation};
use crate::cluster;
use crate::crew::{Harm, Processes, Threads};
use crate::journal::Journal;
use crate::mem::MemPlace;
use crate::place::{Failure, Place};
use crate::postgres::PgPlace;
use crate::random::Random;
use crate::role::{patiently, Folders};
use crate::sqlite::SqlitePlace;
use crate::sweeper::{Faults, Files};

/// How often it is checked.
const EVERY: Duration = Duration::from_millis(100);
/// For how long everything may be out of reach before that is the news.
const PATIENCE: Duration = Duration::from_secs(30);

/// A run of one engine.
pub(crate) struct Run {
    pub(crate) engine: &'static str,
    pub(crate) length: Duration,
    pub(crate) seed: u64,
}

/// What a run came to.
#[derive(Debug)]
pub(crate) enum Finish {
    Passed,
    Violated,
    /// There is no server.
    Skipped,
}

/// Those who work, whichever they are.
enum Crew {
    Threads(Threads),
    Processes(Box<Processes>),
}

impl Run {
    pub(crate) async fn all(&self) -> Result<Finish, Failure> {
        let folder = tempfile::Builder::new()
            .prefix("alkstore-soak-")
            .tempdir()?;
        let folders = Folders::of(folder.path());
        fs::create_dir(&folders.journals)?;
        fs::create_dir(&folders.payloads)?;
        let path = folder.path();
        let finish = match self.engine {
            "mem" => {
                let place = MemPlace::new();
                let crew = Threads::start(&place, path, self.seed);
                self.watch(path, place, Crew::Threads(crew)).await
            }
            "sqlite" => {
                let file = path.join("soak.db");
                let place = SqlitePlace::open(&file).await?;
                let crew =
                    Processes::start("sqlite", &file.display().to_string(), path, self.seed, None)?;
                self.watch(path, place, Crew::Processes(crew.into())).await
            }
            _ => {
                let Some(server) = cluster::cluster(&["fsync=off"]) else {
                    return Ok(Finish::Skipped);
                };
                let url = server.url();
                let place = patiently(|| PgPlace::open(&url)).await;
                let crew = Processes::start("postgres", &url, path, self.seed, Some(server))?;
                self.watch(path, place, Crew::Processes(crew.into())).await
            }
        };
        if !matches!(finish, Ok(Finish::Passed)) {
            let kept: PathBuf = folder.keep();
            eprintln!("the journals are kept in {}", kept.display());
        }
        finish
    }

    async fn watch<P: Place>(
        &self,
        run: &Path,
        mut witness: P,
        mut crew: Crew,
    ) -> Result<Finish, Failure> {
        let folders = Folders::of(run);
        let mut checker = Checker::new(&folders.journals, &folders.payloads);
        let begun = Instant::now();
        let (mut told_at, mut looked_at) = (begun, begun);
        let mut found: Verdict = Ok(());
        while begun.elapsed() < self.length && found.is_ok() {
            let next = Instant::now() + EVERY;
            if let Crew::Processes(crew) = &mut crew {
                crew.harm().await?;
            }
            match checker.check(&mut witness).await {
                Ok(verdict) => {
                    found = verdict;
                    looked_at = Instant::now();
                }
                Err(failure) if looked_at.elapsed() > PATIENCE => return Err(failure),
                Err(_) => {}
            }
            if told_at.elapsed() >= Duration::from_secs(1) {
                told_at = Instant::now();
                self.progress(begun.elapsed(), &checker, harm(&crew));
            }
            tokio::time::sleep(next.saturating_duration_since(Instant::now())).await;
        }
        let ran = begun.elapsed();
        // The server stays up until the end.
        let (harm, _server) = match crew {
            Crew::Threads(crew) => {
                crew.end();
                (Harm::default(), None)
            }
            Crew::Processes(crew) => crew.end(),
        };
        if let Err(violation) = found {
            self.convict(&checker, &violation, ran, witness).await;
            return Ok(Finish::Violated);
        }
        let journal = Journal::open(&folders.journals, "end", "end.1")?;
        let own = Journal::open(&folders.journals, "end", "end.1")?;
        let random = Random::new(self.seed, "end");
        let files = Files::new(
            witness.store(),
            &folders.payloads,
            own,
            random,
            Faults::None,
        );
        match checker.end(witness, &journal, &files).await? {
            Ok(ending) => {
                self.summary(ran, &checker, harm, ending);
                Ok(Finish::Passed)
            }
            Err(violation) => {
                self.accuse(&checker, &violation, ran);
                Ok(Finish::Violated)
            }
        }
    }

    fn progress(&self, ran: Duration, checker: &Checker, harm: Harm) {
        let model = &checker.model;
        let operations = model.operations();
        println!(
            "{:8} {:4} s  {operations} ops ({:.0}/s)  reclaimed {}  references {}  kills {}  stops {}  checks {}  violations 0",
            self.engine,
            ran.as_secs(),
            rate(operations, ran),
            model.total("reclaimed"),
            checker.references,
            harm.killed + harm.terminated + harm.backends + harm.restarts,
            harm.stopped,
            checker.checks,
        );
    }

    fn summary(&self, ran: Duration, checker: &Checker, harm: Harm, ending: Ending) {
        let model = &checker.model;
        let total = |what: &str| model.total(what);
        let operations = model.operations();
        println!("\n{}: passed, seed {}", self.engine, self.seed);
        println!(
            "  ran               {:.1} s, {operations} operations, {:.0} a second",
            ran.as_secs_f64(),
            rate(operations, ran)
        );
        println!(
            "  references        {} acknowledged, {} refused, {} unknown; {} dropped",
            total("referred"),
            total("refused"),
            total("refer-unknown"),
            total("dropped")
        );
        println!(
            "  publications      {} stored, {} there already, {} refused (by a mark: {}), {} unknown",
            total("stored"),
            total("there"),
            total("unpublished"),
            total("met a mark"),
            total("publish-unknown")
        );
        println!(
            "  sweeps            {} that did something: {} deleted, {} absent, spared for a pin {}, a reference {}, a publication {}; \
             failed {}, claims lapsed {}",
            total("swept"),
            total("deleted"),
            total("absent"),
            total("pin"),
            total("live"),
            total("republished"),
            total("failed"),
            total("lost")
        );
        println!(
            "  payloads          {} deletions that were answered, of the sweeps that were killed too",
            total("reclaimed")
        );
        println!(
            "  sweeps ended by   a lost lease {}, a failing source {}, a failing engine {}; reclaimers that vanished {}, stalled {}, came late {}",
            total("stop Aborted(LostLease)"),
            total("stop Aborted(LivenessFailed)"),
            total("stop Aborted(EngineFailed)"),
            total("vanished"),
            total("stalled"),
            total("reclaim-late")
        );
        println!(
            "  lapsed pins met   {}; deadlocks {}",
            total("met a lapsed pin"),
            total("met a deadlock")
        );
        println!(
            "  harm              {} processes killed, {} stopped for a while, {} sessions ended, {} backends killed, {} restarts",
            harm.killed, harm.stopped, harm.terminated, harm.backends, harm.restarts
        );
        println!(
            "  checks            {}, and {} that could not be made; 0 violations",
            checker.checks, checker.missed
        );
        println!(
            "  at the end        {} references to {} entries, nothing else, after {:.1} s; {} payloads were never published",
            ending.references,
            ending.entries,
            ending.took.as_secs_f64(),
            ending.orphans
        );
    }

    /// With what the store says of the key now.
    async fn convict<P: Place>(
        &self,
        checker: &Checker,
        violation: &Violation,
        ran: Duration,
        witness: P,
    ) {
        self.accuse(checker, violation, ran);
        let Some(key) = violation.about.iter().find(|word| word.contains('/')) else {
            return;
        };
        let store = witness.store();
        let shown = |answer: Result<String, alkstore::Error>| {
            answer.unwrap_or_else(|error| error.to_string())
        };
        let entry = store.get(key.as_bytes()).await;
        println!(
            "  entry now: {}",
            shown(entry.map(|entry| format!("{entry:?}")))
        );
        let row = store.window_info(key.as_bytes()).await;
        println!("  window now: {}", shown(row.map(|row| format!("{row:?}"))));
    }

    fn accuse(&self, checker: &Checker, violation: &Violation, ran: Duration) {
        println!(
            "\n{}: VIOLATION after {:.1} s, seed {}",
            self.engine,
            ran.as_secs_f64(),
            self.seed
        );
        println!("  {}", violation.what);
        println!("  what workers wrote down of it (microseconds, who, what, key, id, detail):");
        for line in checker.history(violation) {
            println!("    {line}");
        }
    }
}

fn harm(crew: &Crew) -> Harm {
    match crew {
        Crew::Threads(_) => Harm::default(),
        Crew::Processes(crew) => crew.harm,
    }
}

#[allow(clippy::cast_precision_loss)]
fn rate(operations: u64, ran: Duration) -> f64 {
    operations as f64 / ran.as_secs_f64()
}

/// A failure of the run itself.
pub(crate) fn tell(failure: &Failure) {
    eprintln!("the soak could not go on: {}", told(failure));
}
