//! Joint transactions: all or nothing, and pins that live at the commit.

use alkstore::{
    Changeset, EngineFleetState, EngineWindowState, Entries, ErrorKind, Lifecycle, PinState, Put,
    PutMode, PutOptions, Transactions,
};

use super::postgres_support::{block_on, sqlstate, Place, SECOND, START};
use super::*;

#[test]
fn f3_entry_and_pin_come_together() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let other = open(&place).await;
        let mut tx = store.begin_joint_tx().await.unwrap();
        let stored = store.joint_put(&mut tx, b"k", b"value").await.unwrap();
        let Put::Stored { version } = stored else {
            panic!("{stored:?}")
        };
        assert!(!has(&other, b"k").await);
        store
            .pin_commit(tx, &[pin(b"k", "w", SECOND)])
            .await
            .unwrap();
        let entry = other.get(b"k").await.unwrap().unwrap();
        assert_eq!((&*entry.value, entry.version), (&b"value"[..], version));
        assert_eq!(other.pin_check(b"k").await.unwrap(), PinState::Protected);

        // Published again: the first value stands, and a second owner's pin beside the first.
        let mut tx = store.begin_joint_tx().await.unwrap();
        let lost = store.joint_put(&mut tx, b"k", b"other").await.unwrap();
        assert_eq!(
            lost,
            Put::NotStored {
                current: Some(version)
            }
        );
        let pins = [pin(b"k", "x", SECOND), pin(b"k", "x", SECOND * 3)];
        store.pin_commit(tx, &pins).await.unwrap();
        let pins = store.pins(Some(b"k"), None, 10).await.unwrap();
        let deadlines: Vec<_> = pins
            .iter()
            .map(|p| (p.owner.as_str(), p.expires_at))
            .collect();
        let expected = [("w", START.plus(SECOND)), ("x", START.plus(SECOND * 3))];
        assert_eq!(
            deadlines, expected,
            "of two pins of one owner the last one counts"
        );
    });
}

#[test]
fn r2_a_publication_takes_the_key_out_of_the_window() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        put(&store, b"k").await;
        let stage = |after| alkstore::Candidate {
            key: Key::new(&b"k"[..]).unwrap(),
            visible_after: after,
        };
        store
            .window_stage(&[stage(START)], alkstore::Restage::Keep)
            .await
            .unwrap();
        publish(&store, b"k", SECOND).await.unwrap();
        assert_eq!(store.window_info(b"k").await.unwrap(), None);
        let later = START.plus(SECOND * 5);
        store.set_clock(START.plus(SECOND)).await.unwrap();
        store
            .window_stage(&[stage(later)], alkstore::Restage::Keep)
            .await
            .unwrap();
        let row = store.window_info(b"k").await.unwrap().unwrap();
        assert_eq!(row.visible_after, later, "a whole fresh window");
    });
}

#[test]
fn r11_a_transaction_that_stalls_past_the_ttl_commits_live_pins() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let mut now = START.plus(SECOND * 10);
        store.set_clock(now).await.unwrap();
        store
            .pin_commit(tx, &[pin(b"k", "w", SECOND)])
            .await
            .unwrap();
        assert_eq!(store.pin_check(b"k").await.unwrap(), PinState::Protected);

        // The commit itself waits: for a key that it did not put, then for the row of the pin.
        let holder = joint(&store, &[b"k"]).await.unwrap();
        let commit = spawn(&store, |store| {
            Box::pin(async move {
                let tx = joint(&store, &[b"another"]).await?;
                store.pin_commit(tx, &[pin(b"k", "w", SECOND)]).await
            })
        });
        place.until_waiting(&raw, 1).await;
        now = now.plus(SECOND * 10);
        store.set_clock(now).await.unwrap();
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.gc_pins FOR UPDATE")
            .await;
        holder.rollback().await.unwrap();
        let looker = place.client().await;
        let on_pin =
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'";
        while place.row(&looker, on_pin).await.get::<_, i64>(0) == 0 {
            tokio::task::yield_now().await;
        }
        now = now.plus(SECOND * 10);
        store.set_clock(now).await.unwrap();
        place.run(&raw, "COMMIT").await;
        commit.await.unwrap().unwrap();
        let pins = store.pins(Some(b"k"), None, 10).await.unwrap();
        assert_eq!(pins[0].expires_at, now.plus(SECOND));
        assert!(!pins[0].lapsed);
    });
}

