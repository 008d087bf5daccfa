//! Threads that hammer one store in memory. Each does a bounded number of steps and then ends; nothing sleeps, and what
//! is asserted holds under every schedule.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use alkstore::{
    Candidate, Changeset, Clock, ErrorKind, Expect, Key, ManualClock, PutMode, PutOptions, Restage,
    Revision, Timestamp, Value,
};
use alkstore_mem::MemStore;
use alkstore_tests::START;

const THREADS: usize = 8;
const TTL: Duration = Duration::from_secs(1);

type Store = MemStore<ManualClock>;

fn store() -> (Store, ManualClock) {
    let clock = ManualClock::new(START);
    (MemStore::new(clock.clone()), clock)
}

/// Runs `work` on all threads at once, each with its number; what they gave.
fn all<T: Send>(work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let barrier = Barrier::new(THREADS);
    let start = &|number| {
        barrier.wait();
        work(number)
    };
    thread::scope(|scope| {
        let spawn = |number| scope.spawn(move || start(number));
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)))
            .collect()
    })
}

#[test]
fn threads_l3_l4_one_wins_and_the_others_are_told_so() {
    let (store, clock) = store();
    for round in 0..300 {
        let granted = all(|number| {
            let owner = format!("o{number}");
            store
                .try_lock("a", &owner, TTL)
                .expect("losing is a value")
                .map(|lock| lock.token())
        });
        assert_eq!(
            granted.iter().flatten().count(),
            1,
            "round {round}: {granted:?}"
        );
        clock.advance(TTL);
    }
}

/// Every holder enters a section that must be empty, and leaves it before it frees the lock. The clock stands still,
/// so nothing lapses and two holders at once can only be two live grants.
#[test]
fn threads_l4_no_two_hold_one_name_and_l10_tokens_follow_the_grants() {
    let (store, _clock) = store();
    let inside = AtomicUsize::new(0);
    let last = AtomicI64::new(0);
    let grants: usize = all(|number| {
        let owner = format!("o{number}");
        let mut grants = 0;
        for step in 0..3_000 {
            let Some(lock) = store.try_lock("a", &owner, TTL).expect("a value") else {
                continue;
            };
            assert_eq!(
                inside.fetch_add(1, Ordering::SeqCst),
                0,
                "two holders at once"
            );
            let token = i64::try_from(lock.token().get()).expect("below 2^53");
            let before = last.swap(token, Ordering::SeqCst);
            assert!(
                before < token,
                "the token {token} was granted after {before}"
            );
            inside.fetch_sub(1, Ordering::SeqCst);
            let freed = match step % 2 {
                0 => lock.release(),
                _ => store.force_release("a", lock.token()),
            };
            assert!(freed.expect("a value"), "the holder's grant was there");
            grants += 1;
        }
        grants
    })
    .into_iter()
    .sum();
    assert!(
        grants >= THREADS,
        "only {grants} grants: the schedule shows nothing"
    );
}

/// The clock runs while the threads work, so leases lapse in the middle of the work of their holders; a holder whose
/// lease has passed on is fenced out, and what is stored was written in the order of the tokens.
#[test]
fn threads_e5_k6_the_fence_orders_the_writers() {
    let (store, clock) = store();
    let written = all(|number| {
        let owner = format!("o{number}");
        let mut written: Vec<(Revision, Revision)> = Vec::new();
        let mut lost = 0_usize;
        for _ in 0..2_000 {
            if number == 0 {
                clock.advance(TTL / 4);
            }
            let Some(lock) = store.try_lock("a", &owner, TTL).expect("a value") else {
                continue;
            };
            for _ in 0..2 {
                let token = lock.token().get().to_be_bytes();
                let fenced = PutOptions::replace().guard("a", lock.token());
                match store.put(b"k", &token, &fenced) {
                    Ok(put) => written.push((put.version().expect("stored"), lock.token())),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::LeaseLost, "{error:?}");
                        lost += 1;
                    }
                }
                thread::yield_now();
            }
        }
        (written, lost)
    });
    let fenced: usize = written.iter().map(|(_, lost)| lost).sum();
    let by_version: BTreeMap<_, _> = written
        .into_iter()
        .flat_map(|(written, _)| written)
        .collect();
    let tokens: Vec<_> = by_version.values().collect();
    assert!(
        tokens.windows(2).all(|pair| pair[0] <= pair[1]),
        "an old token wrote after a new one"
    );
    assert!(
        !tokens.is_empty(),
        "nothing was written ({fenced} fenced out)"
    );
    let stored = store.get(b"k").expect("a value").expect("written").value;
    assert_eq!(
        *stored,
        tokens[tokens.len() - 1].get().to_be_bytes(),
        "the last version is what is stored"
    );
}

