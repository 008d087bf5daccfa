//! Two workers share a file: one does the nightly job, the other finds it taken.
//!
//! `cargo run --example sqlite --features bundled`
#![allow(clippy::print_stdout)]

use std::time::Duration;

use alkstore::{Entries, Lifecycle, Locks, PutMode, PutOptions, StoreExt};
use alkstore_native::sqlite::SqliteStore;
use futures_executor::block_on;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("jobs.db");
    block_on(async {
        // In life these are two processes; any runtime will do, here it is a bare `block_on`.
        let first = SqliteStore::open(&path).await?;
        let second = SqliteStore::open(&path).await?;

        let lease = Duration::from_secs(30);
        let Some(mut lock) = first.try_lock("nightly", "worker-1", lease).await? else {
            return Err("somebody else is at it".into());
        };
        assert!(second
            .try_lock("nightly", "worker-2", lease)
            .await?
            .is_none());
        println!("worker-1 has the lock with token {}", lock.token());

        // Renew while the job goes on. False would mean: the lease has lapsed, stop.
        assert!(lock.renew(lease).await?);

        // A fenced write: refused with `LeaseLost` if this worker had stalled past its lease.
        let fenced = PutOptions::replace().guard("nightly", lock.token());
        first
            .put(b"nightly/last-run", b"2031-05-06", fenced)
            .await?;
        assert!(lock.release().await?);

        // A transaction over several entries: all or nothing.
        second
            .put(b"inbox/1", b"report", PutOptions::create())
            .await?;
        let mut tx = second.begin();
        if let Some(job) = tx.get(b"inbox/1").await? {
            tx.put(b"done/1", &job.value, PutMode::Create, None).await?;
            tx.delete(b"inbox/1").await?;
        }
        tx.commit().await?;
        for entry in first.list(b"", None, 100).await? {
            println!(
                "{} ({} bytes)",
                String::from_utf8_lossy(entry.key.as_bytes()),
                entry.size
            );
        }

        first.close().await?;
        second.close().await?;
        Ok(())
    })
}
