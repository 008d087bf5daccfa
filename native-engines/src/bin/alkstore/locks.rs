//! `locks`, `inspect` and `release`: the locks of a store, from outside.

use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use alkstore::{LockInfo, LockName, Revision, Timestamp};
use serde_json::json;

use crate::exit::{Failure, Result, NO};
use crate::output;
use crate::place::{Missing, PlaceArgs};
use crate::values;

/// How long a single call may take.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How many rows are asked for at once.
pub const PAGE: usize = 1000;

#[derive(clap::Args)]
pub struct ListArgs {
    /// Only locks whose names begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: String,

    /// Also locks that have lapsed and that nobody has taken since
    #[arg(long)]
    all: bool,

    /// One JSON array of objects: name, owner, since, token, deadline, lapsed, remaining_ms
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct InspectArgs {
    /// The lock's name
    #[arg(value_parser = values::lock_name)]
    name: String,

    /// One JSON object, as `alkstore locks --json` has them
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct ReleaseArgs {
    /// The lock's name
    #[arg(value_parser = values::lock_name)]
    name: String,

    /// The token of the grant to end, as `alkstore inspect` shows it; a later grant is not touched
    #[arg(long, value_parser = values::revision)]
    token: Revision,
}

pub fn list(place: &PlaceArgs, args: &ListArgs) -> Result {
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let mut infos: Vec<LockInfo> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = open.wait(open.store.list_locks(&args.prefix, after.as_deref(), PAGE))?;
        let full = page.len() == PAGE;
        after = page.last().map(|info| info.name.clone());
        infos.extend(page.into_iter().filter(|info| args.all || !info.lapsed));
        if !full {
            break;
        }
    }
    let now = open.wait(open.store.now())?;
    open.close();
    if args.json {
        let rows = infos.iter().map(|info| as_json(info, now)).collect();
        output::json(&serde_json::Value::Array(rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = infos
        .iter()
        .map(|info| {
            let (owner, since) = owner(info);
            [
                output::printable(&info.name),
                info.token.to_string(),
                owner,
                since.unwrap_or_else(|| "-".to_owned()),
                until(info, now),
            ]
        })
        .collect();
    output::table(["NAME", "TOKEN", "OWNER", "SINCE", "LAPSES"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

pub fn inspect(place: &PlaceArgs, args: &InspectArgs) -> Result {
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let info = open.wait(open.store.lock_info(&args.name))?;
    let now = open.wait(open.store.now())?;
    open.close();
    let Some(info) = info else {
        return Err(Failure::new(
            NO,
            format!("nobody holds the lock {}", quoted(&args.name)),
        ));
    };
    if args.json {
        output::json(&as_json(&info, now))?;
        return Ok(ExitCode::SUCCESS);
    }
    let (owner, since) = owner(&info);
    let text = format!(
        "name      {}\nstate     {}\nowner     {owner}\nsince     {}\ntoken     {}\ndeadline  {} ({})",
        output::printable(&info.name),
        if info.lapsed { "lapsed" } else { "held" },
        since.as_deref().unwrap_or("not known"),
        info.token,
        output::instant(info.deadline),
        until(&info, now),
    );
    output::line(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub fn release(place: &PlaceArgs, args: &ReleaseArgs) -> Result {
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let released = open.wait(open.store.force_release(&args.name, args.token))?;
    open.close();
    if released {
        return Ok(ExitCode::SUCCESS);
    }
    Err(Failure::new(
        NO,
        format!(
            "the lock {} has no grant {}",
            quoted(&args.name),
            args.token
        ),
    )
    .advise("See `alkstore inspect` for the present one, if any."))
}

/// Who holds a lock, since when and until when, for messages.
pub fn holder(info: &LockInfo, now: Timestamp) -> String {
    let (owner, since) = owner(info);
    let since = since.map_or_else(String::new, |since| format!(" since {since}"));
    let left = output::duration(info.deadline.since(now));
    format!(
        "held by {owner}{since} (token {}), lapses in {left} unless renewed",
        info.token
    )
}

fn until(info: &LockInfo, now: Timestamp) -> String {
    if info.lapsed {
        return format!("lapsed {} ago", output::duration(now.since(info.deadline)));
    }
    format!("in {}", output::duration(info.deadline.since(now)))
}

pub fn as_json(info: &LockInfo, now: Timestamp) -> serde_json::Value {
    let since = Holder::read(&info.owner).map(|holder| holder.since);
    json!({
        "name": info.name,
        "owner": info.owner,
        "since": since,
        "token": info.token.get(),
        "deadline": output::instant(info.deadline),
        "lapsed": info.lapsed,
        "remaining_ms": output::millis(info.deadline.since(now)),
    })
}

/// The owner for people, and since when he holds the lock, where the owner's name says it.
fn owner(info: &LockInfo) -> (String, Option<String>) {
    match Holder::read(&info.owner) {
        Some(holder) => (output::printable(&holder.who), Some(holder.since)),
        None => (output::printable(&info.owner), None),
    }
}

/// What the owners that `alkstore lock` makes up are made of: `USER@HOST/PID/INSTANT/RANDOM`. A store does not keep
/// when a lock was taken, so its owner does.
pub struct Holder {
    who: String,
    since: String,
}

impl Holder {
    /// An owner that nobody else has.
    #[cfg(unix)]
    pub fn fresh() -> String {
        use std::hash::{BuildHasher, RandomState};

        let who = me();
        let pid = std::process::id();
        let at = humantime::format_rfc3339_seconds(SystemTime::now());
        format!(
            "{who}/{pid}/{at}/{:016x}",
            RandomState::new().hash_one((pid, &who))
        )
    }

    fn read(owner: &str) -> Option<Self> {
        let (rest, random) = owner.rsplit_once('/')?;
        let (who, since) = rest.rsplit_once('/')?;
        let ours = random.len() == 16 && random.bytes().all(|b| b.is_ascii_hexdigit());
        let at = humantime::parse_rfc3339(since).ok()?;
        (ours && at <= SystemTime::now() + Duration::from_secs(366 * 86_400)).then(|| Self {
            who: who.to_owned(),
            since: since.to_owned(),
        })
    }
}

/// The user and the machine.
#[cfg(unix)]
pub fn me() -> String {
    let user = nix::unistd::User::from_uid(nix::unistd::getuid());
    let user = user
        .ok()
        .flatten()
        .map_or_else(|| "unknown".to_owned(), |user| user.name);
    let host = nix::unistd::gethostname().map(|host| host.to_string_lossy().into_owned());
    let host = host.unwrap_or_else(|_| "unknown".to_owned());
    format!("{user}@{host}").chars().take(100).collect()
}

/// The user and the machine.
#[cfg(not(unix))]
pub fn me() -> String {
    let name = |variable| std::env::var(variable).unwrap_or_else(|_| "unknown".to_owned());
    let me = format!("{}@{}", name("USERNAME"), name("COMPUTERNAME"));
    me.chars().take(100).collect()
}

/// The lock's name in messages.
pub fn quoted(name: &str) -> String {
    LockName::new(name).map_or_else(|_| output::printable(name), |name| format!("\"{name}\""))
}
