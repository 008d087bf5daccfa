//! G5 and R: a sweep among writers, other sweeps, failing hooks and crashes.

use std::future::ready;
use std::sync::Mutex;

use alkstore::{
    stage_unreferenced, sweep, ErrorKind, GcAbortCause, PutOptions, Restage, StageOptions,
    SweepOptions, SweepReport, SweepStop,
};
use futures_util::future::pending;
use futures_util::FutureExt as _;

use crate::failure::{refused, Refusal};
use crate::fixture::{Capability, Fixture, START};
use crate::interposed::{fail, held, on, Clockwork, Interposed, Outside, Source};
use crate::steps::{
    before, candidates, entry, key, ms, open, secs, sight, stage, stored, waiting, HOUR, NANO, TTL,
};
use crate::sweep::{adds_up, entries, garbage};
use crate::{ensure, ensure_eq, CaseResult, Failure};

/// What a sweep may be told to do without anybody being asked.
fn anyway<'a>() -> SweepOptions<'a> {
    SweepOptions::new().window_decides()
}

const LOST: SweepStop = SweepStop::Aborted(GcAbortCause::LostLease);

/// The text of a report's error and that of its source.
fn error(report: &SweepReport) -> (String, String) {
    let error = report.error.as_ref();
    let source = error.and_then(std::error::Error::source);
    let text = error.map(ToString::to_string).unwrap_or_default();
    (text, source.map(ToString::to_string).unwrap_or_default())
}

pub(crate) async fn g1_r3_a_publication_voids_the_claim(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let writer = f.another(&store).await?;
    let outside = Outside::with(&[(b"k", 1), (b"other", 1)]);
    for with_payload in [false, true] {
        garbage(f, &*store, &["k", "other"]).await?;
        let meddled = Interposed::new(&*store, |moment| {
            let writer = &writer;
            async move {
                if moment.is_before(
                    if with_payload {
                        "window_mark"
                    } else {
                        "window_delete"
                    },
                    1,
                ) {
                    writer.put(b"k", b"again", PutOptions::create()).await?;
                }
                Ok(())
            }
            .boxed()
        });
        let options = if with_payload {
            anyway().reclaimer(&outside)
        } else {
            anyway()
        };
        let report = sweep(&meddled, options).await?;
        ensure_eq!(
            (
                report.protected_by_publication,
                report.deleted,
                report.requeued
            ),
            (1, 1, 0)
        );
        adds_up(&report)?;
        ensure_eq!(&*entry(&*store, b"k").await?.value, b"k", "a dedup hit");
        ensure!(held(&outside.payloads).contains_key(&b"k"[..]));
        ensure_eq!(waiting(&*store).await?, [], "out of the window");
        stage(&*store, &[("k", START)]).await?;
        ensure_eq!(sweep(&*store, anyway()).await?.deleted, 1, "staged again");
    }
    Ok(())
}

