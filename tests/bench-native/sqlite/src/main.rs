//! SQLite: locks and the window against the earlier engine, another library, and the bare statements.
//!
//! The file is made in `BENCH_DIR`, by default the folder for temporary files: that should be on the disk to be
//! measured, not in memory.

mod sweep;
mod window;

use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use alkstore::{
    Candidate, EngineWindowState as _, Entries as _, Key, Lifecycle as _, Locks as _, PutOptions,
    Restage,
};
use alkstore_native::sqlite::{SqliteOptions, SqliteStore, Synchronous};
use futures_executor::block_on;
use futures_util::future::join_all;
use measure::{human, wanted, Contender, Table};
use rusqlite::{params, Connection};

const TTL: Duration = Duration::from_secs(30);
const CALLERS: usize = 32;

fn main() -> std::io::Result<()> {
    let folder = match std::env::var_os("BENCH_DIR") {
        Some(folder) => tempfile::tempdir_in(folder)?,
        None => tempfile::tempdir()?,
    };
    let args: Vec<_> = std::env::args().collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[1..] {
        [PUTTING, path] => return put_for_a_while(path.as_ref()),
        [window::MEMORY, who, rows] => return window::print_memory(who, rows, folder.path()),
        _ => {}
    }
    let mut table = Table::new("sqlite");
    type Job = fn(&mut Table, &Path);
    let jobs: [(&str, Job); 8] = [
        ("pairs", pairs),
        ("callers", callers),
        ("losing", losing),
        ("entries", entries),
        ("window", window::window),
        ("sweep", sweep::sweep),
        ("growth", growth),
        ("processes", processes),
    ];
    for (name, job) in jobs {
        if wanted(name) {
            let own = folder.path().join(name);
            std::fs::create_dir(&own)?;
            job(&mut table, &own);
        }
    }
    table.finish()
}

fn store(path: &Path, synchronous: Synchronous) -> SqliteStore {
    block_on(SqliteOptions::new().synchronous(synchronous).open(path)).unwrap()
}

/// A connection as the store opens its own.
fn bare(path: &Path, synchronous: Synchronous) -> Connection {
    let connection = Connection::open(path).unwrap();
    let level = match synchronous {
        Synchronous::Full => "FULL",
        Synchronous::Normal => "NORMAL",
    };
    let settings = format!("PRAGMA journal_mode = WAL; PRAGMA synchronous = {level}");
    connection.execute_batch(&settings).unwrap();
    connection.set_prepared_statement_cache_capacity(64);
    connection
}

fn run(connection: &Connection, sql: &str, params: impl rusqlite::Params) -> usize {
    connection
        .prepare_cached(sql)
        .unwrap()
        .execute(params)
        .unwrap()
}

/// One row, one commit, in the leanest table that can hold a lock.
fn bare_commit(connection: &Connection, n: i64) {
    run(
        connection,
        "INSERT INTO lean (name, owner, token, deadline) VALUES (?1, ?2, ?3, ?4)
         ON CONFLICT (name) DO UPDATE SET owner = ?2, token = ?3, deadline = ?4",
        params!["shard/7", "worker", n, n],
    );
}

const LEAN: &str = "CREATE TABLE lean (name TEXT PRIMARY KEY, owner TEXT, token INTEGER, deadline INTEGER) WITHOUT ROWID";

async fn pair(store: &SqliteStore, name: &str) {
    let lock = store.try_lock(name, "worker", TTL).await.unwrap().unwrap();
    assert!(lock.release().await.unwrap());
}

fn honker(path: &Path, synchronous: &str) -> Connection {
    let connection = honker_core::open_conn(path.to_str().unwrap(), false).unwrap();
    honker_core::attach_honker_functions(&connection).unwrap();
    honker_core::bootstrap_honker_schema(&connection).unwrap();
    let level = format!("PRAGMA synchronous = {synchronous}");
    connection.execute_batch(&level).unwrap();
    connection
}

fn honker_pair(connection: &Connection) {
    for sql in [
        "SELECT honker_lock_acquire(?1, ?2, 30)",
        "SELECT honker_lock_release(?1, ?2)",
    ] {
        let mut statement = connection.prepare_cached(sql).unwrap();
        let held: i64 = statement
            .query_row(["shard/7", "worker"], |row| row.get(0))
            .unwrap();
        assert_eq!(held, 1);
    }
}

