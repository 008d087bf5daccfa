//! Two workers of a fleet, one job: a lease decides who does it, and its token fences the result.
//!
//! `DATABASE_URL=postgres://... cargo run --example postgres --features postgres`
#![allow(clippy::print_stdout)]

use std::time::Duration;

use alkstore::{Entries, ErrorKind, Lifecycle, Locks, PutOptions, Result, Timestamp};
use alkstore_native::postgres::{PgOptions, PgStore};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL").map_err(|_| {
        "set DATABASE_URL to a database to try this on: postgres://user@host/database"
    })?;
    // A clock that is moved by hand, so that nobody has to wait for a lease to lapse. It needs a schema of its own.
    let options = PgOptions::new(&url)?
        .schema("alkstore_example")
        .manual_clock(Timestamp::from_nanos(0));
    Ok(run(options).await?)
}

pub(crate) async fn run(options: PgOptions) -> Result<()> {
    let ttl = Duration::from_secs(30);
    // Each worker is a process with a handle of its own; here both are in one.
    let ada = PgStore::open(options.clone()).await?;
    let bob = PgStore::open(options).await?;

    let job = "reports/2026-11";
    let Some(lease) = ada.try_lock(job, "ada", ttl).await? else {
        println!("somebody else is at it");
        return Ok(());
    };
    println!("ada has {job} with token {}", lease.token());
    assert!(bob.try_lock(job, "bob", ttl).await?.is_none());
    println!("bob does not get it, which is no error");

    // Ada stalls for longer than her lease, and bob takes over.
    let now = ada.now().await?;
    ada.set_clock(now.plus(ttl)).await?;
    let Some(taken) = bob.try_lock(job, "bob", ttl).await? else {
        println!("somebody else was quicker");
        return Ok(());
    };
    println!("bob has {job} with token {}", taken.token());
    let fenced = PutOptions::replace().guard(job, taken.token());
    bob.put(job.as_bytes(), b"bob's report", fenced).await?;

    // Ada wakes and believes that she still has it. The store knows better.
    let fenced = PutOptions::replace().guard(job, lease.token());
    match ada.put(job.as_bytes(), b"ada's report", fenced).await {
        Err(error) if error.kind() == ErrorKind::LeaseLost => println!("ada is told: {error}"),
        other => println!("not expected: {other:?}"),
    }
    taken.release().await?;

    let report = ada.get(job.as_bytes()).await?.map(|entry| entry.value);
    assert_eq!(report.as_deref(), Some(&b"bob's report"[..]));
    println!("the report that stands is bob's");
    Ok(())
}
