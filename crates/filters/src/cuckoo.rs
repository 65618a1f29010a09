//! A cuckoo filter with states (Fan et al., "Cuckoo filter: practically better than Bloom", 2014): what one would take today
//! where seed 000 takes a multi-level filter.
//!
//! Each key has two buckets of four cells, and an item whose buckets are full makes another one move to its other bucket.
//! So it is filled further and its items are found in two places instead of four; but an insertion at high load changes many
//! cells, each of which has to be told to the backups, where a multi-level filter changes one.

use crate::Full;
use crate::exchange::Exchange;
use crate::hash::{KeyHash, mix};
use crate::memory::Memory;
use crate::scan;
use crate::shape::{CuckooShape, Shape, ShapeError};

/// Cells of a bucket.
const CELLS: usize = 4;
/// Items that an insertion moves at most, before it gives up and moves them all back.
pub const MOVES_MAX: usize = 500;
/// The bit that says that a cell is taken; beneath it lie state and fingerprint, as in a multi-level filter.
const TAKEN: u32 = 1 << 31;

/// A cuckoo filter with states.
#[derive(Clone)]
pub struct Cuckoo {
    memory: Memory,
    shape: CuckooShape,
    buckets: u64,
    fingerprint_mask: u32,
    items: usize,
}

impl Cuckoo {
    /// An empty one.
    ///
    /// # Errors
    /// There is no such filter.
    pub fn new(shape: CuckooShape) -> Result<Self, ShapeError> {
        let words = Shape::Cuckoo(shape).words()?;
        let fingerprint_mask = (1 << shape.fingerprint_bits) - 1;
        Ok(Self { memory: Memory::new(words), shape, buckets: (words / CELLS) as u64, fingerprint_mask, items: 0 })
    }

    /// How many items it holds.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items
    }

    /// Nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// What it takes, in bytes, without marks.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The other bucket of an item in `bucket` with this fingerprint: the two add up to what the fingerprint says, modulo
    /// the number of buckets, which so need not be a power of two.
    #[inline(always)]
    fn other(&self, bucket: usize, fingerprint: u32) -> usize {
        let sum = ((u128::from(mix(fingerprint.into())) * u128::from(self.buckets)) >> 64) as usize;
        if sum >= bucket { sum - bucket } else { sum + self.buckets as usize - bucket }
    }

    #[inline(always)]
    fn buckets(&self, key: KeyHash) -> [usize; 2] {
        let first = key.index(0, self.buckets);
        [first, self.other(first, key.fingerprint(31) & self.fingerprint_mask)]
    }

    /// The cell with the key's fingerprint.
    #[inline(always)]
    fn find(&self, key: KeyHash) -> Option<usize> {
        let pattern = TAKEN | (key.fingerprint(31) & self.fingerprint_mask);
        let [one, other] = self.buckets(key);
        let matches =
            |bucket| scan::matches(self.memory.group::<CELLS>(bucket), TAKEN | self.fingerprint_mask, pattern);
        let (in_one, in_other) = (matches(one), matches(other));
        if in_one | in_other == 0 {
            return None;
        }
        let (bucket, found) = if in_one != 0 { (one, in_one) } else { (other, in_other) };
        Some(bucket * CELLS + found.trailing_zeros() as usize)
    }

    fn free_cell(&self, bucket: usize) -> Option<usize> {
        let free = !scan::top_bits(self.memory.group::<CELLS>(bucket)) & 0xf;
        (free != 0).then(|| bucket * CELLS + free.trailing_zeros() as usize)
    }

    /// Adds a key with its state. It must not be in the filter already: that is [`Cuckoo::modify`].
    ///
    /// # Errors
    /// No row of moves makes room within [`MOVES_MAX`]; nothing changes.
    ///
    /// # Panics
    /// The state has more bits than the shape says.
    pub fn insert(&mut self, key: KeyHash, state: u16) -> Result<(), Full> {
        assert!(u32::from(state) >> self.shape.state_bits == 0, "a state of {} bits", self.shape.state_bits);
        let fingerprint = key.fingerprint(31) & self.fingerprint_mask;
        let word = TAKEN | u32::from(state) << self.shape.fingerprint_bits | fingerprint;
        let [one, other] = self.buckets(key);
        match self.free_cell(one).or_else(|| self.free_cell(other)) {
            Some(cell) => self.memory.set(cell, word),
            None => self.make_room(key, one, word)?,
        }
        self.items += 1;
        Ok(())
    }

    /// Puts `word` into `bucket` or whichever bucket gets room by moving items.
    fn make_room(&mut self, key: KeyHash, mut bucket: usize, mut word: u32) -> Result<(), Full> {
        let mut path = [0; MOVES_MAX];
        let mut choice = key.whole();
        for moved in &mut path {
            choice = mix(choice.wrapping_add(1));
            let cell = bucket * CELLS + choice as usize % CELLS;
            let evicted = self.memory.word(cell);
            self.memory.set(cell, word);
            (*moved, word) = (cell, evicted);
            bucket = self.other(bucket, word & self.fingerprint_mask);
            if let Some(cell) = self.free_cell(bucket) {
                self.memory.set(cell, word);
                return Ok(());
            }
        }
        for cell in path.into_iter().rev() {
            let back = self.memory.word(cell);
            self.memory.set(cell, word);
            word = back;
        }
        Err(Full)
    }

    #[inline]
    fn state(&self, cell: usize) -> u16 {
        ((self.memory.word(cell) & !TAKEN) >> self.shape.fingerprint_bits) as u16
    }

    /// The key's state; nothing if it is not in the filter.
    #[must_use]
    #[inline]
    pub fn lookup(&self, key: KeyHash) -> Option<u16> {
        self.find(key).map(|cell| self.state(cell))
    }

    /// Gives a key of the filter another state. Returns the one that it had; nothing if it is not in the filter.
    ///
    /// # Panics
    /// The state has more bits than the shape says.
    pub fn modify(&mut self, key: KeyHash, state: u16) -> Option<u16> {
        assert!(u32::from(state) >> self.shape.state_bits == 0, "a state of {} bits", self.shape.state_bits);
        let cell = self.find(key)?;
        let previous = self.state(cell);
        let fingerprint = self.memory.word(cell) & self.fingerprint_mask;
        self.memory.set(cell, TAKEN | u32::from(state) << self.shape.fingerprint_bits | fingerprint);
        Some(previous)
    }

    /// Takes a key out. Returns its state; nothing if it was not in the filter.
    pub fn remove(&mut self, key: KeyHash) -> Option<u16> {
        let cell = self.find(key)?;
        let state = self.state(cell);
        self.memory.set(cell, 0);
        self.items -= 1;
        Some(state)
    }
}

