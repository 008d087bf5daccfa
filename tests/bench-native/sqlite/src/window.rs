//! The window in a file against its raw statements: the same table with the same indexes, worked on by hand.

use std::path::Path;
use std::time::Instant;

use alkstore::{Candidate, EngineWindowState as _, Key, Restage, Timestamp};
use alkstore_native::sqlite::{SqliteStore, Synchronous};
use futures_executor::block_on;
use measure::{child, peak, resident, Table};
use rusqlite::{params, Connection};

use crate::{bare, run, store};

pub const MEMORY: &str = "--window-memory";
/// After the latest instant of [`candidates`].
const NOW: i64 = 1_000_000;
const PEER: &str = "its raw statements";

/// Keys as the hashes of contents are: 32 bytes, in no order.
pub fn candidates(rows: usize) -> Vec<Candidate> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..rows)
        .map(|_| {
            let key: Vec<u8> = (0..4).flat_map(|_| next().to_be_bytes()).collect();
            Candidate {
                key: Key::new(key).unwrap(),
                visible_after: Timestamp::from_nanos((next() % NOW as u64) as i64),
            }
        })
        .collect()
}

/// A store, and a connection to the file of another one, which nobody else uses.
struct Pair {
    own: SqliteStore,
    raw: Connection,
}

impl Pair {
    fn open(folder: &Path) -> Self {
        let path = folder.join("bare.db");
        drop(store(&path, Synchronous::Full));
        let raw = bare(&path, Synchronous::Full);
        // As the store has it.
        raw.execute_batch("PRAGMA cache_size = -16384").unwrap();
        let own = store(&folder.join("own.db"), Synchronous::Full);
        Self { own, raw }
    }

    fn stage(&self, rows: &[Candidate]) {
        block_on(self.own.window_stage(rows, Restage::Move)).unwrap();
    }

    fn take(&self, limit: Option<usize>) -> usize {
        let now = Timestamp::from_nanos(NOW);
        block_on(self.own.window_take(now, limit)).unwrap().len()
    }

    fn stage_raw(&self, rows: &[Candidate]) {
        for rows in rows.chunks(10_000) {
            self.raw.execute_batch("BEGIN IMMEDIATE").unwrap();
            for row in rows {
                run(
                    &self.raw,
                    "INSERT INTO alkstore_window (key, visible_after) VALUES (?1, ?2)
                     ON CONFLICT (key) DO UPDATE SET visible_after = ?2",
                    params![row.key.as_bytes(), row.visible_after.as_nanos()],
                );
            }
            self.raw.execute_batch("COMMIT").unwrap();
        }
    }

    fn take_raw(&self, limit: Option<usize>) -> usize {
        let mut statement = self
            .raw
            .prepare_cached(
                "DELETE FROM alkstore_window WHERE key IN (
                    SELECT key FROM alkstore_window WHERE claim IS NULL AND reclaiming = 0 AND visible_after <= ?1
                    ORDER BY visible_after LIMIT ?2)
                 RETURNING key, visible_after",
            )
            .unwrap();
        let limit = limit.map_or(-1, |limit| limit as i64);
        let taken = statement
            .query_map([NOW, limit], |row| {
                Ok(Candidate {
                    key: Key::new(row.get::<_, Vec<u8>>(0)?).unwrap(),
                    visible_after: Timestamp::from_nanos(row.get(1)?),
                })
            })
            .unwrap();
        taken.map(Result::unwrap).collect::<Vec<_>>().len()
    }

    /// Carries both logs over, so that nobody pays for what was before.
    fn settle(&self) {
        let own = self
            .raw
            .path()
            .map(|path| path.replace("bare.db", "own.db"));
        for connection in [&self.raw, &Connection::open(own.unwrap()).unwrap()] {
            connection
                .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
                .unwrap();
        }
    }
}

pub fn window(table: &mut Table, folder: &Path) {
    let sizes: &[usize] = if table.full() {
        &[10_000, 100_000, 1_000_000]
    } else {
        &[10_000, 100_000]
    };
    for &rows in sizes {
        let folder = folder.join(rows.to_string());
        std::fs::create_dir(&folder).unwrap();
        let pair = Pair::open(&folder);
        let all = candidates(rows);
        let rounds = match rows {
            10_000 if table.full() => 15,
            100_000 if table.full() => 5,
            10_000 => 7,
            _ => 3,
        };
        let timed = |work: &dyn Fn()| {
            pair.settle();
            let begun = Instant::now();
            work();
            begun.elapsed().as_secs_f64()
        };
        // What is staged must be taken again, so the times of the one job come from the rounds of the other.
        let mut stages = Vec::new();
        for limit in [Some(rows / 10), None] {
            let how = match limit {
                Some(limit) => format!("in batches of {limit}"),
                None => "all at once".to_owned(),
            };
            let drain = |take: &dyn Fn(Option<usize>) -> usize| {
                timed(&|| {
                    let mut taken = 0;
                    while taken < rows {
                        let some = take(limit);
                        assert!(some > 0);
                        taken += some;
                    }
                })
            };
            let job = format!("take {rows} {how}");
            table.bulk(&job, rows, &[(PEER, Some(0.8))], rounds, || {
                stages.push(vec![
                    timed(&|| pair.stage(&all)),
                    timed(&|| pair.stage_raw(&all)),
                ]);
                vec![
                    drain(&|limit| pair.take(limit)),
                    drain(&|limit| pair.take_raw(limit)),
                ]
            });
        }
        let job = format!("stage {rows}");
        let rounds = stages.len();
        let mut stages = stages.into_iter();
        table.bulk(&job, rows, &[(PEER, Some(0.8))], rounds, || {
            stages.next().unwrap_or_default()
        });
        let [own, raw] = ["own", "raw"].map(|who| {
            let bytes = child(&[MEMORY, who, &rows.to_string()]);
            [bytes[0] / rows as f64, bytes[1] / rows as f64]
        });
        for (at, job) in ["stage", "take all of"].iter().enumerate() {
            let note = format!(
                "the process, above the list of candidates; raw {:.0}",
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

/// By how much the process grows at its peak while so many rows are staged, and then taken.
pub fn print_memory(who: &str, rows: &str, folder: &Path) -> std::io::Result<()> {
    let all = candidates(rows.parse().map_err(std::io::Error::other)?);
    let pair = Pair::open(folder);
    let before = resident();
    let (stage, take): (&dyn Fn(&[Candidate]), &dyn Fn(Option<usize>) -> usize) = if who == "own" {
        (&|all| pair.stage(all), &|limit| pair.take(limit))
    } else {
        (&|all| pair.stage_raw(all), &|limit| pair.take_raw(limit))
    };
    let staged = peak(|| stage(&all));
    let between = resident() - before;
    let taken = peak(|| assert_eq!(take(None), all.len()));
    println!("{staged} {}", between + taken);
    Ok(())
}
