//! The garbage-collection window on Postgres, with many sweepers at once and with rows that others have in hand.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use alkstore::{
    Candidate, Changeset, Claim, EngineWindowState, Entries, ErrorKind, Key, Lifecycle, PutMode,
    PutOptions, Reclaim, Restage, Timestamp, Transactions, WindowStats,
};
use alkstore_native::postgres::tokio_postgres::error::SqlState;
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

/// Puts an entry under each key and claims all of them, in the order of the keys.
async fn claimed(store: &PgStore, count: u32) -> Vec<Claim> {
    for candidate in candidates(count) {
        let options = PutOptions::replace();
        store
            .put(candidate.key.as_bytes(), b"value", options)
            .await
            .unwrap();
    }
    store
        .window_stage(&candidates(count), Restage::Move)
        .await
        .unwrap();
    let claims = store
        .window_claim(START, SECOND * 60, count as usize)
        .await
        .unwrap();
    assert_eq!(claims.len(), count as usize);
    claims
}

const GONE: Reclaim = Reclaim::Deleted { bytes: 5 };

#[test]
fn r4_a_write_that_waits_for_a_mark_is_refused_by_it() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let claims = claimed(&store, 1).await;
        let key = claims[0].key.clone();
        let version = store
            .get(key.as_bytes())
            .await
            .unwrap()
            .map(|entry| entry.version)
            .unwrap();
        let raw = place.client().await;
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.gc_window FOR UPDATE")
            .await;
        let marker = {
            let (store, claims) = (Arc::clone(&store), claims.clone());
            tokio::spawn(async move { store.window_mark(&claims, None).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        let mut writers = Vec::new();
        for options in [
            PutOptions::create(),
            PutOptions::replace(),
            PutOptions::update(version),
        ] {
            let (store, key) = (Arc::clone(&store), key.clone());
            writers.push(tokio::spawn(async move {
                let put = store.put(key.as_bytes(), b"new", options).await;
                put.map(drop)
            }));
        }
        let mut changeset = Changeset::new();
        let value: alkstore::Value = (&b"new"[..]).into();
        changeset
            .put(key.borrowed(), value, PutMode::Replace, None)
            .unwrap();
        writers.push({
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.commit_changeset(changeset).await.map(drop) })
        });
        place.until_waiting(&looker, 5).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(marker.await.unwrap().unwrap(), [Reclaim::Marked]);
        for writer in writers {
            let error = writer.await.unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Conflict);
            assert_eq!(
                error.to_string(),
                alkstore::rules::window::reclaiming().to_string()
            );
        }
        assert_eq!(store.window_finish(&claims, None).await.unwrap(), [GONE]);
        let put = store.put(key.as_bytes(), b"new", PutOptions::create());
        assert!(put.await.unwrap().is_stored(), "once it is gone");
    });
}

#[test]
fn r3_a_mark_that_waits_for_a_publication_finds_its_claim_void() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let claims = claimed(&store, 2).await;
        store.delete(claims[0].key.as_bytes(), None).await.unwrap();
        let mut changeset = Changeset::new();
        let value: alkstore::Value = (&b"value"[..]).into();
        changeset
            .put(claims[0].key.borrowed(), value, PutMode::Create, None)
            .unwrap();
        let mut raw = place.client().await;
        let mut publication = raw.transaction().await.unwrap();
        store.apply_in(&mut publication, &changeset).await.unwrap();
        let looker = place.client().await;
        let marker = {
            let (store, claims) = (Arc::clone(&store), claims.clone());
            tokio::spawn(async move { store.window_mark(&claims, None).await })
        };
        place.until_waiting(&looker, 1).await;
        publication.commit().await.unwrap();
        assert_eq!(
            marker.await.unwrap().unwrap(),
            [Reclaim::Voided, Reclaim::Marked]
        );
        assert!(store
            .window_info(claims[0].key.as_bytes())
            .await
            .unwrap()
            .is_none());
    });
}

