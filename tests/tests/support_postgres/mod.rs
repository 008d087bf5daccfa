//! The fixture of the Postgres engine: each state is a schema of its own, on a clock that stands still.
#![allow(dead_code)] // every runner is a program of its own, and uses a part of this
#![allow(clippy::expect_used)] // what no case can go on without

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use alkstore::{BoxFuture, Error, ErrorKind, Result, Timestamp};
use alkstore_native::postgres::{PgOptions, PgStore};
use alkstore_tests::postgres::{fresh_schema, Server};
use alkstore_tests::{Engine, Fixture, Limits, Opened, START};

/// Stores in schemas of one server.
#[derive(Debug)]
pub(crate) struct Schemas {
    server: &'static Server,
    fleet: bool,
    states: Mutex<States>,
}

#[derive(Debug)]
struct States {
    now: Timestamp,
    /// Each schema, with a handle that moves its clock.
    schemas: Vec<(String, Arc<PgStore>)>,
}

impl Schemas {
    pub(crate) fn new(server: &'static Server, fleet: bool) -> Self {
        Self {
            server,
            fleet,
            states: Mutex::new(States {
                now: START,
                schemas: Vec::new(),
            }),
        }
    }

    fn states(&self) -> std::sync::MutexGuard<'_, States> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn store(&self, schema: &str) -> Result<PgStore> {
        let now = self.states().now;
        let options = PgOptions::new(self.server.url())?
            .schema(schema)
            .pool_size(4)
            .call_timeout(Duration::from_secs(60))
            .fleet(self.fleet)
            // Set where the connection string leads through a pooler, to run the list through it.
            .transaction_pooler(std::env::var_os("ALKSTORE_PG_POOLER").is_some())
            .manual_clock(now);
        PgStore::open(options).await
    }

    async fn fresh(&self) -> Result<Opened> {
        let schema = fresh_schema();
        let clock = Arc::new(self.store(&schema).await?);
        let state = {
            let mut states = self.states();
            states.schemas.push((schema.clone(), clock));
            states.schemas.len() - 1
        };
        self.opened(&schema, state).await
    }

    async fn opened(&self, schema: &str, state: usize) -> Result<Opened> {
        Ok(Opened {
            store: Arc::new(self.store(schema).await?),
            snapshots: None,
            state,
        })
    }
}

impl Fixture for Schemas {
    fn engine(&self) -> Engine {
        if self.fleet {
            Engine::Fleet
        } else {
            Engine::Postgres
        }
    }

    /// The engine has no option that could limit it but the size of the server's disk.
    fn open(&self, limits: Limits) -> BoxFuture<'_, Result<Opened>> {
        if limits != Limits::default() {
            let refused = Error::new(ErrorKind::InvalidArgument, "a schema knows no such limits");
            return Box::pin(async { Err(refused) });
        }
        Box::pin(self.fresh())
    }

    fn another<'a>(&'a self, of: &'a Opened) -> BoxFuture<'a, Result<Opened>> {
        Box::pin(async move {
            let schema = self.states().schemas[of.state].0.clone();
            self.opened(&schema, of.state).await
        })
    }

    fn set_clock(&self, to: Timestamp) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let clocks: Vec<_> = {
                let mut states = self.states();
                states.now = to;
                states
                    .schemas
                    .iter()
                    .map(|(_, clock)| Arc::clone(clock))
                    .collect()
            };
            for clock in clocks {
                clock.set_clock(to).await?;
            }
            Ok(())
        })
    }

    fn advance(&self, by: Duration) -> BoxFuture<'_, Result<()>> {
        let to = self.states().now.plus(by);
        self.set_clock(to)
    }
}

/// Runs a test on the server, on stores of a fleet or not, where there is one, and drops its schemas from a server that stays.
pub(crate) fn on_server<T>(fleet: bool, test: impl AsyncFnOnce(&Schemas) -> T) -> Option<T> {
    let server = alkstore_tests::postgres::server()?;
    let fixture = Schemas::new(server, fleet);
    Some(block_on(async {
        let done = test(&fixture).await;
        if std::env::var_os(alkstore_tests::postgres::URL).is_some() {
            clear(&fixture).await;
        }
        done
    }))
}

async fn clear(fixture: &Schemas) {
    let connected = tokio_postgres::connect(fixture.server.url(), tokio_postgres::NoTls).await;
    let (client, connection) = connected.expect("the server that the tests ran on");
    tokio::spawn(connection);
    let schemas: Vec<_> = fixture.states().schemas.drain(..).collect();
    for (schema, _) in schemas {
        let drop = format!("DROP SCHEMA \"{schema}\" CASCADE");
        client
            .batch_execute(&drop)
            .await
            .expect("a schema of our own");
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}
