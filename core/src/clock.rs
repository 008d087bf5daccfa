//! Where a store's time comes from.

use crate::Timestamp;

/// The time of an engine that has no server to ask.
///
/// An engine reads it once an operation, after every wait. A clock must not call back into the store that reads it:
/// such a call is refused. It may stand still or step; tokens increase all the same, and what is live is judged by
/// what the clock says.
pub trait Clock: Send + Sync {
    /// The present instant.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for &C {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Clock + ?Sized> Clock for alloc::boxed::Box<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

impl<C: Clock + ?Sized> Clock for alloc::sync::Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that stands still until it is moved: for tests, yours too. Clones show the same time.
///
/// It needs 64-bit atomics, and is left out where the target has none.
///
/// ```
/// use alkstore::{Clock, ManualClock, Timestamp};
/// use std::time::Duration;
/// let clock = ManualClock::new(Timestamp::from_nanos(0));
/// let same = clock.clone();
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(same.now().as_nanos(), 1_000_000_000);
/// ```
#[cfg(target_has_atomic = "64")]
#[derive(Clone, Debug, Default)]
pub struct ManualClock(alloc::sync::Arc<core::sync::atomic::AtomicI64>);

#[cfg(target_has_atomic = "64")]
mod manual {
    use super::{Clock, ManualClock};
    use crate::Timestamp;
    use core::sync::atomic::Ordering;
    use core::time::Duration;

    impl ManualClock {
        /// A clock that shows `start`.
        pub fn new(start: Timestamp) -> Self {
            let clock = Self::default();
            clock.set(start);
            clock
        }

        /// Moves the clock forward; threads that do so at once all count.
        pub fn advance(&self, by: Duration) {
            let later = |now| Some(Timestamp::from_nanos(now).plus(by).as_nanos());
            let _ = self
                .0
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, later);
        }

        /// Sets the clock, backwards too.
        pub fn set(&self, to: Timestamp) {
            self.0.store(to.as_nanos(), Ordering::SeqCst);
        }
    }

    impl Clock for ManualClock {
        fn now(&self) -> Timestamp {
            Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
        }
    }
}
