//! What the tests of the Postgres engine share: a schema of their own on the test server, and raw connections that
//! look into it, hold rows, and see who waits.
#![allow(dead_code)] // each test program uses a part of it

use std::future::Future;
use std::time::Duration;

use alkstore::{Error, Timestamp};
use alkstore_native::postgres::{PgCause, PgOptions, PgStore};
use alkstore_tests::postgres::fresh_schema;
use tokio_postgres::{Client, NoTls, Row};

/// What the clocks show at first.
pub(crate) const START: Timestamp = Timestamp::from_nanos(1_000_000_000_000_000);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// The advisory lock that stalled inserts wait for: one of the schema's own, as tests share a database.
const STALL: &str = "hashtextextended('{s}', 0)";

/// A schema on a server.
pub(crate) struct Place {
    pub(crate) url: String,
    pub(crate) schema: String,
}

impl Place {
    /// A fresh one on the server of this test process; `None` where there is no server.
    pub(crate) fn new() -> Option<Self> {
        Some(Self::on(alkstore_tests::postgres::server()?.url()))
    }

    pub(crate) fn on(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            schema: fresh_schema(),
        }
    }

    /// Options for a store here, on the server's clock.
    pub(crate) fn options(&self) -> PgOptions {
        PgOptions::new(&self.url)
            .expect("a url")
            .schema(&self.schema)
            .call_timeout(Duration::from_secs(60))
    }

    /// A store here, on a clock that stands still.
    pub(crate) async fn store(&self) -> PgStore {
        self.open(self.options().manual_clock(START)).await
    }

    pub(crate) async fn open(&self, options: PgOptions) -> PgStore {
        PgStore::open(options).await.expect("a store")
    }

    /// A raw connection.
    pub(crate) async fn client(&self) -> Client {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls)
            .await
            .expect("a server");
        tokio::spawn(connection);
        client
    }

    /// Runs statements on `client`; `{s}` is the schema.
    pub(crate) async fn run(&self, client: &Client, sql: &str) {
        client
            .batch_execute(&self.fill(sql))
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
    }

    /// The one row of a query on `client`.
    pub(crate) async fn row(&self, client: &Client, sql: &str) -> Row {
        client
            .query_one(&self.fill(sql), &[])
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"))
    }

    /// From now until [`let_go`](Self::let_go), inserts into `table` of rows for which `condition` on `NEW` holds wait
    /// just before they write. `client` is what holds them up.
    pub(crate) async fn stall_inserts(&self, client: &Client, table: &str, condition: &str) {
        let sql = format!(
            "CREATE FUNCTION {{s}}.stall() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
               IF {condition} THEN PERFORM pg_advisory_xact_lock_shared({STALL}); END IF;
               RETURN NEW;
             END $$;
             CREATE TRIGGER stall BEFORE INSERT ON {{s}}.{table} FOR EACH ROW EXECUTE FUNCTION {{s}}.stall();
             SELECT pg_advisory_lock({STALL})"
        );
        self.run(client, &sql).await;
    }

    /// Lets the inserts go on that [`stall_inserts`](Self::stall_inserts) holds up.
    pub(crate) async fn let_go(&self, client: &Client) {
        let sql = format!("SELECT pg_advisory_unlock({STALL})");
        self.run(client, &sql).await;
    }

    pub(crate) fn fill(&self, sql: &str) -> String {
        sql.replace("{s}", &format!("\"{}\"", self.schema))
    }

    /// Returns once `count` statements on this schema wait for a lock.
    pub(crate) async fn until_waiting(&self, client: &Client, count: i64) {
        for _ in 0..10_000 {
            let row = client
                .query_one(
                    "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                     AND strpos(query, $1) > 0 AND pid <> pg_backend_pid()",
                    &[&self.schema],
                )
                .await
                .expect("the activity");
            if row.get::<_, i64>(0) == count {
                return;
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        panic!("nobody waits");
    }
}

/// A runtime with two threads, as users have.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
        .block_on(future)
}

pub(crate) fn sqlstate(error: &Error) -> Option<&str> {
    PgCause::of(error)?.sqlstate()
}
