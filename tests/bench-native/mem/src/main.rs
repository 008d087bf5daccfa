//! Memory: locks and entries against hand-written maps, caches with a time to live, and the earlier engine.

mod sweep;
mod window;

use std::hint::black_box;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use alkstore::PutOptions;
use alkstore_mem::MemStore;
use measure::{median, resident, wanted, Contender, Table};

const TTL: Duration = Duration::from_secs(30);
const NAMES: usize = 1000;

fn main() -> std::io::Result<()> {
    let args: Vec<_> = std::env::args().collect();
    if let [_, flag, who, rows] = args.as_slice() {
        if flag == window::MEMORY {
            return window::print_memory(who, rows);
        }
    }
    let mut table = Table::new("mem");
    let jobs: [(&str, fn(&mut Table)); 7] = [
        ("locks", locks),
        ("threads", threads),
        ("entries", entries),
        // Before those below leave memory behind that was used once.
        ("growth", growth),
        ("purge", purge),
        ("window", window::window),
        ("sweep", sweep::sweep),
    ];
    for (name, job) in jobs {
        if wanted(name) {
            job(&mut table);
        }
    }
    table.finish()
}

fn names(n: usize) -> Vec<String> {
    (0..n).map(|n| format!("shard/{n:08}")).collect()
}

/// What one writes by hand: a map behind a mutex, owner, token and deadline in the row, checked by the clock.
#[derive(Default)]
struct ByHand {
    rows: Mutex<(hashbrown::HashMap<String, (String, u64, Instant)>, u64)>,
}

impl ByHand {
    fn acquire(&self, name: &str, owner: &str) -> Option<u64> {
        let mut guard = self.rows.lock().unwrap();
        let now = Instant::now();
        let (rows, counter) = &mut *guard;
        match rows.get_mut(name) {
            Some((held_by, token, deadline)) if *deadline > now => (held_by == owner).then_some(*token),
            Some(row) => {
                *counter += 1;
                *row = (owner.into(), *counter, now + TTL);
                Some(*counter)
            }
            None => {
                *counter += 1;
                rows.insert(name.into(), (owner.into(), *counter, now + TTL));
                Some(*counter)
            }
        }
    }

    fn release(&self, name: &str, owner: &str, token: u64) -> bool {
        let mut guard = self.rows.lock().unwrap();
        let _now = Instant::now();
        match guard.0.get(name) {
            Some((held_by, held, _)) if held_by == owner && *held == token => {
                guard.0.remove(name);
                true
            }
            _ => false,
        }
    }
}

type Sharded = dashmap::DashMap<String, (String, u64, Instant)>;

fn dash_pair(map: &Sharded, name: &str, owner: &str) {
    let now = Instant::now();
    map.entry(name.into())
        .and_modify(|row| {
            if row.2 <= now {
                *row = (owner.into(), row.1 + 1, now + TTL);
            }
        })
        .or_insert_with(|| (owner.into(), 1, now + TTL));
    let _now = Instant::now();
    black_box(map.remove_if(name, |_, row| row.0 == owner));
}