#[test]
fn r12_what_is_gone_or_going_cannot_be_pinned() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let refused = |key: &'static [u8]| {
            let store = Arc::clone(&store);
            async move {
                let tx = joint(&store, &[b"with it"]).await.unwrap();
                let pins = [pin(b"with it", "w", SECOND), pin(key, "w", SECOND)];
                let error = store.pin_commit(tx, &pins).await.unwrap_err();
                assert!(is_conflict(&error), "{error:?}");
                assert!(!has(&store, b"with it").await);
                assert_eq!(store.pins(None, None, 10).await.unwrap(), []);
                error
            }
        };
        refused(b"absent").await;
        let short = PutOptions::create().ttl(SECOND);
        store.put(b"lapsed", b"v", short).await.unwrap();
        store.set_clock(START.plus(SECOND)).await.unwrap();
        refused(b"lapsed").await;

        put(&store, b"k").await;
        let staged = alkstore::Candidate {
            key: Key::new(&b"k"[..]).unwrap(),
            visible_after: START,
        };
        store
            .window_stage(&[staged], alkstore::Restage::Move)
            .await
            .unwrap();
        let claims = store.window_claim(START, SECOND, 1).await.unwrap();
        store.window_mark(&claims, None).await.unwrap();
        let reclaiming = refused(b"k").await;
        // In the same words as a put, which is refused earlier.
        let mut tx = store.begin_joint_tx().await.unwrap();
        let error = store.joint_put(&mut tx, b"k", b"v").await.unwrap_err();
        assert!(is_conflict(&error), "{error:?}");
        assert_eq!(error.to_string(), reclaiming.to_string());
    });
}

#[test]
fn r21_publishers_in_opposite_orders_do_not_hang() {
    let Some(mut place) = Place::new() else {
        return;
    };
    // Deadlocks are found quickly, to not wait for them.
    place.url += " options='-c deadlock_timeout=50ms'";
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        let mut a = joint(&store, &[b"1"]).await.unwrap();
        let mut b = joint(&store, &[b"2"]).await.unwrap();
        let opposite = spawn(&store, |store| {
            Box::pin(async move { store.joint_put(&mut b, b"1", b"v").await.map(|_| b) })
        });
        place.until_waiting(&raw, 1).await;
        let met = store.joint_put(&mut a, b"2", b"v").await.map(|_| a);
        let (winner, loser) = match (met, opposite.await.unwrap()) {
            (Ok(tx), Err(error)) | (Err(error), Ok(tx)) => (tx, error),
            both => panic!("{both:?}"),
        };
        assert!(is_conflict(&loser), "{loser:?}");
        let pins = [pin(b"1", "w", SECOND), pin(b"2", "w", SECOND)];
        store.pin_commit(winner, &pins).await.unwrap();

        // The same where the commits meet.
        let a = joint(&store, &[b"3"]).await.unwrap();
        let b = joint(&store, &[b"4"]).await.unwrap();
        put(&store, b"5").await;
        let opposite = spawn(&store, |store| {
            Box::pin(async move { store.pin_commit(b, &[pin(b"3", "w", SECOND)]).await })
        });
        place.until_waiting(&raw, 1).await;
        let met = store.pin_commit(a, &[pin(b"4", "w", SECOND)]).await;
        let errors: Vec<_> = [met, opposite.await.unwrap()]
            .into_iter()
            .filter_map(Result::err)
            .collect();
        assert!(
            !errors.is_empty() && errors.iter().all(is_conflict),
            "{errors:?}"
        );
    });
}

