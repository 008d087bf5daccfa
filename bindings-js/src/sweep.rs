//! The sweep, which JavaScript polls: each poll works until something is to be waited for. So no JavaScript of the
//! user's runs while anything here is borrowed.

use std::cell::Cell;
use std::mem::take;
use std::num::NonZeroU32;
use std::time::Duration;

use alkstore::sweeping::{Answer, Step, Sweep, Terms};
use alkstore::{Error, GcAbortCause, Key, Result, SweepReport, SweepStop, Timestamp, Ttl};
use js_sys::{Array, Uint8Array};
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{answer, attempt, instant, leave, limit, maybe_ttl, Store, OUTPUTS};

thread_local! {
    static RUN: Cell<Option<Box<Run>>> = const { Cell::new(None) };
}

struct Run {
    sweep: Sweep,
    /// What is waited for.
    hook: u32,
    /// What a hook has answered so far, and whether that is all of it (or, where false, that it failed).
    numbers: Vec<f64>,
    whole: bool,
}

// The hooks, by the numbers of `js/sweep.js`.
const LIVENESS: u32 = 0;
const RECLAIM: u32 = 1;
const MEASURE: u32 = 2;
const SLEEP: u32 = 3;
/// Before the first poll.
const NOTHING: u32 = 4;

/// Begins a sweep, which is then polled. What is not given is 0, a limit infinity.
#[wasm_bindgen]
#[allow(clippy::too_many_arguments, clippy::fn_params_excessive_bools)] // one call, and these are what calls can carry
pub fn sweep_start(
    asks: bool,
    reclaims: bool,
    window_decides: bool,
    dry_run: bool,
    at_most: f64,
    batch: f64,
    rate: f64,
    time_limit: f64,
    hook_timeout: f64,
    claim_lease: f64,
) -> f64 {
    answer(|store| {
        let terms = Terms {
            sources: asks.into(),
            window_decides,
            pins: false,
            reclaims,
            waits: true,
            limit: Some(limit(at_most) as u64),
            batch: (batch != 0.0).then(|| limit(batch)),
            time_limit: duration(time_limit)?,
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
            rate: NonZeroU32::new(rate as u32),
            hook_timeout: duration(hook_timeout)?,
            claim_lease: duration(claim_lease)?,
            backoff: None,
            dry_run,
        };
        store.gate.check()?;
        RUN.set(Some(Box::new(Run {
            sweep: Sweep::new(terms)?,
            hook: NOTHING,
            numbers: Vec::new(),
            whole: false,
        })));
        Ok(true)
    })
}

fn duration(millis: f64) -> Result<Option<Duration>> {
    let ttl = maybe_ttl(millis != 0.0, millis)?;
    Ok(ttl.map(Ttl::as_duration))
}

/// Goes on until the sweep waits for something or is over. `woken` says that the time to wait is over, `cancelled` that
/// the sweep is to end.
///
/// Answers `true` where it is over, the keys that a hook is asked about, or `null` where it only sleeps; `false` where it
/// failed. Leaves the number of the hook (or 1 where the sweep is over and has an error to tell), for how long to wait at
/// most, or NaN, and what [`figures`] counts.
#[wasm_bindgen]
pub fn sweep_poll(now: f64, woken: bool, cancelled: bool) -> JsValue {
    poll(now, woken, cancelled).unwrap_or_else(|error| {
        crate::error::keep(error);
        JsValue::FALSE
    })
}

fn poll(now: f64, woken: bool, cancelled: bool) -> Result<JsValue> {
    // The store lets go of it when it is closed.
    let mut run = RUN.take().ok_or_else(Error::closed)?;
    let now = instant(now)?;
    if let Some(answer) = run.outside(woken) {
        run.sweep.answer(answer, cancelled);
    }
    loop {
        let answer = match run.sweep.step() {
            Step::Live { keys, .. } => {
                let question = question(&keys);
                return Ok(wait(run, LIVENESS, None, question));
            }
            Step::Reclaim { keys, measure } => {
                let question = question(&keys);
                let hook = if measure { MEASURE } else { RECLAIM };
                return Ok(wait(run, hook, None, question));
            }
            Step::Sleep { duration } => {
                return Ok(wait(run, SLEEP, Some(duration), JsValue::NULL));
            }
            // JavaScript sees what is left when the sweep sleeps or is over.
            Step::Tell { .. } => Answer::Done,
            Step::Over => break,
            step => attempt(|store| work(store, step, now)).unwrap_or_else(Answer::Failed),
        };
        run.sweep.answer(answer, cancelled);
    }
    let report = run.sweep.into_report();
    let failed = f64::from(u8::from(report.error.is_some()));
    leave(figures(failed, f64::NAN, &report));
    if let Some(error) = report.error {
        crate::error::keep(error);
    }
    Ok(JsValue::TRUE)
}

