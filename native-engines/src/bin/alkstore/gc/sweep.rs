//! `gc sweep`: the sweep, its progress and its report.

use std::num::{NonZeroU32, NonZeroUsize};
use std::process::ExitCode;
use std::time::Duration;

use alkstore::{HookFuture, LivenessSource, SweepOptions, SweepReport, SweepStop, Timer};

use super::interrupt::Interrupt;
use super::progress::Progress;
use super::references::{FileTable, ReferenceArgs};
use super::report;
use crate::exit::Result;
use crate::locks::PATIENCE;
use crate::place::{Missing, Open, PlaceArgs};
use crate::values;

/// How many candidates are worked on at once, where nothing else is said.
const BATCH: usize = 1_000;

macro_rules! examples {
    () => {
        "\
Examples:
  alkstore gc sweep --liveness app.files:blob     what stands in that column is kept
  alkstore gc sweep --window-decides              whatever was staged and is due is garbage
  alkstore gc sweep --window-decides --dry-run    what it would do; changes nothing
  alkstore gc sweep --window-decides --rate 500 --time-limit 10m
                                                  gently, and not for long"
    };
}

pub const EXAMPLES: &str = examples!();

pub const LONG: &str = concat!(
    examples!(),
    "

Only one sweep of a store runs at a time. Ctrl-C ends it after the batch in hand, with its report; \
a second Ctrl-C at once, and then what it had claimed is free again after a minute. Whatever fails \
protects: nothing is deleted because a table could not be read.

Exit codes:
  0    it came to its end, or to one of its limits
  64   the arguments make no sense, or nothing says what is live
  69   the store or a table of references cannot be used
  75   another sweep is under way
  76   it stalled, and another sweep may have begun
  130  it was interrupted"
);

#[derive(clap::Args)]
#[allow(clippy::struct_excessive_bools)] // each is an option by itself
pub struct SweepArgs {
    #[command(flatten)]
    references: ReferenceArgs,

    /// Ask nobody: whatever was staged, is due and was not published since is garbage
    #[arg(long)]
    window_decides: bool,

    /// Change nothing, and report what a sweep would do now
    #[arg(long, short = 'n')]
    dry_run: bool,

    /// Examine at most so many candidates
    #[arg(long, value_name = "CANDIDATES", allow_negative_numbers = true, value_parser = values::count::<u64>)]
    limit: Option<u64>,

    /// Examine at most so many candidates a second, on average
    #[arg(long, value_name = "PER_SECOND", allow_negative_numbers = true, value_parser = values::count::<NonZeroU32>)]
    rate: Option<NonZeroU32>,

    /// Work on so many candidates at once [default: 1000, or what --rate allows in a second]
    #[arg(long, value_name = "CANDIDATES", allow_negative_numbers = true, value_parser = values::count::<NonZeroUsize>)]
    batch: Option<NonZeroUsize>,

    /// Begin nothing new after so long, such as 30s or 5m
    #[arg(long, value_name = "DURATION", value_parser = values::ttl)]
    time_limit: Option<Duration>,

    /// Show no progress
    #[arg(long, short)]
    quiet: bool,

    /// One JSON object: dry_run, examined, deleted, bytes_freed, already_absent, protected_by_pin,
    /// protected_by_liveness, protected_by_publication, failed, lost_lease, requeued, oldest_overdue_ms, stop, cause,
    /// error
    #[arg(long)]
    json: bool,
}

pub fn run(place: &PlaceArgs, args: &SweepArgs) -> Result {
    if args.references.tables.is_empty() && !args.window_decides {
        return Err(report::nobody_knows());
    }
    let interrupt = Interrupt::watch()?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let tables = args.references.register(place, &open)?;
    let swept = sweep(&open, args, &tables, &interrupt);
    let end = swept.and_then(|report| report::end(&open, args.json, report));
    open.close();
    match end? {
        SweepStop::Cancelled => Ok(interrupt.finish()),
        _ => Ok(ExitCode::SUCCESS),
    }
}

impl SweepArgs {
    /// At a rate, small batches make small waits.
    fn batch(&self) -> usize {
        let rate = self.rate.map_or(u32::MAX, NonZeroU32::get);
        let usual = BATCH.min(usize::try_from(rate).unwrap_or(usize::MAX));
        self.batch.map_or(usual, NonZeroUsize::get)
    }
}

fn sweep(
    open: &Open,
    args: &SweepArgs,
    tables: &[FileTable],
    interrupt: &Interrupt,
) -> Result<SweepReport> {
    let mut line = Progress::new(
        if args.dry_run { "judging" } else { "sweeping" },
        args.quiet,
    );
    if line.is_shown() {
        // Counting is for the looks alone: a sweep does not fail for it.
        let counted = open.wait(async {
            let now = open.store.now().await?;
            open.store.window_stats(now).await
        });
        let due = counted.ok().map(|stats| stats.due);
        line.begin(due.map(|due| due.min(args.limit.unwrap_or(u64::MAX))));
    }
    let mut show = |so_far: &SweepReport| line.at(so_far.examined);
    let mut options = SweepOptions::new()
        .batch(args.batch())
        .timer(&Clock)
        .cancel(interrupt.flag())
        .progress(&mut show);
    for table in tables {
        options = options.source(table as &dyn LivenessSource);
    }
    if args.window_decides {
        options = options.window_decides();
    }
    if args.dry_run {
        options = options.dry_run();
    }
    if let Some(limit) = args.limit {
        options = options.limit(limit);
    }
    if let Some(rate) = args.rate {
        options = options.rate(rate);
    }
    if let Some(limit) = args.time_limit {
        options = options.time_limit(limit);
    }
    Ok(open.wait(alkstore::sweep(&*open.store, options))?)
}

/// The runtime's timer.
struct Clock;

impl Timer for Clock {
    fn sleep(&self, duration: Duration) -> HookFuture<'_, ()> {
        Box::pin(async move {
            if duration.is_zero() {
                tokio::task::yield_now().await;
            } else {
                tokio::time::sleep(duration).await;
            }
        })
    }
}
