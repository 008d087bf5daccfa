//! `gc stage` and `gc unstage`: keys go into the window and out of it.

use std::ffi::OsString;
use std::io::{self, BufRead};
use std::process::ExitCode;
use std::time::Duration;

use alkstore::{Candidate, Key, Restage};
use serde_json::json;

use super::progress::Progress;
use crate::exit::{Failure, Result, NO, USAGE};
use crate::input;
use crate::locks::PATIENCE;
use crate::output;
use crate::place::{Missing, PlaceArgs};
use crate::values;

/// How many keys go at once.
const BATCH: usize = 1_000;

/// The longest line that may be a key: hexadecimal, with its end.
const LINE: u64 = 2 * alkstore::MAX_KEY_BYTES as u64 + 2;

pub const EXAMPLES: &str = "\
Examples:
  alkstore gc stage blob/17 blob/18               candidates from tomorrow on
  alkstore gc stage blob/17 --after 0s            due now
  alkstore gc stage - --keep <keys.txt            one key a line; what waits already is not put off
  psql -Atc \"select encode(key, 'hex') from dropped\" | alkstore gc stage - --hex";

#[derive(clap::Args)]
pub struct KeysArgs {
    /// The keys, each of 1 to 1024 bytes; - reads them from the input, one a line
    #[arg(required = true, value_name = "KEY")]
    keys: Vec<OsString>,

    /// The keys are given in hexadecimal digits
    #[arg(long)]
    hex: bool,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    /// One JSON object that says how many
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct StageArgs {
    #[command(flatten)]
    keys: KeysArgs,

    /// How long they wait before a sweep may delete them: longer than a writer takes from publishing a key to
    /// committing its reference
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = values::grace)]
    after: Duration,

    /// Leave keys that wait already as they are: repeated passes must not put a key's end off for ever
    #[arg(long)]
    keep: bool,
}

#[derive(clap::Args)]
pub struct UnstageArgs {
    #[command(flatten)]
    keys: KeysArgs,
}

pub fn stage(place: &PlaceArgs, args: &StageArgs) -> Result {
    let keys = args.keys.open()?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let restage = if args.keep {
        Restage::Keep
    } else {
        Restage::Move
    };
    let mut line = Progress::new("staging", args.keys.quiet);
    line.begin(None);
    let staged = keys.in_batches(
        |batch| {
            let count = batch.len();
            // From the staging itself: an input may take longer to come than its keys are to wait.
            if args.after.is_zero() {
                let visible_after = open.wait(open.store.now())?;
                let candidate = |key| Candidate { key, visible_after };
                let batch: Vec<_> = batch.into_iter().map(candidate).collect();
                open.wait(open.store.window_stage(&batch, restage))?;
            } else {
                open.wait(open.store.window_stage_after(&batch, args.after, restage))?;
            }
            Ok(count)
        },
        &mut line,
    );
    drop(line);
    open.close();
    let staged = staged.map_err(|(failure, before)| told_before(failure, before, "staged"))?;
    tell(&args.keys, "staged", staged)
}

