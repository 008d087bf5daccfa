//! A publisher, a renewal or a successor at the very step of a deletion.

use alkstore::{EngineFleetState, EngineWindowState, ErrorKind, PinState, Put, Reclaim};

use super::postgres_support::{block_on, sqlstate, Place, SECOND, START};
use super::*;

/// A deletion of `k` that holds the key and waits, until `raw` commits, for the row of a lapsed pin.
async fn paused_deletion(
    place: &Place,
    raw: &Client,
    store: &Arc<PgStore>,
    epoch: alkstore::Revision,
) -> tokio::task::JoinHandle<Result<Reclaim>> {
    place
        .run(raw, "INSERT INTO {s}.gc_pins VALUES ('k', 'lapsed', 0)")
        .await;
    place
        .run(raw, "BEGIN; SELECT FROM {s}.gc_pins FOR UPDATE")
        .await;
    let looker = place.client().await;
    let deletion = spawn(store, move |store| {
        Box::pin(async move { store.sweep_delete(b"k", epoch).await })
    });
    place.until_waiting(&looker, 1).await;
    deletion
}

#[test]
fn r4_a_publisher_waits_for_the_deletion_and_writes_anew() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, raw, looker) = (
            open(&place).await,
            place.client().await,
            place.client().await,
        );
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        let deletion = paused_deletion(&place, &raw, &store, epoch).await;
        let publication = spawn(&store, |store| {
            Box::pin(async move {
                let mut tx = store.begin_joint_tx().await?;
                let put = store.joint_put(&mut tx, b"k", b"anew").await?;
                store.pin_commit(tx, &[pin(b"k", "w", SECOND)]).await?;
                Ok::<_, Error>(put)
            })
        });
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(
            deletion.await.unwrap().unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        assert!(matches!(
            publication.await.unwrap().unwrap(),
            Put::Stored { .. }
        ));
        assert!(has(&store, b"k").await);
        assert_eq!(
            count(&place, &raw, "gc_pins").await,
            1,
            "the lapsed one went"
        );
    });
}

#[test]
fn r5_the_deletion_waits_for_the_publisher_and_reads_the_new_pin() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, looker) = (open(&place).await, place.client().await);
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let deletion = spawn(&store, move |store| {
            Box::pin(async move { store.sweep_delete(b"k", epoch).await })
        });
        place.until_waiting(&looker, 1).await;
        let question = spawn(&store, |store| {
            Box::pin(async move { store.arbitrate(b"k").await })
        });
        place.until_waiting(&looker, 2).await;
        store
            .pin_commit(tx, &[pin(b"k", "w", SECOND)])
            .await
            .unwrap();
        assert_eq!(deletion.await.unwrap().unwrap(), Reclaim::Pinned);
        assert!(question.await.unwrap().unwrap());
        assert!(has(&store, b"k").await);
    });
}

#[test]
fn r6_a_publisher_that_rolls_back_protects_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, looker) = (open(&place).await, place.client().await);
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let question = spawn(&store, |store| {
            Box::pin(async move { store.arbitrate(b"k").await })
        });
        place.until_waiting(&looker, 1).await;
        drop(tx);
        assert!(!question.await.unwrap().unwrap());
        assert_eq!(
            store.sweep_delete(b"k", epoch).await.unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        assert_eq!(
            store.sweep_delete(b"k", epoch).await.unwrap(),
            Reclaim::Absent
        );
    });
}

#[test]
fn r7_an_absent_key_is_held_still_too() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, raw, looker) = (
            open(&place).await,
            place.client().await,
            place.client().await,
        );
        let epoch = sweeper(&store).await;
        // The publisher first.
        let tx = joint(&store, &[b"l"]).await.unwrap();
        let deletion = spawn(&store, move |store| {
            Box::pin(async move { store.sweep_delete(b"l", epoch).await })
        });
        place.until_waiting(&looker, 1).await;
        store
            .pin_commit(tx, &[pin(b"l", "w", SECOND)])
            .await
            .unwrap();
        assert_eq!(deletion.await.unwrap().unwrap(), Reclaim::Pinned);
        assert!(has(&store, b"l").await);
        // The sweeper first.
        let deletion = paused_deletion(&place, &raw, &store, epoch).await;
        let publication = spawn(&store, |store| {
            Box::pin(async move { publish(&store, b"k", SECOND).await })
        });
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(deletion.await.unwrap().unwrap(), Reclaim::Absent);
        publication.await.unwrap().unwrap();
        assert!(has(&store, b"k").await);
        assert_eq!(store.pin_check(b"k").await.unwrap(), PinState::Protected);
    });
}

