//! What a sweep did, for people and programs, and why it had to end, where it had to.

use alkstore::{GcAbortCause, SweepReport, SweepStop};
use serde_json::json;

use super::status;
use crate::exit::{Failure, Result, BUSY, LOST, STORE, USAGE};
use crate::output;
use crate::place::Open;

/// Prints the report; why it had to end, where it had to, is a failure.
pub fn end(open: &Open, json: bool, report: SweepReport) -> Result<SweepStop> {
    if json {
        output::json(&as_json(&report))?;
    } else if report.stop != SweepStop::Aborted(GcAbortCause::SweeperLock) {
        output::facts(&facts(&report))?;
    }
    let SweepStop::Aborted(cause) = report.stop else {
        if let Some(error) = report.error {
            output::note(Failure::from(error).text());
        }
        return Ok(report.stop);
    };
    Err(match cause {
        GcAbortCause::SweeperLock => {
            let lease = status::sweeper(open)?;
            let until = lease.map_or_else(String::new, |(info, now)| {
                let left = output::duration(info.deadline.since(now));
                format!("; it lapses in {left} unless renewed")
            });
            Failure::new(
                BUSY,
                format!("another sweep of this store is under way{until}"),
            )
            .advise("`alkstore gc status` shows when it has ended.")
        }
        GcAbortCause::NoLivenessSources => nobody_knows(),
        GcAbortCause::LivenessFailed => {
            let why = report.error.map(Failure::from);
            let why = why.as_ref().map_or("no answer", Failure::text);
            Failure::new(
                STORE,
                format!("what is live could not be learnt, so no more was deleted: {why}"),
            )
        }
        GcAbortCause::LostLease => Failure::new(
            LOST,
            "the sweep stalled or lost its connection, so it is no longer the current one",
        )
        .advise("What was not deleted waits on: sweep again."),
        _ => match report.error {
            Some(error) => error.into(),
            None => Failure::new(STORE, "the store failed"),
        },
    })
}

pub fn nobody_knows() -> Failure {
    Failure::new(
        USAGE,
        "nothing says what is still referred to, so nothing was deleted",
    )
    .advise(
        "Name the tables of references with --liveness TABLE:COLUMN; or say --window-decides, where whatever was staged \
         and not published since is garbage.",
    )
}

fn facts(report: &SweepReport) -> Vec<(&'static str, String)> {
    let ended = match report.stop {
        SweepStop::Drained => "nothing that was due is left",
        SweepStop::Limit => "at its limit",
        SweepStop::TimeLimit => "at its time limit",
        SweepStop::Cancelled => "interrupted",
        SweepStop::Aborted(_) => "it had to, see below",
        _ => "not yet",
    };
    let deleted = if report.dry_run {
        "would delete"
    } else {
        "deleted"
    };
    let mut facts = vec![
        (
            if report.dry_run { "dry run" } else { "swept" },
            ended.to_owned(),
        ),
        ("examined", report.examined.to_string()),
        (
            deleted,
            format!("{} ({})", report.deleted, output::size(report.bytes_freed)),
        ),
    ];
    let mut where_any = |name, count: u64, why: &str| {
        if count > 0 {
            facts.push((name, format!("{count} {why}")));
        }
    };
    where_any(
        "absent",
        report.already_absent,
        "without an entry: out of the window",
    );
    where_any(
        "kept",
        report.protected_by_liveness,
        "referred to: out of the window",
    );
    where_any("pinned", report.protected_by_pin, "put back for later");
    where_any(
        "published",
        report.protected_by_publication,
        "while the sweep looked at them",
    );
    where_any(
        "failed",
        report.failed,
        "whose deletion another sweep has begun",
    );
    where_any("lapsed", report.lost_lease, "whose claim lapsed meanwhile");
    where_any("put back", report.requeued, "in all");
    if let Some(overdue) = report.oldest_overdue {
        facts.push(("oldest", format!("due for {}", output::duration(overdue))));
    }
    facts
}

fn as_json(report: &SweepReport) -> serde_json::Value {
    let (stop, cause) = match report.stop {
        SweepStop::Drained => ("drained", None),
        SweepStop::Limit => ("limit", None),
        SweepStop::TimeLimit => ("time_limit", None),
        SweepStop::Cancelled => ("cancelled", None),
        SweepStop::Aborted(cause) => ("aborted", Some(cause)),
        _ => ("running", None),
    };
    let cause = cause.map(|cause| match cause {
        GcAbortCause::SweeperLock => "sweeper_lock",
        GcAbortCause::NoLivenessSources => "no_liveness_sources",
        GcAbortCause::LivenessFailed => "liveness_failed",
        GcAbortCause::LostLease => "lost_lease",
        _ => "engine_failed",
    });
    json!({
        "dry_run": report.dry_run,
        "examined": report.examined,
        "deleted": report.deleted,
        "bytes_freed": report.bytes_freed,
        "already_absent": report.already_absent,
        "protected_by_pin": report.protected_by_pin,
        "protected_by_liveness": report.protected_by_liveness,
        "protected_by_publication": report.protected_by_publication,
        "failed": report.failed,
        "lost_lease": report.lost_lease,
        "requeued": report.requeued,
        "oldest_overdue_ms": report.oldest_overdue.map(output::millis),
        "stop": stop,
        "cause": cause,
        "error": report.error.as_ref().map(Failure::causes),
    })
}
