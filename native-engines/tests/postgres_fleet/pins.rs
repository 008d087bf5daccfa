//! Pins, one by one.

use alkstore::{EngineFleetState, ErrorKind, Lifecycle, PinState, Reclaim};

use super::postgres_support::{block_on, Place, SECOND, START};
use super::*;

#[test]
fn f4_only_a_live_pin_is_renewed() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| options.pin_ttl(SECOND * 5)).await;
        publish(&store, b"k", SECOND).await.unwrap();
        let deadline = || async { store.pins(None, None, 10).await.unwrap()[0].expires_at };
        assert!(!store.pin_renew(b"k", "another").await.unwrap());
        assert!(!store.pin_renew(b"another", "w").await.unwrap());
        assert!(store.pin_renew(b"k", "w").await.unwrap());
        assert_eq!(
            deadline().await,
            START.plus(SECOND * 5),
            "now + the store's ttl"
        );
        // At the very deadline it has lapsed.
        store.set_clock(START.plus(SECOND * 5)).await.unwrap();
        assert!(!store.pin_renew(b"k", "w").await.unwrap());
        assert_eq!(deadline().await, START.plus(SECOND * 5));
        assert_eq!(store.pin_check(b"k").await.unwrap(), PinState::Unprotected);
        assert_eq!(store.purge_lapsed(10).await.unwrap(), 1);
        assert!(!store.pin_renew(b"k", "w").await.unwrap());
    });
}

#[test]
fn r12_a_renewal_that_waits_past_the_deadline_is_refused() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let (raw, looker) = (place.client().await, place.client().await);
        publish(&store, b"k", SECOND).await.unwrap();
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.gc_pins FOR UPDATE")
            .await;
        let renewal = spawn(&store, |store| {
            Box::pin(async move { store.pin_renew(b"k", "w").await })
        });
        place.until_waiting(&looker, 1).await;
        store.set_clock(START.plus(SECOND)).await.unwrap();
        place.run(&raw, "COMMIT").await;
        assert!(!renewal.await.unwrap().unwrap());
        assert_eq!(store.pin_check(b"k").await.unwrap(), PinState::Unprotected);
    });
}

#[test]
fn f4_a_pin_that_is_held_outlasts_its_deadline() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let (mut writer, looker) = (place.client().await, place.client().await);
        references(&place, &looker, &store).await;
        publish(&store, b"k", SECOND).await.unwrap();
        let epoch = sweeper(&store).await;
        let delete = |store: &Arc<PgStore>| {
            spawn(store, move |store| {
                Box::pin(async move { store.sweep_delete(b"k", epoch).await })
            })
        };
        // The writer stands still between asking and committing, until long after the deadline.
        let tx = writer.transaction().await.unwrap();
        assert!(store.pin_hold_in(&tx, b"k", "w").await.unwrap());
        // Renewals go on.
        assert!(store.pin_renew(b"k", "w").await.unwrap());
        store.set_clock(START.plus(SECOND * 100)).await.unwrap();
        assert!(!store.pin_renew(b"k", "w").await.unwrap());
        let deletion = delete(&store);
        place.until_waiting(&looker, 1).await;
        let insert = place.fill("INSERT INTO {s}.refs VALUES ('k')");
        tx.batch_execute(&insert).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(deletion.await.unwrap().unwrap(), Reclaim::Referenced);

        // What comes after the deadline, or after a deletion, holds nothing. Nor does another's.
        place.run(&looker, "DELETE FROM {s}.refs").await;
        publish(&store, b"k", SECOND).await.unwrap();
        let tx = writer.transaction().await.unwrap();
        assert!(!store.pin_hold_in(&tx, b"k", "another").await.unwrap());
        assert!(!store.pin_hold_in(&tx, b"l", "w").await.unwrap());
        store.set_clock(START.plus(SECOND * 101)).await.unwrap();
        assert!(!store.pin_hold_in(&tx, b"k", "w").await.unwrap());
        tx.rollback().await.unwrap();

        // A writer that waits for the deletion finds the pin gone, although it was live when it asked.
        place
            .run(&looker, "INSERT INTO {s}.refs VALUES ('k')")
            .await;
        let raw = place.client().await;
        place.run(&raw, "BEGIN; DELETE FROM {s}.refs").await;
        let deletion = delete(&store);
        place.until_waiting(&looker, 1).await;
        store.set_clock(START.plus(SECOND * 100)).await.unwrap();
        let asks = spawn(&store, |store| {
            Box::pin(async move {
                let tx = writer.transaction().await.unwrap();
                store.pin_hold_in(&tx, b"k", "w").await
            })
        });
        place.until_waiting(&looker, 2).await;
        place.run(&raw, "COMMIT").await;
        assert_eq!(
            deletion.await.unwrap().unwrap(),
            Reclaim::Deleted { bytes: 1 }
        );
        assert!(!asks.await.unwrap().unwrap());
    });
}