/// A claim that was made does not outlive a move or an unstaging either: what is deleted was due as it stood.
pub(crate) async fn g1_r16_a_candidate_that_moved_is_spared(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["moved", "taken", "x"]).await?;
    let later = store.now().await?.plus(HOUR);
    let (moved, taken) = (candidates(&[("moved", later)])?, [key(b"taken")?]);
    let meddled = Interposed::new(&*store, |moment| {
        let (store, moved, taken) = (&*store, &moved, &taken);
        async move {
            if moment.is_after("window_claim", 1) {
                store.window_stage(moved, Restage::Move).await?;
                store.window_unstage(taken).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let report = sweep(&meddled, anyway()).await?;
    ensure_eq!((report.protected_by_publication, report.deleted), (2, 1));
    ensure_eq!(entries(&*store).await?, ["moved", "taken"]);
    let left = waiting(&*store).await?;
    ensure_eq!(left.len(), 1);
    ensure_eq!(left[0].visible_after, later);
    Ok(())
}

pub(crate) async fn g1_r17_a_source_that_fails_protects_everything(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let keys = ["a", "b", "c", "d"];
    garbage(f, &*store, &keys).await?;
    let timer = Clockwork::of(f);
    let free = Source::by(|_| false);
    let never = Source::new(|_| Box::pin(pending()));
    let fails = Source::new(|_| Box::pin(ready(Err("no route to the database".into()))));
    let short = Source::new(|keys| Box::pin(ready(Ok(vec![false; keys.len() - 1]))));
    let long = Source::new(|keys| Box::pin(ready(Ok(vec![false; keys.len() + 1]))));
    for (bad, text, cause) in [
        (
            &fails,
            "a liveness source failed",
            "no route to the database",
        ),
        (
            &short,
            "a liveness source answered for another number of keys",
            "",
        ),
        (
            &long,
            "a liveness source answered for another number of keys",
            "",
        ),
        (
            &never,
            "a hook of the sweep took longer than its timeout",
            "",
        ),
    ] {
        let asked = Mutex::new(0);
        let late = Source::by(|_| {
            *held(&asked) += 1;
            false
        });
        let options = SweepOptions::new().source(&free).source(bad).source(&late);
        let options = options.timer(&timer).hook_timeout(secs(1)).batch(3);
        let report = sweep(&*store, options).await?;
        let told = SweepStop::Aborted(GcAbortCause::LivenessFailed);
        ensure_eq!((report.stop, report.examined), (told, 0), "{text}");
        ensure_eq!(error(&report), (text.to_owned(), cause.to_owned()));
        ensure_eq!(*held(&asked), 0);
        ensure_eq!(entries(&*store).await?, keys);
        let claims = store.window_claim(store.now().await?, NANO, 9).await?;
        ensure_eq!(claims.len(), 4, "due again at once");
        f.advance(NANO).await?;
        let epoch = store.sweep_begin(TTL).await?;
        let epoch = epoch.ok_or_else(|| Failure::new("the sweep is not over"))?;
        ensure!(store.sweep_end(epoch).await?);
    }
    // What came before it is done with.
    let calls = Mutex::new(0);
    let second = Source::new(|keys| {
        *held(&calls) += 1;
        let fine = *held(&calls) == 1;
        Box::pin(ready(if fine {
            Ok(vec![false; keys.len()])
        } else {
            Err("gone".into())
        }))
    });
    let report = sweep(&*store, SweepOptions::new().source(&second).batch(3)).await?;
    ensure_eq!((report.deleted, report.examined), (3, 3));
    ensure_eq!(entries(&*store).await?.len(), 1);
    Ok(())
}

/// A reclaimer that takes too long, or answers for another number of keys, has deleted nothing.
pub(crate) async fn g1_r8_a_late_deletion_hits_no_new_payload(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["k"]).await?;
    let timer = Clockwork::of(f);
    // Payloads have names of their own, which the entries hold; here the name is the key's.
    let mut slow = Outside::with(&[]);
    slow.then = Some(Box::new(|| Box::pin(pending())));
    let options = anyway().reclaimer(&slow).timer(&timer);
    let report = sweep(&*store, options.hook_timeout(secs(1))).await?;
    ensure_eq!((report.failed, report.requeued, report.deleted), (1, 1, 0));
    ensure_eq!(
        error(&report).0,
        "a hook of the sweep took longer than its timeout"
    );
    let put = || store.put(b"k", b"new", PutOptions::create());
    refused(put().await, Refusal::Conflict)?;
    ensure!(waiting(&*store).await?[0].reclaiming);
    f.advance(secs(1)).await?;
    let outside = Outside::with(&[]);
    let report = sweep(&*store, anyway().reclaimer(&outside)).await?;
    ensure_eq!((report.deleted, report.bytes_freed), (1, 0), "R10");
    ensure!(put().await?.is_stored());
    // Now the deletion of old would take effect: it has the name of the old payload.
    ensure_eq!(*held(&slow.asked), [[b"k".to_vec()]]);
    ensure_eq!(&*entry(&*store, b"k").await?.value, b"new");
    Ok(())
}

pub(crate) async fn g1_a_reclaimer_answers_for_each_key(f: &dyn Fixture) -> CaseResult {
    struct Wrong(usize);
    impl alkstore::Reclaimer for Wrong {
        fn reclaim<'a>(
            &'a self,
            _: &'a [alkstore::Key<'a>],
        ) -> alkstore::HookFuture<'a, Vec<Result<alkstore::Reclaimed, alkstore::HookError>>>
        {
            let gone = (0..self.0).map(|_| Ok(alkstore::Reclaimed::NotFound));
            Box::pin(ready(gone.collect()))
        }

        fn measure<'a>(
            &'a self,
            keys: &'a [alkstore::Key<'a>],
        ) -> alkstore::HookFuture<'a, Vec<Result<alkstore::Reclaimed, alkstore::HookError>>>
        {
            self.reclaim(keys)
        }
    }
    let store = open(f).await?;
    garbage(f, &*store, &["a", "b"]).await?;
    for answers in [0, 1, 3] {
        let report = sweep(&*store, anyway().reclaimer(&Wrong(answers))).await?;
        ensure_eq!((report.failed, report.deleted), (2, 0), "{answers}");
        ensure_eq!(report.stop, SweepStop::Drained);
        let text = "the reclaimer answered for another number of keys";
        ensure_eq!(error(&report).0, text);
        ensure_eq!(entries(&*store).await?, ["a", "b"]);
        f.advance(HOUR).await?;
    }
    Ok(())
}

