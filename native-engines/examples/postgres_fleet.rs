//! Publishers and a sweeper of a fleet: blobs are published and pinned, referenced from a table of the application, and
//! what nothing refers to is deleted.
//!
//! `DATABASE_URL=postgres://... cargo run --example postgres_fleet --features postgres`
#![allow(clippy::print_stdout)]

use std::time::Duration;

use alkstore::{EngineFleetState, Entries, Key, Lifecycle, Owner, Pin, Reclaim, Timestamp};
use alkstore_native::postgres::tokio_postgres::{connect, NoTls};
use alkstore_native::postgres::{PgOptions, PgStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| {
        "set DATABASE_URL to a database to try this on: postgres://user@host/database"
    })?;
    // A clock that is moved by hand, so that nobody has to wait for a pin to lapse. It needs a schema of its own.
    let options = PgOptions::new(&url)?
        .schema("alkstore_example_fleet")
        .manual_clock(Timestamp::from_nanos(0));
    run(&url, options, "example_pages").await
}

pub(crate) async fn run(
    url: &str,
    options: PgOptions,
    table: &str,
) -> Result<(), Box<dyn std::error::Error>> {
    let pin_ttl = Duration::from_secs(60);
    let store = PgStore::open(options.fleet(true).pin_ttl(pin_ttl)).await?;

    // The table of references is the application's own. Its column of keys has an index.
    let (client, connection) = connect(url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS public.{table}; \
             CREATE TABLE public.{table} (page text PRIMARY KEY, blob bytea NOT NULL); \
             CREATE INDEX ON public.{table} (blob)"
        ))
        .await?;
    store.register_liveness_source(table, "blob").await?;

    // A publisher writes two blobs and pins them, in one transaction.
    let mut tx = store.begin_joint_tx().await?;
    let owner = Owner::new(store.instance_id())?;
    let mut pins = Vec::new();
    for key in [&b"blob/kept"[..], b"blob/left"] {
        store.joint_put(&mut tx, key, b"...").await?;
        pins.push(Pin {
            key: Key::new(key)?,
            owner: owner.clone(),
            ttl: pin_ttl,
        });
    }
    store.pin_commit(tx, &pins).await?;

    // A sweep that comes now finds the pins.
    assert!(store.sweep_lock_acquire().await?);
    let epoch = store.sweep_epoch().ok_or("the sweep lock was released")?;
    let found = store.sweep_delete(b"blob/kept", epoch).await?;
    assert_eq!(found, Reclaim::Pinned);
    println!("blob/kept is pinned, so it stays");

    // The publisher refers to one of them while the pin is live, and forgets the other.
    client
        .execute(
            &format!("INSERT INTO public.{table} VALUES ('index', $1)"),
            &[&&b"blob/kept"[..]],
        )
        .await?;
    let now = store.now().await?;
    store.set_clock(now.plus(pin_ttl)).await?;

    let found = store.sweep_delete(b"blob/kept", epoch).await?;
    assert_eq!(found, Reclaim::Referenced);
    println!("blob/kept has a page that refers to it, so it stays");
    let found = store.sweep_delete(b"blob/left", epoch).await?;
    assert_eq!(found, Reclaim::Deleted { bytes: 3 });
    println!("nothing protects blob/left any more: it is gone");
    store.sweep_lock_release().await?;

    client
        .batch_execute(&format!("DROP TABLE public.{table}"))
        .await?;
    store.delete(b"blob/kept", None).await?;
    store.close().await?;
    Ok(())
}
