//! The only source of randomness in a run.

use flow::random::SplitMix64;

/// Xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2021), its state filled by
/// SplitMix64 from one number. Not for secrets.
#[derive(Clone, Debug)]
pub struct Random([u64; 4]);

impl Random {
    /// A generator whose numbers are determined by the RNG seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        let mut state = [0; 4];
        let mut filler = SplitMix64::new(seed);
        let mut index = 0;
        while index < state.len() {
            state[index] = filler.next();
            index += 1;
        }
        Self(state)
    }

    /// A separate generator for a part of the run, so that draws of one part do not shift those of another.
    #[must_use]
    pub const fn fork(&mut self) -> Self {
        Self::new(self.next())
    }

    /// The next number, all values equally likely.
    pub const fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.0;
        let result = b.wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let (c, d) = (c ^ a, d ^ b);
        self.0 = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// A number from `low` to `high`, both included.
    #[must_use]
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    /// True in `per_mille` of a thousand cases.
    #[must_use]
    pub const fn chance(&mut self, per_mille: u32) -> bool {
        self.next() % 1000 < per_mille as u64
    }

    /// One of several values.
    #[must_use]
    pub const fn pick<T: Copy>(&mut self, values: &[T]) -> T {
        values[(self.next() % values.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_seeds_give_equal_numbers_and_other_seeds_others() {
        let numbers = |seed| {
            let mut random = Random::new(seed);
            [random.next(), random.next(), random.between(3, 9)]
        };
        assert_eq!(numbers(1), numbers(1));
        assert_ne!(numbers(1), numbers(2));
    }

    #[test]
    fn bounds_are_kept_and_reached() {
        let mut random = Random::new(7);
        let mut seen = [false; 5];
        for _ in 0..1000 {
            seen[random.between(0, 4) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
        assert!((0..1000).all(|_| !random.chance(0) && random.chance(1000)));
    }
}