#[test]
fn f10_keys_that_are_locked_at_once_are_put_in_any_order() {
    let Some(mut place) = Place::new() else {
        return;
    };
    place.url += " options='-c deadlock_timeout=50ms'";
    block_on(async {
        let (store, raw) = (open(&place).await, place.client().await);
        // Whatever the order in which these two are locked, one of the ways round is the other.
        for (first, second) in [(&b"1"[..], &b"2"[..]), (b"2", b"1")] {
            let keys = [first, second].map(|key| Key::new(key).unwrap());
            let mut changeset = Changeset::new();
            for key in &keys {
                let (key, value) = (key.clone().into_owned(), b"v"[..].into());
                changeset.put(key, value, PutMode::Replace, None).unwrap();
            }
            let mut tx = store.begin_joint_tx().await.unwrap();
            store.joint_lock(&mut tx, &keys).await.unwrap();
            store.joint_put(&mut tx, first, b"v").await.unwrap();
            let meets = spawn(&store, |store| {
                Box::pin(async move { store.commit_changeset(changeset).await })
            });
            let rival = spawn(&store, move |store| {
                Box::pin(async move {
                    let mut tx = store.begin_joint_tx().await?;
                    let keys = [second, first].map(|key| Key::new(key).unwrap());
                    store.joint_lock(&mut tx, &keys).await?;
                    store.joint_put(&mut tx, second, b"v").await?;
                    store.joint_put(&mut tx, first, b"v").await?;
                    store.pin_commit(tx, &[]).await
                })
            });
            place.until_waiting(&raw, 2).await;
            store.joint_put(&mut tx, second, b"v").await.unwrap();
            let pins = [pin(first, "w", SECOND), pin(second, "w", SECOND)];
            store.pin_commit(tx, &pins).await.unwrap();
            assert_eq!(meets.await.unwrap().unwrap().versions.len(), 2);
            rival.await.unwrap().unwrap();
        }

        let mut tx = store.begin_joint_tx().await.unwrap();
        store.joint_lock(&mut tx, &[]).await.unwrap();
        let other = open(&place).await;
        let error = other.joint_lock(&mut tx, &[]).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
        store.close().await.unwrap();
        let error = store.joint_lock(&mut tx, &[]).await.unwrap_err();
        assert!(error.is_closed(), "{error:?}");
    });
}

#[test]
fn f3_a_failure_leaves_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| options.pool_size(1)).await;
        let raw = place.client().await;
        for (trigger, when) in [("TRIGGER", "BEFORE"), ("CONSTRAINT TRIGGER", "AFTER")] {
            // The second one fails at the commit itself.
            let deferred = if when == "AFTER" {
                "DEFERRABLE INITIALLY DEFERRED"
            } else {
                ""
            };
            let sql = format!(
                "CREATE OR REPLACE FUNCTION {{s}}.refuse() RETURNS trigger LANGUAGE plpgsql AS \
                 $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
                 CREATE {trigger} refuse {when} INSERT ON {{s}}.gc_pins {deferred} \
                 FOR EACH ROW EXECUTE FUNCTION {{s}}.refuse()"
            );
            place.run(&raw, &sql).await;
            let error = publish(&store, b"k", SECOND).await.unwrap_err();
            assert_eq!(sqlstate(&error), Some("P0001"), "{error:?}");
            assert!(!error.is_outcome_unknown() && !error.is_retryable());
            for table in ["entries", "gc_pins"] {
                assert_eq!(count(&place, &raw, table).await, 0, "{table}");
            }
            place.run(&raw, "DROP TRIGGER refuse ON {s}.gc_pins").await;
            // The only connection came back clean: what is put on it is there for others, and nobody holds the key.
            put(&store, b"k").await;
            assert_eq!(count(&place, &raw, "entries").await, 1);
            store.delete(b"k", None).await.unwrap();
        }
        publish(&store, b"k", SECOND).await.unwrap();
    });
}

