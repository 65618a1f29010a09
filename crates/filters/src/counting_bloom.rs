//! A multiset in counters of four bits, a few for each key (Fan et al., "Summary cache", 2000).

use alloc::boxed::Box;

use crate::bloom::{Bloom, last_word_mask};
use crate::exchange::Exchange;
use crate::hash::KeyHash;
use crate::memory::Memory;
use crate::shape::{BloomShape, CountingBloomShape, Shape, ShapeError};

/// The highest value of a counter. A counter that reaches it stays there, as its true count is unknown: a false
/// positive is cheaper than a lost key.
pub const COUNTER_MAX: u32 = 15;

/// A counting Bloom filter. Inserting and removing a key equally often restores the filter, unless one of its counters
/// reached [`COUNTER_MAX`].
#[derive(Clone)]
pub struct CountingBloom {
    memory: Memory,
    shape: CountingBloomShape,
    /// A bit for each counter that is not zero, where backups receive the bits instead of the counters.
    digest: Option<Box<Bloom>>,
}

impl CountingBloom {
    /// An empty one.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn new(shape: CountingBloomShape) -> Result<Self, ShapeError> {
        Ok(Self { memory: Memory::new(Shape::CountingBloom(shape).words()?), shape, digest: None })
    }

    /// An empty filter with a plain Bloom filter beside it that marks the counters above zero. This is the Flow Digest
    /// (MLCBF section 2.1): the primary counts, its backups hold bits only.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn with_digest(shape: CountingBloomShape) -> Result<Self, ShapeError> {
        let digest = Bloom::new(BloomShape { bits: shape.counters, hashes: shape.hashes })?;
        Ok(Self { digest: Some(Box::new(digest)), ..Self::new(shape)? })
    }

    /// The plain filter beside it.
    #[must_use]
    pub fn digest(&self) -> Option<&Bloom> {
        self.digest.as_deref()
    }

    /// The plain filter beside it, to take its changed words.
    pub fn digest_mut(&mut self) -> Option<&mut Bloom> {
        self.digest.as_deref_mut()
    }

    fn counters(&self, key: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let CountingBloomShape { counters, hashes } = self.shape;
        (0..u64::from(hashes)).map(move |number| key.index(number, counters))
    }

    fn counter(&self, counter: usize) -> u32 {
        self.memory.word(counter / 8) >> (counter % 8 * 4) & 0xf
    }

    fn set(&mut self, counter: usize, count: u32) {
        let (word, shift) = (self.memory.word(counter / 8), counter % 8 * 4);
        self.memory.set(counter / 8, word & !(0xf << shift) | count << shift);
        if let Some(digest) = &mut self.digest {
            digest.set(counter, count > 0);
        }
    }

    /// Adds a key once.
    pub fn insert(&mut self, key: KeyHash) {
        for counter in self.counters(key) {
            let count = self.counter(counter);
            if count < COUNTER_MAX {
                self.set(counter, count + 1);
            }
        }
    }

    /// The key's count: insertions less removals, or more by a false positive.
    #[must_use]
    pub fn count(&self, key: KeyHash) -> u32 {
        self.counters(key).map(|counter| self.counter(counter)).min().unwrap_or_default()
    }

    /// Whether the filter contains the key, or a false positive.
    #[must_use]
    pub fn contains(&self, key: KeyHash) -> bool {
        self.counters(key).all(|counter| self.counter(counter) > 0)
    }

    /// Removes a key once. Returns whether the filter contained it; if not, nothing changes.
    ///
    /// Removing a false positive damages other keys: the caller must remove only keys that it inserted.
    pub fn remove(&mut self, key: KeyHash) -> bool {
        if !self.contains(key) {
            return false;
        }
        for counter in self.counters(key) {
            let count = self.counter(counter);
            // Two of a key's counters may coincide, and are zero after the first decrement.
            if (1..COUNTER_MAX).contains(&count) {
                self.set(counter, count - 1);
            }
        }
        true
    }

    /// The number of saturated counters, which never decrease.
    #[must_use]
    pub fn saturated(&self) -> usize {
        let in_word = |word: &u32| (0..8).filter(|place| word >> (place * 4) & 0xf == COUNTER_MAX).count();
        self.memory.words().iter().filter(|word| **word != 0).map(in_word).sum()
    }

    /// Adds all counts of another filter of the same shape and secret.
    ///
    /// # Errors
    /// The shapes differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShapeError> {
        if self.shape != other.shape {
            return Err(ShapeError::OtherShape);
        }
        for counter in 0..self.shape.counters as usize {
            let theirs = other.counter(counter);
            if theirs > 0 {
                self.set(counter, (self.counter(counter) + theirs).min(COUNTER_MAX));
            }
        }
        Ok(())
    }
}

impl Exchange for CountingBloom {
    fn empty(shape: Shape) -> Result<Self, ShapeError> {
        if let Shape::CountingBloom(shape) = shape { Self::new(shape) } else { Err(ShapeError::OtherShape) }
    }

