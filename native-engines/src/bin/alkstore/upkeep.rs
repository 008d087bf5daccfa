//! `init`, `doctor` and `purge`: a store as a whole.

use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use alkstore::Timestamp;

use crate::exit::{Failure, Result, NO};
use crate::locks::{PAGE, PATIENCE};
use crate::output;
use crate::place::{Missing, Open, PlaceArgs};

/// Above this a clock is worth a word.
const SKEW: Duration = Duration::from_secs(1);

/// How many rows go in one transaction.
const BATCH: usize = 10_000;

#[derive(clap::Args)]
pub struct PurgeArgs {
    /// At most so many rows; without it all of them
    #[arg(long, value_name = "ROWS")]
    limit: Option<usize>,
}

pub fn init(place: &PlaceArgs) -> Result {
    place.open(Missing::Create, PATIENCE)?.close();
    output::line(&format!("ready: {}", place.describe()?))?;
    Ok(ExitCode::SUCCESS)
}

pub fn purge(place: &PlaceArgs, args: &PurgeArgs) -> Result {
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let limit = args.limit.unwrap_or(usize::MAX);
    let mut purged = 0;
    while purged < limit {
        let batch = BATCH.min(limit - purged);
        let gone = open.wait(open.store.purge_lapsed(batch))?;
        purged += gone;
        if gone < batch {
            break;
        }
    }
    open.close();
    output::line(&format!("{purged} purged"))?;
    Ok(ExitCode::SUCCESS)
}

/// Each finding is a line; a finding that somebody should do something about makes the code 1.
pub fn doctor(place: &PlaceArgs) -> Result {
    let mut report = Report { healthy: true };
    report.fine("store", &place.describe()?)?;
    let since = Instant::now();
    let open = place.open(Missing::Refuse, PATIENCE)?;
    report.fine(
        "schema",
        &format!("complete, opened in {}", output::duration(since.elapsed())),
    )?;
    if let Some(path) = place.file()? {
        file_system(&path, &mut report)?;
    }
    clock(&open, &mut report)?;
    writing(&open, &mut report)?;
    rows(&open, &report)?;
    open.close();
    Ok(if report.healthy {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(NO)
    })
}

struct Report {
    healthy: bool,
}

impl Report {
    #[allow(clippy::unused_self)] // the other half of `wrong`
    fn fine(&self, what: &str, text: &str) -> Result<()> {
        output::line(&format!("ok    {what:<8}{text}"))
    }

    fn wrong(&mut self, what: &str, text: &str) -> Result<()> {
        self.healthy = false;
        output::line(&format!("WRONG {what:<8}{text}"))
    }
}

/// Deadlines are judged by the store's clock alone, so skew costs no exclusion. It shows in what is printed, and a file
/// whose clock is ahead was written while the machine's clock was wrong.
fn clock(open: &Open, report: &mut Report) -> Result<()> {
    let before = local();
    let store = open.wait(open.store.now())?;
    let after = local();
    let (ahead, behind) = (store.since(after), before.since(store));
    let trip = output::duration(after.since(before));
    if ahead > SKEW {
        let ahead = output::duration(ahead);
        return report.wrong("clock", &format!(
            "the store's is {ahead} ahead of this machine's: set this machine's clock right; in a file it stays ahead \
             until that time has come"
        ));
    }
    if behind > SKEW {
        let behind = output::duration(behind);
        return report.wrong("clock", &format!(
            "the store's is {behind} behind this machine's: set the clocks of both right, as with NTP"
        ));
    }
    report.fine(
        "clock",
        &format!("agrees with this machine's within 1s, asked in {trip}"),
    )
}

fn local() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Timestamp::from_nanos(0).plus(since.unwrap_or_default())
}

/// A lock is taken, renewed and released, as it would be in earnest.
fn writing(open: &Open, report: &mut Report) -> Result<()> {
    const TTL: Duration = Duration::from_secs(10);
    let name = format!("alkstore doctor {}", std::process::id());
    let owner = format!("{name} {:?}", SystemTime::now());
    let since = Instant::now();
    let tried = open.wait(async {
        let Some(mut lock) = open.store.try_lock(&name, &owner, TTL).await? else {
            return Ok(false);
        };
        Ok(lock.renew(TTL).await? & lock.release().await?)
    });
    match tried.map_err(|error: alkstore::Error| Failure::from(error)) {
        Ok(true) => report.fine(
            "lock",
            &format!(
                "taken, renewed and released in {}",
                output::duration(since.elapsed())
            ),
        ),
        Ok(false) => report.wrong("lock", "somebody else took or freed the lock of this check"),
        Err(failure) => report.wrong("lock", failure.text()),
    }
}

fn rows(open: &Open, report: &Report) -> Result<()> {
    let (mut held, mut lapsed) = (0_usize, 0_usize);
    let mut after: Option<String> = None;
    loop {
        let page = open.wait(open.store.list_locks("", after.as_deref(), PAGE))?;
        let gone = page.iter().filter(|info| info.lapsed).count();
        lapsed += gone;
        held += page.len() - gone;
        after = page.last().map(|info| info.name.clone());
        if page.len() < PAGE {
            break;
        }
    }
    let text = format!("{held} locks held, {lapsed} lapsed");
    // Lapsed rows do no harm; they are told so that nobody is surprised by them.
    let advice = if lapsed > 0 {
        " (`alkstore purge` deletes them)"
    } else {
        ""
    };
    report.fine("rows", &format!("{text}{advice}"))
}

/// The log of a SQLite file needs memory that all its users share, which no network file system has.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn file_system(path: &std::path::Path, report: &mut Report) -> Result<()> {
    use nix::sys::statfs::{statfs, NFS_SUPER_MAGIC, SMB_SUPER_MAGIC};

    // CIFS and SMB2, as the kernel's magic.h has them; the type of the number differs between systems.
    const SHARES: [&str; 2] = ["ff534d42", "fe534d42"];

    let Ok(found) = statfs(path) else {
        return Ok(());
    };
    let kind = found.filesystem_type();
    let number = format!("{:x}", kind.0);
    if [NFS_SUPER_MAGIC, SMB_SUPER_MAGIC].contains(&kind)
        || SHARES.iter().any(|share| number.ends_with(share))
    {
        return report.wrong(
            "disk",
            "the file is on a network share, where locks of two machines do not exclude each other: use Postgres",
        );
    }
    report.fine(
        "disk",
        "the file is on no network share that is known for one",
    )
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn file_system(_path: &std::path::Path, report: &mut Report) -> Result<()> {
    report.fine(
        "disk",
        "not looked at on this system: the file must be on no network share",
    )
}
