//! Keepers of pins. That a loss is told in time, however the server fails, is shown in their own module, on a paused
//! clock of the runtime's.

use super::postgres_support::{block_on, Place, SECOND, START};
use super::*;

/// Renewals come each second; the clock of the store stands still all the same.
const TTL: Duration = Duration::from_secs(3);

#[test]
fn a_keeper_renews_until_the_pin_is_gone() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| options.pin_ttl(TTL)).await;
        let raw = place.client().await;
        assert!(
            store.keep_pin(b"k", "w").await.unwrap().is_none(),
            "there is nothing to keep"
        );
        publish(&store, b"k", SECOND).await.unwrap();
        let mut keeper = store.keep_pin(b"k", "w").await.unwrap().unwrap();
        assert_eq!((keeper.key(), keeper.owner()), (&b"k"[..], "w"));
        let deadline = || async { store.pins(None, None, 1).await.unwrap()[0].expires_at };
        assert_eq!(deadline().await, START.plus(TTL), "renewed at once");
        let later = START.plus(TTL / 2);
        store.set_clock(later).await.unwrap();
        while deadline().await != later.plus(TTL) {
            assert!(!keeper.is_lost());
            tokio::task::yield_now().await;
        }
        place.run(&raw, "DELETE FROM {s}.gc_pins").await;
        keeper.lost().await;
        keeper.lost().await;
        assert!(keeper.is_lost());
        assert!(!keeper.release().await.unwrap());
    });
}

#[test]
fn a_keeper_that_is_released_or_dropped_renews_no_more() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open_with(&place, |options| options.pin_ttl(TTL)).await;
        publish(&store, b"k", SECOND).await.unwrap();
        let keeper = store.keep_pin(b"k", "w").await.unwrap().unwrap();
        assert!(keeper.release().await.unwrap());
        assert_eq!(store.pins(None, None, 1).await.unwrap(), []);

        publish(&store, b"k", SECOND).await.unwrap();
        let keeper = store.keep_pin(b"k", "w").await.unwrap().unwrap();
        drop(keeper);
        store.set_clock(START.plus(TTL)).await.unwrap();
        assert!(store.pins(None, None, 1).await.unwrap()[0].lapsed);
    });
}
