//! What one process of a crew does: the program runs itself again with a role.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};

use crate::journal::Journal;
use crate::place::{Failure, Place};
use crate::postgres::PgPlace;
use crate::random::Random;
use crate::sqlite::SqlitePlace;
use crate::sweeper::{Faults, Files};
use crate::writer::Writer;
use crate::{marker, sweeper};

/// How many writers share a process, and its handle of the store.
const WRITERS: usize = 2;

/// The parts of a crew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Writer,
    Marker,
    Sweeper,
}

impl Role {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Writer => "writer",
            Self::Marker => "marker",
            Self::Sweeper => "sweeper",
        }
    }

    fn named(name: &str) -> Option<Self> {
        [Self::Writer, Self::Marker, Self::Sweeper]
            .into_iter()
            .find(|role| role.name() == name)
    }
}

/// The folders of a run.
#[derive(Clone, Debug)]
pub(crate) struct Folders {
    pub(crate) journals: PathBuf,
    pub(crate) payloads: PathBuf,
}

impl Folders {
    pub(crate) fn of(run: &Path) -> Self {
        Self {
            journals: run.join("journals"),
            payloads: run.join("payloads"),
        }
    }
}

/// One worker, which is told how it is called and what it chooses.
pub(crate) async fn work<P: Place>(
    place: P,
    role: Role,
    (slot, generation): (&str, u64),
    seed: u64,
    (folders, faults): (&Folders, Faults),
    stop: &AtomicBool,
) -> Result<(), Failure> {
    let who = format!("{slot}.{generation}");
    let mut random = Random::new(seed, &who);
    let journal = Journal::open(&folders.journals, slot, &who)?;
    match role {
        Role::Writer => {
            let mut writer = Writer::new(place, journal, &folders.payloads, random, &who);
            writer.run(stop).await;
        }
        Role::Marker => marker::run(place, &journal, &mut random, stop).await,
        Role::Sweeper => {
            let own = Random::new(seed, &format!("{who} payloads"));
            let files = Files::new(place.store(), &folders.payloads, journal, own, faults);
            sweeper::run(place, files, &mut random, stop).await;
        }
    }
    Ok(())
}

/// The arguments of a process, in order.
pub(crate) fn arguments(
    engine: &str,
    role: Role,
    (slot, generation): (&str, u64),
    seed: u64,
    run: &Path,
    place: &str,
) -> Vec<String> {
    let run = run.display().to_string();
    [
        "role",
        engine,
        role.name(),
        slot,
        &generation.to_string(),
        &seed.to_string(),
        &run,
        place,
    ]
    .map(str::to_owned)
    .into()
}

/// The process, which ends when it is killed or its parent is gone.
pub(crate) fn run(arguments: &[String]) -> ExitCode {
    let [engine, role, slot, generation, seed, run, place] = arguments else {
        return ExitCode::from(2);
    };
    let (Some(role), Ok(generation), Ok(seed)) =
        (Role::named(role), generation.parse(), seed.parse())
    else {
        return ExitCode::from(2);
    };
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    let folders = Folders::of(Path::new(run));
    let done = Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let done = done
        .map_err(Failure::from)
        .and_then(|runtime| match engine.as_str() {
            "sqlite" => sqlite(
                &runtime,
                role,
                (slot, generation),
                seed,
                &folders,
                Path::new(place),
            ),
            _ => postgres(&runtime, role, (slot, generation), seed, &folders, place),
        });
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("{slot}: {}", crate::checker::told(&failure));
            ExitCode::FAILURE
        }
    }
}

fn sqlite(
    runtime: &Runtime,
    role: Role,
    (slot, generation): (&str, u64),
    seed: u64,
    folders: &Folders,
    path: &Path,
) -> Result<(), Failure> {
    let first = runtime.block_on(patiently(|| SqlitePlace::open(path)));
    let mut places = Vec::new();
    if role == Role::Writer {
        for _ in 1..WRITERS {
            places.push(first.another(path)?);
        }
    }
    places.push(first);
    all(runtime, places, role, (slot, generation), seed, folders)
}

fn postgres(
    runtime: &Runtime,
    role: Role,
    (slot, generation): (&str, u64),
    seed: u64,
    folders: &Folders,
    url: &str,
) -> Result<(), Failure> {
    let first = runtime.block_on(patiently(|| PgPlace::open(url)));
    let mut places = Vec::new();
    if role == Role::Writer {
        places.extend((1..WRITERS).map(|_| first.another()));
    }
    places.push(first);
    all(runtime, places, role, (slot, generation), seed, folders)
}

/// The server may be down, or busy with its recovery.
pub(crate) async fn patiently<P, F: std::future::Future<Output = Result<P, Failure>>>(
    open: impl Fn() -> F,
) -> P {
    loop {
        match open().await {
            Ok(place) => return place,
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}

fn all<P: Place>(
    runtime: &Runtime,
    places: Vec<P>,
    role: Role,
    (slot, generation): (&str, u64),
    seed: u64,
    folders: &Folders,
) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut tasks = Vec::new();
    for (number, place) in places.into_iter().enumerate() {
        let (slot, folders, stop) = (
            format!("{slot}{}", ["", "b", "c"][number % 3]),
            folders.clone(),
            Arc::clone(&stop),
        );
        tasks.push(runtime.spawn(async move {
            work(
                place,
                role,
                (&slot, generation),
                seed,
                (&folders, Faults::Deadly),
                &stop,
            )
            .await
        }));
    }
    for task in tasks {
        runtime.block_on(task)??;
    }
    Ok(())
}