fn pairs(table: &mut Table, folder: &Path) {
    for (level, synchronous, relaxed) in [
        ("FULL", Synchronous::Full, false),
        ("FULL", Synchronous::Full, true),
        ("NORMAL", Synchronous::Normal, false),
    ] {
        let folder = &folder.join(format!("{level}-{relaxed}"));
        std::fs::create_dir(folder).unwrap();
        let options = SqliteOptions::new()
            .synchronous(synchronous)
            .relaxed_release(relaxed);
        let store = block_on(options.open(folder.join("own.db"))).unwrap();
        let honker = honker(&folder.join(format!("honker-{level}.db")), level);
        let lean = bare(&folder.join(format!("bare-{level}.db")), synchronous);
        lean.execute_batch(LEAN).unwrap();
        let full = synchronous == Synchronous::Full;

        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // Its durability is NORMAL, which cannot be changed: no peer for FULL.
        let earlier = (!full).then(|| {
            let _inside = runtime.enter();
            let path = folder.join("earlier.db");
            peer_sqlite::open(path.to_str().unwrap(), peer_sqlite::SqliteOpts::default()).unwrap()
        });

        let mut contenders = vec![
            Contender::new("own", |n| {
                block_on(async {
                    for _ in 0..n {
                        pair(&store, "shard/7").await;
                    }
                })
            }),
            Contender::new("honker-core 0.5", |n| {
                (0..n).for_each(|_| honker_pair(&honker))
            }),
            Contender::new("bare one-row commits", |n| {
                (0..n).for_each(|n| bare_commit(&lean, n as i64));
            }),
        ];
        if let Some(earlier) = &earlier {
            contenders.push(Contender::new("alkstore-sqlite 0.1.0", |n| {
                runtime.block_on(async {
                    for _ in 0..n {
                        let lock = earlier
                            .try_lock("shard/7", "worker", 30)
                            .await
                            .unwrap()
                            .unwrap();
                        assert!(lock.release().await.unwrap());
                    }
                })
            }));
        }
        for contender in &mut contenders {
            contender.warm(WARM);
        }
        // A pair whose release waits for the disk is two commits that do: half of the rate of one is out of reach.
        let goals: &[_] = if full {
            &[("honker-core 0.5", 1.2), ("bare one-row commits", 0.5)]
        } else {
            &[("alkstore-sqlite 0.1.0", 3.0)]
        };
        let how = if relaxed { ", relaxed release" } else { "" };
        table.race(&format!("pair, {level}{how}"), &mut contenders, goals);
    }
}

/// Until its first checkpoint a log grows, and every sync of it costs more than later, when it is written over.
const WARM: u64 = 1_200;

/// Pairs by callers that wait together, against pairs one after the other.
fn callers(table: &mut Table, folder: &Path) {
    for (level, synchronous) in [("FULL", Synchronous::Full), ("NORMAL", Synchronous::Normal)] {
        let store = store(&folder.join(format!("own-{level}.db")), synchronous);
        let lean = bare(&folder.join(format!("bare-{level}.db")), synchronous);
        lean.execute_batch(LEAN).unwrap();
        let names: Vec<String> = (0..CALLERS).map(|n| format!("shard/{n}")).collect();
        let mut contenders = vec![
            Contender::new("own", |n| {
                block_on(join_all(names.iter().map(|name| async {
                    for _ in 0..n {
                        pair(&store, name).await;
                    }
                })));
            }),
            Contender::new("one caller", |n| {
                block_on(async {
                    for _ in 0..n * CALLERS as u64 {
                        pair(&store, "shard/7").await;
                    }
                })
            }),
            Contender::new("bare one-row commits", |n| {
                (0..n * CALLERS as u64).for_each(|n| bare_commit(&lean, n as i64));
            }),
        ];
        for contender in &mut contenders {
            contender.warm(WARM / CALLERS as u64);
        }
        let goal = if synchronous == Synchronous::Full {
            Some(("one caller", 8.0))
        } else {
            None
        };
        table.race(
            &format!("{CALLERS} pairs, {CALLERS} waiting callers, {level}"),
            &mut contenders,
            goal.as_slice(),
        );
    }
}

