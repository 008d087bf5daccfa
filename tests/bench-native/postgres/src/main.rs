//! Postgres: locks and the window against the earlier engine, other ways to lock, and the bare statements.
//!
//! The server is a throwaway one in the folder for temporary files (`TMPDIR`), with its defaults, so each commit is
//! synced; or the one that `ALKSTORE_PG_URL` names. `cargo run --release -p bench-postgres -- pairs` runs one job.

mod arbitration;
mod peers;
mod sweep;
mod window;

use std::time::{Duration, Instant};

use alkstore::{EngineWindowState as _, Entries as _, Locks as _, PutOptions, Timestamp};
use alkstore_native::postgres::{PgOptions, PgStore};
use alkstore_tests::postgres::{fresh_schema, server};
use futures_util::future::join_all;
use measure::{human, median, wanted, Contender, Table};
use peers::{Earlier, Raw, Redis};
use tokio::runtime::Runtime;

const TTL: Duration = Duration::from_secs(30);
const CLIENTS: [usize; 3] = [1, 8, 32];
/// Enough for each connection to have prepared, and planned for good, what it will be asked.
const WARM: u64 = 20;

fn main() -> std::io::Result<()> {
    let args: Vec<_> = std::env::args().collect();
    if let [_, flag, who, rows, url] = args.as_slice() {
        if flag == window::MEMORY {
            return window::print_memory(who, rows, url);
        }
    }
    let Some(server) = server() else {
        return Ok(());
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let mut table = Table::new("postgres");
    type Job = fn(&mut Table, &Runtime, &str);
    let jobs: [(&str, Job); 6] = [
        ("pairs", pairs),
        ("losing", losing),
        ("window", window::window),
        ("sweep", sweep::sweep),
        ("arbitration", arbitration::arbitration),
        ("growth", growth),
    ];
    for (name, job) in jobs {
        if wanted(name) {
            job(&mut table, &runtime, server.url());
        }
    }
    table.finish()
}

async fn store(url: &str, clients: usize, change: impl Fn(PgOptions) -> PgOptions) -> PgStore {
    let options = PgOptions::new(url)
        .unwrap()
        .schema(fresh_schema())
        .pool_size(clients)
        .call_timeout(Duration::from_secs(600));
    PgStore::open(change(options)).await.unwrap()
}

fn quoted(store: &PgStore) -> String {
    format!("\"{}\"", store.schema())
}

/// Each of `clients` does `job` `n` times, all at once; what is counted is one such round of all.
fn together<'a, F: std::future::Future<Output = ()>>(
    runtime: &'a Runtime,
    clients: usize,
    job: impl Fn(usize) -> F + Copy + 'a,
) -> impl FnMut(u64) + 'a {
    move |n| {
        runtime.block_on(async {
            join_all((0..clients).map(|client| async move {
                for _ in 0..n {
                    job(client).await;
                }
            }))
            .await;
        });
    }
}

/// Acquire and release, each client with a name of its own.
fn pairs(table: &mut Table, runtime: &Runtime, url: &str) {
    for (clients, goal) in CLIENTS.into_iter().zip([0.43, 0.42, 0.40]) {
        let names: Vec<_> = (0..clients)
            .map(|client| format!("shard/{client}"))
            .collect();
        let (own, relaxed, raw, earlier, redis) = runtime.block_on(async {
            (
                store(url, clients, |options| options).await,
                store(url, clients, |options| options.relaxed_release(true)).await,
                Raw::connect(url, clients).await,
                Earlier::open(url, clients).await,
                Redis::start(clients).await,
            )
        });
        let pair = async |store: &PgStore, client: usize| {
            let lock = store
                .try_lock(&names[client], "worker", TTL)
                .await
                .unwrap()
                .unwrap();
            assert!(lock.release().await.unwrap());
        };
        let mut contenders = vec![
            Contender::new(
                "own",
                together(runtime, clients, |client| pair(&own, client)),
            ),
            Contender::new(
                "bare one-row commits",
                together(runtime, clients, |client| raw.commit(client)),
            ),
            Contender::new(
                "alkstore-postgres 0.1.0",
                together(runtime, clients, |client| earlier.pair(client)),
            ),
            Contender::new(
                "pg_try_advisory_lock",
                together(runtime, clients, |client| raw.advisory_pair(client)),
            ),
            Contender::new(
                "the same, relaxed release",
                together(runtime, clients, |client| pair(&relaxed, client)),
            ),
        ];
        if let Some(redis) = &redis {
            contenders.push(Contender::new(
                "Redis, AOF always",
                together(runtime, clients, |client| redis.pair(client)),
            ));
        } else {
            eprintln!("  no redis-server: that peer is left out");
        }
        for contender in &mut contenders {
            contender.warm(WARM);
        }
        let goals = [
            ("bare one-row commits", goal),
            ("alkstore-postgres 0.1.0", 2.0),
        ];
        table.race(&format!("pair, {clients} clients"), &mut contenders, &goals);
    }
}

