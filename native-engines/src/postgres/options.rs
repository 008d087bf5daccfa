//! How a store is opened.

use std::fmt;
use std::time::Duration;

use alkstore::{Error, ErrorKind, Result, Timestamp, Ttl};
use tokio_postgres::config::Host;
use tokio_postgres::Config;

/// The longest name of a schema, in bytes: Postgres itself would cut off what is longer, and two names could meet.
pub const MAX_SCHEMA_BYTES: usize = 63;

/// Where the server is and how to use it.
///
/// ```
/// use alkstore_native::postgres::PgOptions;
/// use std::time::Duration;
/// # fn main() -> alkstore::Result<()> {
/// let options = PgOptions::new("postgres://app@localhost/app")?
///     .schema("leases")
///     .pool_size(4)
///     .call_timeout(Duration::from_secs(5));
/// # let _ = options; Ok(()) }
/// ```
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools)] // each is an option of its own
pub struct PgOptions {
    pub(super) config: Config,
    pub(super) schema: String,
    pub(super) pool_size: usize,
    pub(super) call_timeout: Duration,
    pub(super) connect_timeout: Duration,
    pub(super) tls: PgTls,
    pub(super) roots: Vec<Vec<u8>>,
    pub(super) synchronous_commit: bool,
    pub(super) relaxed_release: bool,
    pub(super) transaction_pooler: bool,
    pub(super) manual_clock: Option<Timestamp>,
    pub(super) fleet: bool,
    pub(super) pin_ttl: Duration,
}

/// When the connection is encrypted, and the server's certificate and name are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PgTls {
    /// Verified TLS, unless all hosts are Unix sockets or loopback addresses: those are spoken to in plain text.
    #[default]
    Auto,
    /// Verified TLS, whatever the hosts are.
    Verify,
    /// Plain text, also to a server on the network: passwords and data can be read and changed on the way.
    InsecurePlaintext,
}

impl PgOptions {
    /// Options for the server of a connection string, `postgres://user:password@host/database` or
    /// `host=... user=...`.
    ///
    /// What the string says about TLS is not used: see [`tls`](Self::tls). A string that does not parse is
    /// [`InvalidArgument`](ErrorKind::InvalidArgument); the error does not show it, since it may hold a password.
    pub fn new(connection: &str) -> Result<Self> {
        let config = connection.parse::<Config>().map_err(|_| {
            Error::new(
                ErrorKind::InvalidArgument,
                "the connection string does not parse: write postgres://user:password@host:port/database or \
                 key=value pairs, with special characters percent-encoded or quoted",
            )
        })?;
        Ok(Self::from_config(config))
    }

    /// Options for the server of a driver's configuration.
    pub fn from_config(config: Config) -> Self {
        Self {
            config,
            schema: "alkstore".into(),
            pool_size: 10,
            call_timeout: Duration::from_secs(10),
            connect_timeout: Duration::from_secs(5),
            tls: PgTls::Auto,
            roots: Vec::new(),
            synchronous_commit: true,
            relaxed_release: false,
            transaction_pooler: false,
            manual_clock: None,
            fleet: false,
            pin_ttl: Duration::from_secs(60),
        }
    }

    /// The schema that holds the store, `alkstore` by default: 1 to 63 bytes, any characters but U+0000, case counts;
    /// not `information_schema` and not beginning with `pg_`. Two schemas are two stores.
    #[must_use]
    pub fn schema(mut self, schema: impl Into<String>) -> Self {
        self.schema = schema.into();
        self
    }

    /// The most connections that this handle opens; 10 by default. Calls beyond that wait for one, within their
    /// [`call_timeout`](Self::call_timeout). Holding a lock takes none.
    #[must_use]
    pub fn pool_size(mut self, connections: usize) -> Self {
        self.pool_size = connections;
        self
    }

    /// How long any call may take, waits for a connection and for rows included; 10 s by default. The server is told
    /// to give up a little earlier, so that a call which only waited too long is known not to have happened. A
    /// server that does not answer at all leaves a call that [may have happened](Error::is_outcome_unknown).
    #[must_use]
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// How long opening one connection may take; 5 s by default.
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Whether to use TLS; see [`PgTls`].
    #[must_use]
    pub fn tls(mut self, tls: PgTls) -> Self {
        self.tls = tls;
        self
    }

    /// Certificates of authorities to trust for the server, as PEM, in the place of those of the operating system.
    #[must_use]
    pub fn root_certificates(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.roots.push(pem.into());
        self
    }

    /// Whether a write is answered only when it is on the server's disk; true by default. False loses the last
    /// fraction of a second of acknowledged writes when the server crashes, grants of locks included, and so may
    /// hand out a token twice.
    #[must_use]
    pub fn synchronous_commit(mut self, on: bool) -> Self {
        self.synchronous_commit = on;
        self
    }

    /// Whether the release of a lock, and it alone, is answered before it is on the server's disk; false by default.
    /// After a crash of the server a released lock may then be held until it lapses. Tokens and exclusion are not
    /// touched.
    #[must_use]
    pub fn relaxed_release(mut self, relaxed: bool) -> Self {
        self.relaxed_release = relaxed;
        self
    }

