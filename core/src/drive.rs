//! The sweep of any engine, whose futures are awaited here.

use alloc::vec::Vec;
use core::future::{poll_fn, Future};
use core::pin::Pin;
use core::sync::atomic::Ordering;
use core::task::Poll;
use core::time::Duration;

use crate::sweeping::{Answer, Step, Sweep};
use crate::{
    EngineWindowState, HookError, Key, Reclaimed, Reclaimer, Result, SweepOptions, SweepReport,
    Timer,
};

/// Deletes what is due in the window and not live, and reports.
///
/// In batches: claims candidates, asks the sources, arbitrates and deletes in one step of the engine's, and settles. With
/// a reclaimer each key is first [marked](EngineWindowState::window_mark), then its payload is deleted, then its entry.
/// Whatever fails protects: nothing is deleted because somebody could not be asked.
///
/// Only one sweep of a store runs at a time; another ends with
/// [`SweeperLock`](crate::GcAbortCause::SweeperLock). What is due is judged by the store clock as it was when the sweep
/// began, so what was put back does not come again in the same sweep.
///
/// The answer is a report, also where the sweep was ended early: see [`SweepReport::stop`]. Only options that cannot be
/// meant are an error.
///
/// Dropping the future leaves each candidate deleted or not, with claims that lapse by themselves.
///
/// # The embedder's part
///
/// No committed reference ever points at a deleted entry, whatever crashes where, as long as:
///
/// - A writer publishes a key (a put in mode [`Create`](crate::PutMode::Create), stored or not) before it commits a
///   reference to it, each time, and commits the reference within the grace period of the mark passes, else publishes
///   again. The publication voids every claim from before it, so only a mark pass can bring the key back, and then it is
///   due no sooner than the grace period later. The sources are asked after that.
/// - A source sees every reference that was committed before it was asked. A replica that lags does not.
/// - Where the [window decides](SweepOptions::window_decides), nobody is asked, and only a mark pass takes back what was
///   referred to since it was staged. So the grace period covers a writer's time from publication to reference and also
///   the time from the beginning of one mark pass to the end of the next, and nothing is swept while mark passes fail.
///
/// On Postgres pins, and references in the transaction that publishes, take the place of the grace period: see
/// [`EngineFleetState`](crate::EngineFleetState).
///
/// ```
/// use alkstore::{sweep, EngineWindowState, Result, SweepOptions, SweepStop};
///
/// async fn collect(store: &dyn EngineWindowState) -> Result<u64> {
///     let report = sweep(store, SweepOptions::new().window_decides()).await?;
///     if let SweepStop::Aborted(cause) = report.stop {
///         eprintln!("nothing more was deleted: {cause:?}");
///     }
///     Ok(report.deleted)
/// }
/// ```
pub async fn sweep<S: EngineWindowState + ?Sized>(
    store: &S,
    options: SweepOptions<'_>,
) -> Result<SweepReport> {
    let SweepOptions {
        mut terms,
        sources,
        reclaimer,
        timer,
        cancel,
        mut progress,
    } = options;
    terms.window_decides |= store.has_liveness_sources();
    terms.pins = store.has_pins();
    let alarm = (timer, terms.hook_timeout);
    let mut sweep = Sweep::new(terms)?;
    loop {
        let answer = match sweep.step() {
            Step::Now => of(store.now().await, Answer::Instant),
            Step::Begin { lease } => {
                let begun = store.sweep_begin(lease.as_duration()).await;
                of(begun, Answer::Epoch)
            }
            Step::Extend { epoch, lease } => {
                let extended = store.sweep_extend(epoch, lease.as_duration()).await;
                of(extended, Answer::Stands)
            }
            Step::Claim { due, lease, most } => {
                let claimed = store.window_claim(due, lease.as_duration(), most).await;
                of(claimed, Answer::Claims)
            }
            Step::List { after, most } => of(store.window_list(after, most).await, Answer::Rows),
            Step::Judge { keys } => of(store.window_judge(&keys).await, Answer::Outcomes),
            Step::Mark { claims, fence } => {
                of(store.window_mark(claims, fence).await, Answer::Outcomes)
            }
            Step::Finish { claims, fence } => {
                of(store.window_finish(claims, fence).await, Answer::Outcomes)
            }
            Step::Delete { claims, fence } => {
                of(store.window_delete(claims, fence).await, Answer::Outcomes)
            }
            Step::Settle { claims } => of(store.window_settle(claims).await, Answer::Count),
            Step::Requeue { claims, at } => {
                of(store.window_requeue(claims, at).await, Answer::Count)
            }
            Step::End { epoch } => of(store.sweep_end(epoch).await, |_| Answer::Done),
            Step::Live { source, keys } => match sources.get(source) {
                Some(source) => match in_time(alarm, source.live(&keys)).await {
                    Some(Ok(live)) => Answer::Live(live),
                    Some(Err(why)) => Answer::Threw(Some(why)),
                    None => Answer::Late,
                },
                None => Answer::Threw(None),
            },
            Step::Reclaim { keys, measure } => match reclaimer {
                Some(reclaimer) => reclaim(alarm, reclaimer, &keys, measure).await,
                None => Answer::Freed(Vec::new(), None),
            },
            Step::Sleep { duration } => {
                if let Some(timer) = timer {
                    timer.sleep(duration).await;
                }
                Answer::Done
            }
            Step::Tell { so_far } => {
                if let Some(progress) = &mut progress {
                    progress.report(so_far);
                }
                Answer::Done
            }
            Step::Over => return Ok(sweep.into_report()),
        };
        let cancelled = cancel.is_some_and(|flag| flag.load(Ordering::Relaxed));
        sweep.answer(answer, cancelled);
    }
}

/// The engine's answer.
fn of<T>(answer: Result<T>, as_answer: impl FnOnce(T) -> Answer) -> Answer {
    answer.map_or_else(Answer::Failed, as_answer)
}

/// Who waits, and for how long a hook may take.
type Alarm<'t> = (Option<&'t dyn Timer>, Option<Duration>);

async fn reclaim(
    alarm: Alarm<'_>,
    reclaimer: &dyn Reclaimer,
    keys: &[Key<'_>],
    measure: bool,
) -> Answer {
    let work = if measure {
        reclaimer.measure(keys)
    } else {
        reclaimer.reclaim(keys)
    };
    let Some(answers) = in_time(alarm, work).await else {
        return Answer::Late;
    };
    let mut last: Option<HookError> = None;
    let mut freed = |answer| match answer {
        Ok(Reclaimed::Freed { bytes }) => Some(bytes),
        Ok(Reclaimed::NotFound) => Some(0),
        Err(why) => {
            last = Some(why);
            None
        }
    };
    let freed = answers.into_iter().map(&mut freed).collect();
    Answer::Freed(freed, last)
}

/// Awaits a hook for as long as it may take; nothing where it took longer.
async fn in_time<T>(alarm: Alarm<'_>, mut work: impl Future<Output = T> + Unpin) -> Option<T> {
    let (Some(timer), Some(timeout)) = alarm else {
        return Some(work.await);
    };
    let mut alarm = timer.sleep(timeout);
    poll_fn(|context| match Pin::new(&mut work).poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => alarm.as_mut().poll(context).map(|()| None),
    })
    .await
}
