//! Sweeps from end to end against raw deletion of the same entries.

use std::collections::HashSet;
use std::time::Instant;

use alkstore::{
    sweep as sweep_store, EngineFleetState as _, HookError, HookFuture, Key, LivenessSource,
    SweepOptions,
};
use alkstore_native::postgres::PgStore;
use measure::Table;
use tokio::runtime::Runtime;

use crate::peers::Raw;
use crate::{quoted, store};

/// Of the goal, whichever way raw deletion is done.
const GOAL: Option<f64> = Some(0.15);

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

/// Who is asked what is live.
#[derive(Clone, Copy, PartialEq)]
enum Asked {
    Nobody,
    Source,
    /// A fleet's store: one key in twenty has a live pin, another one a row in a registered table. Both tables also hold
    /// as many rows about other keys.
    Fleet,
}

pub fn sweep(table: &mut Table, runtime: &Runtime, url: &str) {
    let (some, many) = if table.full() {
        (100_000, 1_000_000)
    } else {
        (20_000, 20_000)
    };
    let cases = [
        (Asked::Nobody, 1_000, some, "the window alone"),
        (Asked::Nobody, 10_000, many, "the window alone"),
        (Asked::Source, 1_000, some, "asking a source"),
        (Asked::Fleet, 1_000, some, "pins and a registered table"),
        (Asked::Fleet, 10_000, some, "pins and a registered table"),
    ];
    let raw = runtime.block_on(Raw::connect(url, 1));
    for (asked, batch, rows, how) in cases {
        if !table.full() && asked == Asked::Fleet && batch > 1_000 {
            continue;
        }
        let (own, bare) = runtime.block_on(async {
            let own = store(url, 2, |options| options.fleet(asked == Asked::Fleet)).await;
            (own, store(url, 1, |options| options).await)
        });
        let references = References((0..rows).map(|n: usize| n.to_be_bytes().to_vec()).collect());
        let job = format!("sweep {rows} by {batch}, {how}");
        let by_key = format!("DELETE by key, {batch} a commit");
        let peers = [(by_key.as_str(), GOAL), ("DELETE of the whole table", GOAL)];
        let rounds = if rows == 100_000 { 5 } else { 3 };
        table.bulk(&job, rows, &peers, rounds, || {
            runtime.block_on(async {
                let gone = fill(&raw, &own, rows, asked).await;
                let options = SweepOptions::new().batch(batch);
                let options = match asked {
                    Asked::Nobody => options.window_decides(),
                    Asked::Source => options.source(&references),
                    Asked::Fleet => options,
                };
                let begun = Instant::now();
                let report = sweep_store(&own, options).await.unwrap();
                let took = begun.elapsed().as_secs_f64();
                assert_eq!(report.deleted, gone, "{report:?}");
                assert_eq!(report.examined, rows as u64);
                vec![
                    took,
                    delete_by_key(&raw, &bare, rows, asked, batch).await,
                    delete_all(&raw, &bare, rows, asked).await,
                ]
            })
        });
    }
}

/// Which of the numbers of keys nothing protects.
fn free(asked: Asked) -> &'static str {
    match asked {
        Asked::Fleet => "n % 20 > 1",
        Asked::Nobody | Asked::Source => "true",
    }
}

/// Entries of 100 bytes, all due in the window. Answers how many of them nothing protects.
async fn fill(raw: &Raw, own: &PgStore, rows: usize, asked: Asked) -> u64 {
    let schema = quoted(own);
    fill_entries(raw, &schema, rows, "true").await;
    crate::window::fill(raw, &schema, rows).await;
    if asked == Asked::Fleet {
        raw.run(&format!(
            "CREATE TABLE IF NOT EXISTS {schema}.refs (key bytea NOT NULL);
             CREATE INDEX IF NOT EXISTS refs_key ON {schema}.refs (key);
             TRUNCATE {schema}.refs, {schema}.gc_pins;
             INSERT INTO {schema}.gc_pins SELECT sha256(n::text::bytea), 'publisher', 9e18
             FROM generate_series(1, {rows}) n WHERE n % 20 = 0;
             INSERT INTO {schema}.refs SELECT sha256(n::text::bytea) FROM generate_series(1, {rows}) n WHERE n % 20 = 1;
             INSERT INTO {schema}.gc_pins SELECT sha256((-n)::text::bytea), 'publisher', 9e18
             FROM generate_series(1, {rows}) n;
             INSERT INTO {schema}.refs SELECT sha256((-n)::text::bytea) FROM generate_series(1, {rows}) n;
             ANALYZE {schema}.refs; ANALYZE {schema}.gc_pins; CHECKPOINT"
        ))
        .await;
        let table = format!("{}.refs", own.schema());
        own.register_liveness_source(&table, "key").await.unwrap();
    }
    let sql = format!(
        "SELECT count(*) FROM generate_series(1, {rows}) n WHERE {}",
        free(asked)
    );
    u64::try_from(raw.rows(&sql).await[0].get::<_, i64>(0)).unwrap()
}

pub async fn fill_entries(raw: &Raw, schema: &str, rows: usize, which: &str) {
    raw.run(&format!(
        "TRUNCATE {schema}.entries;
         INSERT INTO {schema}.entries SELECT sha256(n::text::bytea), convert_to(repeat('v', 100), 'UTF8'), n, NULL
         FROM generate_series(1, {rows}) n WHERE {which};
         ANALYZE {schema}.entries; CHECKPOINT"
    ))
    .await;
}

/// In the order and the batches of the sweep.
async fn delete_by_key(raw: &Raw, bare: &PgStore, rows: usize, asked: Asked, batch: usize) -> f64 {
    let schema = quoted(bare);
    fill_entries(raw, &schema, rows, free(asked)).await;
    let keys: Vec<Vec<u8>> = raw
        .rows(&format!(
            "SELECT key FROM {schema}.entries ORDER BY version"
        ))
        .await
        .iter()
        .map(|row| row.get(0))
        .collect();
    let sql = format!("DELETE FROM {schema}.entries WHERE key = ANY ($1)");
    let statement = raw.prepare(0, &sql).await;
    let begun = Instant::now();
    for batch in keys.chunks(batch) {
        let gone = raw.execute(0, &statement, &[&batch]).await;
        assert_eq!(gone, batch.len() as u64);
    }
    begun.elapsed().as_secs_f64()
}

async fn delete_all(raw: &Raw, bare: &PgStore, rows: usize, asked: Asked) -> f64 {
    let schema = quoted(bare);
    fill_entries(raw, &schema, rows, free(asked)).await;
    let statement = raw
        .prepare(0, &format!("DELETE FROM {schema}.entries"))
        .await;
    let begun = Instant::now();
    raw.execute(0, &statement, &[]).await;
    begun.elapsed().as_secs_f64()
}