fn losing(table: &mut Table, folder: &Path) {
    let path = folder.join("own.db");
    let store = store(&path, Synchronous::Full);
    block_on(store.try_lock("shard/7", "winner", TTL))
        .unwrap()
        .unwrap();
    let lean = bare(&folder.join("bare.db"), Synchronous::Full);
    lean.execute_batch(LEAN).unwrap();
    bare_commit(&lean, 1);
    let mut contenders = [
        Contender::new("own", |n| {
            block_on(async {
                for _ in 0..n {
                    assert!(store
                        .try_lock("shard/7", "loser", TTL)
                        .await
                        .unwrap()
                        .is_none());
                }
            })
        }),
        Contender::new("bare SELECT of one row", |n| {
            for _ in 0..n {
                let mut statement = lean
                    .prepare_cached("SELECT owner, token, deadline FROM lean WHERE name = ?1")
                    .unwrap();
                let row: (String, i64, i64) = statement
                    .query_row(["shard/7"], |row| {
                        Ok((row.get(0)?, row.get(1)?, row.get(2)?))
                    })
                    .unwrap();
                black_box(row);
            }
        }),
        Contender::new("bare upsert that changes nothing", |n| {
            for n in 0..n {
                run(
                    &lean,
                    "INSERT INTO lean VALUES (?1, ?2, ?3, ?4)
                     ON CONFLICT (name) DO UPDATE SET owner = ?2 WHERE deadline < 0",
                    params!["shard/7", "loser", n as i64, 0],
                );
            }
        }),
    ];
    table.race("losing try_lock", &mut contenders, &[]);
}

fn entries(table: &mut Table, folder: &Path) {
    let store = store(&folder.join("own.db"), Synchronous::Full);
    let lean = bare(&folder.join("bare.db"), Synchronous::Full);
    lean.execute_batch("CREATE TABLE lean (key BLOB PRIMARY KEY, value BLOB)")
        .unwrap();
    let value = [7; 100];
    let put = |connection: &Connection| {
        run(
            connection,
            "INSERT OR REPLACE INTO lean VALUES (?1, ?2)",
            params![&b"key"[..], &value[..]],
        );
    };
    put(&lean);
    let mut contenders = [
        Contender::new("own", |n| {
            block_on(async {
                for _ in 0..n {
                    store
                        .put(b"key", &value, PutOptions::replace())
                        .await
                        .unwrap();
                }
            })
        }),
        Contender::new("bare one-row commits", |n| (0..n).for_each(|_| put(&lean))),
    ];
    table.race("put of 100 bytes, FULL", &mut contenders, &[]);
    let mut contenders = [
        Contender::new("own", |n| {
            block_on(async {
                for _ in 0..n {
                    black_box(store.get(b"key").await.unwrap());
                }
            })
        }),
        Contender::new("bare SELECT of one row", |n| {
            for _ in 0..n {
                let mut statement = lean
                    .prepare_cached("SELECT value FROM lean WHERE key = ?1")
                    .unwrap();
                let value: Vec<u8> = statement
                    .query_row([&b"key"[..]], |row| row.get(0))
                    .unwrap();
                black_box(value);
            }
        }),
    ];
    table.race("get of 100 bytes", &mut contenders, &[]);
}

