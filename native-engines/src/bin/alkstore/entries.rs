//! `entries`: values by key, through the standard input and output, byte for byte.

use std::ffi::OsString;
use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use alkstore::{EntryMeta, Put, PutMode, PutOptions, Revision, MAX_VALUE_BYTES};
use serde_json::json;

use crate::exit::{Failure, Result, NO, USAGE};
use crate::input;
use crate::locks::{PAGE, PATIENCE};
use crate::output;
use crate::place::{Missing, PlaceArgs};
use crate::values::{self, Guard};

pub const EXAMPLES: &str = "\
Examples:
  alkstore entries put config <config.json        the first writer wins; code 1 where it is there
  alkstore entries put config --replace <new.json
  alkstore entries get config >config.json
  alkstore entries put state --replace --guard \"$ALKSTORE_LOCK_NAME:$ALKSTORE_LOCK_TOKEN\" <state
                                                  under `alkstore lock`: code 76 if the lock was lost";

#[derive(clap::Subcommand)]
pub enum EntriesVerb {
    /// Write the value of a key to the output, byte for byte; code 1 where there is none
    Get(GetArgs),
    /// Store the input, or a given value, under a key, and print the version; code 1 where it was not stored
    Put(PutArgs),
    /// List keys with version, size in bytes and when they lapse
    Ls(LsArgs),
    /// Delete an entry; code 1 where there was none
    Rm(RmArgs),
}

#[derive(clap::Args)]
pub struct KeyArgs {
    /// The key: 1 to 1024 bytes
    key: OsString,

    /// The key is given in hexadecimal digits
    #[arg(long)]
    hex: bool,
}

#[derive(clap::Args)]
pub struct GetArgs {
    #[command(flatten)]
    key: KeyArgs,
}

