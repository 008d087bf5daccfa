//! `gc pin` and `gc unpin`: the protection of an entry by hand.

use std::process::ExitCode;
use std::time::Duration;

use alkstore::{EngineFleetState, ErrorKind, Key, Owner, Pin};
use alkstore_native::postgres::PgStore;

use crate::entries::KeyArgs;
use crate::exit::{Failure, Result, BUSY, NO, USAGE};
use crate::locks::{self, PATIENCE};
use crate::output;
use crate::place::{Missing, Open, PlaceArgs};
use crate::values;

#[derive(clap::Args)]
pub struct PinArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// For whom: a key can have a pin of each owner [default: USER@HOST]
    #[arg(long, value_parser = values::owner)]
    owner: Option<String>,

    /// For how long
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = values::ttl)]
    ttl: Duration,
}

#[derive(clap::Args)]
pub struct UnpinArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Whose pin; the pins of others stay [default: USER@HOST]
    #[arg(long, value_parser = values::owner)]
    owner: Option<String>,
}

pub fn pin(place: &PlaceArgs, args: PinArgs) -> Result {
    let bytes = args.key.bytes()?;
    let owner = args.owner.unwrap_or_else(locks::me);
    only_postgres(place)?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let store = postgres(&open)?;
    let pins = [Pin {
        key: Key::new(bytes.as_slice())?,
        owner: Owner::new(owner.as_str())?,
        ttl: args.ttl,
    }];
    let pinned = open.wait(async {
        let tx = store.begin_joint_tx().await?;
        store.pin_commit(tx, &pins).await
    });
    match pinned {
        Err(error) if error.kind() == ErrorKind::Conflict => {
            let why = Failure::from(error);
            let text = format!("\"{}\" was not pinned: {}", output::key(&bytes), why.text());
            return Err(Failure::new(BUSY, text).advise(
                "Only an entry that is there can be pinned: `alkstore gc explain KEY` shows it.",
            ));
        }
        pinned => pinned?,
    }
    let found = open.wait(store.pins(Some(&bytes), None, usize::MAX))?;
    open.close();
    let until = found
        .iter()
        .find(|pin| pin.owner.as_str() == owner)
        .map_or_else(String::new, |pin| {
            format!(" until {}", output::instant(pin.expires_at))
        });
    output::line(&format!("pinned for {}{until}", output::printable(&owner)))?;
    Ok(ExitCode::SUCCESS)
}

pub fn unpin(place: &PlaceArgs, args: UnpinArgs) -> Result {
    let bytes = args.key.bytes()?;
    let owner = args.owner.unwrap_or_else(locks::me);
    only_postgres(place)?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let released = open.wait(postgres(&open)?.pin_release(&bytes, &owner))?;
    open.close();
    if released {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        NO,
        format!(
            "\"{}\" has no pin of {}",
            output::key(&bytes),
            output::printable(&owner)
        ),
    )
    .advise("`alkstore gc explain KEY` shows whose it has."))
}

/// Before anything is opened.
fn only_postgres(place: &PlaceArgs) -> Result<()> {
    match place.file()? {
        Some(_) => Err(no_pins()),
        None => Ok(()),
    }
}

fn postgres(open: &Open) -> Result<&PgStore> {
    open.postgres().ok_or_else(no_pins)
}

fn no_pins() -> Failure {
    Failure::new(USAGE, "pins are Postgres's: a store in a SQLite file has none").advise(
        "In a file, `alkstore gc unstage KEY` keeps a key from the next sweep; so does publishing it anew.",
    )
}
