//! Choices that a seed repeats.

use std::time::Duration;

/// A small generator (splitmix64): what it chooses need not be unpredictable, only repeatable.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The choices of `who` in the run with `seed`.
    pub(crate) fn new(seed: u64, who: &str) -> Self {
        let salt = who.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self(seed ^ salt)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Below `end`, which is above zero.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from))
    }
}