/// Every operation with many rows there, against itself with few.
fn growth(table: &mut Table, folder: &Path) {
    let few = store(&folder.join("few.db"), Synchronous::Normal);
    let many = store(&folder.join("many.db"), Synchronous::Normal);
    for (store, rows) in [(&few, 1_000), (&many, 100_000)] {
        block_on(async {
            let all: Vec<String> = (0..rows).map(|n| format!("row/{n:07}")).collect();
            let later = store.now().await.unwrap().plus(TTL * 1_000);
            let window: Vec<Candidate> = all
                .iter()
                .map(|key| Candidate {
                    key: Key::new(key.clone().into_bytes()).unwrap(),
                    visible_after: later,
                })
                .collect();
            store.window_stage(&window, Restage::Move).await.unwrap();
            for chunk in all.chunks(1_000) {
                let ttl = TTL * 1_000;
                let locks = chunk.iter().map(|key| store.try_lock(key, "worker", ttl));
                for lock in join_all(locks).await {
                    assert!(lock.unwrap().is_some());
                }
                let puts = chunk.iter().map(|key| {
                    store.put(
                        key.as_bytes(),
                        key.as_bytes(),
                        PutOptions::create().ttl(ttl),
                    )
                });
                for put in join_all(puts).await {
                    assert!(put.unwrap().is_stored());
                }
            }
        });
    }
    type Operation = fn(&SqliteStore, u64);
    let operations: [(&'static str, Operation); 7] = [
        ("pair", |store, _| block_on(pair(store, "row/new"))),
        ("losing try_lock", |store, n| {
            let name = format!("row/{:07}", n * 7 % 1_000);
            assert!(block_on(store.try_lock(&name, "other", TTL))
                .unwrap()
                .is_none());
        }),
        ("put", |store, n| {
            let key = format!("row/{:07}", n * 7 % 1_000);
            block_on(store.put(key.as_bytes(), b"again", PutOptions::replace())).unwrap();
        }),
        ("get", |store, n| {
            let key = format!("row/{:07}", n * 7 % 1_000);
            assert!(block_on(store.get(key.as_bytes())).unwrap().is_some());
        }),
        ("list of 100", |store, _| {
            let page = block_on(store.list(b"row/", Some(b"row/0000500"), 100)).unwrap();
            assert_eq!(page.len(), 100);
        }),
        ("stage, claim and settle 1", |store, n| {
            block_on(async {
                let now = store.now().await.unwrap();
                let row = Candidate {
                    key: Key::new(format!("due/{n}").into_bytes()).unwrap(),
                    visible_after: now,
                };
                store.window_stage(&[row], Restage::Move).await.unwrap();
                let claims = store.window_claim(now, TTL, 10).await.unwrap();
                assert_eq!(store.window_settle(&claims).await.unwrap(), 1);
            })
        }),
        ("purge of nothing", |store, _| {
            assert_eq!(block_on(store.purge_lapsed(100)).unwrap(), 0);
        }),
    ];
    for (name, operation) in operations {
        let mut contenders = [
            Contender::new("own", |n| (0..n).for_each(|n| operation(&many, n))),
            Contender::new("itself at 10^3 rows", |n| {
                (0..n).for_each(|n| operation(&few, n))
            }),
        ];
        table.race(&format!("{name}, 10^5 rows, NORMAL"), &mut contenders, &[]);
    }
}

const PROCESSES: usize = 4;
const PUTTING: &str = "--put-for-a-while";

/// Several processes that write without a pause: how long one of them waits for its turn at worst, and how evenly the
/// turns are dealt out.
fn processes(table: &mut Table, folder: &Path) {
    let path = folder.join("own.db");
    drop(store(&path, Synchronous::Full));
    let children: Vec<_> = (0..PROCESSES)
        .map(|_| {
            std::process::Command::new(std::env::current_exe().unwrap())
                .arg(PUTTING)
                .arg(&path)
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let mut counts = Vec::new();
    let mut worst: f64 = 0.0;
    for child in children {
        let said = child.wait_with_output().unwrap();
        assert!(said.status.success());
        let said = String::from_utf8(said.stdout).unwrap();
        let (count, longest) = said.trim().split_once(' ').unwrap();
        counts.push(count.parse::<f64>().unwrap());
        worst = worst.max(longest.parse().unwrap());
    }
    let (least, most) = (
        counts.iter().copied().fold(f64::MAX, f64::min),
        counts.iter().copied().fold(0.0, f64::max),
    );
    let note = format!(
        "longest wait {}; {:.0} puts in all",
        human(worst),
        counts.iter().sum::<f64>()
    );
    let job = format!("{PROCESSES} processes putting, FULL: most puts of one");
    table.figure(&job, "least puts of one", most / least, None, &note);
}

fn put_for_a_while(path: &Path) -> std::io::Result<()> {
    let store = store(path, Synchronous::Full);
    let key = std::process::id().to_string();
    let start = std::time::Instant::now();
    let (mut count, mut worst) = (0_u64, 0.0_f64);
    while start.elapsed() < Duration::from_secs(3) {
        let put = std::time::Instant::now();
        block_on(store.put(key.as_bytes(), b"value", PutOptions::replace())).unwrap();
        worst = worst.max(put.elapsed().as_secs_f64());
        count += 1;
    }
    println!("{count} {worst}");
    Ok(())
}