impl Exchange for Cuckoo {
    fn empty(shape: Shape) -> Result<Self, ShapeError> {
        if let Shape::Cuckoo(shape) = shape { Self::new(shape) } else { Err(ShapeError::OtherShape) }
    }

    fn shape(&self) -> Shape {
        Shape::Cuckoo(self.shape)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn admits(&self, _index: usize, word: u32) -> bool {
        let bits = u32::from(self.shape.fingerprint_bits + self.shape.state_bits);
        word == 0 || word & TAKEN != 0 && (word & !TAKEN) >> bits == 0
    }

    fn put(&mut self, index: usize, word: u32) {
        self.items -= usize::from(self.memory.word(index) & TAKEN != 0);
        self.items += usize::from(word & TAKEN != 0);
        self.memory.set(index, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, theory};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([13, 14]).spread(number)
    }

    fn filter(cells: u64, fingerprint_bits: u8) -> Cuckoo {
        Cuckoo::new(CuckooShape { cells, fingerprint_bits, state_bits: 8 }).expect("a shape")
    }

    #[test]
    fn it_is_filled_to_95_percent_and_a_refused_item_leaves_it_as_it_was() {
        let mut filter = filter(10_000, 23);
        let mut number = 0;
        while filter.insert(key(number), (number % 200) as u16).is_ok() {
            number += 1;
        }
        assert!((9500..=10_000).contains(&filter.len()), "{}", filter.len());
        assert_eq!(filter.len() as u64, number);
        assert!((0..number).all(|number| filter.lookup(key(number)) == Some((number % 200) as u16)));
        assert_eq!(filter.lookup(key(number)), None);
        assert!((0..number).all(|number| filter.remove(key(number)).is_some()));
        assert!(filter.memory.words().iter().all(|word| *word == 0));
    }

    #[test]
    fn false_positives_are_as_many_as_its_formula_says() {
        let (items, tests) = (9000, 500_000);
        let mut filter = filter(10_000, 11);
        (0..items).for_each(|number| assert!(filter.insert(key(number), 0).is_ok()));
        let found = (0..tests).filter(|number| filter.lookup(key(items + number)).is_some()).count();
        let (measured, expected) = (found as f64 / tests as f64, theory::cuckoo_false_positive(10_000, 11, items));
        assert!((measured / expected - 1.0).abs() < 0.1, "{measured} instead of {expected}");
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0_u64..60, 0_u8..3, 0_u16..256), 0..200)) {
            // Full now and then: 40 cells for up to 60 keys.
            let mut filter = filter(40, 23);
            let mut model = BTreeMap::new();
            for (number, operation, state) in steps {
                match (operation, model.contains_key(&number)) {
                    (0, false) if filter.insert(key(number), state).is_ok() => {
                        model.insert(number, state);
                    }
                    (1, _) => prop_assert_eq!(filter.modify(key(number), state),
                        model.get_mut(&number).map(|known| core::mem::replace(known, state))),
                    (2, _) => prop_assert_eq!(filter.remove(key(number)), model.remove(&number)),
                    _ => {}
                }
                prop_assert_eq!(filter.len(), model.len());
                for number in 0..60 {
                    prop_assert_eq!(filter.lookup(key(number)), model.get(&number).copied());
                }
            }
        }
    }
}
