//! Which store: its address, and how it is opened.

use std::ffi::OsString;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use alkstore::Store;
use alkstore_native::postgres::{PgOptions, PgStore, PgTls};
use alkstore_native::sqlite::SqliteOptions;
use tokio::runtime::{Builder, Runtime};

use crate::exit::{Failure, Result, SYSTEM, USAGE};

/// The variable that names the store.
pub const URL: &str = "ALKSTORE_URL";

const SCHEMA: &str = "ALKSTORE_SCHEMA";
const TLS_ROOTS: &str = "ALKSTORE_TLS_ROOTS";
const PLAINTEXT: &str = "ALKSTORE_INSECURE_PLAINTEXT";
const POOLER: &str = "ALKSTORE_TRANSACTION_POOLER";
const FLEET: &str = "ALKSTORE_FLEET";

/// The options of every verb that say which store. No value of them is checked by the parser of the arguments, which
/// would show it: it may hold a password.
#[derive(Clone, clap::Args)]
#[command(next_help_heading = "Store")]
pub struct PlaceArgs {
    /// Where the locks are: sqlite:PATH or postgres://USER@HOST/DATABASE [default: a SQLite file of this user]
    ///
    /// The default is $XDG_STATE_HOME/alkstore/alkstore.db, or ~/.local/state/alkstore/alkstore.db. A password belongs
    /// into the variable, not into the option, where other users of the machine can read it.
    #[arg(long, global = true, env = URL, value_name = "URL", hide_env_values = true)]
    store: Option<String>,

    /// The Postgres schema that holds the store
    #[arg(
        long,
        global = true,
        env = SCHEMA,
        hide_env_values = true,
        hide_short_help = true,
        value_name = "NAME",
        default_value = "alkstore"
    )]
    schema: String,

    /// Trust the certificate authorities of this PEM file for the Postgres server, not those of the system
    #[arg(long, global = true, env = TLS_ROOTS, hide_env_values = true, hide_short_help = true, value_name = "FILE")]
    tls_roots: Option<PathBuf>,

    /// Speak to a Postgres server on the network in plain text: passwords and data can be read on the way
    #[arg(long, global = true, env = PLAINTEXT, hide_env_values = true, hide_short_help = true)]
    insecure_plaintext: bool,

    /// Work through a pooler such as PgBouncer in transaction mode
    #[arg(long, global = true, env = POOLER, hide_env_values = true, hide_short_help = true)]
    transaction_pooler: bool,

    /// Sweep the Postgres store as one of a fleet: the sweep is a lock of its connection, not a lease; all who sweep a
    /// store have to say the same
    #[arg(long, global = true, env = FLEET, hide_env_values = true, hide_short_help = true)]
    fleet: bool,
}

/// What a verb does to a store that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    /// Makes it.
    Create,
    /// Refuses: reading a mistyped path must not make an empty store.
    Refuse,
}

enum Address {
    Sqlite { path: PathBuf, is_default: bool },
    Postgres(String),
}

/// An open store, and what drives its futures.
pub struct Open {
    // Before the runtime, on which its connections live.
    pub store: Arc<dyn Store>,
    postgres: Option<Arc<PgStore>>,
    runtime: Runtime,
}

impl Open {
    pub fn wait<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    /// The store with what only Postgres has.
    pub fn postgres(&self) -> Option<&PgStore> {
        self.postgres.as_deref()
    }

    /// Closes it; what it did is done already, so there is nothing to fail.
    pub fn close(self) {
        let _ = self.wait(self.store.close());
    }
}