#[derive(clap::Args)]
pub struct PutArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Only where the key is absent: the first writer wins (the default)
    #[arg(long, group = "mode")]
    create: bool,

    /// Whether or not it is there
    #[arg(long, group = "mode")]
    replace: bool,

    /// Only over this version: compare and swap
    #[arg(long, group = "mode", value_name = "VERSION", value_parser = values::revision)]
    if_version: Option<Revision>,

    /// How long the entry lives, such as 30s, 5m or 24h; without it for ever
    #[arg(long, value_name = "DURATION", value_parser = values::ttl)]
    ttl: Option<Duration>,

    /// Write only if this grant of a lock is live at the instant of the write; else code 76
    #[arg(long, value_name = "NAME:TOKEN", value_parser = values::guard)]
    guard: Option<Guard>,

    /// The value itself, in the place of the input
    #[arg(long, group = "source")]
    value: Option<OsString>,

    /// A file that holds the value, in the place of the input
    #[arg(long, group = "source")]
    file: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct LsArgs {
    /// Only keys that begin with this
    #[arg(default_value = "", hide_default_value = true)]
    prefix: OsString,

    /// The prefix is given in hexadecimal digits
    #[arg(long)]
    hex: bool,

    /// One JSON array of objects: key (null where it is no text), key_hex, version, size, expires_at
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
pub struct RmArgs {
    #[command(flatten)]
    key: KeyArgs,

    /// Only this version
    #[arg(long, value_name = "VERSION", value_parser = values::revision)]
    if_version: Option<Revision>,
}

pub fn run(place: &PlaceArgs, verb: EntriesVerb) -> Result {
    match verb {
        EntriesVerb::Get(args) => get(place, args),
        EntriesVerb::Put(args) => put(place, args),
        EntriesVerb::Ls(args) => ls(place, args),
        EntriesVerb::Rm(args) => rm(place, args),
    }
}

fn get(place: &PlaceArgs, args: GetArgs) -> Result {
    let key = args.key.bytes()?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let entry = open.wait(open.store.get(&key))?;
    open.close();
    match entry {
        Some(entry) => output::bytes(&entry.value).map(|()| ExitCode::SUCCESS),
        None => Err(absent(&key)),
    }
}

fn put(place: &PlaceArgs, args: PutArgs) -> Result {
    let key = args.key.bytes()?;
    let value = match (args.value, args.file) {
        (Some(value), _) => values::os_bytes(value).map_err(usage)?,
        (None, Some(path)) => read_file(&path)?,
        (None, None) => read_input()?,
    };
    let mode = match args.if_version {
        Some(version) => PutMode::Update(version),
        None if args.replace => PutMode::Replace,
        None => PutMode::Create,
    };
    let mut options = PutOptions::with_mode(mode);
    if let Some(ttl) = args.ttl {
        options = options.ttl(ttl);
    }
    if let Some(guard) = &args.guard {
        options = options.guard(&guard.name, guard.token);
    }
    let open = place.open(Missing::Create, PATIENCE)?;
    let put = open.wait(open.store.put(&key, &value, options));
    open.close();
    match put? {
        Put::Stored { version } => {
            output::line(&version.to_string())?;
            Ok(ExitCode::SUCCESS)
        }
        Put::NotStored { current } => Err(not_stored(&key, current, mode)),
    }
}

fn not_stored(key: &[u8], current: Option<Revision>, mode: PutMode) -> Failure {
    let key = output::key(key);
    match (current, mode) {
        (Some(current), PutMode::Create) => Failure::new(
            NO,
            format!("not stored: \"{key}\" is there already, with version {current}"),
        )
        .advise(
            "Use --replace to write over it, or --if-version to write over that version alone.",
        ),
        (Some(current), _) => {
            Failure::new(NO, format!("not stored: \"{key}\" has version {current}"))
                .advise("Read it again and decide anew.")
        }
        (None, _) => Failure::new(NO, format!("not stored: \"{key}\" is not there"))
            .advise("Use --create to write it where it is absent."),
    }
}

fn ls(place: &PlaceArgs, args: LsArgs) -> Result {
    let prefix = values::key(args.prefix, args.hex).map_err(usage)?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let mut metas: Vec<EntryMeta> = Vec::new();
    loop {
        let after = metas.last().map(|meta| meta.key.as_bytes());
        let page = open.wait(open.store.list(&prefix, after, PAGE))?;
        let full = page.len() == PAGE;
        metas.extend(page);
        if !full {
            break;
        }
    }
    open.close();
    if args.json {
        let rows = metas.iter().map(as_json).collect();
        output::json(&serde_json::Value::Array(rows))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows: Vec<_> = metas
        .iter()
        .map(|meta| {
            [
                output::key(meta.key.as_bytes()),
                meta.version.to_string(),
                meta.size.to_string(),
                meta.expires_at
                    .map_or_else(|| "-".to_owned(), output::instant),
            ]
        })
        .collect();
    output::table(["KEY", "VERSION", "SIZE", "LAPSES"], &rows)?;
    Ok(ExitCode::SUCCESS)
}

fn as_json(meta: &EntryMeta) -> serde_json::Value {
    let key = meta.key.as_bytes();
    json!({
        "key": std::str::from_utf8(key).ok(),
        "key_hex": output::hex(key),
        "version": meta.version.get(),
        "size": meta.size,
        "expires_at": meta.expires_at.map(output::instant),
    })
}

fn rm(place: &PlaceArgs, args: RmArgs) -> Result {
    let key = args.key.bytes()?;
    let open = place.open(Missing::Refuse, PATIENCE)?;
    let deleted = open.wait(open.store.delete(&key, args.if_version))?;
    open.close();
    if deleted {
        return Ok(ExitCode::SUCCESS);
    }
    Err(match args.if_version {
        Some(version) => Failure::new(
            NO,
            format!(
                "not deleted: there is no version {version} of \"{}\" any more",
                output::key(&key)
            ),
        ),
        None => absent(&key),
    })
}

pub fn absent(key: &[u8]) -> Failure {
    Failure::new(NO, format!("there is no entry \"{}\"", output::key(key)))
}

impl KeyArgs {
    pub fn bytes(self) -> Result<Vec<u8>> {
        let key = values::key(self.key, self.hex).map_err(usage)?;
        // Before the input is read, which may be long.
        alkstore::Key::new(key.as_slice())?;
        Ok(key)
    }
}

fn usage(text: String) -> Failure {
    Failure::new(USAGE, text)
}

fn read_file(path: &std::path::Path) -> Result<Vec<u8>> {
    let told =
        |error: io::Error| Failure::input(&format!("cannot read {}", path.display()), &error);
    read(std::fs::File::open(path).map_err(told)?).map_err(told)
}

fn read_input() -> Result<Vec<u8>> {
    let stdin = io::stdin();
    if input::is_closed(&stdin) {
        return Err(Failure::new(USAGE, "the input is closed, so there is no value to store")
            .advise("Pipe the value in, or give it with --value or --file; --value '' is the empty value."));
    }
    if stdin.is_terminal() {
        output::note(
            "reading the value from the terminal; end it with Ctrl-D on a line of its own",
        );
    }
    read(stdin.lock()).map_err(|error| Failure::input("reading the input failed", &error))
}

/// One byte more than a value may have, so that the store refuses what is too long.
fn read(source: impl Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    let limit = u64::try_from(MAX_VALUE_BYTES).unwrap_or(u64::MAX);
    source
        .take(limit.saturating_add(1))
        .read_to_end(&mut value)?;
    Ok(value)
}
