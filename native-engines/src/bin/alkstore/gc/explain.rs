//! `gc explain`: why a key is, or is not, deleted.

use std::process::ExitCode;

use alkstore::{EntryMeta, Key, Timestamp, WindowRow};
use alkstore_native::postgres::PgPin;
use serde_json::json;

use super::references::{Reference, ReferenceArgs};
use super::verdict::{Known, Verdict};
use crate::entries::KeyArgs;
use crate::exit::Result;
use crate::locks::{PAGE, PATIENCE};
use crate::output;
use crate::place::{Missing, Open, PlaceArgs};

#[derive(clap::Args)]
pub struct ExplainArgs {
    #[command(flatten)]
    key: KeyArgs,

    #[command(flatten)]
    references: ReferenceArgs,

    /// One JSON object: key, key_hex, entry, window, pins (null but on Postgres), references, verdict, sentence
    #[arg(long)]
    json: bool,
}

pub fn run(place: &PlaceArgs, args: ExplainArgs) -> Result {
    let bytes = args.key.bytes()?;
    let key = Key::new(bytes.as_slice())?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let pins = pins(&open, &key)?;
    let references = args.references.look(place, &key)?;
    let row = open.wait(open.store.window_info(&bytes))?;
    let entry = entry(&open, &key)?;
    let now = open.wait(open.store.now())?;
    open.close();
    let live = pins
        .iter()
        .flatten()
        .filter(|pin| !pin.expires_at.lapsed(now));
    let last = live.max_by_key(|pin| pin.expires_at);
    let known = Known {
        now,
        entry,
        row,
        pin: last.map(|pin| (pin.owner.to_string(), pin.expires_at)),
        reference: references
            .iter()
            .find(|(_, live)| *live == Some(true))
            .map(|(table, _)| table.to_string()),
        asked: !references.is_empty(),
    };
    let verdict = Verdict::of(&known);
    if args.json {
        output::json(&json!({
            "key": std::str::from_utf8(&bytes).ok(),
            "key_hex": output::hex(&bytes),
            "entry": known.entry.as_ref().map(entry_json),
            "window": known.row.as_ref().map(|row| row_json(row, now)),
            "pins": pins.map(|pins| pins.iter().map(|pin| pin_json(pin, now)).collect::<Vec<_>>()),
            "references": references.iter().map(reference_json).collect::<Vec<_>>(),
            "verdict": verdict.name(),
            "sentence": verdict.sentence(&known),
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut facts = vec![
        ("key", output::key(&bytes)),
        ("entry", entry_text(known.entry.as_ref(), now)),
    ];
    facts.extend(row_facts(known.row.as_ref(), now));
    if pins.as_ref().is_some_and(Vec::is_empty) {
        facts.push(("pin", "none".to_owned()));
    }
    facts.extend(pins.iter().flatten().map(|pin| {
        (
            "pin",
            format!("{}, {}", pin.owner, lapses(pin.expires_at, now)),
        )
    }));
    facts.extend(references.iter().map(|(table, live)| {
        let text = match live {
            Some(true) => "refers to it",
            Some(false) => "does not refer to it",
            None => "not asked: a pin protects the key before that",
        };
        ("table", format!("{table} {text}"))
    }));
    facts.push(("verdict", verdict.sentence(&known)));
    output::facts(&facts)?;
    Ok(ExitCode::SUCCESS)
}

/// Those of the key, lapsed ones too; `None` where there are no pins at all.
fn pins(open: &Open, key: &Key<'_>) -> Result<Option<Vec<PgPin>>> {
    let Some(store) = open.postgres() else {
        return Ok(None);
    };
    let mut pins: Vec<PgPin> = Vec::new();
    loop {
        let page = open.wait(store.pins(Some(key.as_bytes()), pins.last(), PAGE))?;
        let full = page.len() == PAGE;
        pins.extend(page);
        if !full {
            return Ok(Some(pins));
        }
    }
}

/// The entry without its value: a key is the first of those that begin with it.
fn entry(open: &Open, key: &Key<'_>) -> Result<Option<EntryMeta>> {
    let first = open.wait(open.store.list(key.as_bytes(), None, 1))?;
    Ok(first.into_iter().find(|meta| meta.key == *key))
}

fn lapses(at: Timestamp, now: Timestamp) -> String {
    if at.lapsed(now) {
        return format!("lapsed {} ago", output::duration(now.since(at)));
    }
    format!(
        "until {} (in {})",
        output::instant(at),
        output::duration(at.since(now))
    )
}

fn entry_text(entry: Option<&EntryMeta>, now: Timestamp) -> String {
    let Some(entry) = entry else {
        return "none".to_owned();
    };
    let size = output::size(entry.size);
    let until = entry
        .expires_at
        .map_or_else(String::new, |at| format!(", {}", lapses(at, now)));
    format!("version {}, {size}{until}", entry.version)
}

fn row_facts(row: Option<&WindowRow>, now: Timestamp) -> Vec<(&'static str, String)> {
    let Some(row) = row else {
        return vec![("window", "not in it".to_owned())];
    };
    let due = row.visible_after;
    let due = if due.lapsed(now) {
        format!(
            "due since {} ({})",
            output::instant(due),
            output::duration(now.since(due))
        )
    } else {
        format!(
            "due at {} (in {})",
            output::instant(due),
            output::duration(due.since(now))
        )
    };
    let mut facts = vec![("window", due)];
    if let Some(until) = row.claimed_until {
        facts.push(("claim", lapses(until, now)));
    }
    if row.reclaiming {
        facts.push((
            "mark",
            "what the key stands for is being deleted".to_owned(),
        ));
    }
    if row.requeues > 0 {
        facts.push(("put back", format!("{} times", row.requeues)));
    }
    facts
}

fn entry_json(entry: &EntryMeta) -> serde_json::Value {
    json!({
        "version": entry.version.get(),
        "size": entry.size,
        "expires_at": entry.expires_at.map(output::instant),
    })
}

fn row_json(row: &WindowRow, now: Timestamp) -> serde_json::Value {
    json!({
        "due_at": output::instant(row.visible_after),
        "due": row.visible_after.lapsed(now),
        "claimed_until": row.claimed_until.map(output::instant),
        "reclaiming": row.reclaiming,
        "requeues": row.requeues,
    })
}

fn pin_json(pin: &PgPin, now: Timestamp) -> serde_json::Value {
    json!({
        "owner": pin.owner.as_str(),
        "expires_at": output::instant(pin.expires_at),
        "lapsed": pin.expires_at.lapsed(now),
    })
}

fn reference_json((table, live): &(Reference, Option<bool>)) -> serde_json::Value {
    json!({ "table": table.table, "column": table.column, "live": live })
}
