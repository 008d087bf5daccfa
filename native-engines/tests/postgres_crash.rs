//! The server is killed under load, again and again: nothing acknowledged is lost, no token comes twice, no call
//! hangs, and each error says whether to retry and whether it may have happened.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alkstore::{Entries, Error, Locks, PutOptions, Revision};
use alkstore_native::postgres::PgStore;
use postgres_support::{block_on, Place};

/// `CRASH_CYCLES` asks for more.
const CYCLES: u32 = 6;
const CLIENTS: u64 = 6;
const CALL: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Seen {
    /// Key to version, of what was acknowledged or found.
    stored: BTreeMap<Vec<u8>, Revision>,
    /// Keys whose write was of unknown outcome, and was then found not to have happened.
    unknown: BTreeSet<Vec<u8>>,
    tokens: Vec<(u64, u64)>,
    failures: u64,
    unknown_outcomes: u64,
}

#[test]
fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    // Syncing file by file before each recovery would take most of the test.
    let settings = ["recovery_init_sync_method=syncfs"];
    let Some(mut cluster) = alkstore_tests::postgres::cluster(&settings) else {
        return;
    };
    let cycles = std::env::var("CRASH_CYCLES")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(CYCLES);
    let place = Place::on(&cluster.url());
    block_on(async {
        let store = Arc::new(
            place
                .open(place.options().call_timeout(CALL).pool_size(4))
                .await,
        );
        let ends = Arc::new(AtomicBool::new(false));
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| tokio::spawn(load(Arc::clone(&store), client, Arc::clone(&ends))))
            .collect();
        for cycle in 0..cycles {
            // Long enough for the load to be under way; the moment is arbitrary on purpose.
            tokio::time::sleep(Duration::from_millis(400 + u64::from(cycle) * 7)).await;
            if cycle % 3 == 2 {
                // Only the connections die.
                let raw = place.client().await;
                place
                    .run(&raw, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'alkstore'")
                    .await;
            } else {
                cluster.kill().unwrap();
                cluster.restart().unwrap();
            }
        }
        ends.store(true, Ordering::SeqCst);
        let mut all = Seen::default();
        for client in clients {
            let seen = client.await.unwrap();
            all.stored.extend(seen.stored);
            all.unknown.extend(seen.unknown);
            all.tokens.extend(seen.tokens);
            all.failures += seen.failures;
            all.unknown_outcomes += seen.unknown_outcomes;
        }

        for (key, version) in &all.stored {
            let entry = store.get(key).await.unwrap();
            let entry = entry.unwrap_or_else(|| panic!("{} is lost", String::from_utf8_lossy(key)));
            assert_eq!(entry.version, *version);
            assert_eq!(&*entry.value, &key[..]);
        }
        for key in &all.unknown {
            assert!(
                store.get(key).await.unwrap().is_none(),
                "what was absent came back"
            );
        }
        let numbers: BTreeSet<_> = all
            .tokens
            .iter()
            .map(|(_, token)| *token)
            .chain(all.stored.values().map(|v| v.get()))
            .collect();
        assert_eq!(
            numbers.len(),
            all.tokens.len() + all.stored.len(),
            "a revision came twice"
        );
        eprintln!(
            "{cycles} cycles: {} writes and {} grants acknowledged, {} failures, {} of unknown outcome",
            all.stored.len(),
            all.tokens.len(),
            all.failures,
            all.unknown_outcomes
        );
        assert!(all.stored.len() > 100 && all.tokens.len() > 100 && all.failures > 0);
    });
}

#[test]
fn a_relaxed_release_may_come_back_but_its_token_does_not() {
    let Some(mut cluster) =
        alkstore_tests::postgres::cluster(&["recovery_init_sync_method=syncfs"])
    else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let store = place.open(place.options().relaxed_release(true)).await;
        let mut last = 0;
        for _ in 0..3 {
            let hour = Duration::from_secs(3600);
            let lock = store.try_lock("n", "a", hour).await.unwrap().unwrap();
            let token = lock.token();
            assert!(token.get() > last);
            last = token.get();
            assert!(lock.release().await.unwrap());
            assert_eq!(store.lock_info("n").await.unwrap(), None);
            cluster.kill().unwrap();
            cluster.restart().unwrap();
            let found = loop {
                match store.lock_info("n").await {
                    Ok(found) => break found,
                    Err(error) => assert!(error.is_retryable(), "{error:?}"),
                }
            };
            // The release is there, or the very grant is, as it was.
            if let Some(found) = found {
                assert_eq!((found.token, found.lapsed), (token, false));
                assert!(store.force_release("n", token).await.unwrap());
            }
        }
    });
}

