//! The sweep of core, which JavaScript polls. Each poll tells what the sweep waits for; what JavaScript has answered is
//! found by the next. So no JavaScript of the user's runs while anything here is borrowed.

use std::cell::RefCell;
use std::fmt;
use std::future::{poll_fn, Future};
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use alkstore::{
    Error, GcAbortCause, HookError, HookFuture, Key, LivenessSource, Reclaimed, Reclaimer, Result,
    SweepOptions, SweepReport, SweepStop, Timer, Ttl,
};
use js_sys::{Array, Uint8Array};
use wasm_bindgen::prelude::{wasm_bindgen, JsValue};

use crate::boundary::{answer, instant, leave, limit, maybe_ttl, OUTPUTS};
use crate::engine::Here;

type Running = Pin<Box<dyn Future<Output = Result<SweepReport>>>>;

thread_local! {
    static RUN: RefCell<Option<Running>> = const { RefCell::new(None) };
    static MAIL: RefCell<Mail> = const { RefCell::new(Mail::EMPTY) };
}

static CANCELLED: AtomicBool = AtomicBool::new(false);

/// What lies between the sweep and JavaScript.
struct Mail {
    /// The keys that a hook is asked about: an array, or `null` where none is.
    keys: JsValue,
    /// What it has answered so far, and whether that is all of it (or, where false, that it failed).
    numbers: Vec<f64>,
    reply: Option<bool>,
    /// Whether the time to sleep is over.
    woken: bool,
    /// What each poll leaves: the hook, for how long to sleep, and the counts.
    left: [f64; OUTPUTS],
}

impl Mail {
    const EMPTY: Self = Self {
        keys: JsValue::NULL,
        numbers: Vec::new(),
        reply: None,
        woken: false,
        left: [0.0; OUTPUTS],
    };
}

// Places in what is left.
const HOOK: usize = 0;
const ALARM: usize = 1;
const COUNTS: usize = 2;

// The hooks, by the numbers of `js/sweep.js`.
const LIVENESS: f64 = 0.0;
const RECLAIM: f64 = 1.0;
const MEASURE: f64 = 2.0;

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
        let time_limit = duration(time_limit)?;
        let hook_timeout = duration(hook_timeout)?;
        let claim_lease = duration(claim_lease)?;
        store.gate.check()?;
        let mut options = SweepOptions::new()
            .timer(&Hooks)
            .cancel(&CANCELLED)
            .progress(Box::leak(Box::new(tell))) // which has no size, so nothing is leaked
            .limit(limit(at_most) as u64);
        if asks {
            options = options.source(&Hooks);
        }
        if reclaims {
            options = options.reclaimer(&Hooks);
        }
        if window_decides {
            options = options.window_decides();
        }
        if dry_run {
            options = options.dry_run();
        }
        if batch != 0.0 {
            options = options.batch(limit(batch));
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // saturates
        if let Some(rate) = NonZeroU32::new(rate as u32) {
            options = options.rate(rate);
        }
        if let Some(time) = time_limit {
            options = options.time_limit(time);
        }
        if let Some(time) = hook_timeout {
            options = options.hook_timeout(time);
        }
        if let Some(time) = claim_lease {
            options = options.claim_lease(time);
        }
        MAIL.set(Mail::EMPTY);
        RUN.set(Some(Box::pin(alkstore::sweep(&Here, options))));
        Ok(true)
    })
}

fn duration(millis: f64) -> Result<Option<Duration>> {
    let ttl = maybe_ttl(millis != 0.0, millis)?;
    Ok(ttl.map(Ttl::as_duration))
}

/// Goes on until the sweep waits for something or is through. `woken` says that the time to sleep is over, `cancelled`
/// that the sweep is to end.
///
/// Answers `true` where it is through, the keys that a hook is asked about, or `null` where it only sleeps; `false` where
/// it failed. Leaves the number of the hook (or 1 where the sweep is through and has an error to tell), for how long to
/// sleep at most, or NaN, and what [`tell`] has counted.
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
    Here::set_time(instant(now)?);
    CANCELLED.store(cancelled, Ordering::Relaxed);
    MAIL.with_borrow_mut(|mail| {
        mail.keys = JsValue::NULL;
        mail.woken = woken;
        mail.left[ALARM] = f64::NAN;
    });
    let polled = run.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let answer = match polled {
        Poll::Pending => {
            RUN.set(Some(run));
            MAIL.with_borrow(|mail| mail.keys.clone())
        }
        Poll::Ready(report) => {
            let error = report?.error;
            let failed = f64::from(u8::from(error.is_some()));
            MAIL.with_borrow_mut(|mail| mail.left[HOOK] = failed);
            if let Some(error) = error {
                crate::error::keep(error);
            }
            JsValue::TRUE
        }
    };
    leave(MAIL.with_borrow(|mail| mail.left));
    Ok(answer)
}