#[test]
fn r13_of_a_renewal_and_a_deletion_one_wins() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, raw, looker) = (
            open(&place).await,
            place.client().await,
            place.client().await,
        );
        references(&place, &raw, &store).await;
        publish(&store, b"k", SECOND).await.unwrap();
        let epoch = sweeper(&store).await;
        // The deletion has seen the pin lapsed, and waits for a reference that is about to go.
        store.set_clock(START.plus(SECOND)).await.unwrap();
        place.run(&raw, "INSERT INTO {s}.refs VALUES ('k')").await;
        place.run(&raw, "BEGIN; DELETE FROM {s}.refs").await;
        let deletion = spawn(&store, move |store| {
            Box::pin(async move { store.sweep_delete(b"k", epoch).await })
        });
        place.until_waiting(&looker, 1).await;
        // A renewal that would find the pin live.
        store.set_clock(START).await.unwrap();
        let renewal = spawn(&store, |store| {
            Box::pin(async move { store.pin_renew(b"k", "w").await })
        });
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(
            deletion.await.unwrap().unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        assert!(!renewal.await.unwrap().unwrap());

        // The renewal first: it has moved the deadline, and is about to commit.
        publish(&store, b"k", SECOND).await.unwrap();
        place
            .run(
                &raw,
                "BEGIN; UPDATE {s}.gc_pins SET expires_at = expires_at + 60000000000",
            )
            .await;
        store.set_clock(START.plus(SECOND)).await.unwrap();
        let deletion = spawn(&store, move |store| {
            Box::pin(async move { store.sweep_delete(b"k", epoch).await })
        });
        place.until_waiting(&looker, 1).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(deletion.await.unwrap().unwrap(), Reclaim::Pinned);
    });
}

#[test]
fn r14_a_sweeper_that_lost_its_session_deletes_nothing_more() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let first = open_with(&place, |options| options.fleet(true)).await;
        let second = open_with(&place, |options| options.fleet(true)).await;
        let (raw, looker) = (place.client().await, place.client().await);
        for key in [&b"1"[..], b"2", b"3", b"k"] {
            put(&first, key).await;
        }
        let staged: Vec<_> = [&b"1"[..], b"2"]
            .map(|key| alkstore::Candidate {
                key: Key::new(key).unwrap(),
                visible_after: START,
            })
            .into();
        first
            .window_stage(&staged, alkstore::Restage::Keep)
            .await
            .unwrap();
        let claims = first.window_claim(START, SECOND, 10).await.unwrap();

        let old = first.sweep_begin(SECOND).await.unwrap().unwrap();
        assert_eq!(first.sweep_epoch(), Some(old));
        assert!(first.sweep_extend(old, SECOND).await.unwrap());
        assert_eq!(second.sweep_begin(SECOND).await.unwrap(), None);
        first.window_mark(&claims[..1], Some(old)).await.unwrap();

        // It is in the middle of a deletion when its session ends.
        let deletion = paused_deletion(&place, &raw, &first, old).await;
        let killed = "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
             AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('alkstore sweep ' || $1, 0)";
        assert_eq!(
            looker.query(killed, &[&place.schema]).await.unwrap().len(),
            1
        );
        // The successor begins when that deletion is through, not before.
        let begin = spawn(&second, |store| {
            Box::pin(async move {
                loop {
                    if let Some(epoch) = store.sweep_begin(SECOND).await? {
                        return Ok::<_, Error>(epoch);
                    }
                }
            })
        });
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(
            deletion.await.unwrap().unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        let new = begin.await.unwrap().unwrap();
        assert!(new > old);

        for refused in [
            first.sweep_delete(b"3", old).await.map(drop),
            first.window_mark(&claims[1..], Some(old)).await.map(drop),
            first.window_finish(&claims[..1], Some(old)).await.map(drop),
            first.window_delete(&claims[1..], Some(old)).await.map(drop),
        ] {
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::LeaseLost);
        }
        assert!(!first.sweep_extend(old, SECOND).await.unwrap());
        assert!(!first.sweep_end(old).await.unwrap());
        assert_eq!(first.sweep_epoch(), None);
        for key in [&b"1"[..], b"2", b"3"] {
            assert!(has(&first, key).await);
        }
        assert_eq!(
            second.sweep_delete(b"1", new).await.unwrap(),
            Reclaim::Marked,
            "others' payload"
        );
        assert!(has(&first, b"1").await);
        assert_eq!(
            second.sweep_delete(b"3", new).await.unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        assert!(second.sweep_end(new).await.unwrap());
        let over = second.sweep_delete(b"2", new).await.unwrap_err();
        assert_eq!(
            over.kind(),
            ErrorKind::LeaseLost,
            "an epoch ends with its sweep"
        );
    });
}

