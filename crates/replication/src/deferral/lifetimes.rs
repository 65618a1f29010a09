//! How long connections lived.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use super::Dynamic;

/// A histogram of lifetimes in bins of equal width (the seed's *history array*).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Lifetimes {
    bin: Duration,
    /// The last bin holds all that lived for the longest time that is distinguished.
    bins: Vec<u64>,
    completed: u64,
}

impl Lifetimes {
    /// An empty one.
    #[must_use]
    pub fn new(config: &Dynamic) -> Self {
        let bins = config.lifetime_max.as_nanos() / config.lifetime_min.as_nanos().max(1);
        Self { bin: config.lifetime_min, bins: vec![0; bins as usize + 1], completed: 0 }
    }

    /// A connection has lived for so long.
    pub fn note(&mut self, lifetime: Duration) {
        let bin = lifetime.as_nanos() / self.bin.as_nanos().max(1);
        let last = self.bins.len() - 1;
        self.bins[usize::try_from(bin).unwrap_or(last).min(last)] += 1;
        self.completed += 1;
    }

    /// Connections counted.
    #[must_use]
    pub const fn completed(&self) -> u64 {
        self.completed
    }

    /// The shortest age, in whole bins, that `level` of `levels` of the connections did not reach; the longest lifetime if
    /// there is no such; `None` if no lifetime is known.
    #[must_use]
    pub fn threshold(&self, level: u8, levels: u8) -> Option<Duration> {
        if self.completed == 0 {
            return None;
        }
        if level == 0 {
            return Some(Duration::ZERO);
        }
        // In 128 bits: the product of two large counts.
        let wanted = u128::from(self.completed) * u128::from(level);
        let mut shorter = 0_u128;
        let longest = self.bins.len() as u32 - 1;
        for (bin, count) in (1..).zip(&self.bins) {
            shorter += u128::from(*count);
            if shorter * u128::from(levels) >= wanted {
                return Some(self.bin * longest.min(bin));
            }
        }
        Some(self.bin * longest)
    }

    /// Counts what another has counted as well, and empties that.
    pub(super) fn absorb(&mut self, latest: &mut Self) {
        for (bin, latest) in self.bins.iter_mut().zip(&mut latest.bins) {
            *bin += core::mem::take(latest);
        }
        self.completed += core::mem::take(&mut latest.completed);
    }
}