/// Whatever the engine fails at, the sweep ends, says so, and leaves nothing in hand.
pub(crate) async fn g1_g3_an_engine_that_fails_ends_it(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let source = Source::by(|key| key == b"live");
    for with_payload in [false, true] {
        for (op, after) in [
            ("now", false),
            ("sweep_begin", false),
            ("window_claim", false),
            ("window_settle", false),
            ("window_settle", true),
            ("window_delete", false),
            ("window_delete", true),
            ("window_mark", false),
            ("window_mark", true),
            ("window_finish", false),
            ("window_finish", true),
            ("sweep_extend", false),
        ] {
            garbage(f, &*store, &["a", "live", "stuck"]).await?;
            let mut outside = Outside::default();
            outside.stuck.insert(b"stuck".to_vec());
            let options = SweepOptions::new().source(&source);
            let options = if with_payload {
                options.reclaimer(&outside)
            } else {
                options
            };
            let broken = Interposed::new(&*store, |moment| {
                if moment.op == op && moment.nth == 1 && moment.after == after {
                    fail()
                } else {
                    on()
                }
            });
            let report = sweep(&broken, options).await?;
            if broken.calls().contains(&op) {
                let told = SweepStop::Aborted(GcAbortCause::EngineFailed);
                ensure_eq!(report.stop, told, "{op}");
                ensure_eq!(error(&report).0, "the disk is gone");
            }
            let left = waiting(&*store).await?;
            ensure!(
                left.iter().all(|row| row.claimed_until.is_none()),
                "{op}: {left:?}"
            );
            let dropped = left.iter().any(|row| row.key.as_bytes() == b"live");
            ensure!(op != "window_settle" || dropped != after, "{op} {after}");
            f.advance(HOUR).await?;
            let rest = Outside::default();
            let options = SweepOptions::new().source(&source).reclaimer(&rest);
            sweep(&*store, options).await?;
            ensure_eq!(entries(&*store).await?, ["live"], "{op}");
            ensure_eq!(waiting(&*store).await?, [], "{op}");
            store.delete(b"live", None).await?;
        }
    }
    // An end that cannot be said lapses by itself.
    garbage(f, &*store, &["a"]).await?;
    let broken = Interposed::new(&*store, |moment| {
        if moment.op == "sweep_end" {
            fail()
        } else {
            on()
        }
    });
    let report = sweep(&broken, anyway()).await?;
    ensure_eq!((report.deleted, report.stop), (1, SweepStop::Drained));
    Ok(())
}

/// The first sweep stalls past its lease, a second one begins, and the first goes on: also where its claims still stand,
/// because they were made later than the lease.
pub(crate) async fn g1_r14_a_sweep_that_lost_its_lease_deletes_nothing_more(
    f: &dyn Fixture,
) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    for (op, spared) in [
        ("window_delete", 4),
        ("window_mark", 2),
        ("window_finish", 0),
    ] {
        for later in [0, 10] {
            garbage(f, &*store, &["a", "b", "c", "d"]).await?;
            let outside = Outside::with(&[(b"a", 1), (b"b", 1), (b"c", 1), (b"d", 1)]);
            let second = Mutex::new(None);
            let stalls = Interposed::new(&*store, |moment| {
                let (other, second) = (&other, &second);
                async move {
                    if moment.is_before("window_claim", 2) {
                        f.advance(secs(later)).await?;
                    }
                    if moment.is_before(op, 2) {
                        f.advance(secs(30 - later)).await?;
                        *held(second) = other.sweep_begin(HOUR).await?;
                    }
                    Ok(())
                }
                .boxed()
            });
            let options = anyway().claim_lease(secs(30)).batch(2);
            let options = if op == "window_delete" {
                options
            } else {
                options.reclaimer(&outside)
            };
            let report = sweep(&stalls, options).await?;
            let second = *held(&second);
            if let Some(second) = second {
                ensure_eq!((report.deleted, report.stop), (2, LOST), "{op}");
                let kind = report.error.as_ref().map(alkstore::Error::kind);
                ensure_eq!(kind, Some(ErrorKind::LeaseLost), "{op}, {later} s");
                ensure_eq!(entries(&*store).await?, ["c", "d"]);
                ensure_eq!(held(&outside.payloads).len(), spared);
                let stands = other.sweep_extend(second, HOUR).await?;
                ensure!(stands, "the first did not end the second");
                ensure!(other.sweep_end(second).await?);
            } else {
                // There the connection holds the sweep, but the claims lapse all the same.
                ensure!(!f.engine().has(Capability::SweepLease));
                let told = match (later, op) {
                    (0, _) => (2, 2, LOST),
                    // They stand, but not for as long as payloads may take.
                    (_, "window_mark") => (2, 0, LOST),
                    _ => (4, 0, SweepStop::Drained),
                };
                ensure_eq!(
                    (report.deleted, report.lost_lease, report.stop),
                    told,
                    "{op}"
                );
            }
            f.advance(HOUR).await?;
            sweep(&*other, anyway().reclaimer(&outside)).await?;
            ensure_eq!(waiting(&*store).await?, []);
            ensure_eq!(entries(&*store).await?, Vec::<String>::new());
        }
    }
    Ok(())
}

