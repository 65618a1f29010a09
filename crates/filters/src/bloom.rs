//! A set that only grows, in a few bits a key (Bloom, "Space/time trade-offs in hash coding with allowable errors", 1970).

use crate::exchange::Exchange;
use crate::hash::KeyHash;
use crate::memory::Memory;
use crate::shape::{BloomShape, Shape, ShapeError};

/// A Bloom filter. It always finds an inserted key. It also finds other keys, with the probability that
/// [`crate::theory::bloom_false_positive`] computes.
#[derive(Clone)]
pub struct Bloom {
    memory: Memory,
    shape: BloomShape,
}

impl Bloom {
    /// An empty one.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn new(shape: BloomShape) -> Result<Self, ShapeError> {
        Ok(Self { memory: Memory::new(Shape::Bloom(shape).words()?), shape })
    }

    fn bits(&self, key: KeyHash) -> impl Iterator<Item = usize> + use<> {
        let BloomShape { bits, hashes } = self.shape;
        (0..u64::from(hashes)).map(move |number| key.index(number, bits))
    }

    /// Adds a key.
    pub fn insert(&mut self, key: KeyHash) {
        for bit in self.bits(key) {
            self.set(bit, true);
        }
    }

    /// Sets or clears one bit. A counting filter calls it when a counter becomes one or zero ("Flow Digest", MLCBF
    /// section 2.1). An unchanged bit marks no word as changed.
    pub(crate) fn set(&mut self, bit: usize, is_set: bool) {
        let word = self.memory.word(bit / 32);
        let changed = if is_set { word | 1 << (bit % 32) } else { word & !(1 << (bit % 32)) };
        if changed != word {
            self.memory.set(bit / 32, changed);
        }
    }

    /// Whether the filter contains the key, or a false positive.
    #[must_use]
    pub fn contains(&self, key: KeyHash) -> bool {
        self.bits(key).all(|bit| self.memory.word(bit / 32) >> (bit % 32) & 1 == 1)
    }

    /// Adds all keys of another filter of the same shape and secret.
    ///
    /// # Errors
    /// The shapes differ.
    pub fn merge(&mut self, other: &Self) -> Result<(), ShapeError> {
        if self.shape != other.shape {
            return Err(ShapeError::OtherShape);
        }
        for (index, word) in other.memory.words().iter().enumerate() {
            let own = self.memory.word(index);
            if own | word != own {
                self.memory.set(index, own | word);
            }
        }
        Ok(())
    }
}

/// A mask of the valid bits in the last word, for `units` units with `per_word` in a word.
pub(crate) const fn last_word_mask(units: u64, per_word: u64) -> u32 {
    let in_last = (units - 1) % per_word + 1;
    (u32::MAX as u64 >> (32 - in_last * (32 / per_word))) as u32
}

impl Exchange for Bloom {
    fn empty(shape: Shape) -> Result<Self, ShapeError> {
        if let Shape::Bloom(shape) = shape { Self::new(shape) } else { Err(ShapeError::OtherShape) }
    }

    fn shape(&self) -> Shape {
        Shape::Bloom(self.shape)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn admits(&self, index: usize, word: u32) -> bool {
        index + 1 < self.memory.words().len() || word & !last_word_mask(self.shape.bits, 32) == 0
    }

    fn put(&mut self, index: usize, word: u32) {
        self.memory.set(index, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Secret;
    use crate::theory;

    fn key(number: u64) -> KeyHash {
        Secret::new([5, 6]).spread(number)
    }

    #[test]
    fn false_positives_match_the_formula() {
        // Ten bits a key and four hashes: 1.2 % in MLCBF, section 1.1.3.
        let (items, tests) = (10_000, 400_000);
        let mut filter = Bloom::new(BloomShape { bits: 10 * items, hashes: 4 }).expect("a shape");
        (0..items).for_each(|number| filter.insert(key(number)));
        assert!((0..items).all(|number| filter.contains(key(number))), "no false negatives");
        let found = (0..tests).filter(|number| filter.contains(key(items + number))).count();
        let (measured, expected) = (found as f64 / tests as f64, theory::bloom_false_positive(10 * items, 4, items));
        assert!((measured / expected - 1.0).abs() < 0.1, "{measured} instead of {expected}");
        assert!((expected - 0.012).abs() < 0.0005, "{expected}");
    }

    #[test]
    fn merged_filter_holds_the_keys_of_both() {
        let shape = BloomShape { bits: 1001, hashes: 3 };
        let [mut one, mut other, mut both] = [(); 3].map(|()| Bloom::new(shape).expect("a shape"));
        for number in 0..40 {
            if number % 2 == 0 {
                one.insert(key(number))
            } else {
                other.insert(key(number))
            }
            both.insert(key(number));
        }
        one.merge(&other).expect("the same shape");
        assert_eq!(one.memory.words(), both.memory.words());
        let larger = Bloom::new(BloomShape { bits: 1002, hashes: 3 }).expect("a shape");
        assert_eq!(one.merge(&larger), Err(ShapeError::OtherShape));
    }

    #[test]
    fn bits_beyond_the_last_one_are_not_admitted() {
        let filter = Bloom::new(BloomShape { bits: 33, hashes: 1 }).expect("a shape");
        assert!(filter.admits(0, u32::MAX) && filter.admits(1, 1) && !filter.admits(1, 2));
        assert_eq!([last_word_mask(64, 32), last_word_mask(9, 8), last_word_mask(3, 2)], [u32::MAX, 0xf, 0xffff]);
    }
}
