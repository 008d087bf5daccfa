//! An invoice and the job that will send it come to be together, or not at all: rows of the application and entries of
//! the store in one transaction of SQLite.
//!
//! `cargo run --example sqlite_transaction --features bundled`
#![allow(clippy::print_stdout)]

use alkstore::{Changeset, Entries, ErrorKind, Key, PutMode};
use alkstore_native::sqlite::rusqlite::{params, Connection, TransactionBehavior};
use alkstore_native::sqlite::SqliteStore;
use futures_executor::block_on;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("shop.db");
    let store = block_on(SqliteStore::open(&path))?;

    // The application's own connection to the same file, and its own table.
    let mut connection = Connection::open(&path)?;
    connection.execute_batch("CREATE TABLE invoice (number INTEGER PRIMARY KEY, total INTEGER)")?;

    bill(&mut connection, &store, 1, 250)?;
    // The same again: the job is there already, so the second row must not be written either.
    match bill(&mut connection, &store, 1, 250) {
        Err(error)
            if error.downcast_ref().map(alkstore::Error::kind) == Some(ErrorKind::Conflict) =>
        {
            println!("invoice 1 was billed before");
        }
        other => return Err(format!("unexpected: {other:?}").into()),
    }

    let invoices: i64 =
        connection.query_row("SELECT count(*) FROM invoice", [], |row| row.get(0))?;
    let jobs = block_on(store.list(b"send/", None, 100))?;
    assert_eq!((invoices, jobs.len()), (1, 1));
    println!("{invoices} invoice, {} job", jobs.len());
    Ok(())
}

/// Writes the invoice and the job to send it.
fn bill(
    connection: &mut Connection,
    store: &SqliteStore,
    number: i64,
    total: i64,
) -> Result<(), Box<dyn std::error::Error>> {
    // Immediate: the write lock comes first, so that nothing that is read here can change before the commit.
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    tx.execute(
        "INSERT OR IGNORE INTO invoice VALUES (?1, ?2)",
        params![number, total],
    )?;

    let mut job = Changeset::new();
    let key = Key::new(format!("send/{number}").into_bytes())?;
    job.put(key, (&b"queued"[..]).into(), PutMode::Create, None)?;
    // Where this fails, the `?` drops the transaction, which takes the invoice back.
    store.apply_in(&tx, &job)?;

    tx.commit()?;
    Ok(())
}
