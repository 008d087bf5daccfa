//! A sweep that asks a source in the process, and a writer whose pin begins and ends while the source thinks about it.

use std::sync::Mutex;

use alkstore::{
    sweep, Candidate, EngineWindowState, HookError, HookFuture, LivenessSource, PinState, Restage,
    SweepOptions,
};

use super::postgres_support::{block_on, Place, SECOND, START};
use super::*;

/// Looks for references; then, before it answers, the writer commits one while it has a pin, and lets go of that.
struct Slow {
    store: Arc<PgStore>,
    /// Whether the writer has yet to pin the key, which is there.
    pins_late: bool,
    references: Mutex<Vec<Vec<u8>>>,
}

impl LivenessSource for Slow {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        Box::pin(async move {
            let known = self.references.lock().unwrap().clone();
            let is_known = |key: &Key<'_>| known.iter().any(|other| other == key.as_bytes());
            let answer = keys.iter().map(is_known).collect();
            if self.pins_late {
                let tx = self.store.begin_joint_tx().await?;
                let pins = [pin(b"k", "w", SECOND)];
                self.store.pin_commit(tx, &pins).await?;
            }
            assert_eq!(self.store.pin_check(b"k").await?, PinState::Protected);
            self.references.lock().unwrap().push(b"k".to_vec());
            assert!(self.store.pin_release(b"k", "w").await?);
            Ok(answer)
        })
    }
}

/// A sweep over `k`, which is due, with such a source.
async fn sweep_slowly(store: &Arc<PgStore>, pins_late: bool) -> alkstore::SweepReport {
    let row = Candidate {
        key: Key::new(&b"k"[..]).unwrap(),
        visible_after: START,
    };
    store.window_stage(&[row], Restage::Keep).await.unwrap();
    let source = Slow {
        store: Arc::clone(store),
        pins_late,
        references: Mutex::default(),
    };
    let options = SweepOptions::new().source(&source);
    sweep(&**store, options).await.unwrap()
}

#[test]
fn g5_what_is_pinned_is_not_asked_about() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        publish(&store, b"k", SECOND).await.unwrap();
        let report = sweep_slowly(&store, false).await;
        assert!(has(&store, b"k").await, "{report:?}");
        assert_eq!(
            (report.protected_by_pin, report.requeued, report.deleted),
            (1, 1, 0)
        );
    });
}

#[test]
fn g5_a_pin_voids_the_claim_that_was_asked_about() {
    let Some(place) = Place::new() else { return };
    block_on(async {
        let store = open(&place).await;
        put(&store, b"k").await;
        let report = sweep_slowly(&store, true).await;
        assert!(has(&store, b"k").await, "{report:?}");
        assert_eq!((report.protected_by_publication, report.deleted), (1, 0));
        assert_eq!(store.window_list(None, 9).await.unwrap(), []);
    });
}
