//! G5: a sweep that ends in the middle.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use alkstore::{sweep, ErrorKind, GcAbortCause, Put, PutOptions, SweepOptions, SweepStop};

use crate::fixture::{Capability, Fixture, Opened};
use crate::interposed::{held, on, Crash, Interposed, Outside, Source};
use crate::steps::{key, open, stage, stored, waiting, HOUR, TTL};
use crate::sweep::garbage;
use crate::{ensure, ensure_eq, CaseResult};

/// One store of a crash: what the sweep runs on.
struct Scene<'f> {
    f: &'f dyn Fixture,
    store: &'f Opened,
    outside: Outside<'f>,
    live: Mutex<BTreeSet<Vec<u8>>>,
    with_payload: bool,
}

impl Scene<'_> {
    async fn set(&self) -> CaseResult {
        let keys = ["a", "b", "live", "c", "gone"];
        garbage(self.f, &**self.store, &keys).await?;
        self.store.delete(b"gone", None).await?;
        let now = self.store.now().await?;
        stage(&**self.store, &[("future", now.plus(HOUR))]).await?;
        stored(&**self.store, b"kept", b"").await?;
        let mut payloads = held(&self.outside.payloads);
        payloads.clear();
        payloads.extend(["a", "b", "c", "live", "kept"].map(|key| (key.into(), 1)));
        *held(&self.live) = BTreeSet::from([b"live".to_vec()]);
        Ok(())
    }

    /// Writes every key anew, as a writer does: its payload is there from before it trusts the entry.
    async fn write(&self) -> CaseResult {
        for name in ["a", "b", "c"] {
            match self
                .store
                .put(name.as_bytes(), b"new", PutOptions::create())
                .await
            {
                Ok(Put::Stored { .. }) => {
                    held(&self.outside.payloads).insert(name.into(), 2);
                }
                Ok(Put::NotStored { .. }) => {
                    let there = held(&self.outside.payloads).contains_key(name.as_bytes());
                    ensure!(
                        there || !self.with_payload,
                        "{name} is trusted, its payload is gone"
                    );
                }
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    ensure!(self.with_payload, "{name}: {error:?}");
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            held(&self.live).insert(name.into());
        }
        Ok(())
    }

    /// Nothing is left over, and nothing live is gone.
    async fn check(&self, round: &str) -> CaseResult {
        let mut expected = held(&self.live).clone();
        expected.insert(b"kept".to_vec());
        let entries = self.store.list(b"", None, 100).await?;
        let entries: BTreeSet<_> = entries.iter().map(|e| e.key.as_bytes().to_vec()).collect();
        ensure_eq!(entries, expected, "{round}");
        if self.with_payload {
            let payloads: BTreeSet<_> = held(&self.outside.payloads).keys().cloned().collect();
            ensure_eq!(payloads, expected, "{round}");
        }
        let left = waiting(&**self.store).await?;
        ensure_eq!(left.len(), 1, "{round}: {left:?}");
        ensure_eq!(left[0].key, key(b"future")?);
        ensure!(self.store.window_unstage(&[key(b"future")?]).await? == 1);
        for key in entries {
            self.store.delete(&key, None).await?;
        }
        Ok(())
    }
}

async fn crash_everywhere(f: &dyn Fixture, with_payload: bool) -> CaseResult {
    let store = open(f).await?;
    let crash = Mutex::new(Arc::new(Crash::default()));
    let calls = Mutex::new((0, 0));
    let scene = Scene {
        f,
        store: &store,
        outside: Outside {
            then: Some(Box::new(|| {
                let crash = held(&crash).clone();
                let mut calls = held(&calls);
                calls.0 += 1;
                let here = calls.0 == calls.1;
                Box::pin(async move {
                    if here {
                        crash.now::<()>().await;
                    }
                })
            })),
            ..Outside::default()
        },
        live: Mutex::default(),
        with_payload,
    };
    let options = || {
        let options = SweepOptions::new().batch(2).claim_lease(TTL);
        if with_payload {
            options.reclaimer(&scene.outside)
        } else {
            options
        }
    };
    let source = Source::by(|key| held(&scene.live).contains(key));
    for writes in [false, true] {
        for at in 1.. {
            scene.set().await?;
            *held(&crash) = Arc::default();
            *held(&calls) = (0, at);
            let dies = held(&crash).clone();
            let crashes = f.another(&store).await?;
            let steps = Interposed::new(&*crashes, |_| {
                let mut calls = held(&calls);
                calls.0 += 1;
                if calls.0 == calls.1 {
                    dies.now()
                } else {
                    on()
                }
            });
            let done = dies.survive(sweep(&steps, options().source(&source))).await;
            let made = steps.calls();
            if f.engine().has(Capability::Durable) {
                crashes.close().await?;
            }
            if writes {
                scene.write().await?;
            }
            f.advance(TTL).await?;
            let again = loop {
                // The connection of the first may take a while to be gone.
                let report = sweep(&*store, options().source(&source)).await?;
                if report.stop != SweepStop::Aborted(GcAbortCause::SweeperLock)
                    || f.engine().has(Capability::SweepLease)
                {
                    break report;
                }
            };
            ensure_eq!(again.stop, SweepStop::Drained, "{made:?}");
            scene.check(&format!("writes: {writes}, {made:?}")).await?;
            if done.is_some() {
                ensure!(at > 16, "{at} steps: {made:?}");
                break;
            }
        }
    }
    Ok(())
}

pub(crate) async fn g5_r9_a_sweep_may_crash_at_every_step(f: &dyn Fixture) -> CaseResult {
    crash_everywhere(f, false).await
}

pub(crate) async fn g5_r8_r10_a_sweep_with_payloads_may_crash_at_every_step(
    f: &dyn Fixture,
) -> CaseResult {
    crash_everywhere(f, true).await
}
