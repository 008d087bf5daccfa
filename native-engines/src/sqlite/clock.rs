//! The store clock: time that no process sees run back.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use alkstore::{Clock, Timestamp};

/// Steps back that are smaller than this are jitter between threads: the clock stands still over them.
const JITTER_NANOS: i64 = 10_000_000;

thread_local! {
    static READING: Cell<bool> = const { Cell::new(false) };
}

/// Time that never runs back: not for this process, because the latest instant that it saw is kept here; and not for
/// the next one, because every transaction that writes leaves its instant in the file as a floor.
pub(super) struct StoreClock {
    source: Source,
    /// The latest instant that this process saw.
    last: AtomicI64,
    /// An instant, and what the monotonic clock showed at it.
    anchor: Mutex<(i64, Instant)>,
}

enum Source {
    /// The time of day. Where it was set back, time goes on from the floor at the pace of the monotonic clock: were it
    /// to stand still until the time of day catches up, no lease would lapse meanwhile.
    System,
    /// The embedder's clock: where it steps back, time stands still.
    Given(Box<dyn Clock>),
}

/// What a clock showed; not yet the store's time, for which the floor in the file must be known.
#[derive(Clone, Copy)]
pub(super) struct Reading(i64);

impl StoreClock {
    pub(super) fn system() -> Self {
        Self::new(Source::System)
    }

    pub(super) fn given(clock: Box<dyn Clock>) -> Self {
        Self::new(Source::Given(clock))
    }

    fn new(source: Source) -> Self {
        let start = match &source {
            Source::System => time_of_day(),
            // A clock that was brought is not read before it is needed.
            Source::Given(_) => i64::MIN,
        };
        Self {
            source,
            last: AtomicI64::new(start),
            anchor: Mutex::new((start, Instant::now())),
        }
    }

    /// Reads the clock.
    pub(super) fn read(&self) -> Reading {
        match &self.source {
            Source::System => Reading(time_of_day()),
            Source::Given(clock) => {
                let _reading = Busy::begin();
                Reading(clock.now().as_nanos())
            }
        }
    }

    /// The store's time, given what the clock showed and the floor that the file held.
    pub(super) fn at(&self, reading: Reading, floor: Timestamp) -> Timestamp {
        let at = reading.0.max(floor.as_nanos());
        let now = self.last.fetch_max(at, Ordering::Relaxed).max(at);
        let behind = now.saturating_sub(reading.0);
        let now = match self.source {
            Source::System if behind > JITTER_NANOS => self.carry_on(now),
            _ => now,
        };
        Timestamp::from_nanos(now)
    }

    /// The time of day is behind: goes on at the pace of the monotonic clock.
    #[cold]
    fn carry_on(&self, least: i64) -> i64 {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let elapsed = nanos(anchor.1.elapsed());
        let now = anchor.0.saturating_add(elapsed).max(least);
        *anchor = (now, Instant::now());
        self.last.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

impl fmt::Debug for StoreClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.source {
            Source::System => "StoreClock::System",
            Source::Given(_) => "StoreClock::Given",
        })
    }
}

/// Whether this thread is inside an embedder's clock: a call into the store from there could wait for itself.
pub(super) fn is_reading() -> bool {
    READING.get()
}

struct Busy;

impl Busy {
    fn begin() -> Self {
        READING.set(true);
        Self
    }
}

/// Also when the clock panics.
impl Drop for Busy {
    fn drop(&mut self) {
        READING.set(false);
    }
}

fn time_of_day() -> i64 {
    match SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => nanos(since),
        Err(before) => nanos(before.duration()).saturating_neg(),
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;
    const NO_FLOOR: Timestamp = Timestamp::MIN;

    #[test]
    fn steps_of_the_time_of_day() {
        let clock = StoreClock::system();
        let at = |wall: i64| clock.at(Reading(wall), NO_FLOOR).as_nanos();
        let wall = clock.read().0 + 1_000_000_000;
        assert_eq!(at(wall), wall);
        let back = at(wall - HOUR);
        assert!(back >= wall, "an hour back: it goes on from where it was");
        assert!(back - wall < HOUR / 60);
        let forward = at(wall + HOUR);
        assert_eq!(forward, wall + HOUR, "an hour forward: it follows at once");
        assert_eq!(at(wall + HOUR - 5), forward, "jitter stands still");
        assert!(at(i64::MIN) >= forward, "nothing overflows");
        assert_eq!(at(i64::MAX), i64::MAX);
    }

    #[test]
    fn time_goes_on_above_a_floor_that_lies_ahead() {
        let clock = StoreClock::system();
        let reading = clock.read();
        let floor = Timestamp::from_nanos(reading.0 + HOUR);
        let first = clock.at(reading, floor);
        assert!(first >= floor);
        let mut later = clock.at(reading, floor);
        while later == first {
            later = clock.at(reading, floor);
        }
        assert!(
            later > first,
            "though the time of day stands at one reading"
        );
    }

    #[test]
    fn a_clock_that_was_brought_stands_still_when_it_steps_back() {
        let manual = alkstore::ManualClock::new(Timestamp::from_nanos(-5));
        let clock = StoreClock::given(Box::new(manual.clone()));
        let now = || clock.at(clock.read(), NO_FLOOR).as_nanos();
        assert_eq!(now(), -5);
        manual.set(Timestamp::from_nanos(-50));
        assert_eq!(now(), -5);
        assert_eq!(
            clock.at(clock.read(), Timestamp::from_nanos(7)).as_nanos(),
            7
        );
        assert_eq!(now(), 7);
    }
}
