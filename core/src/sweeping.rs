//! A sweep under way, one step at a time, for those who drive it: it decides and does no work of its own.
//!
//! [`sweep`](crate::sweep()) drives it over any engine's futures; JavaScript's binding does without futures.

mod batch;
mod step;

use alloc::vec::Vec;
use core::time::Duration;

use crate::{
    Claim, Error, ErrorKind, GcAbortCause, HookError, Result, Revision, SweepReport, SweepStop,
    Timestamp, Ttl, WindowRow,
};

pub use self::step::{Answer, Step, Terms};

const LEASE: Duration = Duration::from_secs(60);
const BACKOFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15 * 60));
const BATCH: usize = 1_000;
/// The engines do so many in one transaction, whose answers are lost together or not at all.
const MAX_BATCH: usize = 10_000;
/// Payloads go one by one, each perhaps through a network, and a claim must outlast its batch.
const PAYLOAD_BATCH: usize = 64;
/// How long a sweep waits at once, so that it notices soon when it is to end.
const NAP: Duration = Duration::from_secs(1);

/// A sweep under way: [ask](Self::step) what it wants done, do it, [answer](Self::answer), until it is
/// [over](Step::Over).
#[derive(Debug)]
pub struct Sweep {
    terms: Terms,
    lease: Ttl,
    batch: usize,
    report: SweepReport,
    phase: Phase,
    cancelled: bool,
    /// Of the sweep that this is; a dry run is none.
    epoch: Option<Revision>,
    started: Timestamp,
    /// The store clock, when it was last read.
    now: Timestamp,
    /// Until the next batch may begin.
    wait: Duration,
    /// Where a dry run has got to, which leaves the rows where they are.
    seen: Option<WindowRow>,
    /// The next source to be asked.
    source: usize,
    /// The claims that are worked on, and what comes next for them.
    hand: Vec<Claim>,
    then: Phase,
    /// What their payloads took up, while entries are deleted after payloads.
    freed: Vec<u64>,
    /// When the first claim of the batch lapses, and whether some fell while they were in hand.
    until: Timestamp,
    fell: bool,
    /// The claims to settle, to put back, and to put back in this step, due at `at`.
    live: Vec<Claim>,
    later: Vec<Claim>,
    back: Vec<Claim>,
    at: Timestamp,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Start,
    Begin,
    Pace,
    Nap,
    TimeLimit,
    Claim,
    Look,
    List,
    Pins,
    Ask,
    Settle,
    PutBack,
    Requeue,
    Arbitrate,
    Margin,
    Reclaim,
    Finish,
    Tell,
    Extend,
    Fell,
    GiveBack,
    End,
    LastTell,
    Over,
}

impl Sweep {
    /// A sweep that has not begun. Options that cannot be meant are an error.
    pub fn new(terms: Terms) -> Result<Self> {
        let lease = Ttl::new(terms.claim_lease.unwrap_or(LEASE))?;
        let usual = if terms.reclaims { PAYLOAD_BATCH } else { BATCH };
        let batch = terms.batch.unwrap_or(usual);
        let timeout = terms.hook_timeout;
        let wrong = if batch == 0 || batch > MAX_BATCH {
            "a sweep's batch must have 1 to 10,000 candidates"
        } else if !terms.waits && (terms.rate.is_some() || timeout.is_some()) {
            "a rate and a timeout need a timer: give the sweep one"
        } else if timeout.is_some_and(|time| time.is_zero() || time >= lease.as_duration()) {
            "the timeout of a sweep's hooks must be above zero and below its claim lease"
        } else {
            ""
        };
        if !wrong.is_empty() {
            return Err(Error::new(ErrorKind::InvalidArgument, wrong));
        }
        let asked = terms.sources > 0 || terms.window_decides;
        let mut sweep = Self {
            lease,
            batch,
            report: SweepReport {
                dry_run: terms.dry_run,
                ..SweepReport::default()
            },
            terms,
            phase: Phase::Start,
            cancelled: false,
            epoch: None,
            started: Timestamp::MIN,
            now: Timestamp::MIN,
            wait: Duration::ZERO,
            seen: None,
            source: 0,
            hand: Vec::new(),
            then: Phase::Tell,
            freed: Vec::new(),
            until: Timestamp::MAX,
            fell: false,
            live: Vec::new(),
            later: Vec::new(),
            back: Vec::new(),
            at: Timestamp::MAX,
        };
        // G6.
        if !asked {
            sweep.abort(GcAbortCause::NoLivenessSources);
        }
        Ok(sweep)
    }