#[test]
fn threads_l5_l6_a_grant_ends_once() {
    let (store, clock) = store();
    for round in 0..300 {
        let lock = store
            .try_lock("a", "o", TTL)
            .expect("a value")
            .expect("free");
        let token = lock.token();
        // Half of them renew, half of them release; whatever the order, one release succeeds.
        let released = all(|number| {
            let mut handle = store.lock_handle("a", "o", token).expect("valid");
            if number % 2 == 0 {
                handle.renew(TTL).expect("a value");
                return false;
            }
            handle.release().expect("a value")
        });
        assert_eq!(
            released.iter().filter(|released| **released).count(),
            1,
            "round {round}"
        );
        assert_eq!(
            store.lock_info("a").expect("a value"),
            None,
            "round {round}"
        );
        clock.advance(Duration::from_nanos(1));
    }
}

#[test]
fn threads_e2_the_first_writer_wins_and_the_others_see_it() {
    let (store, _clock) = store();
    for round in 0..300_u32 {
        let key = round.to_be_bytes();
        let puts = all(|number| {
            let value = [u8::try_from(number).expect("few threads")];
            store
                .put(&key, &value, &PutOptions::create())
                .expect("a value")
        });
        let winners = puts.iter().filter(|put| put.is_stored()).count();
        let versions: BTreeSet<_> = puts.iter().map(|put| put.version()).collect();
        assert_eq!((winners, versions.len()), (1, 1), "round {round}: {puts:?}");
    }
}

/// Each thread adds one by compare and swap, or by a checked changeset, until it has done so often enough.
#[test]
fn threads_e2_t3_no_update_is_lost() {
    const EACH: u64 = 500;
    let (store, _clock) = store();
    store
        .put(b"count", &0_u64.to_be_bytes(), &PutOptions::create())
        .expect("a value");
    all(|number| {
        let mut done = 0;
        while done < EACH {
            let entry = store.get(b"count").expect("a value").expect("there");
            let count = u64::from_be_bytes((*entry.value).try_into().expect("8 bytes"));
            let next = (count + 1).to_be_bytes();
            let stored = if number % 2 == 0 {
                let options = PutOptions::update(entry.version);
                store
                    .put(b"count", &next, &options)
                    .expect("a value")
                    .is_stored()
            } else {
                let key = || Key::new(&b"count"[..]).expect("valid");
                let mut changeset = Changeset::new();
                changeset
                    .check(key(), Expect::Version(entry.version))
                    .expect("first check");
                changeset
                    .put(key(), Value::from(&next[..]), PutMode::Replace, None)
                    .expect("first write");
                match store.commit_changeset(changeset) {
                    Ok(_) => true,
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}");
                        false
                    }
                }
            };
            done += u64::from(stored);
        }
    });
    let count = store.get(b"count").expect("a value").expect("there").value;
    assert_eq!(*count, (EACH * THREADS as u64).to_be_bytes());
}

/// Money moves between accounts; whoever reads them in one transaction that commits sees the same sum.
#[test]
fn threads_t3_changesets_are_whole() {
    const ACCOUNTS: u8 = 4;
    let (store, _clock) = store();
    for account in 0..ACCOUNTS {
        store
            .put(&[account], &[100], &PutOptions::create())
            .expect("a value");
    }
    let seen: usize = all(|number| {
        let mut seen = 0;
        for step in 0..2_000_usize {
            let mut tx = store.begin();
            let mut balances = Vec::new();
            for account in 0..ACCOUNTS {
                balances.push(tx.get(&[account]).expect("a value").expect("there").value[0]);
            }
            let (from, to) = ((step + number) % 4, (step * 3 + 1) % 4);
            let sum: u32 = balances.iter().map(|balance| u32::from(*balance)).sum();
            if from != to && balances[from] > 0 && balances[to] < 255 && number % 2 == 0 {
                let mut set = |account: usize, balance: u8| {
                    let key = [u8::try_from(account).expect("few accounts")];
                    tx.put(&key, &[balance], PutMode::Replace, None)
                        .expect("a value");
                };
                set(from, balances[from] - 1);
                set(to, balances[to] + 1);
            }
            match tx.commit() {
                Ok(_) => {
                    assert_eq!(sum, 400, "thread {number} saw half a changeset");
                    seen += 1;
                }
                Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
            }
        }
        seen
    })
    .into_iter()
    .sum();
    assert!(seen > 0, "nothing was ever committed");
}