#[test]
fn f2_the_first_error_ends_a_transaction() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| options.pool_size(1)).await;
        let other = open(&place).await;
        let failed =
            |error: Error| assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error:?}");
        let mut tx = joint(&store, &[b"k"]).await.unwrap();
        failed(store.joint_put(&mut tx, b"", b"v").await.unwrap_err());
        // It let go of what it held before the error was told.
        put(&other, b"k").await;
        other.delete(b"k", None).await.unwrap();
        failed(store.joint_put(&mut tx, b"l", b"v").await.unwrap_err());
        failed(store.pin_commit(tx, &[]).await.unwrap_err());
        assert_eq!(store.list(b"", None, 10).await.unwrap(), []);

        // What cannot be pinned, and a transaction that is another store's.
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let error = store
            .pin_commit(tx, &[pin(b"k", "w", Duration::ZERO)])
            .await
            .unwrap_err();
        assert!(error.is_invalid_duration(), "{error:?}");
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let many: Vec<_> = (0..=alkstore::MAX_CHANGESET_ITEMS)
            .map(|_| pin(b"k", "w", SECOND))
            .collect();
        failed(store.pin_commit(tx, &many).await.unwrap_err());
        let mut tx = joint(&store, &[b"k"]).await.unwrap();
        failed(other.joint_put(&mut tx, b"l", b"v").await.unwrap_err());
        failed(other.pin_commit(tx, &[]).await.unwrap_err());
        assert_eq!(store.list(b"", None, 10).await.unwrap(), []);

        // No pins at all are a publication too.
        let tx = joint(&store, &[b"k"]).await.unwrap();
        store.pin_commit(tx, &[]).await.unwrap();
        assert!(has(&other, b"k").await);

        let tx = joint(&store, &[b"l"]).await.unwrap();
        store.close().await.unwrap();
        assert!(store.pin_commit(tx, &[]).await.unwrap_err().is_closed());
        assert!(store.begin_joint_tx().await.unwrap_err().is_closed());
        assert!(!has(&other, b"l").await);
    });
}

#[test]
fn f1_the_level_is_pinned() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&[
        "default_transaction_isolation=serializable",
        "default_transaction_read_only=on",
    ]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let store = open(&place).await;
        let raw = place.client().await;
        let holder = joint(&store, &[b"k"]).await.unwrap();
        let waits = spawn(&store, |store| {
            Box::pin(async move { publish(&store, b"k", SECOND).await })
        });
        place.until_waiting(&raw, 1).await;
        store.pin_commit(holder, &[]).await.unwrap();
        waits.await.unwrap().unwrap();
    });
}

#[test]
fn f3_a_broken_commit_is_of_unknown_outcome() {
    let Some(mut cluster) = alkstore_tests::postgres::cluster(&[]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let quick = |options: PgOptions| options.call_timeout(Duration::from_millis(500));
        let store = open_with(&place, quick).await;
        publish(&store, b"first", SECOND).await.unwrap();
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let mut other = joint(&store, &[b"l"]).await.unwrap();
        cluster.stop().unwrap();
        let silent = store
            .pin_commit(tx, &[pin(b"k", "w", SECOND)])
            .await
            .unwrap_err();
        assert!(
            silent.is_outcome_unknown() && silent.is_retryable(),
            "{silent:?}"
        );
        // Before the commit nothing can have happened.
        let silent = store.joint_put(&mut other, b"m", b"v").await.unwrap_err();
        assert!(
            !silent.is_outcome_unknown() && silent.is_retryable(),
            "{silent:?}"
        );
        cluster.resume().unwrap();
        while let Err(error) = publish(&store, b"k", SECOND).await {
            assert!(error.is_retryable(), "{error:?}");
        }
        assert_eq!(store.pin_check(b"k").await.unwrap(), PinState::Protected);
        drop(store.commit_changeset(alkstore::Changeset::new()).await);
        assert!(store.now().await.is_ok());
    });
}
