//! `gc`: the window of candidates for deletion, the sweep that deletes them, and what protects a key.

use crate::exit::Result;
use crate::place::PlaceArgs;

// The verbs, by noun.
mod explain;
mod pins;
mod staging;
mod status;
mod sweep;

// What they work with.
#[cfg(unix)]
mod interrupt;
#[cfg(not(unix))]
#[path = "elsewhere.rs"]
mod interrupt;
mod progress;
mod references;
mod report;
mod verdict;

macro_rules! examples {
    () => {
        "\
Examples:
  alkstore gc stage blob/17 --after 24h           a candidate, not before tomorrow
  alkstore gc stage - --keep <keys.txt            many, one a line
  alkstore gc sweep --dry-run --liveness app.files:blob
                                                  what would be deleted now
  alkstore gc sweep --liveness app.files:blob     delete what is due and not in that table
  alkstore gc sweep --window-decides              delete what is due: nobody need be asked
  alkstore gc status                              how much waits, since when, who sweeps
  alkstore gc explain blob/17 --liveness app.files:blob
                                                  why it is, or is not, deleted"
    };
}

pub const EXAMPLES: &str = examples!();

pub const LONG: &str = concat!(
    examples!(),
    "

A key that is staged waits in the window until it is due. A sweep deletes what is due, unless a \
table of references names it or, on Postgres, a pin protects it. Publishing a key \
(`alkstore entries put KEY`) takes it out of the window."
);

#[derive(clap::Subcommand)]
pub enum GcVerb {
    /// Delete what is due in the window and not live, and report
    #[command(after_help = sweep::EXAMPLES, after_long_help = sweep::LONG)]
    Sweep(sweep::SweepArgs),
    /// Show how much waits in the window, what is due and since when, who sweeps, who pins
    Status(status::StatusArgs),
    /// Show why the next sweep would, or would not, delete a key
    Explain(explain::ExplainArgs),
    /// Put keys into the window, so that a later sweep deletes them
    ///
    /// An entry is not touched by it, and need not be there. A key that waits already moves to the new instant; with
    /// --keep it does not.
    #[command(after_help = staging::EXAMPLES)]
    Stage(staging::StageArgs),
    /// Take keys out of the window; code 1 where none of them was there
    Unstage(staging::UnstageArgs),
    /// Protect an entry on Postgres from sweeps for a while; code 75 where it is not there
    ///
    /// A pin that the owner has already is renewed.
    Pin(pins::PinArgs),
    /// End the protection of an entry by a pin; code 1 where there was none
    Unpin(pins::UnpinArgs),
}

pub fn run(place: &PlaceArgs, verb: GcVerb) -> Result {
    match verb {
        GcVerb::Sweep(args) => sweep::run(place, &args),
        GcVerb::Status(args) => status::run(place, &args),
        GcVerb::Explain(args) => explain::run(place, args),
        GcVerb::Stage(args) => staging::stage(place, &args),
        GcVerb::Unstage(args) => staging::unstage(place, &args),
        GcVerb::Pin(args) => pins::pin(place, args),
        GcVerb::Unpin(args) => pins::unpin(place, args),
    }
}
