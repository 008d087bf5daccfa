//! G1 to G4 and G6: what a sweep does, how it ends, and what it says.

use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Mutex;
use std::time::Duration;

use alkstore::{
    sweep, GcAbortCause, PutOptions, Store, SweepOptions, SweepReport, SweepStop, Timestamp,
    TtlError,
};
use futures_util::FutureExt as _;

use crate::failure::{refused, Refusal};
use crate::fixture::{Fixture, START};
use crate::interposed::{held, on, Clockwork, Interposed, Outside, Source};
use crate::steps::{before, key, marked, ms, open, secs, sight, stage, stored, waiting, NANO, TTL};
use crate::{ensure, ensure_eq, CaseResult, Failure};

fn at(seconds: u64) -> Timestamp {
    START.plus(secs(seconds))
}

/// Entries that are due, the first for the longest.
pub(crate) async fn garbage(f: &dyn Fixture, store: &dyn Store, keys: &[&str]) -> CaseResult {
    let now = store.now().await?;
    for (n, key) in keys.iter().enumerate() {
        stored(store, key.as_bytes(), key.as_bytes()).await?;
        stage(store, &[(key, now.plus(ms(n as u64)))]).await?;
    }
    Ok(f.advance(ms(keys.len() as u64)).await?)
}

/// The keys of all entries.
pub(crate) async fn entries(store: &dyn Store) -> CaseResult<Vec<String>> {
    let entries = store.list(b"", None, 10_000).await?;
    let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok(entries
        .iter()
        .map(|entry| name(entry.key.as_bytes()))
        .collect())
}

/// Every figure of a report: examined, then what became of them, then the rest.
pub(crate) fn figures(report: &SweepReport) -> ([u64; 10], Option<Duration>, SweepStop) {
    let numbers = [
        report.examined,
        report.deleted,
        report.already_absent,
        report.protected_by_pin,
        report.protected_by_liveness,
        report.protected_by_publication,
        report.failed,
        report.lost_lease,
        report.requeued,
        report.bytes_freed,
    ];
    (numbers, report.oldest_overdue, report.stop)
}

/// Fails the case unless every candidate that was examined became one thing.
pub(crate) fn adds_up(report: &SweepReport) -> CaseResult {
    let (numbers, ..) = figures(report);
    ensure_eq!(
        numbers[1..8].iter().sum::<u64>(),
        report.examined,
        "{report:?}"
    );
    Ok(())
}

pub(crate) async fn g1_what_is_due_is_deleted_oldest_first(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["c", "a", "d", "b"]).await?;
    stored(&*store, b"later", b"").await?;
    let now = store.now().await?;
    stage(&*store, &[("later", now.plus(NANO))]).await?;
    let asked = Mutex::new(Vec::new());
    let source = Source::by(|key| {
        held(&asked).push(String::from_utf8_lossy(key).into_owned());
        false
    });
    let report = sweep(&*store, SweepOptions::new().source(&source).batch(3)).await?;
    ensure_eq!(
        figures(&report),
        (
            [4, 4, 0, 0, 0, 0, 0, 0, 0, 4],
            Some(ms(4)),
            SweepStop::Drained
        )
    );
    ensure!(!report.dry_run && report.error.is_none());
    let mut asked = held(&asked).clone();
    asked[..3].sort();
    ensure_eq!(
        asked,
        ["a", "c", "d", "b"],
        "the oldest three, then the rest"
    );
    ensure_eq!(entries(&*store).await?, ["later"]);
    ensure_eq!(waiting(&*store).await?.len(), 1);
    ensure!(store.sweep_begin(TTL).await?.is_some(), "the sweep is over");
    Ok(())
}