pub fn unstage(place: &PlaceArgs, args: &UnstageArgs) -> Result {
    let keys = args.keys.open()?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let mut line = Progress::new("unstaging", args.keys.quiet);
    line.begin(None);
    let unstaged = keys.in_batches(
        |batch| Ok(open.wait(open.store.window_unstage(&batch))?),
        &mut line,
    );
    drop(line);
    open.close();
    let unstaged =
        unstaged.map_err(|(failure, before)| told_before(failure, before, "unstaged"))?;
    tell(&args.keys, "unstaged", unstaged)?;
    if unstaged == 0 {
        return Err(Failure::new(
            NO,
            "none of them was in the window, or what they stand for is being deleted",
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn tell(args: &KeysArgs, what: &str, count: usize) -> Result {
    if args.json {
        output::json(&json!({ what: count }))?;
    } else {
        output::line(&format!("{count} {what}"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was done before stays done.
fn told_before(failure: Failure, before: usize, what: &str) -> Failure {
    if before == 0 {
        return failure;
    }
    failure.advise(format!(
        "{before} were {what} before that; repeating it is safe."
    ))
}

/// Where the keys come from.
enum Keys {
    Arguments(Vec<Key<'static>>),
    Input { hex: bool },
}

impl KeysArgs {
    /// Keys among the arguments are checked before anything is opened.
    fn open(&self) -> Result<Keys> {
        if self.keys.iter().any(|key| key == "-") {
            if self.keys.len() > 1 {
                return Err(Failure::new(
                    USAGE,
                    "keys come from the arguments or, with - alone, from the input",
                )
                .advise("The key - itself is 2d with --hex."));
            }
            if input::is_closed(&io::stdin()) {
                return Err(
                    Failure::new(USAGE, "the input is closed, so there are no keys")
                        .advise("Pipe them in, one a line, or give them as arguments."),
                );
            }
            return Ok(Keys::Input { hex: self.hex });
        }
        let keys = self.keys.iter().map(|key| {
            let bytes =
                values::key(key.clone(), self.hex).map_err(|text| Failure::new(USAGE, text))?;
            Ok(Key::new(bytes)?)
        });
        Ok(Keys::Arguments(keys.collect::<Result<_>>()?))
    }
}

impl Keys {
    /// Hands the keys over in batches; answers the sum of what `work` says, also where it fails.
    fn in_batches(
        self,
        mut work: impl FnMut(Vec<Key<'static>>) -> Result<usize>,
        line: &mut Progress,
    ) -> std::result::Result<usize, (Failure, usize)> {
        let mut source: Box<dyn Iterator<Item = Result<Key<'static>>>> = match self {
            Self::Arguments(keys) => Box::new(keys.into_iter().map(Ok)),
            Self::Input { hex } => Box::new(lines(io::stdin().lock(), hex)),
        };
        let (mut done, mut read) = (0, 0_u64);
        loop {
            let batch: Result<Vec<_>> = source.by_ref().take(BATCH).collect();
            let batch = batch.map_err(|failure| (failure, done))?;
            if batch.is_empty() {
                return Ok(done);
            }
            read += batch.len() as u64;
            done += work(batch).map_err(|failure| (failure, done))?;
            line.at(read);
        }
    }
}

/// The keys of an input, one a line.
fn lines(mut input: impl BufRead, hex: bool) -> impl Iterator<Item = Result<Key<'static>>> {
    let mut number = 0_u64;
    std::iter::from_fn(move || {
        let mut bytes = Vec::new();
        let read = io::Read::take(&mut input, LINE).read_until(b'\n', &mut bytes);
        number += 1;
        match read {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(Failure::input("reading the input failed", &error))),
        }
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
        }
        let wrong = |text: &str| Failure::new(USAGE, format!("line {number} is no key: {text}"));
        let key = if hex {
            values::unhex(&bytes).ok_or_else(|| wrong("it is no even number of hexadecimal digits"))
        } else {
            Ok(bytes)
        };
        let key = key.and_then(|key| Key::new(key).map_err(|error| wrong(&error.to_string())));
        Some(key)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8], hex: bool) -> Vec<std::result::Result<Vec<u8>, String>> {
        lines(text, hex)
            .map(|key| match key {
                Ok(key) => Ok(key.as_bytes().to_vec()),
                Err(failure) => Err(failure.text().to_owned()),
            })
            .collect()
    }

    #[test]
    fn a_line_is_a_key() {
        let keys = |keys: &[&[u8]]| keys.iter().map(|key| Ok(key.to_vec())).collect::<Vec<_>>();
        assert_eq!(read(b"", false), []);
        assert_eq!(read(b"a\nb c\n", false), keys(&[b"a", b"b c"]));
        assert_eq!(read(b"a\n\xff\r\n-", false), keys(&[b"a", b"\xff\r", b"-"]));
        assert_eq!(read(b"00fF\n2d", true), keys(&[b"\x00\xff", b"-"]));
        let long = [b'x'; 1025];
        for (text, hex, line) in [
            (&b"a\n\nb"[..], false, 1),
            (&b"a\nzz\n"[..], true, 0),
            (&long[..], false, 0),
        ] {
            let keys = read(text, hex);
            let told = keys[line].as_ref().unwrap_err();
            assert!(
                told.starts_with(&format!("line {} is no key", line + 1)),
                "{told}"
            );
        }
    }
}