#[test]
fn r2_a_mark_pass_that_waits_for_a_publication_gives_it_a_whole_grace() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let key = Key::new(&b"k"[..]).unwrap();
        let mut changeset = Changeset::new();
        let value: alkstore::Value = (&b"value"[..]).into();
        changeset
            .put(key.clone(), value, PutMode::Create, None)
            .unwrap();
        let mut raw = place.client().await;
        let mut publication = raw.transaction().await.unwrap();
        store.apply_in(&mut publication, &changeset).await.unwrap();
        let marks = {
            let (store, keys) = (Arc::clone(&store), [key.clone()]);
            let grace = SECOND * 10;
            tokio::spawn(async move { store.window_stage_after(&keys, grace, Restage::Keep).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        let committed = START.plus(SECOND * 5);
        store.set_clock(committed).await.unwrap();
        publication.commit().await.unwrap();
        marks.await.unwrap().unwrap();
        let row = store.window_info(b"k").await.unwrap().unwrap();
        assert_eq!(row.visible_after, committed.plus(SECOND * 10));
    });
}

#[test]
fn r14_a_sweep_that_is_no_longer_current_changes_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let claims = claimed(&store, 2).await;
        let epoch = store.sweep_begin(SECOND).await.unwrap().unwrap();
        assert_eq!(store.sweep_begin(SECOND).await.unwrap(), None);
        let marked = store.window_mark(&claims[..1], Some(epoch)).await.unwrap();
        assert_eq!(marked, [Reclaim::Marked]);

        // It waits for a row until its lease has lapsed.
        let raw = place.client().await;
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.gc_window FOR UPDATE")
            .await;
        let finisher = {
            let (store, claims) = (Arc::clone(&store), claims.clone());
            tokio::spawn(async move { store.window_finish(&claims[..1], Some(epoch)).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        store.set_clock(START.plus(SECOND)).await.unwrap();
        // Its successor waits for it in turn.
        let successor = {
            let store = Arc::clone(&store);
            tokio::spawn(async move { store.sweep_begin(SECOND).await })
        };
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        let error = finisher.await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        let next = successor.await.unwrap().unwrap().unwrap();
        assert!(next > epoch);

        for fenced in [&claims[..], &[]] {
            for lost in [
                store.window_mark(fenced, Some(epoch)).await,
                store.window_finish(fenced, Some(epoch)).await,
                store.window_delete(fenced, Some(epoch)).await,
            ] {
                assert_eq!(lost.unwrap_err().kind(), ErrorKind::LeaseLost);
            }
        }
        assert!(!store.sweep_extend(epoch, SECOND).await.unwrap());
        assert!(!store.sweep_end(epoch).await.unwrap());
        assert!(store.sweep_extend(next, SECOND * 60).await.unwrap());
        let left = store.window_finish(&claims, Some(next)).await.unwrap();
        assert_eq!(left, [GONE, Reclaim::Unmarked]);
        assert!(store.sweep_end(next).await.unwrap());
    });
}

#[test]
fn w8_a_mark_judges_its_claim_by_the_time_after_its_last_wait() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let claims = claimed(&store, 2).await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "BEGIN; SELECT FROM {s}.gc_window ORDER BY key DESC LIMIT 1 FOR UPDATE",
            )
            .await;
        let marker = {
            let (store, claims) = (Arc::clone(&store), claims.clone());
            tokio::spawn(async move { store.window_mark(&claims, None).await })
        };
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        store.set_clock(START.plus(SECOND * 60)).await.unwrap();
        place.run(&raw, "COMMIT").await;
        assert_eq!(marker.await.unwrap().unwrap(), [Reclaim::Lapsed; 2]);
    });
}

