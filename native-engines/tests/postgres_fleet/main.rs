//! Safe deletion across a fleet on Postgres: publishers, pins, arbitration and the one sweeper, at the steps where they
//! meet. The clock stands still unless a test moves it; a raw connection holds up whoever is to be overtaken.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

#[path = "../postgres_support/mod.rs"]
mod postgres_support;

mod asking;
mod dropped;
mod joint;
mod keeper;
mod lease;
mod pins;
mod races;
mod references;
mod sources;

use std::future::{poll_fn, Future};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use alkstore::{EngineFleetState, Entries, Error, ErrorKind, Key, Owner, Pin, PutOptions, Result};
use alkstore_native::postgres::{PgJointTx, PgOptions, PgStore};
use postgres_support::{Place, START};
use tokio_postgres::Client;

/// A store here, on a clock that stands still.
async fn open(place: &Place) -> Arc<PgStore> {
    open_with(place, |options| options).await
}

async fn open_with(place: &Place, with: impl FnOnce(PgOptions) -> PgOptions) -> Arc<PgStore> {
    let options = with(place.options().manual_clock(START));
    Arc::new(place.open(options).await)
}

fn pin<'a>(key: &'a [u8], owner: &'a str, ttl: Duration) -> Pin<'a> {
    Pin {
        key: Key::new(key).unwrap(),
        owner: Owner::new(owner).unwrap(),
        ttl,
    }
}

/// A joint transaction in which the keys were put.
async fn joint(store: &PgStore, keys: &[&[u8]]) -> Result<PgJointTx> {
    let mut tx = store.begin_joint_tx().await?;
    for key in keys {
        store.joint_put(&mut tx, key, b"v").await?;
    }
    Ok(tx)
}

/// Publishes a key, pinned for owner `w`.
async fn publish(store: &PgStore, key: &[u8], ttl: Duration) -> Result<()> {
    let tx = joint(store, &[key]).await?;
    store.pin_commit(tx, &[pin(key, "w", ttl)]).await
}

async fn put(store: &PgStore, key: &[u8]) {
    assert!(store
        .put(key, b"v", PutOptions::create())
        .await
        .unwrap()
        .is_stored());
}

async fn has(store: &PgStore, key: &[u8]) -> bool {
    store.get(key).await.unwrap().is_some()
}

/// Becomes the sweeper.
async fn sweeper(store: &PgStore) -> alkstore::Revision {
    assert!(store.sweep_lock_acquire().await.unwrap());
    store.sweep_epoch().unwrap()
}

/// A table of references, registered.
async fn references(place: &Place, client: &Client, store: &PgStore) {
    place
        .run(
            client,
            "CREATE TABLE {s}.refs (key bytea NOT NULL); CREATE INDEX ON {s}.refs (key)",
        )
        .await;
    let table = format!("{}.refs", place.schema);
    store.register_liveness_source(&table, "key").await.unwrap();
}

fn spawn<T: Send + 'static>(
    store: &Arc<PgStore>,
    call: impl FnOnce(Arc<PgStore>) -> alkstore::BoxFuture<'static, T>,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(call(Arc::clone(store)))
}

async fn count(place: &Place, client: &Client, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {{s}}.{table}");
    place.row(client, &sql).await.get(0)
}

/// The error of something that changed nothing and may be tried again.
fn is_conflict(error: &Error) -> bool {
    error.kind() == ErrorKind::Conflict && error.is_retryable() && !error.is_outcome_unknown()
}

/// When a future is dropped that is not ready yet.
#[derive(Clone, Copy, Debug)]
enum Drop {
    /// Right after the last poll, while the server is at work.
    Asked,
    /// When it would be polled again, as the answer has come.
    Answered,
}

/// Polls at most `polls` times, and then drops.
async fn polled<F: Future>(future: F, polls: usize, at: Drop) -> Option<F::Output> {
    let mut future = Box::pin(future);
    let mut left = polls;
    poll_fn(|cx| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        match (future.as_mut().poll(cx), at) {
            (Poll::Pending, Drop::Asked) if left == 0 => Poll::Ready(None),
            (poll, _) => poll.map(Some),
        }
    })
    .await
}

/// Returns once no session of this application is in a transaction or at work.
async fn until_quiet(client: &Client, application: &str) {
    for _ in 0..10_000 {
        let row = client
            .query_one(
                "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND state <> 'idle'",
                &[&application],
            )
            .await
            .unwrap();
        if row.get::<_, i64>(0) == 0 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    panic!("a session of {application} is in a transaction");
}
