//! The garbage-collection window on Postgres, with many sweepers at once and with rows that others have in hand.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::collections::BTreeSet;
use std::sync::Arc;

use alkstore::{Candidate, EngineWindowState, Key, Restage, Timestamp};
use alkstore_native::postgres::{PgOptions, PgStore};
use postgres_support::{block_on, Place, SECOND, START};

fn candidates(count: u32) -> Vec<Candidate> {
    (0..count).map(|n| candidate(n, START)).collect()
}

fn candidate(n: u32, visible_after: Timestamp) -> Candidate {
    Candidate {
        key: Key::new(n.to_be_bytes().to_vec()).unwrap(),
        visible_after,
    }
}

#[test]
fn w7_no_plan_makes_a_taker_take_more_than_its_limit() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        place.store().await;
        for forced in [
            "",
            "-c enable_tidscan=off",
            // With these a plain `IN (SELECT ... LIMIT 5)` takes 43.
            "-c enable_tidscan=off -c enable_hashjoin=off -c enable_mergejoin=off -c enable_material=off \
             -c enable_hashagg=off -c enable_sort=off",
            "-c enable_indexscan=off -c enable_bitmapscan=off -c plan_cache_mode=force_generic_plan",
        ] {
            let url = format!("{} options='{forced}'", place.url);
            let options = PgOptions::new(&url).unwrap().schema(&place.schema).manual_clock(START);
            let store = place.open(options).await;
            store.window_stage(&candidates(1_000), Restage::Move).await.unwrap();
            let claimed = store.window_claim(START, SECOND, 5).await.unwrap();
            assert_eq!(claimed.len(), 5, "{forced}");
            assert_eq!(store.window_settle(&claimed).await.unwrap(), 5);
            assert_eq!(store.window_take(START, Some(5)).await.unwrap().len(), 5, "{forced}");
            assert_eq!(store.window_take(START, None).await.unwrap().len(), 990, "{forced}");
        }
    });
}

#[test]
fn w7_r15_takers_on_their_own_connections_get_disjoint_sets() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        store
            .window_stage(&candidates(2_000), Restage::Move)
            .await
            .unwrap();
        let mut takers = Vec::new();
        for n in 0..8 {
            let store = Arc::clone(&store);
            takers.push(tokio::spawn(async move {
                let mut got = Vec::new();
                loop {
                    let keys: Vec<_> = if n % 2 == 0 {
                        let taken = store.window_take(START, Some(10)).await.unwrap();
                        taken.into_iter().map(|candidate| candidate.key).collect()
                    } else {
                        let claims = store.window_claim(START, SECOND, 10).await.unwrap();
                        assert_eq!(store.window_settle(&claims).await.unwrap(), claims.len());
                        claims.into_iter().map(|claim| claim.key).collect()
                    };
                    assert!(keys.len() <= 10);
                    if keys.is_empty() {
                        return got;
                    }
                    got.extend(keys);
                }
            }));
        }
        let mut all = Vec::new();
        for taker in takers {
            all.extend(taker.await.unwrap());
        }
        // A batch may come up short while others have rows in hand; what is left is due to the next.
        let rest = store.window_take(START, None).await.unwrap();
        all.extend(rest.into_iter().map(|candidate| candidate.key));
        assert_eq!(all.len(), 2_000);
        assert_eq!(
            all.iter().collect::<BTreeSet<_>>().len(),
            2_000,
            "none twice"
        );
    });
}

#[test]
fn w3_rows_that_others_have_in_hand_are_passed_over() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        store
            .window_stage(&candidates(10), Restage::Move)
            .await
            .unwrap();
        let raw = place.client().await;
        place
            .run(
                &raw,
                "BEGIN; SELECT FROM {s}.gc_window ORDER BY key LIMIT 3 FOR UPDATE",
            )
            .await;
        let taken = store.window_take(START, Some(4)).await.unwrap();
        assert_eq!(
            taken,
            (3..7).map(|n| candidate(n, START)).collect::<Vec<_>>()
        );
        place.run(&raw, "COMMIT").await;
    });
}

#[test]
fn r16_a_row_that_was_moved_while_a_taker_waited_stays() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        store
            .window_stage(&candidates(2), Restage::Move)
            .await
            .unwrap();
        let raw = place.client().await;
        let later = START.plus(SECOND);
        let hold = format!(
            "BEGIN; UPDATE {{s}}.gc_window SET visible_after = {} WHERE key = '\\x00000001'",
            later.as_nanos()
        );
        place.run(&raw, &hold).await;
        let taker = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.window_take(START, None).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(taker.await.unwrap().unwrap(), [candidate(0, START)]);
        assert_eq!(
            store.window_take(later, None).await.unwrap(),
            [candidate(1, later)]
        );
    });
}

#[test]
fn w5_a_settlement_that_waited_past_its_claim_settles_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        store
            .window_stage(&candidates(2), Restage::Move)
            .await
            .unwrap();
        let claims = store.window_claim(START, SECOND, 2).await.unwrap();
        let raw = place.client().await;
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.gc_window FOR UPDATE")
            .await;
        let calls = [true, false].map(|settles| {
            let (store, claims) = (Arc::clone(&store), claims.clone());
            tokio::spawn(async move {
                if settles {
                    store.window_settle(&claims).await
                } else {
                    store.window_requeue(&claims, Timestamp::MIN).await
                }
            })
        });
        let looker = place.client().await;
        place.until_waiting(&looker, 2).await;
        store.set_clock(START.plus(SECOND)).await.unwrap();
        place.run(&raw, "COMMIT").await;
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap(), 0);
        }
        assert_eq!(store.window_take(START, None).await.unwrap(), candidates(2));
    });
}

#[test]
fn w2_stagers_and_takers_of_the_same_keys_all_end() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store: Arc<PgStore> = Arc::new(place.store().await);
        let mut crowd = Vec::new();
        for n in 0..24_u32 {
            let store = Arc::clone(&store);
            crowd.push(tokio::spawn(async move {
                let at = START.plus(SECOND * n);
                // Forwards, backwards, and each key twice.
                let mut keys: Vec<_> = (0..200).map(|key| candidate(key, at)).collect();
                match n % 4 {
                    0 => keys.reverse(),
                    1 => keys.extend((0..200).map(|key| candidate(key, START))),
                    _ => {}
                }
                store.window_stage(&keys, Restage::Move).await.unwrap();
                let keys: Vec<_> = keys
                    .iter()
                    .map(|candidate| candidate.key.borrowed())
                    .collect();
                match n % 3 {
                    0 => drop(store.window_unstage(&keys).await.unwrap()),
                    1 => drop(store.window_take(Timestamp::MAX, Some(50)).await.unwrap()),
                    _ => drop(
                        store
                            .window_claim(Timestamp::MAX, SECOND, 50)
                            .await
                            .unwrap(),
                    ),
                }
            }));
        }
        for one in crowd {
            one.await.unwrap();
        }
    });
}
