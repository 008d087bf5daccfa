//! Sweeps of a file against raw deletion of the same entries.

use std::collections::HashSet;
use std::path::Path;
use std::time::Instant;

use alkstore::{
    sweep as sweep_store, Candidate, EngineWindowState as _, HookError, HookFuture, Key,
    LivenessSource, Restage, SweepOptions, Timestamp,
};
use alkstore_native::sqlite::Synchronous;
use futures_executor::block_on;
use measure::Table;
use rusqlite::Connection;

use crate::window::candidates;
use crate::{bare, run, store};

/// Of the sweep and of its peer.
const BATCH: usize = 1_000;

/// References to keys that are not in the window, so that all of it goes.
struct References(HashSet<Vec<u8>>);

impl LivenessSource for References {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        Box::pin(async {
            Ok(keys
                .iter()
                .map(|key| self.0.contains(key.as_bytes()))
                .collect())
        })
    }
}

pub fn sweep(table: &mut Table, folder: &Path) {
    let rows = if table.full() { 100_000 } else { 20_000 };
    let all = candidates(rows);
    let references = References((0..rows).map(|n: usize| n.to_be_bytes().to_vec()).collect());
    let path = folder.join("own.db");
    let store = store(&path, Synchronous::Full);
    let filler = bare(&path, Synchronous::Full);
    let path = folder.join("bare.db");
    drop(crate::store(&path, Synchronous::Full));
    let raw = bare(&path, Synchronous::Full);
    // As the store has it.
    raw.execute_batch("PRAGMA cache_size = -16384").unwrap();
    let due: Vec<_> = all
        .iter()
        .map(|row| Candidate {
            key: row.key.clone(),
            visible_after: Timestamp::from_nanos(0),
        })
        .collect();
    for asks in [false, true] {
        let how = if asks {
            "asking a source"
        } else {
            "the window alone"
        };
        let peers = [
            ("DELETE by key, 1000 a transaction", None),
            ("DELETE of the whole table, row by row", None),
        ];
        let rounds = if table.full() { 5 } else { 3 };
        table.bulk(
            &format!("sweep {rows}, {how}"),
            rows,
            &peers,
            rounds,
            || {
                fill(&filler, &all);
                block_on(store.window_stage(&due, Restage::Move)).unwrap();
                carry_over(&filler);
                let options = if asks {
                    SweepOptions::new().batch(BATCH).source(&references)
                } else {
                    SweepOptions::new().batch(BATCH).window_decides()
                };
                let begun = Instant::now();
                let report = block_on(sweep_store(&store, options)).unwrap();
                let took = begun.elapsed().as_secs_f64();
                assert_eq!(report.deleted, rows as u64);

                fill(&raw, &all);
                let begun = Instant::now();
                for batch in all.chunks(BATCH) {
                    raw.execute_batch("BEGIN IMMEDIATE").unwrap();
                    for row in batch {
                        let sql = "DELETE FROM alkstore_entry WHERE key = ?1";
                        assert_eq!(run(&raw, sql, [row.key.as_bytes()]), 1);
                    }
                    raw.execute_batch("COMMIT").unwrap();
                }
                let by_key = begun.elapsed().as_secs_f64();

                fill(&raw, &all);
                let begun = Instant::now();
                // Without a condition SQLite would drop the pages unread.
                let gone = run(&raw, "DELETE FROM alkstore_entry WHERE version > 0", []);
                assert_eq!(gone, rows);
                vec![took, by_key, begun.elapsed().as_secs_f64()]
            },
        );
    }
}

fn fill(connection: &Connection, all: &[Candidate]) {
    connection.execute_batch("BEGIN IMMEDIATE").unwrap();
    for row in all {
        run(
            connection,
            "INSERT INTO alkstore_entry (key, version, value) VALUES (?1, 1, zeroblob(100))",
            [row.key.as_bytes()],
        );
    }
    connection.execute_batch("COMMIT").unwrap();
    carry_over(connection);
}

fn carry_over(connection: &Connection) {
    connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
}