    fn shape(&self) -> Shape {
        Shape::CountingBloom(self.shape)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn admits(&self, index: usize, word: u32) -> bool {
        index + 1 < self.memory.words().len() || word & !last_word_mask(self.shape.counters, 8) == 0
    }

    fn put(&mut self, index: usize, word: u32) {
        self.memory.set(index, word);
        if let Some(digest) = &mut self.digest {
            let first = index * 8;
            let end = (first + 8).min(self.shape.counters as usize);
            (first..end).for_each(|counter| digest.set(counter, word >> ((counter - first) * 4) & 0xf > 0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, theory};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([7, 8]).spread(number)
    }

    #[test]
    fn at_load_factor_10_with_4_hashes_1_2_percent_are_false_positives() {
        let (items, tests) = (10_000_u64, 400_000);
        let shape = CountingBloomShape { counters: 10 * items, hashes: 4 };
        let mut filter = CountingBloom::new(shape).expect("a shape");
        (0..items).for_each(|number| filter.insert(key(number)));
        let found = (0..tests).filter(|number| filter.contains(key(items + number))).count();
        let (measured, expected) = (found as f64 / tests as f64, theory::bloom_false_positive(10 * items, 4, items));
        assert!((measured / expected - 1.0).abs() < 0.1, "{measured} instead of {expected}");
        assert_eq!(filter.saturated(), 0, "no counter saturates at this load");
    }

    #[test]
    fn digest_changes_match_equations_2_and_3() {
        let (items, rounds) = (2000_u64, 40_000_u64);
        let shape = CountingBloomShape { counters: 4 * items, hashes: 4 };
        let mut filter = CountingBloom::with_digest(shape).expect("a shape");
        (0..items).for_each(|number| filter.insert(key(number)));
        let bits = |filter: &CountingBloom| {
            let words = filter.digest().expect("it has one").memory().words();
            words.iter().map(|word| i64::from(word.count_ones())).sum::<i64>()
        };
        let (mut set, mut cleared) = (0, 0);
        for round in 0..rounds {
            let before = bits(&filter);
            filter.insert(key(items + round));
            let between = bits(&filter);
            assert!(filter.remove(key(round)));
            set += between - before;
            cleared += between - bits(&filter);
        }
        let expected = theory::DigestEvents::at(4 * items, 4, items);
        for (events, expected) in [(set, expected.set_per_insert), (cleared, expected.cleared_per_removal)] {
            let measured = events as f64 / rounds as f64;
            assert!((measured / expected - 1.0).abs() < 0.03, "{measured} instead of {expected}");
        }
    }

    #[test]
    fn a_saturated_counter_stays() {
        let mut filter = CountingBloom::new(CountingBloomShape { counters: 1000, hashes: 2 }).expect("a shape");
        (0..20).for_each(|_| filter.insert(key(1)));
        assert_eq!((filter.count(key(1)), filter.saturated()), (COUNTER_MAX, 2));
        (0..20).for_each(|_| assert!(filter.remove(key(1))));
        assert!(filter.contains(key(1)), "a saturated counter keeps its key");
    }

    proptest! {
        #[test]
        fn inserted_keys_are_found_and_removal_restores_the_filter(
            steps in proptest::collection::vec((0_u64..40, any::<bool>()), 0..150), hashes in 1_u8..6,
        ) {
            let shape = CountingBloomShape { counters: 211, hashes };
            let [mut filter, mut rebuilt] = [(); 2].map(|()| CountingBloom::with_digest(shape).expect("a shape"));
            let mut model = BTreeMap::<u64, u32>::new();
            let mut has_saturated = false;
            for (number, is_insertion) in steps {
                let count = model.entry(number).or_default();
                if is_insertion {
                    filter.insert(key(number));
                    *count += 1;
                } else if *count > 0 {
                    prop_assert!(filter.remove(key(number)));
                    *count -= 1;
                }
                has_saturated |= filter.saturated() > 0;
            }
            for (number, count) in model {
                prop_assert!(filter.count(key(number)) >= count.min(COUNTER_MAX) || has_saturated);
                prop_assert!(count == 0 || filter.contains(key(number)));
                (0..count).for_each(|_| rebuilt.insert(key(number)));
            }
            if !has_saturated {
                prop_assert_eq!(filter.memory.words(), rebuilt.memory.words());
                let [one, other] = [&filter, &rebuilt].map(|filter| filter.digest().map(|digest| digest.memory().words()));
                prop_assert_eq!(one, other);
            }
        }

        #[test]
        fn merged_filter_adds_the_counts_of_both(
            ones in proptest::collection::vec(0_u64..40, 0..60), others in proptest::collection::vec(0_u64..40, 0..60),
        ) {
            let shape = CountingBloomShape { counters: 1013, hashes: 3 };
            let [mut one, mut other, mut both] = [(); 3].map(|()| CountingBloom::new(shape).expect("a shape"));
            ones.iter().for_each(|number| { one.insert(key(*number)); both.insert(key(*number)); });
            others.iter().for_each(|number| { other.insert(key(*number)); both.insert(key(*number)); });
            one.merge(&other).expect("the same shape");
            prop_assert_eq!(one.memory.words(), both.memory.words());
        }
    }
}
