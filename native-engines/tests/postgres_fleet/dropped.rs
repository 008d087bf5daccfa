//! Futures that are dropped at every point where they can be.

use alkstore::{EngineFleetState, Entries, PutOptions};

use super::postgres_support::{block_on, Place, SECOND};
use super::*;

/// Whether the store's one connection, whichever it is now, commits what it is given, and nobody is left in a
/// transaction.
async fn is_clean(place: &Place, store: &PgStore, raw: &Client) -> bool {
    until_quiet(raw, &place.schema).await;
    store
        .put(b"probe", b"", PutOptions::replace())
        .await
        .unwrap();
    let probes = place
        .row(raw, "SELECT count(*) FROM {s}.entries WHERE key = 'probe'")
        .await;
    store.delete(b"probe", None).await.unwrap();
    probes.get::<_, i64>(0) == 1
}

async fn one(place: &Place) -> Arc<PgStore> {
    open_with(place, |options| options.pool_size(1)).await
}

fn named(mut place: Place) -> Place {
    place.url = format!("{} application_name='{}'", place.url, place.schema);
    place
}

#[test]
fn f1_a_publication_that_is_dropped_anywhere_is_all_or_nothing() {
    let Some(place) = Place::new() else { return };
    let raw_place = Place {
        url: place.url.clone(),
        schema: place.schema.clone(),
    };
    let place = named(place);
    block_on(async {
        let store = one(&place).await;
        let raw = raw_place.client().await;
        put(&store, b"2").await;
        let pins = [pin(b"1", "w", SECOND), pin(b"2", "w", SECOND)];
        for at in [Drop::Asked, Drop::Answered] {
            let mut outcomes = [0, 0];
            for polls in 0.. {
                let publication = async {
                    let mut tx = store.begin_joint_tx().await?;
                    store.joint_put(&mut tx, b"1", b"v").await?;
                    store.joint_put(&mut tx, b"2", b"v").await?;
                    store.pin_commit(tx, &pins).await
                };
                let done = polled(publication, polls, at).await;
                assert!(is_clean(&place, &store, &raw).await, "{at:?} {polls}");
                let there = has(&store, b"1").await;
                let pins = count(&place, &raw, "gc_pins").await;
                assert_eq!(pins, if there { 2 } else { 0 }, "{at:?} {polls}");
                outcomes[usize::from(there)] += 1;
                store.delete(b"1", None).await.unwrap();
                place.run(&raw, "DELETE FROM {s}.gc_pins").await;
                if let Some(done) = done {
                    done.unwrap();
                    break;
                }
            }
            assert!(outcomes[0] > 3 && outcomes[1] > 0, "{outcomes:?}");
        }
    });
}

#[test]
fn f1_a_transaction_that_is_dropped_idle_goes_with_its_connection() {
    let Some(place) = Place::new() else { return };
    let raw_place = Place {
        url: place.url.clone(),
        schema: place.schema.clone(),
    };
    let place = named(place);
    block_on(async {
        let store = one(&place).await;
        let raw = raw_place.client().await;
        drop(joint(&store, &[b"k"]).await.unwrap());
        assert!(is_clean(&place, &store, &raw).await);
        assert!(!has(&store, b"k").await);
        // A put that is dropped while it waits takes the transaction along.
        let holder = open(&place).await;
        let held = joint(&holder, &[b"k"]).await.unwrap();
        let mut tx = joint(&store, &[b"l"]).await.unwrap();
        assert!(polled(store.joint_put(&mut tx, b"k", b"v"), 1, Drop::Asked)
            .await
            .is_none());
        assert!(store.joint_put(&mut tx, b"m", b"v").await.is_err());
        held.rollback().await.unwrap();
        assert!(is_clean(&place, &store, &raw).await);
        drop(tx);
        for key in [&b"k"[..], b"l", b"m"] {
            assert!(!has(&store, key).await);
        }
    });
}

type Call<'a> = Box<dyn Fn(&'a PgStore) -> alkstore::BoxFuture<'a, ()> + 'a>;

#[test]
fn every_call_can_be_dropped_anywhere() {
    let Some(place) = Place::new() else { return };
    let raw_place = Place {
        url: place.url.clone(),
        schema: place.schema.clone(),
    };
    let place = named(place);
    block_on(async {
        let store = one(&place).await;
        let raw = raw_place.client().await;
        references(&raw_place, &raw, &store).await;
        let table = format!("{}.refs", place.schema);
        let epoch = sweeper(&store).await;
        let calls: Vec<Call<'_>> = vec![
            Box::new(|store| {
                Box::pin(async {
                    store.pin_renew(b"k", "w").await.unwrap();
                })
            }),
            Box::new(|store| {
                Box::pin(async {
                    store.pin_check(b"k").await.unwrap();
                })
            }),
            Box::new(|store| {
                Box::pin(async {
                    store.pin_release(b"k", "w").await.unwrap();
                })
            }),
            Box::new(|store| Box::pin(async { drop(store.pins(None, None, 1).await.unwrap()) })),
            Box::new(|store| Box::pin(async { drop(store.pin_owners().await.unwrap()) })),
            Box::new(|store| {
                Box::pin(async {
                    store.arbitrate(b"k").await.unwrap();
                })
            }),
            Box::new(|store| {
                Box::pin(async { store.register_liveness_source(&table, "key").await.unwrap() })
            }),
            Box::new(|store| {
                Box::pin(async move {
                    store.sweep_delete(b"k", epoch).await.unwrap();
                })
            }),
        ];
        for call in &calls {
            for at in [Drop::Asked, Drop::Answered] {
                let mut polls = 0;
                while polled(call(&store), polls, at).await.is_none() {
                    assert!(is_clean(&place, &store, &raw).await);
                    polls += 1;
                }
                assert!(polls > 0);
            }
        }
    });
}