#[test]
fn r17_a_source_that_fails_protects() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let quick = |options: PgOptions| options.call_timeout(Duration::from_millis(400));
        let store = open_with(&place, quick).await;
        let raw = place.client().await;
        references(&place, &raw, &store).await;
        put(&store, b"k").await;
        let epoch = sweeper(&store).await;
        place.run(&raw, "INSERT INTO {s}.refs VALUES ('k')").await;
        let fails = |code: &'static str| {
            let store = Arc::clone(&store);
            async move {
                for error in [
                    store.sweep_delete(b"k", epoch).await.unwrap_err(),
                    store.arbitrate(b"k").await.unwrap_err(),
                ] {
                    assert_eq!(sqlstate(&error), Some(code), "{error:?}");
                }
                assert!(has(&store, b"k").await);
            }
        };
        place.run(&raw, "BEGIN; DELETE FROM {s}.refs").await;
        fails("57014").await;
        place.run(&raw, "ROLLBACK").await;
        assert_eq!(
            store.sweep_delete(b"k", epoch).await.unwrap(),
            Reclaim::Referenced
        );
        place
            .run(
                &raw,
                "DELETE FROM {s}.refs; ALTER TABLE {s}.refs RENAME COLUMN key TO other",
            )
            .await;
        fails("42703").await;
        place.run(&raw, "ALTER TABLE {s}.refs RENAME COLUMN other TO key; ALTER TABLE {s}.refs RENAME TO gone").await;
        fails("42P01").await;
        place.run(&raw, "ALTER TABLE {s}.gone RENAME TO refs").await;
        assert_eq!(
            store.sweep_delete(b"k", epoch).await.unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
    });
}

/// This machine's clock runs half a century ahead of the store's, which stands in 1970.
#[test]
fn r19_a_node_whose_clock_runs_ahead_ends_nothing_early() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (store, node) = (open(&place).await, open(&place).await);
        let due = |key: &'static [u8], visible_after| alkstore::Candidate {
            key: Key::new(key).unwrap(),
            visible_after,
        };
        let end = START.plus(SECOND * 600);
        put(&store, b"claimed").await;
        put(&store, b"later").await;
        publish(&store, b"pinned", SECOND).await.unwrap();
        let rows = [
            due(b"claimed", START),
            due(b"pinned", START),
            due(b"later", end),
        ];
        let keep = alkstore::Restage::Keep;
        store.window_stage(&rows[..1], keep).await.unwrap();
        let claims = store.window_claim(START, SECOND, 9).await.unwrap();
        store.window_stage(&rows[1..], keep).await.unwrap();

        let sweep = || alkstore::sweep(&*node, alkstore::SweepOptions::new().window_decides());
        let report = sweep().await.unwrap();
        assert_eq!(
            (report.examined, report.protected_by_pin),
            (1, 1),
            "{report:?}"
        );
        let marked = store.window_mark(&claims, None).await.unwrap();
        assert_eq!(marked, [Reclaim::Marked], "the claim stands");
        let epoch = store.sweep_begin(SECOND).await.unwrap().unwrap();
        assert_eq!(node.sweep_begin(SECOND).await.unwrap(), None);
        assert!(store.sweep_end(epoch).await.unwrap());

        store.set_clock(end).await.unwrap();
        let finished = sweep().await.unwrap();
        assert_eq!((finished.deleted, finished.failed), (2, 1), "{finished:?}");
    });
}

/// What is pinned stands before the rest, sweep after sweep.
#[test]
fn r20_what_is_pinned_lets_others_pass() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let keys: Vec<String> = (0..9).map(|n| n.to_string()).collect();
        for (n, key) in keys.iter().enumerate() {
            if n < 6 {
                publish(&store, key.as_bytes(), SECOND * 3600)
                    .await
                    .unwrap();
            } else {
                put(&store, key.as_bytes()).await;
            }
        }
        let due = |key: &String| alkstore::Candidate {
            key: Key::new(key.clone().into_bytes()).unwrap(),
            visible_after: START,
        };
        let rows: Vec<_> = keys.iter().map(due).collect();
        store
            .window_stage(&rows, alkstore::Restage::Keep)
            .await
            .unwrap();
        let mut deleted = 0;
        for _ in 0..3 {
            let options = alkstore::SweepOptions::new()
                .window_decides()
                .limit(3)
                .batch(3);
            deleted += alkstore::sweep(&*store, options).await.unwrap().deleted;
        }
        assert_eq!(
            deleted, 3,
            "though each sweep looks at three, and six are pinned"
        );
        let left = store.window_list(None, 9).await.unwrap();
        assert_eq!(left.len(), 6);
        assert!(left.iter().all(|row| row.requeues == 1), "{left:?}");
    });
}
