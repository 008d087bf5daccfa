//! G1: what is done with the claims in hand.

use alloc::vec::Vec;
use core::mem::take;
use core::time::Duration;

use super::{Phase, Sweep, BACKOFF};
use crate::rules::sweep::{backoff, next, predicted, Next};
use crate::{Claim, GcAbortCause, HookError, Key, Reclaim, SweepReport, SweepStop};

impl Sweep {
    /// Whether there is a source to ask, and something to ask about.
    pub(super) fn is_asked(&self) -> bool {
        self.source < self.terms.sources && self.hand.iter().any(is_asked_about)
    }

    /// Puts back what is pinned, without asking about it. A writer may refer to it while it is pinned, and the source be
    /// asked before that and the pin be over after. Who pins later takes the key out of the window, which voids the claim.
    pub(super) fn spare(&mut self, outcomes: &[Reclaim]) {
        let asked = self.hand.iter().filter(|claim| is_asked_about(claim));
        if outcomes.len() != asked.count() {
            return self.failed(OTHER_NUMBER);
        }
        let mut outcomes = outcomes.iter();
        self.deal(|report, claim| {
            if is_asked_about(claim) && outcomes.next() == Some(&Reclaim::Pinned) {
                count(report, Reclaim::Pinned);
                return Next::PutBack;
            }
            Next::Reclaim
        });
        self.ask();
    }

    /// Which candidates the sources call live.
    pub(super) fn ask(&mut self) {
        if self.is_asked() {
            self.phase = Phase::Ask;
            return;
        }
        self.report.examined += self.live.len() as u64;
        self.report.protected_by_liveness += self.live.len() as u64;
        self.then = Phase::Arbitrate;
        self.proceed();
    }

    pub(super) fn heard(&mut self, live: Vec<bool>) {
        let asked = self.hand.iter().filter(|claim| is_asked_about(claim));
        if live.len() != asked.count() {
            let what = "a liveness source answered for another number of keys";
            return self.unheard(what, None);
        }
        let mut live = live.into_iter();
        self.deal(|_, claim| {
            if is_asked_about(claim) && live.next() == Some(true) {
                Next::Settle
            } else {
                Next::Reclaim
            }
        });
        self.source += 1;
        self.ask();
    }

    /// A source failed. Where the sweep is to end anyway, its answer is needed no more.
    pub(super) fn unheard(&mut self, what: &'static str, why: Option<HookError>) {
        if self.cancelled {
            return self.halt(SweepStop::Cancelled);
        }
        self.hook_failed(what, why);
        self.abort(GcAbortCause::LivenessFailed);
    }

    /// Settles and puts back what is to be; then goes on with the claims in hand.
    pub(super) fn proceed(&mut self) {
        if self.epoch.is_none() {
            self.live.clear();
            self.later.clear();
        }
        if !self.live.is_empty() {
            self.phase = Phase::Settle;
        } else if !self.later.is_empty() {
            self.phase = Phase::PutBack;
        } else if self.hand.is_empty() {
            self.phase = Phase::Tell;
        } else if self.cancelled && self.terms.reclaims && self.then == Phase::Arbitrate {
            self.halt(SweepStop::Cancelled);
        } else {
            self.phase = self.then;
        }
    }

    /// G4: puts claims back, the longer the more often that happened.
    pub(super) fn put_back(&mut self) {
        let Some(requeues) = self.later.last().map(|claim| claim.requeues) else {
            return self.proceed();
        };
        let mut at = 0;
        while let Some(claim) = self.later.get(at) {
            if claim.requeues == requeues {
                self.back.push(self.later.swap_remove(at));
            } else {
                at += 1;
            }
        }
        let (first, most) = self.terms.backoff.unwrap_or(BACKOFF);
        let wait = backoff(requeues, first, most).max(Duration::from_nanos(1));
        // Never due within this sweep again, however the clock stands or steps.
        self.at = self.now.max(self.started).plus(wait);
        self.phase = Phase::Requeue;
    }

    /// W8. A deletion that begins too late might take effect when the claims are no longer ours. The marks stay: whoever
    /// claims the keys next goes on from there.
    pub(super) fn margin(&mut self) {
        let half = self.lease.as_duration() / 2;
        let margin = self.terms.hook_timeout.unwrap_or(half);
        let short = |claim: &Claim| claim.until.since(self.now) < margin;
        if self.hand.iter().any(short) {
            self.abort(GcAbortCause::LostLease);
        } else {
            self.phase = Phase::Reclaim;
        }
    }