    /// How long a hook may take.
    pub fn hook_timeout(&self) -> Option<Duration> {
        self.terms.hook_timeout
    }

    /// What it did so far.
    pub fn report(&self) -> &SweepReport {
        &self.report
    }

    /// The same, in the end.
    pub fn into_report(self) -> SweepReport {
        self.report
    }

    /// What is to be done next; the same until it was answered.
    pub fn step(&self) -> Step<'_> {
        let (lease, claims) = (self.lease, &*self.hand);
        match (self.phase, self.epoch) {
            (Phase::Begin, _) => Step::Begin { lease },
            (Phase::Claim, _) => Step::Claim {
                due: self.started,
                lease,
                most: self.most(),
            },
            (Phase::List, _) => Step::List {
                after: self.seen.as_ref(),
                most: self.most(),
            },
            (Phase::Settle, _) => Step::Settle { claims: &self.live },
            (Phase::Requeue | Phase::GiveBack, _) => Step::Requeue {
                claims: &self.back,
                at: self.at,
            },
            (Phase::Pins, _) => Step::Judge {
                keys: self.keys(false),
            },
            // A dry run foretells what it leaves undone.
            (Phase::Arbitrate | Phase::Finish, None) => Step::Judge {
                keys: self.keys(true),
            },
            (Phase::Arbitrate, fence) if self.terms.reclaims => Step::Mark { claims, fence },
            (Phase::Arbitrate, fence) => Step::Delete { claims, fence },
            (Phase::Finish, fence) => Step::Finish { claims, fence },
            (Phase::Extend, Some(epoch)) => Step::Extend { epoch, lease },
            (Phase::End, Some(epoch)) => Step::End { epoch },
            (Phase::Ask, _) => Step::Live {
                source: self.source,
                keys: self.keys(false),
            },
            (Phase::Reclaim, _) => Step::Reclaim {
                keys: self.keys(true),
                measure: self.terms.dry_run,
            },
            (Phase::Nap, _) => Step::Sleep {
                duration: self.nap(),
            },
            (Phase::Tell | Phase::LastTell, _) => Step::Tell {
                so_far: &self.report,
            },
            (Phase::Extend | Phase::End | Phase::Over, _) => Step::Over,
            _ => Step::Now,
        }
    }

    /// What came of the step, and whether the sweep is to end soon.
    pub fn answer(&mut self, answer: Answer, cancelled: bool) {
        self.cancelled = cancelled;
        match (self.phase, answer) {
            (Phase::GiveBack, _) => self.end(),
            (Phase::End, _) => self.phase = Phase::LastTell,
            (Phase::LastTell, _) => self.phase = Phase::Over,
            (_, Answer::Failed(error)) => self.fail(error),
            (phase, Answer::Instant(now)) => {
                self.now = now;
                self.read(phase);
            }
            (Phase::Begin, Answer::Epoch(None)) => self.abort(GcAbortCause::SweeperLock),
            (Phase::Begin, Answer::Epoch(epoch)) => {
                self.epoch = epoch;
                self.round();
            }
            (Phase::Nap, Answer::Done) => {
                self.wait = self.wait.saturating_sub(self.nap());
                self.check();
            }
            (Phase::Claim, Answer::Claims(claims)) => {
                self.hand = claims;
                self.claimed();
            }
            (Phase::List, Answer::Rows(rows)) => self.listed(rows),
            (Phase::Pins, Answer::Outcomes(outcomes)) => self.spare(&outcomes),
            (Phase::Ask, Answer::Live(live)) => self.heard(live),
            (Phase::Ask, Answer::Threw(why)) => {
                self.unheard("a liveness source failed", why);
            }
            (Phase::Ask, Answer::Late) => self.unheard(LATE, None),
            (Phase::Settle, Answer::Count(settled)) => {
                self.fell |= settled < self.live.len();
                self.live.clear();
                self.proceed();
            }
            (Phase::Requeue, Answer::Count(back)) => {
                self.fell |= back < self.back.len();
                self.back.clear();
                self.put_back();
            }
            (Phase::Arbitrate, Answer::Outcomes(outcomes)) => {
                self.sort_out(outcomes, Phase::Margin);
            }
            (Phase::Finish, Answer::Outcomes(outcomes)) => self.sort_out(outcomes, Phase::Tell),
            (Phase::Reclaim, Answer::Freed(freed, why)) => self.reclaimed(freed, why),
            (Phase::Reclaim, Answer::Late) => self.not_reclaimed(LATE),
            (Phase::Tell, Answer::Done) => self.extend(),
            (Phase::Extend, Answer::Stands(true)) => self.extended(),
            (Phase::Extend, Answer::Stands(false)) => self.abort(GcAbortCause::LostLease),
            _ => self.failed("the sweep was answered something else than it had asked"),
        }
    }

    // G1, from one batch to the next.

    /// Goes on now that the clock was read.
    fn read(&mut self, phase: Phase) {
        let since = self.now.since(self.started);
        match phase {
            Phase::Start => {
                self.started = self.now;
                if self.terms.dry_run {
                    self.round();
                } else {
                    self.phase = Phase::Begin;
                }
            }
            Phase::Pace => {
                if let Some(rate) = self.terms.rate {
                    let (examined, rate) = (self.report.examined, u64::from(rate.get()));
                    let nanos = examined % rate * 1_000_000_000 / rate;
                    let due = Duration::from_secs(examined / rate);
                    self.wait = (due + Duration::from_nanos(nanos)).saturating_sub(since);
                }
                self.phase = Phase::Nap;
            }
            Phase::TimeLimit if self.terms.time_limit.is_some_and(|limit| since >= limit) => {
                self.halt(SweepStop::TimeLimit);
            }
            Phase::TimeLimit => self.ready(),
            Phase::Look => self.phase = Phase::List,
            Phase::PutBack => self.put_back(),
            Phase::Margin => self.margin(),
            // Where the batch took longer than its claims, it would come again, for ever.
            Phase::Fell if self.until.lapsed(self.now) => self.abort(GcAbortCause::LostLease),
            Phase::Fell => {
                self.fell = false;
                self.round();
            }
            _ => self.failed("the sweep was told the time unasked"),
        }
    }

    /// How many more candidates may be examined in this batch.
    fn most(&self) -> usize {
        let limit = self.terms.limit.unwrap_or(u64::MAX);
        let left = limit.saturating_sub(self.report.examined);
        let most = usize::try_from(left).map_or(self.batch, |left| left.min(self.batch));
        most.saturating_sub(self.hand.len())
    }

    /// Begins a batch, or waits until it may begin.
    fn round(&mut self) {
        if self.most() == 0 {
            self.halt(SweepStop::Limit);
        } else if self.report.examined == 0 || !self.terms.waits {
            self.check();
        } else if self.terms.rate.is_some() {
            self.phase = Phase::Pace;
        } else {
            self.phase = Phase::Nap;
        }
    }

    /// For how long to sleep at once. The sweep goes on being the one sweep meanwhile.
    fn nap(&self) -> Duration {
        let within = self.lease.as_duration() / 2 + Duration::from_nanos(1);
        self.wait.min(NAP).min(within)
    }

    /// Ends the sweep where it is time.
    fn check(&mut self) {
        if self.cancelled {
            self.halt(SweepStop::Cancelled);
        } else if self.terms.time_limit.is_some() {
            self.phase = Phase::TimeLimit;
        } else {
            self.ready();
        }
    }

    fn ready(&mut self) {
        if !self.wait.is_zero() {
            self.extend();
        } else if self.epoch.is_some() {
            self.phase = Phase::Claim;
        } else {
            self.phase = Phase::Look;
        }
    }

    fn extend(&mut self) {
        if self.epoch.is_some() {
            self.phase = Phase::Extend;
        } else {
            self.extended();
        }
    }

    fn extended(&mut self) {
        if !self.wait.is_zero() {
            self.phase = Phase::Nap;
        } else if self.fell {
            self.phase = Phase::Fell;
        } else {
            self.round();
        }
    }

    /// What a dry run has in hand are the candidates that were due when it began.
    fn listed(&mut self, rows: Vec<WindowRow>) {
        let mut ends = rows.len() < self.most();
        for row in rows {
            if row.visible_after > self.started {
                ends = true;
                break;
            }
            if row.claimed_until.is_none_or(|until| until.lapsed(self.now)) {
                self.hand.extend(as_if_claimed(&row));
            }
            self.seen = Some(row);
        }
        if ends || self.most() == 0 {
            self.claimed();
        }
    }

    fn claimed(&mut self) {
        let Some(oldest) = self.hand.first() else {
            return self.halt(SweepStop::Drained);
        };
        if self.report.oldest_overdue.is_none() {
            self.report.oldest_overdue = Some(self.started.since(oldest.visible_after));
        }
        let untils = self.hand.iter().map(|claim| claim.until);
        self.until = untils.fold(Timestamp::MAX, Timestamp::min);
        self.source = 0;
        if self.terms.pins && self.is_asked() {
            self.phase = Phase::Pins;
        } else {
            self.ask();
        }
    }

    // The end.

    fn hook_failed(&mut self, what: &'static str, why: Option<HookError>) {
        let error = Error::new(ErrorKind::Database, what);
        self.report.error = Some(match why {
            Some(why) => error.with_source(why),
            None => error,
        });
    }

    fn failed(&mut self, what: &'static str) {
        self.fail(Error::new(ErrorKind::Database, what));
    }

    fn fail(&mut self, error: Error) {
        let cause = if error.kind() == ErrorKind::LeaseLost {
            GcAbortCause::LostLease
        } else {
            GcAbortCause::EngineFailed
        };
        self.report.error = Some(error);
        self.abort(cause);
    }

    fn abort(&mut self, cause: GcAbortCause) {
        self.halt(SweepStop::Aborted(cause));
    }

    /// Puts what is in hand back, due at once: as the latest of it was, so that none is due before its time. Where that
    /// fails, the claims lapse. What was done with, or put back, has no claim any more.
    fn halt(&mut self, stop: SweepStop) {
        self.report.stop = stop;
        for claims in [&mut self.hand, &mut self.live, &mut self.later] {
            self.back.append(claims);
        }
        let due = self.back.iter().map(|claim| claim.visible_after).max();
        match due {
            Some(due) if self.epoch.is_some() => {
                self.at = due;
                self.phase = Phase::GiveBack;
            }
            _ => self.end(),
        }
    }

    fn end(&mut self) {
        self.phase = if self.epoch.is_some() {
            Phase::End
        } else {
            Phase::LastTell
        };
    }
}