#[test]
fn w8_answers_come_in_the_order_of_the_claims() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let claims = claimed(&store, 9).await;
        let key = |n: usize| claims[n].key.borrowed();
        let raw = place.client().await;
        // 0 goes, 1 is published, 2 claimed again by somebody else, 3 marked, 4 pinned, 5 without an entry, 6 with a
        // lapsed one, 7 requeued, 8 goes; 8 is named twice.
        let create = PutOptions::create();
        store.put(key(1).as_bytes(), b"x", create).await.unwrap();
        let sql = "UPDATE {s}.gc_window SET claim = claim + 1000 WHERE key = '\\x00000002';
             INSERT INTO {s}.gc_pins VALUES ('\\x00000004', 'a', 0), ('\\x00000004', 'b', 9223372036854775807),
               ('\\x00000000', 'a', 0), ('\\x00000000', 'b', 1);
             UPDATE {s}.entries SET expires_at = 1 WHERE key = '\\x00000006'";
        place.run(&raw, sql).await;
        store.window_mark(&claims[3..4], None).await.unwrap();
        store.delete(key(5).as_bytes(), None).await.unwrap();
        let requeued = store.window_requeue(&claims[7..8], START).await.unwrap();
        assert_eq!(requeued, 1);

        let judged = store
            .window_judge(&[key(8), key(5), key(4), key(6)])
            .await
            .unwrap();
        assert_eq!(
            judged,
            [GONE, Reclaim::Absent, Reclaim::Pinned, Reclaim::Absent]
        );
        let order = [8, 1, 7, 4, 8, 3, 0, 5, 2, 6];
        let asked: Vec<_> = order.iter().map(|n| claims[*n].clone()).collect();
        let expected = [
            GONE,
            Reclaim::Voided,
            Reclaim::Voided,
            Reclaim::Pinned,
            Reclaim::Voided,
            Reclaim::Marked,
            GONE,
            Reclaim::Absent,
            Reclaim::Lapsed,
            Reclaim::Absent,
        ];
        assert_eq!(store.window_delete(&asked, None).await.unwrap(), expected);

        let left = store.window_list(None, 100).await.unwrap();
        let left: Vec<_> = left.iter().map(|row| row.key.as_bytes()[3]).collect();
        assert_eq!(left, [2, 3, 4, 7]);
        let pins = place
            .row(
                &raw,
                "SELECT count(*), count(*) FILTER (WHERE key = '\\x00000004') FROM {s}.gc_pins",
            )
            .await;
        assert_eq!((pins.get(0), pins.get(1)), (2_i64, 2_i64));
        assert!(store.get(key(1).as_bytes()).await.unwrap().is_some());
        let entries = place.row(&raw, "SELECT count(*) FROM {s}.entries").await;
        assert_eq!(entries.get::<_, i64>(0), 5, "1, 2, 3, 4 and 7");
    });
}

#[test]
fn r17_what_cannot_be_asked_protects() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let claims = claimed(&store, 3).await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "CREATE TABLE {s}.refs (k bytea); CREATE INDEX ON {s}.refs (k);
                 INSERT INTO {s}.refs VALUES ('\\x00000001'), ('\\x00000001'), (NULL);
                 CREATE TABLE {s}.more (\"a k\" bytea)",
            )
            .await;
        let call = |tables: &str, columns: &str| {
            let keys: Vec<_> = (0..3).map(|n| format!("'\\x0000000{n}'")).collect();
            let claims: Vec<_> = claims.iter().map(|c| c.id.get().to_string()).collect();
            place.fill(&format!(
                "SELECT {{s}}.reclaim_v2(2, ARRAY[{}]::bytea[], ARRAY[{}], ARRAY[1, 2, 3], NULL, false, \
                 ARRAY[{tables}], ARRAY[{columns}])",
                keys.join(","),
                claims.join(",")
            ))
        };
        let failed = raw
            .query_one(&call("'{s}.refs', '{s}.gone'", "'k', 'k'"), &[])
            .await
            .unwrap_err();
        assert_eq!(failed.code().map(SqlState::code), Some("42P01"));
        assert_eq!(store.window_list(None, 9).await.unwrap().len(), 3);
        let answers = raw
            .query_one(&call("'{s}.refs', '{s}.more'", "'k', '\"a k\"'"), &[])
            .await
            .unwrap();
        assert_eq!(answers.get::<_, Vec<i64>>(0), [5, -7, 5]);
    });
}

#[test]
fn w8_batches_above_the_limit_of_one_statement_are_whole() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let count = 20_500;
        store
            .window_stage(&candidates(count), Restage::Move)
            .await
            .unwrap();
        let mut claims = store
            .window_claim(START, SECOND, count as usize)
            .await
            .unwrap();
        claims.reverse();
        let marked = store.window_mark(&claims[..20_250], None).await.unwrap();
        assert_eq!(marked, vec![Reclaim::Marked; 20_250]);
        let stats = store.window_stats(START).await.unwrap();
        assert_eq!(
            (stats.rows, stats.due, stats.claimed, stats.reclaiming),
            (20_500, 20_500, 20_500, 20_250)
        );
        let finished = store.window_finish(&claims, None).await.unwrap();
        assert_eq!(finished[..20_250], vec![Reclaim::Absent; 20_250]);
        assert_eq!(finished[20_250..], vec![Reclaim::Unmarked; 250]);
        let deleted = store.window_delete(&claims, None).await.unwrap();
        assert_eq!(deleted[..20_250], vec![Reclaim::Voided; 20_250]);
        assert_eq!(deleted[20_250..], vec![Reclaim::Absent; 250]);
        assert_eq!(
            store.window_stats(START).await.unwrap(),
            WindowStats::default()
        );
    });
}

