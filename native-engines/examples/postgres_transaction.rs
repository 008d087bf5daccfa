//! An invoice and the job that will send it come to be together, or not at all: rows of the application and entries of
//! the store in one transaction of Postgres.
//!
//! `DATABASE_URL=postgres://... cargo run --example postgres_transaction --features postgres`
#![allow(clippy::print_stdout)]

use alkstore::{Changeset, Entries, ErrorKind, Key, PutMode};
use alkstore_native::postgres::tokio_postgres::{connect, Client, NoTls};
use alkstore_native::postgres::{PgOptions, PgStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| {
        "set DATABASE_URL to a database to try this on: postgres://user@host/database"
    })?;
    run(&url, PgOptions::new(&url)?.schema("alkstore_example_shop")).await
}

pub(crate) async fn run(url: &str, options: PgOptions) -> Result<(), Box<dyn std::error::Error>> {
    let store = PgStore::open(options).await?;

    // The application's own connection to the same database, and its own table.
    let (mut client, connection) = connect(url, NoTls).await?;
    tokio::spawn(connection);
    client
        .batch_execute("CREATE TEMPORARY TABLE invoice (number bigint PRIMARY KEY, total bigint)")
        .await?;

    bill(&mut client, &store, 1, 250).await?;
    // The same again: the job is there already, so the second row must not be written either.
    match bill(&mut client, &store, 1, 250).await {
        Err(error)
            if error.downcast_ref().map(alkstore::Error::kind) == Some(ErrorKind::Conflict) =>
        {
            println!("invoice 1 was billed before");
        }
        other => return Err(format!("unexpected: {other:?}").into()),
    }

    let invoices: i64 = client
        .query_one("SELECT count(*) FROM invoice", &[])
        .await?
        .get(0);
    let jobs = store.list(b"send/", None, 100).await?;
    assert_eq!((invoices, jobs.len()), (1, 1));
    println!("{invoices} invoice, {} job", jobs.len());
    for job in jobs {
        store.delete(job.key.as_bytes(), None).await?;
    }
    Ok(())
}

/// Writes the invoice and the job to send it.
async fn bill(
    client: &mut Client,
    store: &PgStore,
    number: i64,
    total: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    let mut tx = client.transaction().await?;
    tx.execute(
        "INSERT INTO invoice VALUES ($1, $2) ON CONFLICT DO NOTHING",
        &[&number, &total],
    )
    .await?;

    let mut job = Changeset::new();
    let key = Key::new(format!("send/{number}").into_bytes())?;
    job.put(key, (&b"queued"[..]).into(), PutMode::Create, None)?;
    // Where this fails, the `?` drops the transaction, which takes the invoice back.
    store.apply_in(&mut tx, &job).await?;

    tx.commit().await?;
    println!("invoice {number} over {total} and its job are there");
    Ok(())
}