/// Payloads whose deletion would begin so late that it could end after the claims have lapsed are let be.
pub(crate) async fn g1_r8_no_payload_is_touched_too_late(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let timer = Clockwork::of(f);
    for (stall, goes) in [(secs(15), true), (secs(15).saturating_add(NANO), false)] {
        garbage(f, &*store, &["a"]).await?;
        let outside = Outside::with(&[(b"a", 1)]);
        let stalls = Interposed::new(&*store, |moment| {
            async move {
                if moment.is_after("window_mark", 1) {
                    f.advance(stall).await?;
                }
                Ok(())
            }
            .boxed()
        });
        let options = anyway().claim_lease(TTL).reclaimer(&outside);
        let report = sweep(&stalls, options).await?;
        ensure_eq!(
            (report.deleted, held(&outside.asked).is_empty()),
            (u64::from(goes), !goes)
        );
        if !goes {
            ensure_eq!(report.stop, LOST);
            let options = anyway()
                .timer(&timer)
                .hook_timeout(secs(5))
                .reclaimer(&outside);
            ensure_eq!(sweep(&*store, options).await?.deleted, 1);
        }
    }
    Ok(())
}

pub(crate) async fn g1_r22_a_reader_keeps_what_is_swept(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["k"]).await?;
    let read = Mutex::new(None);
    let reads = Interposed::new(&*store, |moment| {
        let (store, read) = (&*store, &read);
        async move {
            if moment.is_before("window_delete", 1) {
                *held(read) = store.get(b"k").await?;
            }
            if moment.is_after("window_delete", 1) {
                let gone = store.get(b"k").await?.is_none();
                store.put(b"k", b"torn", PutOptions::create()).await?;
                if !gone {
                    *held(read) = None;
                }
            }
            Ok(())
        }
        .boxed()
    });
    ensure_eq!(sweep(&reads, anyway()).await?.deleted, 1);
    let read = held(&read)
        .take()
        .ok_or_else(|| Failure::new("nothing was read"))?;
    ensure_eq!(&*read.value, b"k");
    ensure_eq!(&*entry(&*store, b"k").await?.value, b"torn");
    Ok(())
}

pub(crate) async fn g1_r1_repeated_mark_passes_put_nothing_off(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"").await?;
    let grace = secs(100);
    for _ in 0..10 {
        ensure_eq!(sweep(&*store, anyway()).await?.examined, 0);
        let none = &mut std::iter::empty();
        stage_unreferenced(&*store, none, StageOptions::new(grace)).await?;
        f.advance(secs(10)).await?;
    }
    ensure_eq!(store.now().await?, START.plus(grace));
    let report = sweep(&*store, anyway()).await?;
    ensure_eq!((report.deleted, report.oldest_overdue), (1, Some(ms(0))));
    Ok(())
}

pub(crate) async fn g1_r2_a_dedup_hit_gives_a_whole_fresh_window(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"").await?;
    let mark = || async {
        let none = &mut std::iter::empty();
        let options = StageOptions::new(secs(100));
        Ok::<_, Failure>(stage_unreferenced(&*store, none, options).await?.staged)
    };
    ensure_eq!(mark().await?, 1);
    f.advance(secs(99)).await?;
    let put = store.put(b"k", b"", PutOptions::create()).await?;
    ensure!(!put.is_stored());
    // Its reference has come and gone.
    ensure_eq!(mark().await?, 1);
    f.advance(before(START.plus(secs(100)), NANO).since(START))
        .await?;
    ensure_eq!(sweep(&*store, anyway()).await?.examined, 0);
    f.advance(NANO).await?;
    ensure_eq!(sweep(&*store, anyway()).await?.deleted, 1);
    ensure_eq!(sight(&*store).await?.entries, []);
    Ok(())
}
