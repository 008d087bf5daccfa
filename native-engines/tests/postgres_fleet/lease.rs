//! The lock of the one sweeper.

use alkstore::{EngineFleetState, EngineWindowState, ErrorKind, Lifecycle};

use super::postgres_support::{block_on, Place, SECOND};
use super::*;

async fn acquired(store: &PgStore) -> bool {
    store.sweep_lock_acquire().await.unwrap()
}

/// Ends the session that has the sweep lock, and waits for its end.
async fn end_session(place: &Place, raw: &Client) {
    let held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 \
         AND ((classid::bigint << 32) | objid::bigint) = hashtextextended('alkstore sweep ' || $1, 0)";
    let pid: i32 = raw.query_one(held, &[&place.schema]).await.unwrap().get(0);
    let ended = "SELECT pg_terminate_backend($1, 60000)";
    assert!(raw
        .query_one(ended, &[&pid])
        .await
        .unwrap()
        .get::<_, bool>(0));
}

#[test]
fn f9_one_sweeper_at_a_time_each_with_an_epoch() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (a, b) = (open(&place).await, open(&place).await);
        assert_eq!(a.sweep_epoch(), None);
        a.sweep_lock_release().await.unwrap();
        let first = sweeper(&a).await;
        assert!(!acquired(&a).await, "again, while it is held");
        assert_eq!(a.sweep_epoch(), Some(first));
        assert!(!acquired(&b).await);
        b.sweep_lock_release().await.unwrap();
        assert!(
            !acquired(&b).await,
            "a release of what is not held frees nothing"
        );
        a.sweep_lock_release().await.unwrap();
        a.sweep_lock_release().await.unwrap();
        assert_eq!(a.sweep_epoch(), None);
        let second = sweeper(&b).await;
        assert!(second > first);
        assert!(!acquired(&a).await);

        // It is not the pool's: a store may have all its connections busy.
        let one = open_with(&place, |options| options.pool_size(1)).await;
        let tx = one.begin_joint_tx().await.unwrap();
        assert!(!acquired(&one).await);
        b.sweep_lock_release().await.unwrap();
        assert!(acquired(&one).await);
        drop(tx);
    });
}

#[test]
fn f9_the_lock_goes_with_the_session_the_store_and_the_handle() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (a, b) = (open(&place).await, open(&place).await);
        let raw = place.client().await;
        let first = sweeper(&a).await;
        end_session(&place, &raw).await;
        let second = sweeper(&b).await;
        assert!(second > first);
        assert!(
            !acquired(&a).await,
            "it knows that it lost the old one, and does not get a new one"
        );
        a.sweep_lock_release().await.unwrap();
        assert!(!acquired(&a).await, "nor was that a release of the other's");

        // Closing waits until it is free.
        b.close().await.unwrap();
        let third = sweeper(&a).await;
        assert!(third > second);
        let c = open(&place).await;
        assert!(!acquired(&c).await);
        drop(a);
        until_acquired(&c).await;

        // A release after the loss is none, and so is closing.
        end_session(&place, &raw).await;
        c.sweep_lock_release().await.unwrap();
        assert!(acquired(&c).await);
        end_session(&place, &raw).await;
        c.close().await.unwrap();
    });
}

/// Once the server has noticed that a session is gone.
async fn until_acquired(store: &PgStore) {
    for _ in 0..1_000 {
        if acquired(store).await {
            return;
        }
    }
    panic!("the lock is not freed");
}

#[test]
fn f9_two_schemas_are_two_fleets() {
    let (Some(one), Some(two)) = (Place::new(), Place::new()) else {
        return;
    };
    block_on(async {
        let (a, b) = (open(&one).await, open(&two).await);
        assert!(acquired(&a).await);
        assert!(acquired(&b).await);
        a.sweep_lock_release().await.unwrap();
        assert!(acquired(&a).await);
        let c = open(&two).await;
        assert!(!acquired(&c).await);
    });
}

#[test]
fn f9_behind_a_transaction_pooler_there_is_no_lock() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| {
            options.transaction_pooler(true).fleet(true)
        })
        .await;
        for error in [
            store.sweep_lock_acquire().await.map(drop),
            store.sweep_begin(SECOND).await.map(drop),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("pooler"), "{error}");
        }
        // The rest works through one.
        publish(&store, b"k", SECOND).await.unwrap();
        assert!(store.arbitrate(b"k").await.unwrap());
    });
}

#[test]
fn f9_a_dropped_acquisition_leaves_no_lock_behind() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let (a, b) = (open(&place).await, open(&place).await);
        for at in [Drop::Asked, Drop::Answered] {
            let mut dropped = 0;
            while polled(a.sweep_lock_acquire(), dropped, at).await.is_none() {
                assert_eq!(a.sweep_epoch(), None);
                until_acquired(&b).await;
                b.sweep_lock_release().await.unwrap();
                dropped += 1;
            }
            assert!(dropped > 3, "{dropped}");
            // A release that is dropped lets go all the same.
            let mut dropped = 1;
            while polled(a.sweep_lock_release(), dropped, at).await.is_none() {
                until_acquired(&b).await;
                b.sweep_lock_release().await.unwrap();
                until_acquired(&a).await;
                dropped += 1;
            }
            assert!(dropped > 2, "{dropped}");
        }
    });
}

#[test]
fn f11_a_fleet_sweeps_under_the_lock_of_a_session() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let fleet = open_with(&place, |options| options.fleet(true)).await;
        let alone = open(&place).await;
        let epoch = fleet.sweep_begin(SECOND).await.unwrap().unwrap();
        assert!(!acquired(&alone).await);
        assert!(fleet.sweep_end(epoch).await.unwrap());
        assert!(!fleet.sweep_end(epoch).await.unwrap());
        assert!(!fleet.sweep_extend(epoch, SECOND).await.unwrap());
        // Without the fleet it is a lease, which holds no connection.
        let epoch = alone.sweep_begin(SECOND).await.unwrap().unwrap();
        assert_eq!(alone.sweep_epoch(), None);
        assert!(acquired(&fleet).await);
        assert!(alone.sweep_end(epoch).await.unwrap());
    });
}
