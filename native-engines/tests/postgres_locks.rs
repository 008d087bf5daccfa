//! Named locks on Postgres: the interleavings that only a server with many connections can show, each with a
//! connection that is paused at the step in question.
#![cfg(unix)]
#![allow(clippy::expect_used, clippy::unwrap_used)] // what a test cannot go on without

mod postgres_support;

use std::sync::Arc;

use alkstore::{Lifecycle, Locks};
use alkstore_native::postgres::PgStore;
use postgres_support::{block_on, Place, SECOND, START};

#[test]
fn l10_an_inserter_that_stalls_after_its_token_is_not_overtaken() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(place.store().await);
        let raw = place.client().await;
        place
            .stall_inserts(&raw, "locks", "NEW.owner = 'stalled'")
            .await;

        let slow = spawn_try_lock(&store, "stalled");
        place.until_waiting(&raw, 1).await;
        let quick = spawn_try_lock(&store, "quick");
        place.until_waiting(&raw, 2).await;
        place.let_go(&raw).await;

        let first = slow.await.unwrap().expect("granted");
        assert!(
            quick.await.unwrap().is_none(),
            "the stalled grant came first and is live"
        );
        let lock = store.lock_handle("n", "stalled", alkstore::Revision::new(first).unwrap());
        assert!(lock.unwrap().release().await.unwrap());
        let second = store.try_lock("n", "quick", SECOND).await.unwrap().unwrap();
        assert!(second.token().get() > first);
    });
}

#[test]
fn k3_a_renewal_that_waits_past_its_deadline_revives_nothing() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        // Whether the row is merely locked, or updated by who holds it, the time is read after the wait.
        for hold in [
            "SELECT FROM {s}.locks FOR UPDATE",
            "UPDATE {s}.locks SET deadline = deadline",
        ] {
            let store = place.store().await;
            let mut lock = store.try_lock(hold, "a", SECOND).await.unwrap().unwrap();
            let deadline = lock.deadline();
            let raw = place.client().await;
            place.run(&raw, &format!("BEGIN; {hold}")).await;
            let renewal =
                tokio::spawn(async move { (lock.renew(SECOND * 9).await, lock.deadline()) });
            let looker = place.client().await;
            place.until_waiting(&looker, 1).await;
            store
                .set_clock(store.now().await.unwrap().plus(SECOND))
                .await
                .unwrap();
            place.run(&raw, "COMMIT").await;

            let (renewed, told) = renewal.await.unwrap();
            assert!(!renewed.unwrap(), "{hold}");
            assert_eq!(told, deadline);
            let info = store.lock_info(hold).await.unwrap().unwrap();
            assert!(info.lapsed);
            assert_eq!(Some(info.deadline), deadline);
            assert!(store.try_lock(hold, "b", SECOND).await.unwrap().is_some());
        }
    });
}

#[test]
fn k4_a_grant_that_waited_counts_from_after_the_wait() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        for (hold, end) in [
            ("SELECT FROM {s}.locks FOR UPDATE", "COMMIT"),
            ("DELETE FROM {s}.locks", "COMMIT"),
            ("DELETE FROM {s}.locks", "ROLLBACK"),
        ] {
            let store = Arc::new(place.store().await);
            store.set_clock(START).await.unwrap();
            drop(store.try_lock("n", "before", SECOND).await.unwrap());
            store.set_clock(START.plus(SECOND)).await.unwrap();
            let raw = place.client().await;
            place.run(&raw, &format!("BEGIN; {hold}")).await;
            let acquire = {
                let store = Arc::clone(&store);
                tokio::spawn(async move { store.try_lock("n", "after", SECOND).await })
            };
            let looker = place.client().await;
            place.until_waiting(&looker, 1).await;
            store.set_clock(START.plus(SECOND * 100)).await.unwrap();
            place.run(&raw, end).await;
            let lock = acquire.await.unwrap().unwrap().expect("granted");
            assert_eq!(
                lock.deadline(),
                Some(START.plus(SECOND * 101)),
                "{hold}; {end}"
            );
            assert!(lock.release().await.unwrap());
        }
    });
}

