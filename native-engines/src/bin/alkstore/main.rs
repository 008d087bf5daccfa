//! `alkstore`: locks, entries and their upkeep from the command line. What it does is told by `--help` and docs/cli.md.

// A program has no public interface: here `pub` is for the module's neighbours.
#![allow(unreachable_pub)]
// The comments on arguments are the help, where markup would show.
#![allow(clippy::doc_markdown)]
// What `lock` alone uses is idle where it cannot run.
#![cfg_attr(not(unix), allow(dead_code, unused_imports))]

// What is common to all verbs.
mod args;
mod exit;
mod input;
mod output;
mod place;
mod values;

// The verbs, by noun.
mod entries;
mod gc;
mod lock;
mod locks;
mod manual;
mod upkeep;

use std::process::ExitCode;

use args::Verb;

fn main() -> ExitCode {
    let cli = match args::parse() {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let place = &cli.place;
    let done = match cli.verb {
        Verb::Lock(args) => lock::run(place, &args),
        Verb::Locks(args) => locks::list(place, &args),
        Verb::Inspect(args) => locks::inspect(place, &args),
        Verb::Release(args) => locks::release(place, &args),
        Verb::Entries(verb) => entries::run(place, verb),
        Verb::Gc(verb) => gc::run(place, verb),
        Verb::Init => upkeep::init(place),
        Verb::Doctor => upkeep::doctor(place),
        Verb::Purge(args) => upkeep::purge(place, &args),
        Verb::Completions(args) => manual::completions(&args),
        Verb::Man(args) => manual::pages(&args),
        Verb::Guard => lock::guard(),
        Verb::Exec(args) => lock::exec(&args),
    };
    match done {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