/// Writes new keys and takes a lock of its own in turn; what it saw.
async fn load(store: Arc<PgStore>, client: u64, ends: Arc<AtomicBool>) -> Seen {
    let mut seen = Seen::default();
    let lock_name = format!("lock-{client}");
    let mut last_token = 0;
    for round in 0_u64.. {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let key = format!("{client}/{round}").into_bytes();
        match timed(store.put(&key, &key, PutOptions::create())).await {
            Ok(put) => {
                assert!(put.is_stored());
                seen.stored.insert(key, put.version().unwrap());
            }
            Err(error) => {
                seen.judge(&error);
                if !error.is_outcome_unknown() {
                    // Known not to have happened: so it has not.
                    let found = resolved(&store, &key).await;
                    assert!(
                        found.is_none(),
                        "a write that was said not to have happened did"
                    );
                } else if let Some(version) = resolved(&store, &key).await {
                    // What an unknown write left is there for good.
                    seen.stored.insert(key, version);
                } else {
                    seen.unknown.insert(key);
                }
            }
        }
        let owner = format!("{client}-{round}");
        match timed(store.try_lock(&lock_name, &owner, Duration::from_secs(3600))).await {
            Ok(lock) => {
                let mut lock = lock.expect("nobody else wants it");
                let token = lock.token().get();
                assert!(token > last_token, "{token} after {last_token}");
                last_token = token;
                seen.tokens.push((client, token));
                while let Err(error) = timed(lock.renew(Duration::from_secs(3600))).await {
                    seen.judge(&error);
                    back_off().await;
                }
                if let Err(error) = timed(lock.release()).await {
                    seen.judge(&error);
                    free(&store, &lock_name, &mut seen).await;
                }
            }
            Err(error) => {
                seen.judge(&error);
                free(&store, &lock_name, &mut seen).await;
            }
        }
    }
    seen
}

impl Seen {
    fn judge(&mut self, error: &Error) {
        self.failures += 1;
        self.unknown_outcomes += u64::from(error.is_outcome_unknown());
        assert!(error.is_retryable(), "{error:?}");
    }
}

/// Frees whatever is there, so that the next owner can have it.
async fn free(store: &PgStore, name: &str, seen: &mut Seen) {
    loop {
        let freed = async {
            if let Some(info) = timed(store.lock_info(name)).await? {
                timed(store.force_release(name, info.token)).await?;
            }
            Ok::<_, Error>(())
        };
        match freed.await {
            Ok(()) => return,
            Err(error) => seen.judge(&error),
        }
        back_off().await;
    }
}

/// What is under `key` once the server answers again, and whatever was still under way there has ended: another write
/// of the same key waits for it.
async fn resolved(store: &PgStore, key: &[u8]) -> Option<Revision> {
    loop {
        let waited = timed(store.touch(key, Duration::from_secs(3_000_000_000))).await;
        match waited {
            Ok(false) => return None,
            Ok(true) => {
                if let Ok(entry) = timed(store.get(key)).await {
                    return entry.map(|entry| entry.version);
                }
            }
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
        back_off().await;
    }
}

async fn back_off() {
    tokio::time::sleep(Duration::from_millis(5)).await;
}

/// The call, which must end by its deadline.
async fn timed<T>(call: impl std::future::Future<Output = T>) -> T {
    let begun = Instant::now();
    let done = call.await;
    let took = begun.elapsed();
    // Generous, for machines that are busy; a call that hangs takes for ever.
    assert!(took < CALL + Duration::from_secs(5), "a call took {took:?}");
    done
}
