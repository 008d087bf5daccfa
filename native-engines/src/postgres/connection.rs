//! Connections, and how a statement runs on one: within a deadline, and never leaving a connection behind in a state
//! that the next borrower could notice.

use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use alkstore::{Error, ErrorKind, Result};
use deadpool_postgres::{
    ClientWrapper, Hook, HookError, Manager, ManagerConfig, Object, Pool, RecyclingMethod,
};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Config, NoTls, Row};

use super::error::{Failure, Stage};
use super::{tls, PgOptions};

/// How often a statement that lost a deadlock is tried; each time nothing of it had been applied.
const ATTEMPTS: usize = 10;

/// One statement of a store.
#[derive(Debug)]
pub(super) struct Statement {
    text: String,
    types: Vec<Type>,
    writes: bool,
}

impl Statement {
    pub(super) fn reads<const N: usize>(text: String, types: [Type; N]) -> Self {
        Self {
            text,
            types: types.into(),
            writes: false,
        }
    }

    pub(super) fn writes<const N: usize>(text: String, types: [Type; N]) -> Self {
        Self {
            writes: true,
            ..Self::reads(text, types)
        }
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn stage(&self) -> Stage {
        if self.writes {
            Stage::Writing
        } else {
            Stage::Reading
        }
    }

    /// The parameters with their types, for statements that are not prepared.
    pub(super) fn typed<'p>(
        &self,
        params: &[&'p (dyn ToSql + Sync)],
    ) -> Vec<(&'p (dyn ToSql + Sync), Type)> {
        params
            .iter()
            .copied()
            .zip(self.types.iter().cloned())
            .collect()
    }
}

/// The pool.
pub(super) struct Connections {
    pool: Pool,
    /// Where connections come from that never go back to a pool.
    separate: Pool,
    timeout: Duration,
    prepares: bool,
}

impl Connections {
    pub(super) fn new(options: &PgOptions) -> Result<Self> {
        Ok(Self {
            pool: pool(options, options.pool_size)?,
            separate: pool(options, 1)?,
            timeout: options.call_timeout,
            prepares: !options.transaction_pooler,
        })
    }

    /// Ends the pool: idle connections close now, others when their call ends.
    pub(super) fn close(&self) {
        self.pool.close();
        self.separate.close();
    }

    pub(super) fn are_closed(&self) -> bool {
        self.pool.is_closed()
    }

    pub(super) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Whether a pooler may be in between, so that a session is nobody's own.
    pub(super) fn are_pooled(&self) -> bool {
        !self.prepares
    }

    /// A connection outside the pool, which closes when it is dropped.
    pub(super) async fn separate(&self) -> std::result::Result<ClientWrapper, Failure> {
        self.separate
            .get()
            .await
            .map(Object::take)
            .map_err(Failure::Pool)
    }

    /// A connection that leaves the pool unless it is [given back](Borrowed::give_back).
    pub(super) async fn borrow(&self) -> std::result::Result<Borrowed, Failure> {
        self.pool
            .get()
            .await
            .map(|object| Borrowed(Some(object)))
            .map_err(Failure::Pool)
    }