#[test]
fn w8_the_window_is_read_by_its_indexes() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        store
            .window_stage(&candidates(20_000), Restage::Move)
            .await
            .unwrap();
        let raw = place.client().await;
        place
            .run(
                &raw,
                "INSERT INTO {s}.entries SELECT key, key, 1, NULL FROM {s}.gc_window;
                 INSERT INTO {s}.gc_pins SELECT key, 'a', 0 FROM {s}.gc_window;
                 ANALYZE {s}.gc_window, {s}.entries, {s}.gc_pins",
            )
            .await;
        let scans = async || {
            let sql = format!(
                "SELECT (SELECT sum(seq_scan)::bigint FROM pg_stat_user_tables WHERE schemaname = '{0}' \
                 AND relname IN ('gc_window', 'entries', 'gc_pins')), \
                 (SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = '{0}' AND indexrelname = 'gc_window_due')",
                place.schema
            );
            let row = place.row(&raw, &sql).await;
            (row.get::<_, i64>(0), row.get::<_, i64>(1))
        };
        let settled = async |at_least: i64| {
            for _ in 0..10_000 {
                let (seq, due) = scans().await;
                if due >= at_least {
                    return (seq, due);
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            panic!("the server counts no scans");
        };
        // The counts of a session arrive when it ends.
        let first = place.open(place.options().manual_clock(START)).await;
        first.window_list(None, 1).await.unwrap();
        first.close().await.unwrap();
        store.close().await.unwrap();
        let before = settled(1).await;

        let store = place
            .open(place.options().manual_clock(START).pool_size(1))
            .await;
        for _ in 0..8 {
            assert_eq!(store.window_take(START, Some(5)).await.unwrap().len(), 5);
            let claims = store.window_claim(START, SECOND, 10).await.unwrap();
            store.window_mark(&claims[..5], None).await.unwrap();
            store.window_finish(&claims[..5], None).await.unwrap();
            store.window_delete(&claims, None).await.unwrap();
            let rows = store.window_list(None, 5).await.unwrap();
            assert_eq!(rows.len(), 5);
            store.window_list(rows.last(), 5).await.unwrap();
        }
        store.close().await.unwrap();
        let after = settled(before.1 + 32).await;
        assert_eq!(after.0, before.0, "no table was read as a whole");
    });
}

#[test]
fn lapsed_pins_are_purged_within_the_limit() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.store().await;
        let raw = place.client().await;
        place
            .run(
                &raw,
                "INSERT INTO {s}.gc_pins SELECT '\\x01', n::text, 0 FROM generate_series(1, 10) n;
                 INSERT INTO {s}.gc_pins VALUES ('\\x01', 'live', 9223372036854775807);
                 INSERT INTO {s}.entries VALUES ('\\x01', '', 1, 0)",
            )
            .await;
        let mut purged = Vec::new();
        for _ in 0..4 {
            purged.push(store.purge_lapsed(5).await.unwrap());
        }
        assert_eq!(purged, [5, 5, 1, 0]);
        let left = place
            .row(&raw, "SELECT min(owner), count(*) FROM {s}.gc_pins")
            .await;
        assert_eq!((left.get(0), left.get(1)), ("live", 1_i64));
    });
}

/// A reader waits for no deletion: until it is committed the value is there as a whole, and then it is absent.
#[test]
fn r22_a_reader_meets_a_deletion_that_is_not_committed() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let options = place.options().call_timeout(Duration::from_secs(5));
        let store = place.open(options.manual_clock(START)).await;
        let whole = vec![7; 300_000];
        store.put(b"k", &whole, PutOptions::create()).await.unwrap();
        let mut changeset = Changeset::new();
        changeset.delete(Key::new(&b"k"[..]).unwrap()).unwrap();
        let mut raw = place.client().await;
        let mut deletion = raw.transaction().await.unwrap();
        store.apply_in(&mut deletion, &changeset).await.unwrap();
        let read = store.get(b"k").await.unwrap().unwrap();
        assert!(*read.value == *whole);
        deletion.commit().await.unwrap();
        assert_eq!(store.get(b"k").await.unwrap(), None);
        assert!(*read.value == *whole, "what was read stays whole");
    });
}
