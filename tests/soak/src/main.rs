//! The soak of safe deletion: writers, markers and sweepers on each engine, in real time, while processes are killed and
//! stopped and the server is restarted; and a checker that looks for a reference without its entry or its payload.
//!
//! See docs/soak.md.
#![allow(clippy::print_stdout, clippy::print_stderr)]

// What a run is.
mod checker;
mod crew;
mod model;
mod role;
mod world;

// Who works in it.
mod marker;
mod sweeper;
mod writer;

// On what.
mod mem;
mod place;
mod postgres;
mod sqlite;

// With what.
#[allow(dead_code)]
#[path = "../../src/postgres.rs"]
mod cluster;
mod journal;
mod random;

use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use world::{Finish, Run};

const USAGE: &str = "usage: soak [--engine mem|sqlite|postgres|all] [--seconds N] [--seed N]";
const ENGINES: [&str; 3] = ["mem", "sqlite", "postgres"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == "role") {
        return role::run(&arguments[1..]);
    }
    let Some(runs) = parse(&arguments) else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    for run in runs {
        println!(
            "\n{}: {} s, seed {}",
            run.engine,
            run.length.as_secs(),
            run.seed
        );
        match runtime.block_on(run.all()) {
            Ok(Finish::Passed) => {}
            Ok(Finish::Skipped) => println!("{}: skipped", run.engine),
            Ok(Finish::Violated) => {
                println!(
                    "\nto repeat its choices: make soak ENGINE={} SEED={}",
                    run.engine, run.seed
                );
                return ExitCode::FAILURE;
            }
            Err(failure) => {
                world::tell(&failure);
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

/// The runs that were asked for, which share the time.
fn parse(arguments: &[String]) -> Option<Vec<Run>> {
    let (mut engines, mut seconds) = (ENGINES.to_vec(), 60);
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut seed = u64::from(since.subsec_nanos()) ^ (since.as_secs() << 20);
    for pair in arguments.chunks(2) {
        match pair {
            [option, value] if option == "--engine" => {
                if value != "all" {
                    engines.retain(|engine| engine == value);
                }
            }
            [option, value] if option == "--seconds" => seconds = value.parse().ok()?,
            [option, value] if option == "--seed" => seed = value.parse().ok()?,
            _ => return None,
        }
    }
    if engines.is_empty() || seconds == 0 {
        return None;
    }
    let length = Duration::from_secs(seconds) / u32::try_from(engines.len()).ok()?;
    let run = |engine| Run {
        engine,
        length,
        seed,
    };
    Some(engines.into_iter().map(run).collect())
}