/// A try at what another owner holds.
fn losing(table: &mut Table, runtime: &Runtime, url: &str) {
    for clients in CLIENTS {
        let (own, raw, earlier) = runtime.block_on(async {
            let own = store(url, clients, |options| options).await;
            drop(own.try_lock("held", "other", TTL * 1000).await.unwrap());
            let earlier = Earlier::open(url, clients).await;
            earlier.hold().await;
            (own, Raw::connect(url, clients).await, earlier)
        });
        let lose = async |_| assert!(own.try_lock("held", "worker", TTL).await.unwrap().is_none());
        let mut contenders = [
            Contender::new("own", together(runtime, clients, lose)),
            Contender::new(
                "SELECT 1",
                together(runtime, clients, |client| raw.one(client)),
            ),
            Contender::new(
                "alkstore-postgres 0.1.0",
                together(runtime, clients, |_| earlier.lose()),
            ),
        ];
        for contender in &mut contenders {
            contender.warm(WARM);
        }
        let goals = [("SELECT 1", 0.55), ("alkstore-postgres 0.1.0", 7.0)];
        table.race(
            &format!("losing try_lock, {clients} clients"),
            &mut contenders,
            &goals,
        );
    }
}

/// How much slower an operation gets from a thousand rows to a hundred thousand.
fn growth(table: &mut Table, runtime: &Runtime, url: &str) {
    let stores = runtime.block_on(async {
        let raw = Raw::connect(url, 1).await;
        let mut stores = Vec::new();
        for rows in [1_000, 100_000] {
            let store = store(url, 1, |options| options).await;
            let schema = quoted(&store);
            window::fill(&raw, &schema, rows).await;
            raw.run(&format!(
                "INSERT INTO {schema}.locks SELECT 'l' || n, 'o', n, 9e18 FROM generate_series(1, {rows}) n;
                 INSERT INTO {schema}.entries SELECT n::text::bytea, 'v', n, NULL FROM generate_series(1, {rows}) n;
                 SELECT setval('{schema}.revision', {rows}); ANALYZE"
            ))
            .await;
            stores.push(store);
        }
        stores
    });
    let due = Timestamp::from_nanos(0);
    type Work<'a> = Box<dyn Fn(&'a PgStore) -> futures_util::future::BoxFuture<'a, ()>>;
    let jobs: [(&str, Work<'_>); 6] = [
        (
            "pair",
            Box::new(|store| {
                Box::pin(async move {
                    let lock = store.try_lock("l5000x", "w", TTL).await.unwrap().unwrap();
                    lock.release().await.unwrap();
                })
            }),
        ),
        (
            "list_locks of 10",
            Box::new(|store| {
                Box::pin(async move {
                    assert_eq!(
                        store.list_locks("l9", Some("l90"), 10).await.unwrap().len(),
                        10
                    );
                })
            }),
        ),
        (
            "get",
            Box::new(|store| {
                Box::pin(async move {
                    assert!(store.get(b"777").await.unwrap().is_some());
                })
            }),
        ),
        (
            "put",
            Box::new(|store| {
                Box::pin(async move {
                    store
                        .put(b"777", b"w", PutOptions::replace())
                        .await
                        .unwrap();
                })
            }),
        ),
        (
            "list of 10",
            Box::new(|store| {
                Box::pin(async move {
                    assert_eq!(store.list(b"9", Some(b"90"), 10).await.unwrap().len(), 10);
                })
            }),
        ),
        (
            "take of what is not due",
            Box::new(move |store| {
                Box::pin(async move {
                    assert!(store.window_take(due, Some(10)).await.unwrap().is_empty());
                })
            }),
        ),
    ];
    for (name, work) in &jobs {
        // Turn by turn, so that whatever else the machine does meets both.
        let mut runs = [Vec::new(), Vec::new()];
        for _ in 0..400 {
            for (store, runs) in stores.iter().zip(&mut runs) {
                let begun = Instant::now();
                runtime.block_on(work(store));
                runs.push(begun.elapsed().as_secs_f64());
            }
        }
        let times = runs.map(median);
        let note = format!("{} and {}", human(times[0]), human(times[1]));
        table.figure(
            &format!("{name}, 10^5 rows"),
            "10^3 rows",
            times[1] / times[0],
            Some(1.5),
            &note,
        );
    }
}