const LATE: &str = "a hook of the sweep took longer than its timeout";

/// The claim that a sweep would have got of this row.
fn as_if_claimed(row: &WindowRow) -> Option<Claim> {
    Some(Claim {
        key: row.key.clone(),
        visible_after: row.visible_after,
        id: Revision::new(1)?,
        until: Timestamp::MAX,
        reclaiming: row.reclaiming,
        requeues: row.requeues,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Key;
    use alloc::vec;

    const EPOCH: Option<Revision> = Revision::new(7);

    fn claim(key: &'static str) -> Claim {
        Claim {
            key: Key::new(key.as_bytes()).unwrap(),
            visible_after: Timestamp::from_nanos(5),
            id: Revision::new(8).unwrap(),
            until: Timestamp::MAX,
            reclaiming: false,
            requeues: 0,
        }
    }

    /// A sweep with one source that has claimed a key and asks about it.
    fn asking() -> Sweep {
        let terms = Terms {
            sources: 1,
            ..Terms::default()
        };
        let mut sweep = Sweep::new(terms).unwrap();
        for answer in [
            Answer::Instant(Timestamp::from_nanos(9)),
            Answer::Epoch(EPOCH),
            Answer::Claims(vec![claim("k")]),
        ] {
            sweep.answer(answer, false);
        }
        assert!(matches!(sweep.step(), Step::Live { source: 0, keys } if keys.len() == 1));
        sweep
    }

    /// Its end, after it gave back what it had.
    fn ended(mut sweep: Sweep) -> SweepReport {
        assert!(
            matches!(sweep.step(), Step::Requeue { claims, at } if claims.len() == 1 && at == Timestamp::from_nanos(5))
        );
        sweep.answer(Answer::Count(1), false);
        assert!(matches!(sweep.step(), Step::End { .. }));
        sweep.answer(Answer::Done, false);
        sweep.answer(Answer::Done, false);
        assert!(matches!(sweep.step(), Step::Over));
        sweep.into_report()
    }

    #[test]
    fn a_question_that_fails_once_it_is_withdrawn_is_no_failure() {
        let aborted = SweepStop::Aborted(GcAbortCause::LivenessFailed);
        let answers: [fn() -> Answer; 3] = [
            || Answer::Threw(None),
            || Answer::Late,
            || Answer::Live(Vec::new()),
        ];
        for answer in answers {
            for (cancelled, stop) in [(true, SweepStop::Cancelled), (false, aborted)] {
                let mut sweep = asking();
                sweep.answer(answer(), cancelled);
                let report = ended(sweep);
                assert_eq!((report.stop, report.error.is_none()), (stop, cancelled));
            }
        }
    }

    #[test]
    fn an_answer_to_another_question_ends_it() {
        let mut sweep = asking();
        sweep.answer(Answer::Stands(true), false);
        let stop = ended(sweep).stop;
        assert_eq!(stop, SweepStop::Aborted(GcAbortCause::EngineFailed));
    }
}