fn locks(table: &mut Table) {
    let names = names(NAMES);
    let store = MemStore::open();
    let boxed: &dyn alkstore::Store = &MemStore::open();
    let by_hand = ByHand::default();
    let sharded = Sharded::new();
    let moka = moka::sync::Cache::builder().time_to_live(TTL).build();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let peer: &dyn peer_alkstore::Store = &peer_mem::MemStore::new();
    let cycle = |n: u64| (0..n).map(|n| names[n as usize % NAMES].as_str());

    let own = |n: u64| {
        for name in cycle(n) {
            let lock = store.try_lock(name, "worker-1", TTL).unwrap().unwrap();
            black_box(lock.release().unwrap());
        }
    };
    table.race(
        "acquire and release",
        &mut [
            Contender::new("alkstore", own),
            Contender::new("alkstore-mem 0.1.0", |n| {
                runtime.block_on(async {
                    for name in cycle(n) {
                        let lock = peer.try_lock(name, "worker-1", 30).await.unwrap().unwrap();
                        black_box(lock.release().await.unwrap());
                    }
                });
            }),
            Contender::new("hashbrown behind a mutex", |n| {
                for name in cycle(n) {
                    let token = by_hand.acquire(name, "worker-1").unwrap();
                    black_box(by_hand.release(name, "worker-1", token));
                }
            }),
            Contender::new("dashmap", |n| {
                for name in cycle(n) {
                    dash_pair(&sharded, name, "worker-1");
                }
            }),
            Contender::new("moka", |n| {
                for name in cycle(n) {
                    moka.get_with_by_ref(name, || "worker-1".to_string());
                    moka.invalidate(name);
                }
            }),
            Contender::new("alkstore as dyn Store", |n| {
                futures_executor::block_on(async {
                    for name in cycle(n) {
                        let lock = boxed.try_lock(name, "worker-1", TTL).await.unwrap().unwrap();
                        black_box(lock.release().await.unwrap());
                    }
                });
            }),
        ],
        &[("alkstore-mem 0.1.0", 2.5), ("hashbrown behind a mutex", 0.85)],
    );

    let held = store.try_lock("held", "somebody", TTL).unwrap();
    by_hand.acquire("held", "somebody");
    table.race(
        "losing try_lock",
        &mut [
            Contender::new("alkstore", |n| {
                for _ in 0..n {
                    black_box(store.try_lock("held", "worker-1", TTL).unwrap().is_none());
                }
            }),
            Contender::new("hashbrown behind a mutex", |n| {
                for _ in 0..n {
                    black_box(by_hand.acquire("held", "worker-1").is_none());
                }
            }),
        ],
        &[],
    );
    drop(held);
}

fn threads(table: &mut Table) {
    let names = names(NAMES);
    let store = MemStore::open();
    let by_hand = ByHand::default();
    let sharded = Sharded::new();
    let both = |n: u64, work: &(dyn Fn(&str, &str) + Sync)| {
        let names = &names;
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let owner = ["worker-1", "worker-2"][thread];
                scope.spawn(move || {
                    for at in 0..n / 2 + 1 {
                        work(&names[(at as usize * 2 + thread) % NAMES], owner);
                    }
                });
            }
        });
    };
    table.race(
        "acquire and release, 2 threads, names of their own",
        &mut [
            Contender::new("alkstore", |n| {
                both(n, &|name, owner| {
                    let lock = store.try_lock(name, owner, TTL).unwrap().unwrap();
                    black_box(lock.release().unwrap());
                });
            }),
            Contender::new("hashbrown behind a mutex", |n| {
                both(n, &|name, owner| {
                    let token = by_hand.acquire(name, owner).unwrap();
                    black_box(by_hand.release(name, owner, token));
                });
            }),
            Contender::new("dashmap", |n| both(n, &|name, owner| dash_pair(&sharded, name, owner))),
        ],
        &[],
    );
}

fn entries(table: &mut Table) {
    let keys = names(NAMES);
    let value = vec![7_u8; 100];
    let store = MemStore::open();
    let by_hand: Mutex<hashbrown::HashMap<String, (std::sync::Arc<[u8]>, Instant)>> = Mutex::default();
    let moka = moka::sync::Cache::builder().time_to_live(TTL).build();
    let replace = PutOptions::replace().ttl(TTL);
    let cycle = |n: u64| (0..n).map(|n| keys[n as usize % NAMES].as_str());
    table.race(
        "put with a ttl, 100 bytes",
        &mut [
            Contender::new("alkstore", |n| {
                for key in cycle(n) {
                    black_box(store.put(key.as_bytes(), &value, &replace).unwrap());
                }
            }),
            Contender::new("hashbrown behind a mutex", |n| {
                for key in cycle(n) {
                    let value = std::sync::Arc::from(value.as_slice());
                    by_hand.lock().unwrap().insert(key.into(), (value, Instant::now() + TTL));
                }
            }),
            Contender::new("moka", |n| {
                for key in cycle(n) {
                    moka.insert(key.to_string(), std::sync::Arc::<[u8]>::from(value.as_slice()));
                }
            }),
        ],
        &[],
    );
    table.race(
        "get, 100 bytes",
        &mut [
            Contender::new("alkstore", |n| {
                for key in cycle(n) {
                    black_box(store.get(key.as_bytes()).unwrap());
                }
            }),
            Contender::new("hashbrown behind a mutex", |n| {
                for key in cycle(n) {
                    let rows = by_hand.lock().unwrap();
                    let now = Instant::now();
                    black_box(rows.get(key).filter(|row| row.1 > now).map(|row| row.0.clone()));
                }
            }),
            Contender::new("moka", |n| {
                for key in cycle(n) {
                    black_box(moka.get(key));
                }
            }),
        ],
        &[],
    );
}