#[test]
fn l3_losing_costs_the_server_nothing() {
    let Some(cluster) = alkstore_tests::postgres::cluster(&["autovacuum=off"]) else {
        return;
    };
    let place = Place::on(&cluster.url());
    block_on(async {
        let store = place.store().await;
        let raw = place.client().await;
        let held = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
        let spent = async || {
            let costs = "SELECT pg_current_wal_insert_lsn()::text, pg_snapshot_xmax(pg_current_snapshot())::text, \
                         (SELECT last_value FROM {s}.revision)";
            let row = place.row(&raw, costs).await;
            (
                row.get::<_, String>(0),
                row.get::<_, String>(1),
                row.get::<_, i64>(2),
            )
        };
        // The server notes its running transactions now and then; that is none of ours, so a second try may be free of it.
        let mut before = spent().await;
        let mut rounds = 0;
        loop {
            for _ in 0..500 {
                assert!(store.try_lock("n", "b", SECOND).await.unwrap().is_none());
                let again = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
                assert_eq!(again.token(), held.token());
            }
            let after = spent().await;
            assert_eq!(
                (&after.1, &after.2),
                (&before.1, &before.2),
                "transaction ids, tokens"
            );
            rounds += 1;
            if after == before {
                break;
            }
            assert!(rounds < 5, "write-ahead log: {} then {}", before.0, after.0);
            before = after;
        }
    });
}

#[test]
fn l10_connections_draw_tokens_from_one_sequence_one_by_one() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let one = place.store().await;
        let two = place.store().await;
        let mut last = 0;
        for store in [&one, &two, &one, &two] {
            let lock = store.try_lock("n", "a", SECOND).await.unwrap().unwrap();
            assert_eq!(lock.token().get(), last + 1);
            last = lock.token().get();
            assert!(lock.release().await.unwrap());
        }
    });
}

#[test]
fn k8_holding_takes_no_connection() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = place.open(place.options().pool_size(1)).await;
        let mut held = Vec::new();
        for n in 0..10 {
            let name = format!("n{n}");
            held.push(
                store
                    .try_lock(&name, "a", SECOND * 60)
                    .await
                    .unwrap()
                    .unwrap(),
            );
        }
        for lock in held {
            assert!(lock.release().await.unwrap());
        }
    });
}

#[test]
fn l12_a_call_that_was_dropped_while_it_waited_is_void_or_comes_back() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = Arc::new(
            place
                .open(place.options().manual_clock(START).pool_size(1))
                .await,
        );
        let raw = place.client().await;
        drop(store.try_lock("n", "before", SECOND).await.unwrap());
        store.set_clock(START.plus(SECOND)).await.unwrap();
        place
            .run(&raw, "BEGIN; SELECT FROM {s}.locks FOR UPDATE")
            .await;
        let dropped = spawn_try_lock(&store, "a");
        let looker = place.client().await;
        place.until_waiting(&looker, 1).await;
        dropped.abort();
        assert!(dropped.await.unwrap_err().is_cancelled());
        // The only connection went with it; a new one finds nothing left of the call but perhaps its grant.
        let now = tokio::time::timeout(SECOND * 20, store.now()).await;
        assert_eq!(
            now.expect("it does not wait for the call").unwrap(),
            START.plus(SECOND)
        );
        place.run(&raw, "COMMIT").await;
        let other = store.try_lock("n", "b", SECOND).await.unwrap();
        let again = store.try_lock("n", "a", SECOND).await.unwrap();
        assert!(
            other.is_some() != again.is_some(),
            "one of them has it, and the other does not"
        );
    });
}

fn spawn_try_lock(
    store: &Arc<PgStore>,
    owner: &'static str,
) -> tokio::task::JoinHandle<Option<u64>> {
    let store = Arc::clone(store);
    tokio::spawn(async move {
        let lock = store.try_lock("n", owner, SECOND).await.unwrap();
        lock.map(|lock| lock.token().get())
    })
}
