//! The one source of chance in a run.

use flow::random::SplitMix64;

/// Draws from seeded numbers.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    /// The source of part `part` of the run that begins with `seed`.
    pub(crate) fn new(seed: u64, part: u64) -> Self {
        let seed = SplitMix64::new(seed).next();
        let mut random = Self(SplitMix64::new(seed ^ part.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next()
    }

    /// A number below `limit`.
    pub(crate) fn below(&mut self, limit: u32) -> u32 {
        (self.next() % u64::from(limit)) as u32
    }

    /// True in `percent` of a hundred cases.
    pub(crate) fn chance(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// One of several values.
    pub(crate) fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len() as u32) as usize]
    }

    /// One of several values, each as likely as its weight.
    pub(crate) fn weighted<T: Copy>(&mut self, values: &[(u32, T)]) -> T {
        let total: u32 = values.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, value) in values {
            match at.checked_sub(*weight) {
                None => return *value,
                Some(rest) => at = rest,
            }
        }
        unreachable!("the draw is below the sum of the weights")
    }
}
