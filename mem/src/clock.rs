//! The default clock, and the one place where `instant` is used.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};

use alkstore::{Clock, Timestamp};
use instant::{Instant, SystemTime};

/// Steps back that are smaller than this are jitter between threads: the clock stands still over them.
const JITTER_NANOS: i64 = 10_000_000;

/// The time of day, carried on where the system's clock is set back.
///
/// It never runs backwards. When the system's clock is set back by an hour, it goes on from where it was, at the pace of
/// the system's monotonic clock; when it is set forward, or the machine slept, it follows at once, so that a lease does
/// not outlive the time that its holder spent asleep.
#[derive(Debug)]
pub struct SystemClock {
    /// The latest instant that was given.
    last: AtomicI64,
    /// What is added to the system's time of day.
    offset: AtomicI64,
    /// An instant, and what the monotonic clock showed at it, where there is one.
    anchor: Mutex<(i64, Option<Instant>)>,
}

impl SystemClock {
    /// A clock anchored at the present.
    pub fn new() -> Self {
        let wall = wall_nanos();
        Self {
            last: AtomicI64::new(wall),
            offset: AtomicI64::new(0),
            anchor: Mutex::new((wall, monotonic())),
        }
    }

    /// The present, given what the system's clock shows.
    fn at(&self, wall: i64) -> i64 {
        let now = wall.saturating_add(self.offset.load(Ordering::Relaxed));
        let last = self.last.load(Ordering::Relaxed);
        if now >= last {
            // A plain store, which is cheaper than a maximum: two threads may leave the earlier of two instants here,
            // which matters only until the next reading, and by less than the jitter below.
            self.last.store(now, Ordering::Relaxed);
            now
        } else if last.saturating_sub(now) < JITTER_NANOS {
            last
        } else {
            self.carry_on(wall)
        }
    }

    /// The system's clock was set back: goes on at the pace of the monotonic one.
    #[cold]
    fn carry_on(&self, wall: i64) -> i64 {
        let mut anchor = self.anchor.lock().unwrap_or_else(PoisonError::into_inner);
        let present = monotonic();
        let elapsed = match (anchor.1, present) {
            (Some(then), Some(now)) => now.checked_duration_since(then),
            _ => None,
        };
        let elapsed = elapsed.map_or(0, |elapsed| {
            i64::try_from(elapsed.as_nanos()).unwrap_or(i64::MAX)
        });
        let last = self.last.load(Ordering::Relaxed);
        let now = anchor.0.saturating_add(elapsed).max(last);
        *anchor = (now, present);
        self.offset
            .store(now.saturating_sub(wall), Ordering::Relaxed);
        self.last.fetch_max(now, Ordering::Relaxed).max(now)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.at(wall_nanos()))
    }
}

/// The system's time of day. A clock set before 1970 shows the epoch.
fn wall_nanos() -> i64 {
    SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
        })
}

#[cfg(not(target_arch = "wasm32"))]
#[allow(clippy::unnecessary_wraps)] // there is none only where there is no `performance`
fn monotonic() -> Option<Instant> {
    Some(Instant::now())
}

/// `Instant` throws where `performance` is missing, as in some worklets: there the clock only stands still when it is
/// set back.
#[cfg(target_arch = "wasm32")]
fn monotonic() -> Option<Instant> {
    let performance = js_sys::Reflect::get(&js_sys::global(), &"performance".into()).ok()?;
    let now = js_sys::Reflect::get(&performance, &"now".into()).ok()?;
    now.is_function().then(Instant::now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000_000_000;

    #[test]
    fn steps_of_the_system_clock() {
        let clock = SystemClock::new();
        let start = clock.now().as_nanos();
        let wall = start + 1_000_000_000;
        assert_eq!(clock.at(wall), wall);
        let back = clock.at(wall - HOUR);
        assert!(back >= wall, "an hour back: it goes on from where it was");
        assert!(back - wall < HOUR / 60);
        let later = clock.at(wall - HOUR + 5_000_000_000);
        assert_eq!(later - back, 5_000_000_000, "and runs at its pace");
        let forward = clock.at(wall + HOUR);
        assert!(
            forward >= wall + HOUR,
            "an hour forward: it follows at once"
        );
        assert_eq!(clock.at(wall + HOUR - 5), forward, "jitter stands still");
        assert!(clock.at(i64::MIN) >= forward, "nothing overflows");
        assert!(clock.at(i64::MAX) >= forward);
    }
}
