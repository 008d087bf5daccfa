//! `gc status`: the window in numbers, who sweeps and who pins.

use std::process::ExitCode;

use alkstore::{LockInfo, LockName, Timestamp};
use alkstore_native::postgres::PgPinOwner;
use serde_json::json;

use crate::exit::Result;
use crate::locks::{self, PATIENCE};
use crate::output;
use crate::place::{Missing, Open, PlaceArgs};

#[derive(clap::Args)]
pub struct StatusArgs {
    /// One JSON object: waiting, due, overdue_ms, oldest, claimed, reclaiming, requeued, pins (null but on Postgres),
    /// sweeper (null where nobody is to be seen)
    #[arg(long)]
    json: bool,
}

/// The lease of the sweep that is under way, where it is one, and when that was.
pub fn sweeper(open: &Open) -> Result<Option<(LockInfo, Timestamp)>> {
    let sweep = LockName::SWEEP;
    let found = open.wait(open.store.list_locks(sweep.as_str(), None, 1))?;
    let now = open.wait(open.store.now())?;
    let held = found
        .into_iter()
        .find(|info| info.name == sweep.as_str() && !info.lapsed);
    Ok(held.map(|info| (info, now)))
}

pub fn run(place: &PlaceArgs, args: &StatusArgs) -> Result {
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let sweeper = sweeper(&open)?;
    let pins = match open.postgres() {
        Some(store) => Some(open.wait(store.pin_owners())?),
        None => None,
    };
    let now = open.wait(open.store.now())?;
    let stats = open.wait(open.store.window_stats(now))?;
    open.close();
    let overdue = stats.oldest.filter(|oldest| oldest.lapsed(now));
    let overdue = overdue.map(|oldest| now.since(oldest));
    if args.json {
        output::json(&json!({
            "waiting": stats.rows,
            "due": stats.due,
            "overdue_ms": overdue.map(output::millis),
            "oldest": stats.oldest.map(output::instant),
            "claimed": stats.claimed,
            "reclaiming": stats.reclaiming,
            "requeued": stats.requeued,
            "pins": pins.map(|pins| pins.iter().map(as_json).collect::<Vec<_>>()),
            "sweeper": sweeper.map(|(info, now)| locks::as_json(&info, now)),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let oldest = match (stats.oldest, overdue) {
        (None, _) => "-".to_owned(),
        (Some(_), Some(overdue)) => format!("due for {}", output::duration(overdue)),
        (Some(oldest), None) => format!("due in {}", output::duration(oldest.since(now))),
    };
    let mut facts = vec![
        ("waiting", stats.rows.to_string()),
        ("due", stats.due.to_string()),
        ("oldest", oldest),
        ("claimed", stats.claimed.to_string()),
        ("reclaiming", stats.reclaiming.to_string()),
        ("put back", stats.requeued.to_string()),
    ];
    let sweeper = match sweeper {
        Some((info, now)) => format!(
            "{}, lapses in {} unless renewed",
            output::printable(&info.owner),
            output::duration(info.deadline.since(now))
        ),
        None if place.is_fleet()? => {
            "not to be seen: a fleet's is a lock of its connection".to_owned()
        }
        None => "nobody".to_owned(),
    };
    facts.push(("sweeper", sweeper));
    if pins.as_ref().is_some_and(Vec::is_empty) {
        facts.push(("pins", "none".to_owned()));
    }
    facts.extend(pins.iter().flatten().map(|owner| {
        let soonest = owner.soonest.map_or_else(String::new, |soonest| {
            format!(
                ", the first lapses in {}",
                output::duration(soonest.since(now))
            )
        });
        let text = format!(
            "{} live, {} lapsed: {}{soonest}",
            owner.live, owner.lapsed, owner.owner
        );
        ("pins", text)
    }));
    output::facts(&facts)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(pins: &PgPinOwner) -> serde_json::Value {
    json!({
        "owner": pins.owner.as_str(),
        "live": pins.live,
        "lapsed": pins.lapsed,
        "soonest": pins.soonest.map(output::instant),
    })
}