    pub(super) fn reclaimed(&mut self, freed: Vec<Option<u64>>, why: Option<HookError>) {
        if freed.len() != self.hand.len() {
            let what = "the reclaimer answered for another number of keys";
            return self.not_reclaimed(what);
        }
        if freed.contains(&None) {
            self.hook_failed("a payload could not be deleted", why);
        }
        self.sort(freed);
    }

    pub(super) fn not_reclaimed(&mut self, what: &'static str) {
        self.hook_failed(what, None);
        self.sort(Vec::new());
    }

    /// Parts the claims whose payloads are gone from those that wait for another sweep.
    fn sort(&mut self, freed: Vec<Option<u64>>) {
        let (mut freed, mut gone) = (freed.into_iter(), Vec::new());
        self.deal(|report, _| {
            if let Some(bytes) = freed.next().flatten() {
                gone.push(bytes);
                return Next::Reclaim;
            }
            report.examined += 1;
            report.failed += 1;
            Next::PutBack
        });
        self.freed = gone;
        self.then = Phase::Finish;
        self.proceed();
    }

    /// Counts what became of claims, and does what follows.
    pub(super) fn sort_out(&mut self, outcomes: Vec<Reclaim>, then: Phase) {
        if outcomes.len() != self.hand.len() {
            return self.failed(OTHER_NUMBER);
        }
        let reclaims = self.terms.reclaims;
        let lost = self.report.lost_lease;
        let foretold = self.epoch.is_none() && self.phase == Phase::Arbitrate;
        let mut freed = take(&mut self.freed).into_iter();
        let mut outcomes = outcomes.into_iter();
        self.deal(|report, claim| {
            let Some(mut outcome) = outcomes.next() else {
                return Next::PutBack;
            };
            if foretold {
                outcome = predicted(outcome, claim.reclaiming, reclaims);
            }
            match (&mut outcome, freed.next()) {
                (Reclaim::Deleted { bytes }, Some(freed)) => *bytes = freed,
                (Reclaim::Absent, Some(freed)) => report.bytes_freed += freed,
                _ => {}
            }
            match next(outcome) {
                Next::Reclaim if reclaims => Next::Reclaim,
                follows => {
                    count(report, outcome);
                    if follows == Next::Reclaim {
                        Next::PutBack
                    } else {
                        follows
                    }
                }
            }
        });
        self.fell |= self.report.lost_lease > lost;
        self.then = then;
        self.proceed();
    }

    /// Deals the hand: what goes on stays in it.
    fn deal(&mut self, mut follows: impl FnMut(&mut SweepReport, &Claim) -> Next) {
        self.deal_by(&mut follows);
    }

    /// Once in the code, because claims are large.
    #[inline(never)]
    fn deal_by(&mut self, follows: &mut dyn FnMut(&mut SweepReport, &Claim) -> Next) {
        for claim in take(&mut self.hand) {
            let to = match follows(&mut self.report, &claim) {
                Next::Nothing => continue,
                Next::Reclaim => &mut self.hand,
                Next::Settle => &mut self.live,
                Next::PutBack => {
                    self.report.requeued += 1;
                    &mut self.later
                }
            };
            to.push(claim);
        }
    }

    /// The keys in hand: all, or those that are asked about.
    pub(super) fn keys(&self, all: bool) -> Vec<Key<'_>> {
        let claims = self.hand.iter();
        let claims = claims.filter(|claim| all || is_asked_about(claim));
        claims.map(|claim| claim.key.borrowed()).collect()
    }
}

const OTHER_NUMBER: &str = "the engine answered for another number of claims";

/// Whether its key is. A marked one is past that: its payload may be gone.
fn is_asked_about(claim: &Claim) -> bool {
    !claim.reclaiming
}

/// G3.
fn count(report: &mut SweepReport, outcome: Reclaim) {
    report.examined += 1;
    *match outcome {
        Reclaim::Deleted { bytes } => {
            report.bytes_freed += bytes;
            &mut report.deleted
        }
        Reclaim::Absent => &mut report.already_absent,
        Reclaim::Pinned => &mut report.protected_by_pin,
        Reclaim::Referenced => &mut report.protected_by_liveness,
        Reclaim::Voided => &mut report.protected_by_publication,
        Reclaim::Lapsed => &mut report.lost_lease,
        Reclaim::Marked | Reclaim::Unmarked => &mut report.failed,
    } += 1;
}