#[test]
fn threads_w7_takers_and_claimers_get_disjoint_sets() {
    const KEYS: usize = 10_000;
    let (store, _clock) = store();
    let rows: Vec<_> = (0..KEYS)
        .map(|n| Candidate {
            key: Key::new(n.to_be_bytes().to_vec()).expect("valid"),
            visible_after: START,
        })
        .collect();
    store.window_stage(&rows, Restage::Move).expect("a value");
    let got = all(|number| {
        let mut got = Vec::new();
        loop {
            let batch: Vec<_> = if number % 2 == 0 {
                let rows = store.window_take(START, Some(10)).expect("a value");
                rows.into_iter().map(|row| row.key).collect()
            } else {
                let claims = store.window_claim(START, TTL, 10).expect("a value");
                assert_eq!(
                    store.window_settle(&claims).expect("a value"),
                    claims.len(),
                    "a live claim is its holder's"
                );
                claims.into_iter().map(|claim| claim.key).collect()
            };
            assert!(batch.len() <= 10);
            if batch.is_empty() {
                return got;
            }
            got.extend(batch);
        }
    });
    let handed_out: usize = got.iter().map(Vec::len).sum();
    let distinct: BTreeSet<_> = got.into_iter().flatten().collect();
    assert_eq!((handed_out, distinct.len()), (KEYS, KEYS), "each row once");
}

/// A publication and a settlement of the same key: the entry that a writer was promised is never settled away.
#[test]
fn threads_e6_a_publication_voids_a_claim_or_comes_too_late() {
    let (store, _clock) = store();
    for round in 0..300_u32 {
        let key = round.to_be_bytes();
        store
            .put(&key, b"v", &PutOptions::create())
            .expect("a value");
        let row = Candidate {
            key: Key::new(key.to_vec()).expect("valid"),
            visible_after: START,
        };
        store.window_stage(&[row], Restage::Move).expect("a value");
        let claims = store.window_claim(START, TTL, 1).expect("a value");
        assert_eq!(claims.len(), 1);
        let settled: usize = all(|number| {
            if number % 2 == 0 {
                store
                    .put(&key, b"v", &PutOptions::create())
                    .expect("a value");
                0
            } else {
                store.window_settle(&claims).expect("a value")
            }
        })
        .into_iter()
        .sum();
        assert!(settled <= 1, "round {round}: settled {settled} times");
        assert_eq!(
            store.window_take(Timestamp::MAX, None).expect("a value"),
            [],
            "round {round}"
        );
    }
}

#[test]
fn threads_c1_a_close_ends_every_call() {
    for _ in 0..50 {
        let (store, _clock) = store();
        let closed = AtomicBool::new(false);
        all(|number| {
            let owner = format!("o{number}");
            for step in 0..200 {
                if number == 0 && step == 100 {
                    store.close();
                    closed.store(true, Ordering::SeqCst);
                }
                let known = closed.load(Ordering::SeqCst);
                match store.try_lock("a", &owner, TTL) {
                    Ok(_) => assert!(!known, "a call went through after the close"),
                    Err(error) => assert!(error.is_closed(), "{error:?}"),
                }
            }
        });
    }
}

/// A clock that tells when it is read, and by how many threads at once.
struct Watched {
    time: ManualClock,
    readers: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Clock for Watched {
    fn now(&self) -> Timestamp {
        let readers = self.readers.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(readers, Ordering::SeqCst);
        // Time for others to come in, if anything lets them.
        for _ in 0..20 {
            thread::yield_now();
        }
        self.time.advance(Duration::from_nanos(1));
        let now = self.time.now();
        self.readers.fetch_sub(1, Ordering::SeqCst);
        now
    }
}

/// L11: the time of a decision is read after the wait for the state, so never by two operations at once, and the order
/// of the deadlines is that of the tokens.
#[test]
fn threads_l11_time_is_read_after_the_wait() {
    let most = Arc::new(AtomicUsize::new(0));
    let clock = Watched {
        time: ManualClock::new(START),
        readers: Arc::default(),
        most: Arc::clone(&most),
    };
    let store = MemStore::new(clock);
    let grants = all(|number| {
        let mut grants = Vec::new();
        for step in 0..200 {
            let name = format!("{number}/{step}");
            let lock = store
                .try_lock(&name, "o", TTL)
                .expect("a value")
                .expect("nobody else's");
            grants.push((lock.token(), alkstore::Lock::deadline(&lock)));
        }
        grants
    });
    let by_token: BTreeMap<_, _> = grants.into_iter().flatten().collect();
    let deadlines: Vec<_> = by_token.into_values().collect();
    assert!(
        deadlines.windows(2).all(|pair| pair[0] < pair[1]),
        "a later grant was decided at an earlier time"
    );
    assert_eq!(
        most.load(Ordering::SeqCst),
        1,
        "the clock was read without the state"
    );
}