impl PlaceArgs {
    /// Opens the store; each call may take up to `patience`.
    pub fn open(&self, missing: Missing, patience: Duration) -> Result<Open> {
        let address = self.address()?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::system("the runtime cannot be started", error))?;
        match address {
            Address::Sqlite { path, is_default } => {
                prepare(&path, is_default, missing)?;
                let options = SqliteOptions::new().busy_limit(patience);
                Ok(Open {
                    store: Arc::new(runtime.block_on(options.open(&path))?),
                    postgres: None,
                    runtime,
                })
            }
            Address::Postgres(connection) => {
                let options = self.postgres(&connection)?.call_timeout(patience);
                let store = Arc::new(runtime.block_on(PgStore::open(options))?);
                Ok(Open {
                    store: store.clone(),
                    postgres: Some(store),
                    runtime,
                })
            }
        }
    }

    /// The store in words, without secrets.
    pub fn describe(&self) -> Result<String> {
        Ok(match self.address()? {
            Address::Sqlite { path, .. } => format!("sqlite:{}", path.display()),
            Address::Postgres(connection) => {
                let known = connection.parse::<tokio_postgres::Config>();
                let database = known
                    .ok()
                    .and_then(|known| known.get_dbname().map(str::to_owned));
                format!(
                    "postgres, database {}, schema {}",
                    database.as_deref().unwrap_or("of the user's name"),
                    crate::output::printable(&self.schema)
                )
            }
        })
    }

    /// The file of a SQLite store.
    pub fn file(&self) -> Result<Option<PathBuf>> {
        Ok(match self.address()? {
            Address::Sqlite { path, .. } => Some(path),
            Address::Postgres(_) => None,
        })
    }

    /// Whether the sweep of this store is a lock that its rows do not show.
    pub fn is_fleet(&self) -> Result<bool> {
        Ok(self.fleet && self.file()?.is_none())
    }

    /// What a command under a lock needs to find the same store: variables to set, or to unset, none of them secret.
    pub fn variables(&self) -> Result<Vec<(&'static str, Option<OsString>)>> {
        let path = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let flag = |set: bool| set.then(|| OsString::from("true"));
        let connection = match self.address()? {
            Address::Sqlite { path: file, .. } => {
                let mut url = OsString::from("sqlite:");
                url.push(path(&file));
                return Ok(vec![(URL, Some(url))]);
            }
            Address::Postgres(connection) => connection,
        };
        let mut variables = vec![
            (SCHEMA, Some(self.schema.clone().into())),
            (
                TLS_ROOTS,
                self.tls_roots.as_deref().map(|file| path(file).into()),
            ),
            (PLAINTEXT, flag(self.insecure_plaintext)),
            (POOLER, flag(self.transaction_pooler)),
            (FLEET, flag(self.fleet)),
        ];
        // An address with a password is passed on only as it came, by the variable; never that of another store.
        if std::env::var_os(URL).is_none_or(|url| *url != *connection) {
            let known = connection.parse::<tokio_postgres::Config>();
            let open = known.is_ok_and(|known| known.get_password().is_none());
            variables.push((URL, open.then(|| connection.into())));
        }
        Ok(variables)
    }

    fn address(&self) -> Result<Address> {
        let Some(url) = self.store.as_deref().filter(|url| !url.is_empty()) else {
            return Ok(Address::Sqlite {
                path: default_file()?,
                is_default: true,
            });
        };
        if let Some(path) = url.strip_prefix("sqlite:") {
            // Also as `sqlite:///absolute` and `sqlite://relative`, which is how some libraries write it.
            let path = path.strip_prefix("//").unwrap_or(path);
            if path.is_empty() || path == ":memory:" {
                return Err(Failure::new(USAGE, "the store's address names no file")
                    .advise("Write sqlite:PATH; a store in memory would end with this command."));
            }
            return Ok(Address::Sqlite {
                path: path.into(),
                is_default: false,
            });
        }
        if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            return Ok(Address::Postgres(url.to_owned()));
        }
        // The address is not shown: what it is wrong about may be where the password is.
        Err(
            Failure::new(USAGE, "the store's address is of no known kind").advise(format!(
                "Write sqlite:PATH or postgres://USER@HOST/DATABASE in --store or {URL}."
            )),
        )
    }

    fn postgres(&self, connection: &str) -> Result<PgOptions> {
        let mut options = PgOptions::new(connection)?
            .schema(&self.schema)
            .pool_size(2)
            .transaction_pooler(self.transaction_pooler)
            .fleet(self.fleet);
        if self.insecure_plaintext {
            options = options.tls(PgTls::InsecurePlaintext);
        }
        if let Some(file) = &self.tls_roots {
            let pem = std::fs::read(file).map_err(|error| {
                Failure::input(&format!("cannot read {}", file.display()), &error)
            })?;
            options = options.root_certificates(pem);
        }
        Ok(options)
    }
}

/// The folder of the default store is ours to make; any other is the user's, and its absence may be a mistake.
fn prepare(path: &Path, is_default: bool, missing: Missing) -> Result<()> {
    if let (true, Some(folder)) = (is_default, path.parent()) {
        return private_folder(folder)
            .map_err(|error| Failure::system(&format!("cannot make {}", folder.display()), error));
    }
    if missing == Missing::Refuse && !path.exists() {
        return Err(Failure::new(
            crate::exit::STORE,
            format!("there is no store at {}", path.display()),
        )
        .advise("Check the path, or make the store with `alkstore init`."));
    }
    Ok(())
}

fn private_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = std::fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn default_file() -> Result<PathBuf> {
    let absolute = |name: &str| {
        let path = std::env::var_os(name).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .or_else(|| absolute("LOCALAPPDATA"))
        .map(|state| state.join("alkstore").join("alkstore.db"))
        .ok_or_else(|| {
            Failure::new(
                SYSTEM,
                "there is no home folder to keep the default store in",
            )
            .advise(format!("Name a store with --store or {URL}."))
        })
}
