//! Time as the keeper counts it: the machine's own, from its start, its sleep included.

use std::time::Duration;

use nix::time::{clock_gettime, ClockId};

/// The clock that goes on while the machine sleeps, unlike the one of [`Instant`](std::time::Instant).
#[cfg(any(target_os = "linux", target_os = "android"))]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// Nothing waits longer than this at a time: after the machine slept, the time is looked at soon.
const LOOK: Duration = Duration::from_millis(500);

/// An instant, the same for all processes of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Should the clock fail, it is the end of time: everything is overdue.
    pub fn now() -> Self {
        Self(clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from))
    }

    pub fn plus(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    pub fn minus(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(duration))
    }

    pub fn passed(self) -> bool {
        self <= Self::now()
    }

    /// The time until then; zero where it has passed.
    pub fn left(self) -> Duration {
        self.0.saturating_sub(Self::now().0)
    }

    /// How long to wait for it before looking again.
    pub fn nap(self) -> Duration {
        self.left().min(LOOK)
    }

    pub fn nanos(self) -> u128 {
        self.0.as_nanos()
    }

    pub fn from_nanos(nanos: u64) -> Self {
        Self(Duration::from_nanos(nanos))
    }
}

/// When what happens to a lock that is not renewed.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    pub ttl: Duration,
    pub grace: Duration,
    margin: Duration,
}

impl Terms {
    /// `None` where the grace leaves no time for a renewal that fails and one more.
    pub fn new(ttl: Duration, grace: Option<Duration>) -> Option<Self> {
        let grace = grace.unwrap_or_else(|| (ttl / 4).min(Duration::from_secs(10)));
        let margin = (ttl / 20).min(Duration::from_secs(1));
        (grace <= ttl / 2).then_some(Self { ttl, grace, margin })
    }

    /// How long after a renewal the next one is due.
    pub fn renewal(self) -> Duration {
        self.ttl / 3
    }

    /// How long after a failed renewal the next one is due.
    pub fn retry(self) -> Duration {
        (self.ttl / 30).clamp(Duration::from_millis(50), Duration::from_secs(1))
    }

    /// How long a call may take, so that one that hangs leaves time for another.
    pub fn patience(self) -> Duration {
        (self.ttl / 6).clamp(Duration::from_millis(250), Duration::from_secs(10))
    }

    /// When the command is asked to end.
    pub fn term_at(self, deadline: Moment) -> Moment {
        self.kill_at(deadline).minus(self.grace)
    }

    /// When it is ended.
    pub fn kill_at(self, deadline: Moment) -> Moment {
        deadline.minus(self.margin)
    }

    /// How much later than the keeper the guard acts, still before the deadline.
    pub fn slack(self) -> Duration {
        self.margin / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_comes_before_the_deadline_and_after_a_second_try() {
        for seconds in [1, 2, 10, 30, 3600, 86_400] {
            let ttl = Duration::from_secs(seconds);
            let terms = Terms::new(ttl, None).unwrap();
            let start = Moment::from_nanos(1_000_000_000);
            let deadline = start.plus(ttl);
            let (term, kill) = (terms.term_at(deadline), terms.kill_at(deadline));
            assert!(
                term < kill && kill.plus(terms.slack()) < deadline,
                "{ttl:?}"
            );
            let second = start.plus(terms.renewal() + terms.patience() + terms.retry());
            assert!(second < term, "{ttl:?}");
        }
        let ttl = Duration::from_secs(10);
        assert!(Terms::new(ttl, Some(Duration::from_secs(6))).is_none());
        assert!(Terms::new(ttl, Some(Duration::ZERO)).is_some());
    }
}
