//! The window against its raw statements on the same table.

use std::time::Instant;

use alkstore::{Candidate, EngineWindowState as _, Key, Restage, Timestamp};
use futures_util::SinkExt as _;
use measure::{child, peak, resident, Table};
use tokio::runtime::Runtime;

use crate::peers::Raw;
use crate::{quoted, store};

pub const MEMORY: &str = "--window-memory";
const BATCH: usize = 10_000;

pub fn window(table: &mut Table, runtime: &Runtime, url: &str) {
    let sizes: &[usize] = if table.full() {
        &[100_000, 1_000_000]
    } else {
        &[100_000]
    };
    let (own, raw) = runtime.block_on(async {
        (
            store(url, 1, |options| options).await,
            Raw::connect(url, 1).await,
        )
    });
    let schema = quoted(&own);
    let takes = if table.full() { 5 } else { 3 };
    for &rows in sizes {
        for limit in [None, Some(BATCH)] {
            let (how, goal) = match limit {
                None => ("all at once", 0.9),
                Some(_) => ("in batches of 10000", 0.25),
            };
            let peers = [("DELETE RETURNING", Some(goal))];
            table.bulk(&format!("take {rows} {how}"), rows, &peers, takes, || {
                runtime.block_on(async {
                    fill(&raw, &schema, rows).await;
                    let begun = Instant::now();
                    let mut taken = 0;
                    while taken < rows {
                        let some = own.window_take(Timestamp::MAX, limit).await.unwrap().len();
                        assert!(some > 0);
                        taken += some;
                    }
                    let took = begun.elapsed().as_secs_f64();
                    fill(&raw, &schema, rows).await;
                    let begun = Instant::now();
                    assert_eq!(take_raw(&raw, &schema).await, rows);
                    vec![took, begun.elapsed().as_secs_f64()]
                })
            });
        }

        let all = candidates(rows);
        let text = bytes::Bytes::from(as_copied(&all));
        let rounds = if table.full() && rows == 100_000 {
            15
        } else {
            5
        };
        let peers = [("COPY", Some(0.5))];
        table.bulk(&format!("stage {rows}"), rows, &peers, rounds, || {
            runtime.block_on(async {
                clear(&raw, &schema).await;
                let begun = Instant::now();
                own.window_stage(&all, Restage::Move).await.unwrap();
                let took = begun.elapsed().as_secs_f64();
                clear(&raw, &schema).await;
                let begun = Instant::now();
                assert_eq!(copy(&raw, &schema, text.clone()).await, rows as u64);
                vec![took, begun.elapsed().as_secs_f64()]
            })
        });
        let [own, raw] = ["own", "raw"].map(|who| {
            let bytes = child(&[MEMORY, who, &rows.to_string(), url]);
            [bytes[0] / rows as f64, bytes[1] / rows as f64]
        });
        for (at, job) in ["stage", "take all of"].iter().enumerate() {
            let note = format!(
                "the client's process, above what is staged; raw {:.0}",
                raw[at]
            );
            table.figure(
                &format!("peak bytes a row, {job} {rows}"),
                "nothing",
                own[at],
                None,
                &note,
            );
        }
    }
}

/// Fills the window with due rows, in the order of no index.
pub async fn fill(raw: &Raw, schema: &str, rows: usize) {
    raw.run(&format!(
        "TRUNCATE {schema}.gc_window;
         INSERT INTO {schema}.gc_window (key, visible_after)
         SELECT sha256(n::text::bytea), n FROM generate_series(1, {rows}) n;
         ANALYZE {schema}.gc_window; CHECKPOINT"
    ))
    .await;
}

async fn clear(raw: &Raw, schema: &str) {
    raw.run(&format!("TRUNCATE {schema}.gc_window; CHECKPOINT"))
        .await;
}

/// As candidates, which is what the store answers.
async fn take_raw(raw: &Raw, schema: &str) -> usize {
    let rows = raw
        .rows(&format!(
            "DELETE FROM {schema}.gc_window WHERE visible_after <= 9e18::bigint RETURNING key, visible_after"
        ))
        .await;
    let taken: Vec<_> = rows
        .iter()
        .map(|row| Candidate {
            key: Key::new(row.get::<_, Vec<u8>>(0)).unwrap(),
            visible_after: Timestamp::from_nanos(row.get(1)),
        })
        .collect();
    taken.len()
}

async fn copy(raw: &Raw, schema: &str, text: bytes::Bytes) -> u64 {
    let sql = format!("COPY {schema}.gc_window (key, visible_after) FROM STDIN");
    let sink = raw.copy_in(&sql).await;
    futures_util::pin_mut!(sink);
    sink.send(text).await.unwrap();
    sink.finish().await.unwrap()
}

/// Keys as hashes are: 32 bytes, in no order.
fn candidates(rows: usize) -> Vec<Candidate> {
    let mut state = 1_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..rows)
        .map(|n| {
            let key: Vec<u8> = (0..4).flat_map(|_| next().to_be_bytes()).collect();
            Candidate {
                key: Key::new(key).unwrap(),
                visible_after: Timestamp::from_nanos(n as i64),
            }
        })
        .collect()
}

/// COPY's text form.
fn as_copied(all: &[Candidate]) -> String {
    let line = |row: &Candidate| {
        let hex: String = row
            .key
            .as_bytes()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        format!("\\\\x{hex}\t{}\n", row.visible_after.as_nanos())
    };
    all.iter().map(line).collect()
}

/// By how much the process grows at its peak while so many rows are staged, and then taken.
pub fn print_memory(who: &str, rows: &str, url: &str) -> std::io::Result<()> {
    let all = candidates(rows.parse().map_err(std::io::Error::other)?);
    let text = bytes::Bytes::from(if who == "own" {
        String::new()
    } else {
        as_copied(&all)
    });
    let runtime = tokio::runtime::Runtime::new()?;
    let (own, raw) = runtime.block_on(async {
        (
            store(url, 1, |options| options).await,
            Raw::connect(url, 1).await,
        )
    });
    let schema = quoted(&own);
    let before = resident();
    let staged = peak(|| {
        runtime.block_on(async {
            if who == "own" {
                own.window_stage(&all, Restage::Move).await.unwrap();
            } else {
                copy(&raw, &schema, text).await;
            }
        });
    });
    let between = resident() - before;
    let taken = peak(|| {
        let taken = runtime.block_on(async {
            if who == "own" {
                own.window_take(Timestamp::MAX, None).await.unwrap().len()
            } else {
                take_raw(&raw, &schema).await
            }
        });
        assert_eq!(taken, all.len());
    });
    println!("{staged} {}", between + taken);
    Ok(())
}