#[test]
fn f5_any_live_pin_protects() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let tx = joint(&store, &[b"k"]).await.unwrap();
        let pins = [pin(b"k", "a", SECOND), pin(b"k", "b", SECOND * 2)];
        store.pin_commit(tx, &pins).await.unwrap();
        let check = || async { store.pin_check(b"k").await.unwrap() };
        store.set_clock(START.plus(SECOND)).await.unwrap();
        assert_eq!(check().await, PinState::Protected);
        assert!(store.arbitrate(b"k").await.unwrap());
        assert!(store.pin_release(b"k", "b").await.unwrap());
        assert!(!store.pin_release(b"k", "b").await.unwrap());
        assert_eq!(check().await, PinState::Unprotected);
        assert!(!store.arbitrate(b"k").await.unwrap());
        assert_eq!(
            store.pins(None, None, 10).await.unwrap(),
            [],
            "arbitration removed the lapsed one"
        );
    });
}

#[test]
fn operators_see_pins_and_whose_they_are() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let tx = joint(&store, &[b"1", b"2"]).await.unwrap();
        let pins = [
            pin(b"2", "a", SECOND),
            pin(b"1", "b", SECOND * 2),
            pin(b"1", "a", SECOND * 3),
            pin(b"2", "c", SECOND),
        ];
        store.pin_commit(tx, &pins).await.unwrap();
        store.set_clock(START.plus(SECOND)).await.unwrap();
        let mut seen = Vec::new();
        let mut after = None;
        loop {
            let page = store.pins(None, after.as_ref(), 3).await.unwrap();
            let Some(last) = page.last() else { break };
            after = Some(last.clone());
            seen.extend(page.into_iter().map(|pin| {
                let text = String::from_utf8(pin.key.into_bytes()).unwrap();
                format!("{text}{}{}", pin.owner, if pin.lapsed { "-" } else { "+" })
            }));
        }
        assert_eq!(seen, ["1a+", "1b+", "2a-", "2c-"]);
        assert_eq!(store.pins(Some(b"2"), None, 9).await.unwrap().len(), 2);
        let owners = store.pin_owners().await.unwrap();
        let owners: Vec<_> = owners
            .iter()
            .map(|o| (o.owner.as_str(), o.live, o.lapsed, o.soonest))
            .collect();
        let expected = [
            ("a", 1, 1, Some(START.plus(SECOND * 3))),
            ("b", 1, 0, Some(START.plus(SECOND * 2))),
            ("c", 0, 1, None),
        ];
        assert_eq!(owners, expected);
    });
}

#[test]
fn bad_input_and_a_closed_store_are_refused() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        let long = vec![0; 1025];
        for key in [&b""[..], &long] {
            for error in [
                store.pin_renew(key, "w").await.map(drop),
                store.pin_check(key).await.map(drop),
                store.pin_release(key, "w").await.map(drop),
                store.arbitrate(key).await.map(drop),
                store.pins(Some(key), None, 1).await.map(drop),
                store.keep_pin(key, "w").await.map(drop),
            ] {
                assert_eq!(error.unwrap_err().kind(), ErrorKind::InvalidArgument);
            }
        }
        for owner in ["", " ", "a\0"] {
            assert_eq!(
                store.pin_renew(b"k", owner).await.unwrap_err().kind(),
                ErrorKind::InvalidName
            );
        }
        let other = open(&place).await;
        assert_eq!(store.instance_id().len(), 32);
        assert_ne!(store.instance_id(), other.instance_id());
        let none = place.options().manual_clock(START).pin_ttl(Duration::ZERO);
        assert!(PgStore::open(none).await.unwrap_err().is_invalid_duration());

        let epoch = sweeper(&store).await;
        store.close().await.unwrap();
        assert_eq!(store.sweep_epoch(), None);
        for error in [
            store.pin_renew(b"k", "w").await.map(drop),
            store.pin_check(b"k").await.map(drop),
            store.pin_release(b"k", "w").await.map(drop),
            store.arbitrate(b"k").await.map(drop),
            store.pins(None, None, 1).await.map(drop),
            store.pin_owners().await.map(drop),
            store.keep_pin(b"k", "w").await.map(drop),
            store.register_liveness_source("t", "c").await,
            store.sweep_delete(b"k", epoch).await.map(drop),
            store.sweep_lock_acquire().await.map(drop),
            store.sweep_lock_release().await,
        ] {
            assert!(error.unwrap_err().is_closed());
        }
    });
}