/// The same job on stores of growing size, and what a row takes.
fn growth(table: &mut Table) {
    let sizes: &[usize] = if table.full() { &[1_000, 100_000, 10_000_000] } else { &[1_000, 100_000, 1_000_000] };
    let mut base = [f64::NAN; 2];
    for &size in sizes {
        eprintln!("  growth: {size} rows ...");
        let before = resident();
        let store = MemStore::open();
        let mut payload = 0;
        for n in 0..size {
            let name = format!("shard/{n:08}");
            payload += name.len() + "worker-1".len();
            store.try_lock(&name, "worker-1", TTL * 1000).unwrap();
        }
        let lease_bytes = (resident() - before - payload as f64) / size as f64;
        let pair = time(|n| {
            let lock = store.try_lock(&format!("extra/{n}"), "worker-1", TTL).unwrap().unwrap();
            lock.release().unwrap();
        });
        drop(store);

        let before = resident();
        let store = MemStore::open();
        let mut payload = 0;
        for n in 0..size {
            let key = format!("blob/{n:08}");
            payload += key.len() + 32;
            store.put(key.as_bytes(), &[1; 32], &PutOptions::create().ttl(TTL * 1000)).unwrap();
        }
        let entry_bytes = (resident() - before - payload as f64) / size as f64;
        let get = time(|n| {
            let key = format!("blob/{:08}", n.wrapping_mul(7919) % size);
            black_box(store.get(key.as_bytes()).unwrap());
        });
        for (at, (job, took)) in [("acquire and release", pair), ("get", get)].into_iter().enumerate() {
            if base[at].is_nan() {
                base[at] = took;
            }
            let note = measure::human(took);
            table.figure(&format!("{job} among {size} rows"), "itself among 1000", took / base[at], None, &note);
        }
        if size >= 100_000 {
            table.figure(&format!("bytes a lease, {size}"), "payload", lease_bytes, Some(96.0), "over name and owner");
            table.figure(&format!("bytes an entry, {size}"), "payload", entry_bytes, Some(96.0), "over key and value");
        }
    }
}

fn purge(table: &mut Table) {
    let rows = 1_000_000;
    let clock = alkstore::ManualClock::default();
    let store = MemStore::new(clock.clone());
    for n in 0..rows {
        store.try_lock(&format!("shard/{n:08}"), "worker-1", TTL).unwrap();
    }
    clock.advance(TTL);
    let mut longest = 0.0_f64;
    let start = Instant::now();
    loop {
        let call = Instant::now();
        let purged = store.purge_lapsed(1000).unwrap();
        longest = longest.max(call.elapsed().as_secs_f64());
        if purged == 0 {
            break;
        }
    }
    let note = format!("in calls of 1000; all of it {:.2} s", start.elapsed().as_secs_f64());
    table.figure("purge of 1000000 lapsed, longest call in ms", "1 ms", longest * 1e3, Some(1.0), &note);
}

fn time(mut job: impl FnMut(usize)) -> f64 {
    let mut rounds = Vec::new();
    for round in 0..11 {
        let start = Instant::now();
        for n in 0..2000 {
            job(round * 2000 + n);
        }
        rounds.push(start.elapsed().as_secs_f64() / 2000.0);
    }
    median(rounds)
}