/// What became due after the start waits for the next sweep, so that a sweep ends.
pub(crate) async fn g1_r19_the_store_clock_at_the_start_decides(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    for key in ["a", "b"] {
        stored(&*store, key.as_bytes(), b"").await?;
    }
    stage(&*store, &[("a", at(10)), ("b", at(11))]).await?;
    f.set_clock(before(at(10), NANO)).await?;
    let options = || SweepOptions::new().window_decides();
    let report = sweep(&*store, options()).await?;
    ensure_eq!(figures(&report), ([0; 10], None, SweepStop::Drained));
    f.advance(NANO).await?;
    let moving = Interposed::new(&*store, |moment| {
        async move {
            if moment.is_before("window_claim", 1) {
                f.advance(secs(5)).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let report = sweep(&moving, options()).await?;
    ensure_eq!((report.deleted, report.oldest_overdue), (1, Some(secs(0))));
    ensure_eq!(entries(&*store).await?, ["b"]);
    ensure_eq!(sweep(&*store, options()).await?.deleted, 1);
    Ok(())
}

pub(crate) async fn g1_it_ends_at_its_limit_and_in_its_time(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    garbage(f, &*store, &keys).await?;
    let options = || SweepOptions::new().window_decides().batch(2);
    let report = sweep(&*store, options().limit(0)).await?;
    ensure_eq!(figures(&report), ([0; 10], None, SweepStop::Limit));
    let report = sweep(&*store, options().limit(3)).await?;
    ensure_eq!((report.deleted, report.stop), (3, SweepStop::Limit));
    ensure_eq!(entries(&*store).await?, keys[3..]);
    // Each batch takes a second: those that begin at 0, 1 and 2 s.
    let slow = Source::new(|keys| {
        Box::pin(async move {
            f.advance(secs(1)).await?;
            Ok(vec![false; keys.len()])
        })
    });
    let options = SweepOptions::new().source(&slow).batch(1);
    let report = sweep(&*store, options.time_limit(secs(3))).await?;
    ensure_eq!((report.deleted, report.stop), (3, SweepStop::TimeLimit));
    ensure_eq!(entries(&*store).await?, keys[6..]);
    ensure!(store.sweep_begin(TTL).await?.is_some());
    Ok(())
}

pub(crate) async fn g1_a_cancelled_sweep_puts_back_what_it_has(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a", "b", "c", "d", "e"]).await?;
    let due = waiting(&*store).await?;
    // Between batches.
    let flag = AtomicBool::new(false);
    let mut told = Vec::new();
    let mut tell = |report: &SweepReport| {
        told.push((report.examined, report.stop));
        flag.store(report.examined >= 2, Ordering::Relaxed);
    };
    let options = SweepOptions::new().window_decides().batch(1);
    let report = sweep(&*store, options.cancel(&flag).progress(&mut tell)).await?;
    ensure_eq!((report.deleted, report.stop), (2, SweepStop::Cancelled));
    let running = SweepStop::Running;
    ensure_eq!(
        told,
        [(1, running), (2, running), (2, SweepStop::Cancelled)]
    );
    ensure_eq!(waiting(&*store).await?, due[2..]);
    // In the middle of a batch, before its payloads go.
    flag.store(false, Ordering::Relaxed);
    let source = Source::by(|_| {
        flag.store(true, Ordering::Relaxed);
        false
    });
    let outside = Outside::with(&[(b"c", 1), (b"d", 1)]);
    let options = SweepOptions::new().source(&source).reclaimer(&outside);
    let report = sweep(&*store, options.batch(2).cancel(&flag)).await?;
    ensure_eq!(
        figures(&report),
        ([0; 10], Some(ms(3)), SweepStop::Cancelled)
    );
    ensure!(held(&outside.asked).is_empty());
    let now = store.now().await?;
    let back = waiting(&*store).await?;
    ensure_eq!(back.len(), 3);
    for row in back {
        ensure!(row.claimed_until.is_none() && !row.reclaiming, "{row:?}");
        ensure!(row.visible_after <= now, "{row:?}");
    }
    Ok(())
}

pub(crate) async fn g1_a_rate_paces_it(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let names: Vec<String> = (10..90).map(|n| n.to_string()).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    garbage(f, &*store, &names[..5]).await?;
    let rate = |n| NonZeroU32::new(n).ok_or_else(|| Failure::new("zero"));
    let begin = store.now().await?;
    let timer = Clockwork::of(f);
    let options = || SweepOptions::new().window_decides().timer(&timer);
    let report = sweep(&*store, options().batch(1).rate(rate(10)?)).await?;
    ensure_eq!((report.deleted, report.stop), (5, SweepStop::Drained));
    ensure_eq!(store.now().await?, begin.plus(ms(500)));
    ensure_eq!(*held(&timer.slept), [ms(100); 5], "after each batch");
    // Without a rate others have their turn.
    held(&timer.slept).clear();
    garbage(f, &*store, &names[5..10]).await?;
    sweep(&*store, options().batch(2)).await?;
    ensure_eq!(*held(&timer.slept), [secs(0); 3]);
    // A pause that is longer than the lease loses neither the sweep nor a cancel.
    garbage(f, &*store, &names[10..]).await?;
    let slow = || options().rate(NonZeroU32::MIN).batch(35);
    let report = sweep(&*store, slow().claim_lease(secs(2))).await?;
    ensure_eq!((report.deleted, report.stop), (70, SweepStop::Drained));
    ensure_eq!(timer.total(), secs(70));
    held(&timer.slept).clear();
    garbage(f, &*store, &names).await?;
    let report = sweep(&*store, slow().time_limit(secs(5))).await?;
    ensure_eq!((report.deleted, report.stop), (35, SweepStop::TimeLimit));
    ensure!(timer.total() <= secs(6), "{:?}", timer.total());
    let report = sweep(&*store, slow().limit(35)).await?;
    ensure_eq!((report.deleted, report.stop), (35, SweepStop::Limit));
    ensure!(timer.total() <= secs(6), "no pause before its end");
    Ok(())
}

pub(crate) async fn g1_a_pause_hears_a_cancel(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a", "b", "c", "d", "e", "f", "g"]).await?;
    let (timer, flag) = (Clockwork::of(f), AtomicBool::new(false));
    let watched = Interposed::new(&*store, |moment| {
        if moment.is_before("sweep_extend", 4) {
            flag.store(true, Ordering::Relaxed);
        }
        on()
    });
    let options = SweepOptions::new().window_decides().timer(&timer).batch(6);
    let report = sweep(&watched, options.rate(NonZeroU32::MIN).cancel(&flag)).await?;
    ensure_eq!((report.deleted, report.stop), (6, SweepStop::Cancelled));
    ensure_eq!(timer.total(), secs(4));
    Ok(())
}

pub(crate) async fn g1_payloads_go_before_entries(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a", "b", "c"]).await?;
    let mut outside = Outside::with(&[(b"a", 100), (b"b", 10), (b"z", 1)]);
    outside.then = Some(Box::new(|| {
        Box::pin(async {
            // What is going is still there to be read, and nobody writes it.
            let kept = entries(&*store).await.map(|entries| entries.len());
            let put = store.put(b"a", b"new", PutOptions::create()).await;
            if kept.ok() != Some(3) || refused(put, Refusal::Conflict).is_err() {
                drop(store.close().await);
            }
        })
    }));
    let options = SweepOptions::new().window_decides().reclaimer(&outside);
    let report = sweep(&*store, options).await?;
    ensure_eq!(
        figures(&report),
        (
            [3, 3, 0, 0, 0, 0, 0, 0, 0, 110],
            Some(ms(3)),
            SweepStop::Drained
        ),
        "{report:?}"
    );
    ensure_eq!(held(&outside.payloads).len(), 1);
    ensure_eq!(held(&outside.asked).len(), 1);
    ensure_eq!(entries(&*store).await?, Vec::<String>::new());
    stored(&*store, b"a", b"new").await?;
    Ok(())
}

pub(crate) async fn g1_every_source_protects(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a", "b", "c"]).await?;
    let asked = Mutex::new(Vec::new());
    let first = Source::by(|key| key == b"a");
    let second = Source::by(|key| {
        held(&asked).push(key.to_vec());
        key == b"b"
    });
    let options = SweepOptions::new().source(&first).source(&second);
    let report = sweep(&*store, options).await?;
    ensure_eq!((report.protected_by_liveness, report.deleted), (2, 1));
    ensure_eq!(
        *held(&asked),
        [b"b", b"c"],
        "what is live need not be asked about again"
    );
    ensure_eq!(entries(&*store).await?, ["a", "b"]);
    ensure_eq!(
        waiting(&*store).await?,
        [],
        "until a mark pass finds them again"
    );
    Ok(())
}

/// The payload of a marked key may be gone, so its entry goes whatever is said of it.
pub(crate) async fn g1_w8_what_is_marked_is_finished(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    stored(&*store, b"k", b"").await?;
    marked(&*store, &["k"]).await?;
    f.advance(TTL).await?;
    let live = Source::by(|_| true);
    let outside = Outside::default();
    for dry in [true, false] {
        let options = SweepOptions::new().source(&live).reclaimer(&outside);
        let options = if dry { options.dry_run() } else { options };
        let report = sweep(&*store, options).await?;
        ensure_eq!((report.deleted, report.protected_by_liveness), (1, 0));
    }
    ensure_eq!(entries(&*store).await?, Vec::<String>::new());
    Ok(())
}

pub(crate) async fn g1_options_that_cannot_be_meant_are_refused(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a"]).await?;
    let held = (sight(&*store).await?, waiting(&*store).await?);
    let timer = Clockwork::of(f);
    let options = || SweepOptions::new().window_decides();
    for wrong in [
        options().batch(0),
        options().batch(10_001),
        options().rate(NonZeroU32::MIN),
        options().hook_timeout(secs(1)),
        options().timer(&timer).hook_timeout(secs(0)),
        options().timer(&timer).hook_timeout(secs(60)),
        options()
            .timer(&timer)
            .claim_lease(secs(2))
            .hook_timeout(secs(2)),
    ] {
        refused(sweep(&*store, wrong).await, Refusal::Argument)?;
    }
    for (lease, why) in [
        (secs(0), TtlError::NotPositive),
        (Duration::MAX, TtlError::TooLong),
    ] {
        let wrong = options().claim_lease(lease);
        refused(sweep(&*store, wrong).await, Refusal::Duration(why))?;
    }
    ensure_eq!((sight(&*store).await?, waiting(&*store).await?), held);
    Ok(())
}

pub(crate) async fn g3_the_report_counts_everything(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let keys = ["live", "gone", "taken", "stuck", "free", "none"];
    garbage(f, &*store, &keys).await?;
    f.advance(secs(9)).await?;
    ensure!(store.delete(b"none", None).await?);
    let mut outside = Outside::with(&[(b"free", 7), (b"stuck", 1000)]);
    outside.stuck.insert(b"stuck".to_vec());
    let source = Source::by(|key| key == b"live");
    let meddled = Interposed::new(&*store, |moment| {
        let store = &*store;
        async move {
            if moment.is_after("window_claim", 1) {
                store.put(b"taken", b"", PutOptions::create()).await?;
            }
            Ok(())
        }
        .boxed()
    });
    let options = SweepOptions::new().source(&source).reclaimer(&outside);
    let report = sweep(&meddled, options).await?;
    ensure_eq!(
        figures(&report),
        (
            [6, 2, 1, 0, 1, 1, 1, 0, 1, 7],
            Some(secs(9).saturating_add(ms(6))),
            SweepStop::Drained
        )
    );
    adds_up(&report)?;
    let error = report.error.ok_or_else(|| Failure::new("no error"))?;
    let source = std::error::Error::source(&error).map(ToString::to_string);
    ensure_eq!(source.as_deref(), Some("the payload is stuck"));
    ensure_eq!(entries(&*store).await?, ["live", "stuck", "taken"]);
    let left = waiting(&*store).await?;
    ensure_eq!(left.len(), 1);
    ensure!(
        left[0].key == key(b"stuck")? && left[0].reclaiming,
        "{left:?}"
    );
    // A sweep without the reclaimer leaves it to one that has it.
    f.advance(secs(1)).await?;
    let report = sweep(&*store, SweepOptions::new().window_decides()).await?;
    ensure_eq!((report.examined, report.failed, report.requeued), (1, 1, 1));
    ensure_eq!(entries(&*store).await?, ["live", "stuck", "taken"]);
    Ok(())
}

pub(crate) async fn g3_a_second_sweep_is_told_so(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    let other = f.another(&store).await?;
    garbage(f, &*store, &["a", "b"]).await?;
    let seen = Mutex::new(Vec::new());
    let source = Source::new(|keys| {
        let (other, seen) = (&other, &seen);
        Box::pin(async move {
            let before = waiting(&**other).await;
            let report = sweep(&**other, SweepOptions::new().window_decides()).await?;
            let same = before.ok() == waiting(&**other).await.ok();
            held(seen).push((figures(&report), same));
            Ok(vec![false; keys.len()])
        })
    });
    let report = sweep(&*store, SweepOptions::new().source(&source)).await?;
    ensure_eq!((report.deleted, report.stop), (2, SweepStop::Drained));
    let told = SweepStop::Aborted(GcAbortCause::SweeperLock);
    ensure_eq!(*held(&seen), [(([0; 10], None, told), true)]);
    Ok(())
}

pub(crate) async fn g4_r20_a_key_that_keeps_failing_backs_off(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["s1", "s2", "s3", "x", "y"]).await?;
    let mut outside = Outside::default();
    for key in [b"s1", b"s2", b"s3"] {
        outside.stuck.insert(key.to_vec());
    }
    let options = |most: u64| {
        let options = SweepOptions::new().window_decides().reclaimer(&outside);
        options.batch(2).backoff(secs(4), secs(most))
    };
    let report = sweep(&*store, options(20)).await?;
    ensure_eq!(
        (report.deleted, report.failed, report.requeued),
        (2, 3, 3),
        "the later ones progress"
    );
    ensure_eq!(entries(&*store).await?, ["s1", "s2", "s3"]);
    for wait in [4, 8, 16, 20, 20] {
        let due = store.now().await?.plus(secs(wait));
        for row in waiting(&*store).await? {
            ensure_eq!(row.visible_after, due, "{wait} s");
        }
        f.set_clock(before(due, NANO)).await?;
        ensure_eq!(sweep(&*store, options(20)).await?.examined, 0);
        f.set_clock(due).await?;
        ensure_eq!(sweep(&*store, options(20)).await?.failed, 3);
    }
    // Put back without a wait, they still do not come twice in one sweep.
    f.advance(secs(20)).await?;
    ensure_eq!(sweep(&*store, options(0).limit(10)).await?.examined, 3);
    Ok(())
}

pub(crate) async fn g6_nothing_is_garbage_by_default(f: &dyn Fixture) -> CaseResult {
    let store = open(f).await?;
    garbage(f, &*store, &["a"]).await?;
    let before = (sight(&*store).await?, waiting(&*store).await?);
    let outside = Outside::default();
    for options in [
        SweepOptions::new(),
        SweepOptions::new().dry_run(),
        SweepOptions::new().reclaimer(&outside),
    ] {
        let untouched = Interposed::new(&*store, |_| on());
        let report = sweep(&untouched, options).await?;
        let told = SweepStop::Aborted(GcAbortCause::NoLivenessSources);
        ensure_eq!(figures(&report), ([0; 10], None, told));
        ensure_eq!(untouched.calls(), Vec::<&str>::new());
    }
    ensure_eq!((sight(&*store).await?, waiting(&*store).await?), before);
    ensure!(held(&outside.asked).is_empty());
    let report = sweep(&*store, SweepOptions::new().window_decides()).await?;
    ensure_eq!((report.deleted, report.stop), (1, SweepStop::Drained));
    Ok(())
}