    /// Runs one statement in a transaction of its own and answers its rows, after the commit.
    pub(super) async fn rows(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Vec<Row>> {
        let mut stage = Stage::Connecting;
        let work = async {
            for attempt in 1.. {
                let mut borrowed = self.borrow().await?;
                stage = statement.stage();
                match self.run(borrowed.client()?, statement, params).await {
                    Ok(rows) => {
                        borrowed.give_back();
                        return Ok(rows);
                    }
                    Err(failure) => {
                        if failure.spares_connection() {
                            borrowed.give_back();
                        }
                        if attempt == ATTEMPTS || !failure.lost_a_race() {
                            return Err(failure);
                        }
                        stage = Stage::Connecting;
                    }
                }
            }
            Err(Failure::Answer)
        };
        match tokio::time::timeout(self.timeout, work).await {
            Ok(Ok(rows)) => Ok(rows),
            Ok(Err(failure)) => Err(failure.into_error(stage)),
            Err(_) => Err(Failure::Elapsed(self.timeout).into_error(stage)),
        }
    }

    /// The same for a statement that always answers one row.
    pub(super) async fn row(
        &self,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> Result<Row> {
        let row = self.rows(statement, params).await?.pop();
        row.ok_or_else(|| Failure::Answer.into_error(statement.stage()))
    }

    /// Runs one statement in whatever transaction the connection has.
    pub(super) async fn run(
        &self,
        client: &Object,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<Vec<Row>, Failure> {
        if self.prepares {
            let prepared = client
                .prepare_typed_cached(&statement.text, &statement.types)
                .await?;
            Ok(client.query(&prepared, params).await?)
        } else {
            Ok(client
                .query_typed(&statement.text, &statement.typed(params))
                .await?)
        }
    }

    /// Runs the last statement of a transaction and commits. Both are sent before either is answered, so nothing on
    /// this side comes between them. Where the statement fails the server takes the commit for a rollback.
    pub(super) async fn run_and_commit(
        &self,
        client: &Object,
        statement: &Statement,
        params: &[&(dyn ToSql + Sync)],
    ) -> std::result::Result<(), (Failure, Stage)> {
        let prepared = if self.prepares {
            let prepared = client.prepare_typed_cached(&statement.text, &statement.types);
            Some(prepared.await.map_err(|e| (e.into(), Stage::Reading))?)
        } else {
            None
        };
        let mut last = pin!(async {
            match &prepared {
                Some(prepared) => client.query(prepared, params).await,
                None => {
                    client
                        .query_typed(&statement.text, &statement.typed(params))
                        .await
                }
            }
        });
        let mut commit = pin!(client.batch_execute("COMMIT"));
        let (mut ran, mut committed) = (false, false);
        poll_fn(|cx| {
            if !ran {
                match last.as_mut().poll(cx) {
                    Poll::Ready(Ok(_)) => ran = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            if !committed {
                match commit.as_mut().poll(cx) {
                    Poll::Ready(Ok(())) => committed = true,
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {}
                }
            }
            if ran && committed {
                Poll::Ready(Ok(()))
            } else {
                Poll::Pending
            }
        })
        .await
        .map_err(|error| (error.into(), Stage::Writing))
    }
}

fn pool(options: &PgOptions, size: usize) -> Result<Pool> {
    let config = session(options);
    // Fast: a connection comes back only after a statement or a transaction that ended, so there is nothing to clean.
    let manager = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let manager = if options.verifies() {
        Manager::from_config(config, tls::connector(&options.roots)?, manager)
    } else {
        Manager::from_config(config, NoTls, manager)
    };
    Pool::builder(manager)
        .max_size(size)
        .post_create(check_session(options))
        .build()
        .map_err(|error| {
            Error::new(ErrorKind::InvalidArgument, "the pool cannot be set up").with_source(error)
        })
}

/// A borrowed connection. Dropping it, as an abandoned or timed-out call does, closes the connection: the server may
/// still be at work on it.
pub(super) struct Borrowed(Option<Object>);

impl Borrowed {
    pub(super) fn client(&mut self) -> std::result::Result<&mut Object, Failure> {
        self.0.as_mut().ok_or(Failure::Answer)
    }

    pub(super) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}

/// The value of the answer's column, of the type that the statement gives it.
pub(super) fn column<'r, T: tokio_postgres::types::FromSql<'r>>(
    row: &'r Row,
    at: usize,
) -> Result<T> {
    row.try_get(at)
        .map_err(|_| Failure::Answer.into_error(Stage::Reading))
}

/// The configuration of a connection: its limits, and what its session is pinned to, whatever the defaults of role
/// and database are.
fn session(options: &PgOptions) -> Config {
    let mut config = options.config.clone();
    config.connect_timeout(options.connect_timeout);
    config.tcp_user_timeout(options.call_timeout.saturating_mul(2));
    config.ssl_mode(if options.verifies() {
        tokio_postgres::config::SslMode::Require
    } else {
        tokio_postgres::config::SslMode::Disable
    });
    if config.get_application_name().is_none() {
        config.application_name("alkstore");
    }
    if options.transaction_pooler {
        return config;
    }
    // Earlier than the caller's own deadline, so that the server still gets to say that it gave up.
    let server_timeout = options.call_timeout.saturating_mul(9) / 10;
    let given = config.get_options().unwrap_or_default();
    let pinned = format!(
        "{given} -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off \
         -c search_path=pg_catalog,pg_temp -c standard_conforming_strings=on -c client_min_messages=warning \
         -c jit=off -c row_security=off -c lock_timeout=0 -c statement_timeout={} -c synchronous_commit={} -c {SESSION_MARK}=1",
        server_timeout.as_millis().clamp(1, 2_147_483_647),
        if options.synchronous_commit { "on" } else { "off" },
    );
    config.options(pinned.trim_start().to_owned());
    config
}

/// A setting of our own, by which a session shows that it is the one we configured.
const SESSION_MARK: &str = "alkstore.session";

/// Refuses a connection whose session is not as it must be: behind a pooler that drops or shares session settings,
/// isolation and deadlines would silently be somebody else's.
fn check_session(options: &PgOptions) -> Hook {
    let pooled = options.transaction_pooler;
    let synchronous = options.synchronous_commit;
    Hook::async_fn(move |client, _| {
        Box::pin(async move {
            let row = client
                .query_typed(
                    "SELECT pg_catalog.current_setting($1, true), pg_catalog.current_setting('transaction_isolation'), \
                     pg_catalog.current_setting('synchronous_commit')",
                    &[(&SESSION_MARK, Type::TEXT)],
                )
                .await
                .map_err(HookError::Backend)?
                .pop();
            let setting = |at| {
                row.as_ref()
                    .and_then(|row| row.try_get::<_, Option<String>>(at).ok().flatten())
            };
            if pooled {
                if setting(1).as_deref() != Some("read committed") {
                    return Err(HookError::message(
                        "through a transaction pooler the role's default_transaction_isolation must be 'read \
                         committed': set it with ALTER ROLE",
                    ));
                }
                if synchronous && setting(2).as_deref() == Some("off") {
                    return Err(HookError::message(
                        "through a transaction pooler the role's synchronous_commit must be 'on': set it with ALTER \
                         ROLE, or open the store with synchronous_commit(false)",
                    ));
                }
            } else if setting(0).as_deref() != Some("1") {
                return Err(HookError::message(
                    "the session's settings did not arrive: a pooler is in between; connect to the server itself, or \
                     open the store with transaction_pooler(true)",
                ));
            }
            Ok(())
        })
    })
}