    /// Allows a pooler that hands a connection to somebody else after each transaction, as `PgBouncer` does with
    /// `pool_mode=transaction`; false by default, and then opening through such a pooler fails.
    ///
    /// Every operation of a store is one statement or one transaction, so they work through it; only a
    /// [fleet](Self::fleet)'s sweep does not, since its lock is a session's. What a session would be set to
    /// must then be the default of the role or the database (`ALTER ROLE ... SET`), and opening checks it: READ
    /// COMMITTED, `synchronous_commit`. The server does not know of [`call_timeout`](Self::call_timeout): set a
    /// `statement_timeout` for the role too. Statements are not prepared, so each costs more.
    #[must_use]
    pub fn transaction_pooler(mut self, allowed: bool) -> Self {
        self.transaction_pooler = allowed;
        self
    }

    /// For tests, yours too: a store whose clock shows `start` and stands still until
    /// [`set_clock`](super::PgStore::set_clock) moves it, for every handle on the schema.
    ///
    /// The clock is chosen when the schema is made. A schema that was made without this option cannot be opened with
    /// it, nor the other way round, so the clock of real data cannot be switched by accident.
    #[must_use]
    pub fn manual_clock(mut self, start: Timestamp) -> Self {
        self.manual_clock = Some(start);
        self
    }

    /// Whether other processes publish and sweep here too; false by default. Then being the sweep is not a lease with a
    /// deadline but a lock of a connection of its own ([`sweep_lock_acquire`]), and each sweep's epoch fences it.
    /// Every handle that sweeps a schema has to say the same.
    ///
    /// The clauses of [`EngineFleetState`](alkstore::EngineFleetState) work either way.
    ///
    /// [`sweep_lock_acquire`]: alkstore::EngineFleetState::sweep_lock_acquire
    #[must_use]
    pub fn fleet(mut self, fleet: bool) -> Self {
        self.fleet = fleet;
        self
    }

    /// How long a pin lives after each [renewal](alkstore::EngineFleetState::pin_renew); 60 s by default. It has to
    /// outlast the time from publishing a key to committing a reference, or be renewed meanwhile, as a
    /// [`PinKeeper`](super::PinKeeper) does.
    #[must_use]
    pub fn pin_ttl(mut self, ttl: Duration) -> Self {
        self.pin_ttl = ttl;
        self
    }

    /// Fails on the first option that no store can be opened with.
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |what: &'static str| Err(Error::new(ErrorKind::InvalidArgument, what));
        if self.schema.is_empty() || self.schema.len() > MAX_SCHEMA_BYTES {
            return wrong("the name of the schema must have 1 to 63 bytes");
        }
        if self.schema.contains('\0') {
            return wrong("the name of the schema contains U+0000");
        }
        if self.schema.starts_with("pg_") || self.schema == "information_schema" {
            return wrong(
                "the name of the schema is one that Postgres keeps for itself: choose another",
            );
        }
        if self.schema.contains(super::schema::QUOTE) {
            return wrong("the name of the schema contains \"$alkstore$\": choose another");
        }
        if self.pool_size == 0 {
            return wrong("the pool must have at least one connection");
        }
        if self.call_timeout < Duration::from_millis(10) || self.connect_timeout.is_zero() {
            return wrong(
                "the timeout of a call must be at least 10 ms, that of connecting above zero",
            );
        }
        Ttl::new(self.pin_ttl).map(drop)
    }

    /// Whether to speak TLS to these hosts.
    pub(super) fn verifies(&self) -> bool {
        match self.tls {
            PgTls::Verify => true,
            PgTls::InsecurePlaintext => false,
            PgTls::Auto => !self.is_local(),
        }
    }

    fn is_local(&self) -> bool {
        let addresses = self.config.get_hostaddrs();
        if !addresses.is_empty() {
            return addresses.iter().all(std::net::IpAddr::is_loopback);
        }
        self.config.get_hosts().iter().all(|host| match host {
            Host::Tcp(name) => {
                name == "localhost"
                    || name
                        .parse::<std::net::IpAddr>()
                        .is_ok_and(|ip| ip.is_loopback())
            }
            #[cfg(unix)]
            Host::Unix(_) => true,
        })
    }
}

/// Shows nothing of the connection but the schema: the rest may be secret.
impl fmt::Debug for PgOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PgOptions")
            .field("schema", &self.schema)
            .field("pool_size", &self.pool_size)
            .field("call_timeout", &self.call_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("tls", &self.tls)
            .field("synchronous_commit", &self.synchronous_commit)
            .field("relaxed_release", &self.relaxed_release)
            .field("transaction_pooler", &self.transaction_pooler)
            .field("manual_clock", &self.manual_clock)
            .field("fleet", &self.fleet)
            .field("pin_ttl", &self.pin_ttl)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_spoken_to_in_the_clear() {
        for (url, verifies) in [
            ("postgres://u@localhost/d", false),
            ("postgres://u@127.0.0.1/d", false),
            ("postgres://u@[::1]/d", false),
            ("postgres://u@%2Fvar%2Frun/d", false),
            ("host=db.example.org hostaddr=127.0.0.1", false),
            ("host=localhost hostaddr=192.0.2.1", true),
            ("postgres://u@192.0.2.1/d", true),
            ("postgres://u@localhost,db.example.org/d", true),
            ("postgres://u@localhost.example.org/d", true),
            ("postgres://u@db.example.org/d?sslmode=disable", true),
            ("postgres://u@db.example.org/d?sslmode=prefer", true),
        ] {
            let options = PgOptions::new(url).unwrap();
            assert_eq!(options.verifies(), verifies, "{url}");
            assert!(options.clone().tls(PgTls::Verify).verifies());
            assert!(!options.tls(PgTls::InsecurePlaintext).verifies());
        }
    }
}