/// One more answer of the hook, for the next of its keys: whether it is live (1 or 0); or how many bytes were freed, -1
/// where there was nothing, -2 where that failed.
#[wasm_bindgen]
pub fn sweep_answer(number: f64) {
    MAIL.with_borrow_mut(|mail| mail.numbers.push(number));
}

/// These were all its answers; or, where not `whole`, it failed.
#[wasm_bindgen]
pub fn sweep_answered(whole: bool) {
    MAIL.with_borrow_mut(|mail| mail.reply = Some(whole));
}

/// Lets go of a sweep, wherever it is. Its claims lapse.
#[wasm_bindgen]
pub fn sweep_drop() {
    RUN.set(None);
    MAIL.set(Mail::EMPTY);
}

/// Keeps what a report counts, in its order; then for how long the oldest candidate had been due, or NaN, and why the
/// sweep ended, by the tables of `js/sweep.js`.
#[allow(clippy::cast_precision_loss)] // no count here reaches 2^53
fn tell(report: &SweepReport) {
    let stop = match report.stop {
        SweepStop::Running => 0.0,
        SweepStop::Drained => 1.0,
        SweepStop::Limit => 2.0,
        SweepStop::TimeLimit => 3.0,
        SweepStop::Cancelled => 4.0,
        SweepStop::Aborted(cause) => match cause {
            GcAbortCause::SweeperLock => 5.0,
            GcAbortCause::NoLivenessSources => 6.0,
            GcAbortCause::LivenessFailed => 7.0,
            GcAbortCause::LostLease => 8.0,
            _ => 9.0,
        },
        _ => 9.0,
    };
    let counts = [
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
        stop,
    ];
    MAIL.with_borrow_mut(|mail| mail.left[COUNTS..].copy_from_slice(&counts));
}

#[allow(clippy::cast_precision_loss)] // whole seconds, far below 2^53
fn millis(duration: Duration) -> f64 {
    duration.as_secs() as f64 * 1e3 + f64::from(duration.subsec_nanos()) / 1e6
}

/// JavaScript, as the sweep sees it.
struct Hooks;

impl LivenessSource for Hooks {
    fn live<'a>(&'a self, keys: &'a [Key<'a>]) -> HookFuture<'a, Result<Vec<bool>, HookError>> {
        ask(LIVENESS, keys);
        Box::pin(poll_fn(|_| {
            reply(|numbers| match numbers {
                Some(numbers) => Ok(numbers.into_iter().map(|number| number != 0.0).collect()),
                None => Err(Thrown.into()),
            })
        }))
    }
}

impl Reclaimer for Hooks {
    fn reclaim<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        ask(RECLAIM, keys);
        Box::pin(poll_fn(|_| reply(reclaimed)))
    }

    fn measure<'a>(
        &'a self,
        keys: &'a [Key<'a>],
    ) -> HookFuture<'a, Vec<Result<Reclaimed, HookError>>> {
        ask(MEASURE, keys);
        Box::pin(poll_fn(|_| reply(reclaimed)))
    }
}

impl Timer for Hooks {
    fn sleep(&self, duration: Duration) -> HookFuture<'_, ()> {
        MAIL.with_borrow_mut(|mail| {
            mail.left[ALARM] = millis(duration);
            mail.woken = false;
        });
        Box::pin(poll_fn(|_| {
            if MAIL.with_borrow(|mail| mail.woken) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        }))
    }
}

fn ask(hook: f64, keys: &[Key<'_>]) {
    let array = Array::new();
    for key in keys {
        array.push(&Uint8Array::from(key.as_bytes()));
    }
    MAIL.with_borrow_mut(|mail| {
        mail.left[HOOK] = hook;
        mail.keys = array.into();
        mail.reply = None;
    });
}

/// What the hook answered, once it has; nothing where it failed.
fn reply<T>(read: impl FnOnce(Option<Vec<f64>>) -> T) -> Poll<T> {
    let replied = MAIL.with_borrow_mut(|mail| {
        let whole = mail.reply.take()?;
        let numbers = std::mem::take(&mut mail.numbers);
        Some(whole.then_some(numbers))
    });
    replied.map_or(Poll::Pending, |numbers| Poll::Ready(read(numbers)))
}

fn reclaimed(numbers: Option<Vec<f64>>) -> Vec<Result<Reclaimed, HookError>> {
    let done = |number: f64| {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        // a whole number, 0 or above
        if number >= 0.0 {
            let bytes = number as u64;
            Ok(Reclaimed::Freed { bytes })
        } else if number > -2.0 {
            Ok(Reclaimed::NotFound)
        } else {
            Err(Thrown.into())
        }
    };
    numbers.into_iter().flatten().map(done).collect()
}

/// That a hook failed. What it threw stays in JavaScript, which tells it.
#[derive(Debug)]
struct Thrown;

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it threw")
    }
}

impl std::error::Error for Thrown {}