impl Run {
    /// What came of that which was waited for, if anything was.
    fn outside(&mut self, woken: bool) -> Option<Answer> {
        let numbers = take(&mut self.numbers).into_iter();
        Some(match self.hook {
            NOTHING => return None,
            SLEEP => Answer::Done,
            _ if woken => Answer::Late,
            LIVENESS if take(&mut self.whole) => {
                Answer::Live(numbers.map(|number| number != 0.0).collect())
            }
            LIVENESS => Answer::Threw(None),
            _ => Answer::Freed(numbers.map(freed).collect(), None),
        })
    }
}

/// Leaves what is waited for, and where the sweep stands.
fn wait(mut run: Box<Run>, hook: u32, delay: Option<Duration>, question: JsValue) -> JsValue {
    run.hook = hook;
    let delay = delay.or(run.sweep.hook_timeout());
    let delay = delay.map_or(f64::NAN, millis);
    leave(figures(hook.into(), delay, run.sweep.report()));
    RUN.set(Some(run));
    question
}

fn question(keys: &[Key<'_>]) -> JsValue {
    let array = Array::new();
    for key in keys {
        array.push(&Uint8Array::from(key.as_bytes()));
    }
    array.into()
}

/// One step on the store.
fn work(store: &mut Store, step: Step<'_>, now: Timestamp) -> Result<Answer> {
    let state = &mut store.state;
    Ok(match step {
        Step::Begin { lease } => Answer::Epoch(state.sweep_begin(lease, now)?),
        Step::Extend { epoch, lease } => Answer::Stands(state.sweep_extend(epoch, lease, now)),
        Step::Claim { due, lease, most } => {
            Answer::Claims(state.window_claim(due, lease, most, now)?)
        }
        Step::List { after, most } => Answer::Rows(state.window_list(after, most)),
        Step::Judge { keys } => Answer::Outcomes(state.window_judge(&keys, now)),
        Step::Mark { claims, fence } => Answer::Outcomes(state.window_mark(claims, fence, now)?),
        Step::Finish { claims, fence } => {
            Answer::Outcomes(state.window_finish(claims, fence, now)?)
        }
        Step::Delete { claims, fence } => {
            Answer::Outcomes(state.window_delete(claims, fence, now)?)
        }
        Step::Settle { claims } => Answer::Count(state.window_settle(claims, now)),
        Step::Requeue { claims, at } => Answer::Count(state.window_requeue(claims, at, now)),
        Step::End { epoch } => {
            state.sweep_end(epoch);
            Answer::Done
        }
        _ => Answer::Instant(now),
    })
}

/// One more answer of the hook, for the next of its keys: whether it is live (1 or 0); or how many bytes were freed, -1
/// where there was nothing, -2 where that failed.
#[wasm_bindgen]
pub fn sweep_answer(number: f64) {
    if let Some(mut run) = RUN.take() {
        run.numbers.push(number);
        RUN.set(Some(run));
    }
}

/// These were all its answers; or, where not `whole`, it failed.
#[wasm_bindgen]
pub fn sweep_answered(whole: bool) {
    if let Some(mut run) = RUN.take() {
        run.whole = whole;
        RUN.set(Some(run));
    }
}

/// Lets go of a sweep, wherever it is. Its claims lapse.
#[wasm_bindgen]
pub fn sweep_drop() {
    RUN.set(None);
}

/// What each poll leaves: the hook, for how long to wait, and what the report counts, in its order; then for how long the
/// oldest candidate had been due, or NaN, and why the sweep ended, by the tables of `js/sweep.js`.
#[allow(clippy::cast_precision_loss)] // no count here reaches 2^53
fn figures(hook: f64, delay: f64, report: &SweepReport) -> [f64; OUTPUTS] {
    let stop = match report.stop {
        SweepStop::Running => 0,
        SweepStop::Drained => 1,
        SweepStop::Limit => 2,
        SweepStop::TimeLimit => 3,
        SweepStop::Cancelled => 4,
        SweepStop::Aborted(cause) => match cause {
            GcAbortCause::SweeperLock => 5,
            GcAbortCause::NoLivenessSources => 6,
            GcAbortCause::LivenessFailed => 7,
            GcAbortCause::LostLease => 8,
            _ => 9,
        },
        _ => 9,
    };
    [
        hook,
        delay,
        report.examined as f64,
        report.deleted as f64,
        report.bytes_freed as f64,
        report.already_absent as f64,
        report.protected_by_pin as f64,
        report.protected_by_liveness as f64,
        report.protected_by_publication as f64,
        report.failed as f64,
        report.lost_lease as f64,
        report.requeued as f64,
        report.oldest_overdue.map_or(f64::NAN, millis),
        f64::from(stop),
    ]
}

#[allow(clippy::cast_precision_loss)] // whole seconds, far below 2^53
fn millis(duration: Duration) -> f64 {
    duration.as_secs() as f64 * 1e3 + f64::from(duration.subsec_nanos()) / 1e6
}

/// What a payload took up; nothing where it could not be deleted.
fn freed(number: f64) -> Option<u64> {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates: -1 is 0
    (number > -2.0).then_some(number as u64)
}
