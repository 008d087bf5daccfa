//! The command line as a whole, and what is said when it makes no sense.

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;

use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::place::PlaceArgs;
use crate::{entries, exit, gc, lock, locks, manual, place, upkeep};

/// Run a command under a named lock, and look after the locks and entries of a store
///
/// A lock excludes every other holder of its name until its deadline, on one machine with a SQLite file, across a
/// fleet with Postgres. `alkstore lock` takes one, renews it while a command runs, and ends the command if it is lost.
#[derive(Parser)]
#[command(name = "alkstore", version, after_help = EXAMPLES, after_long_help = LONG, max_term_width = 100)]
pub struct Cli {
    #[command(flatten)]
    pub place: PlaceArgs,

    #[command(subcommand)]
    pub verb: Verb,
}

macro_rules! examples {
    () => {
        "\
Examples:
  alkstore lock nightly -- ./backup.sh            wait for the lock, then run
  alkstore lock nightly --try -- ./backup.sh      or give up at once, with code 75
  alkstore locks                                  who holds what, since when
  date | alkstore entries put last-run --replace  keep a value
  alkstore gc explain blob/17                     why an entry is, or is not, deleted
  export ALKSTORE_URL=postgres://app@db/app       from now on for the whole fleet"
    };
}

const EXAMPLES: &str = examples!();

const LONG: &str = concat!(
    examples!(),
    "

Exit codes:
  0    done
  1    the answer is no: no such lock, no such entry, not stored
  64   the arguments make no sense
  69   the store cannot be opened or used
  71   the system failed; 74: reading the input or writing the output failed
  75   somebody else holds the lock, sweeps, or came between
  76   the lock was lost
  Those of `alkstore lock` are in `alkstore lock --help`.

Environment:
  ALKSTORE_URL    the store; see --store
  NO_COLOR        set to anything, there are no colours; there are none off a terminal either"
);

#[derive(Subcommand)]
pub enum Verb {
    /// Run a command while holding a lock
    #[command(after_help = lock::EXAMPLES, after_long_help = lock::LONG)]
    Lock(lock::LockArgs),

    /// List the locks that are held
    Locks(locks::ListArgs),

    /// Show one lock: who holds it, since when, until when, with which token
    Inspect(locks::InspectArgs),

    /// Free a lock, whoever holds it
    ///
    /// Its holder notices at his next renewal. A holder that is `alkstore lock` then ends its command.
    Release(locks::ReleaseArgs),

    /// Read and write entries
    #[command(subcommand, after_help = entries::EXAMPLES)]
    Entries(entries::EntriesVerb),

    /// Delete what nothing refers to any more, and see why something is kept
    #[command(subcommand, after_help = gc::EXAMPLES, after_long_help = gc::LONG)]
    Gc(gc::GcVerb),

    /// Make the store where it is missing
    ///
    /// Every verb that writes makes what is missing; on Postgres it is for the role that may create tables, so that
    /// the others need not.
    Init,

    /// Check the store: reachable, writable, how fast, how wrong its clock, how much has lapsed
    Doctor,

    /// Delete the rows of lapsed locks and entries, which only take room
    Purge(upkeep::PurgeArgs),

    /// Print a completion script for a shell
    ///
    /// For bash: `alkstore completions bash > ~/.local/share/bash-completion/completions/alkstore`.
    Completions(manual::CompletionsArgs),

    /// Print the man page, or write one for each verb into a folder
    Man(manual::ManArgs),

    /// What ends a command whose keeper was killed or stopped; started by `alkstore lock`
    #[command(name = "__guard", hide = true)]
    Guard,

    /// What becomes the command; started by `alkstore lock`
    #[command(name = "__exec", hide = true)]
    Exec(lock::ExecArgs),
}

pub fn command() -> clap::Command {
    Cli::command()
}

pub fn parse() -> Result<Cli, ExitCode> {
    let matches = command().try_get_matches();
    matches
        .and_then(|matches| Cli::from_arg_matches(&matches))
        .map_err(|error| refuse(&error))
}

/// Help and version are for the output; everything else is a usage error, which may not show an address.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        return match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => exit::Failure::output(&error).report(),
        };
    }
    let mut stderr = std::io::stderr();
    let secrets = addresses();
    if secrets.is_empty() {
        let _ = error.print();
    } else {
        let _ = stderr.write_all(redact(error.render().to_string(), &secrets).as_bytes());
    }
    let about_command = error.kind() == ErrorKind::UnknownArgument
        || matches!(error.get(ContextKind::InvalidArg), Some(arg) if arg.to_string().contains("COMMAND"));
    if about_command
        && std::env::args_os()
            .nth(1)
            .is_some_and(|verb| verb == "lock")
    {
        let _ = writeln!(
            stderr,
            "\nThe command comes after `--`: alkstore lock NAME -- COMMAND..."
        );
    }
    ExitCode::from(exit::USAGE)
}

/// What among the arguments and in the environment may hold a password.
fn addresses() -> Vec<String> {
    let arguments = std::env::args_os().skip(1);
    let mut found: Vec<String> = arguments
        .chain(std::env::var_os(place::URL))
        .map(|text: OsString| text.to_string_lossy().into_owned())
        .filter(|text| text.contains("://") || text.contains("password"))
        .collect();
    // `--store=URL` is shown without its option.
    let values: Vec<_> = found
        .iter()
        .filter_map(|text| text.split_once('=').map(|(_, value)| value.to_owned()))
        .collect();
    found.extend(values);
    found.sort_by_key(|text| std::cmp::Reverse(text.len()));
    found
}

fn redact(mut text: String, secrets: &[String]) -> String {
    for secret in secrets.iter().filter(|secret| !secret.is_empty()) {
        text = text.replace(secret.as_str(), "(an address, not shown)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_description_is_sound() {
        command().debug_assert();
    }
}
