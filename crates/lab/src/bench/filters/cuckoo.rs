//! A cuckoo filter with states (Fan et al., "Cuckoo filter: practically better than Bloom", 2014): what one would take today
//! where MLCBF takes a multi-level filter.
//!
//! Each key has two buckets of four cells, and an item whose buckets are full makes another one move to its other bucket.
//! So it is filled further and its items are found in two places instead of four; but an insertion at high load changes many
//! cells, each of which has to be replicated to the backups, where a multi-level filter changes one.

use ::filters::hash::mix;
use ::filters::{Full, KeyHash, Memory, scan};

/// Cells of a bucket.
const CELLS: usize = 4;
/// Items that an insertion moves at most, before it gives up and moves them all back.
const MOVES_MAX: usize = 500;
/// The bit of a cell that is taken; beneath it lie state and fingerprint, as in a multi-level filter.
const TAKEN: u32 = 1 << 31;

/// A cuckoo filter with states.
#[derive(Clone)]
pub(super) struct Cuckoo {
    memory: Memory,
    fingerprint_bits: u8,
    buckets: u64,
    fingerprint_mask: u32,
}

impl Cuckoo {
    /// An empty one with so many cells, rounded up to whole buckets. Fingerprint and state share 31 bits.
    pub(super) fn new(cells: u64, fingerprint_bits: u8) -> Self {
        let words = cells.next_multiple_of(CELLS as u64) as usize;
        let fingerprint_mask = (1 << fingerprint_bits) - 1;
        Self { memory: Memory::new(words), fingerprint_bits, buckets: (words / CELLS) as u64, fingerprint_mask }
    }

    pub(super) const fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What it takes, in bytes, without marks.
    pub(super) const fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// The other bucket of an item in `bucket` with this fingerprint: the two add up to the fingerprint, modulo
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
    pub(super) fn insert(&mut self, key: KeyHash, state: u8) -> Result<(), Full> {
        let fingerprint = key.fingerprint(31) & self.fingerprint_mask;
        let word = TAKEN | u32::from(state) << self.fingerprint_bits | fingerprint;
        let [one, other] = self.buckets(key);
        match self.free_cell(one).or_else(|| self.free_cell(other)) {
            Some(cell) => self.memory.set(cell, word),
            None => self.make_room(key, one, word)?,
        }
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
    fn state(&self, cell: usize) -> u8 {
        ((self.memory.word(cell) & !TAKEN) >> self.fingerprint_bits) as u8
    }

    /// The key's state; nothing if it is not in the filter.
    #[inline]
    pub(super) fn lookup(&self, key: KeyHash) -> Option<u8> {
        self.find(key).map(|cell| self.state(cell))
    }

    /// Gives a key of the filter another state. Returns the one that it had; nothing if it is not in the filter.
    pub(super) fn modify(&mut self, key: KeyHash, state: u8) -> Option<u8> {
        let cell = self.find(key)?;
        let previous = self.state(cell);
        let fingerprint = self.memory.word(cell) & self.fingerprint_mask;
        self.memory.set(cell, TAKEN | u32::from(state) << self.fingerprint_bits | fingerprint);
        Some(previous)
    }

    /// Takes a key out. Returns its state; nothing if it was not in the filter.
    pub(super) fn remove(&mut self, key: KeyHash) -> Option<u8> {
        let cell = self.find(key)?;
        let state = self.state(cell);
        self.memory.set(cell, 0);
        Some(state)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::filters::Secret;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([13, 14]).spread(number)
    }

    /// The share of keys that are not in a cuckoo filter of so many cells, four a bucket, and yet are found: each of the
    /// taken cells of two buckets has the key's fingerprint with probability 2^−F.
    fn false_positives(cells: u64, fingerprint_bits: u8, items: u64) -> f64 {
        8.0 * items as f64 / cells as f64 / 2_f64.powi(fingerprint_bits.into())
    }

    #[test]
    fn it_is_filled_to_95_percent_and_a_refused_item_leaves_it_as_it_was() {
        let mut filter = Cuckoo::new(10_000, 23);
        let mut number = 0;
        while filter.insert(key(number), (number % 200) as u8).is_ok() {
            number += 1;
        }
        assert!((9500..=10_000).contains(&number), "{number}");
        assert!((0..number).all(|number| filter.lookup(key(number)) == Some((number % 200) as u8)));
        assert_eq!(filter.lookup(key(number)), None);
        assert!((0..number).all(|number| filter.remove(key(number)).is_some()));
        assert!(filter.memory.words().iter().all(|word| *word == 0));
    }

    #[test]
    fn false_positives_are_as_many_as_by_its_formula() {
        let (items, tests) = (9000, 500_000);
        let mut filter = Cuckoo::new(10_000, 11);
        (0..items).for_each(|number| assert!(filter.insert(key(number), 0).is_ok()));
        let found = (0..tests).filter(|number| filter.lookup(key(items + number)).is_some()).count();
        let (measured, expected) = (found as f64 / tests as f64, false_positives(10_000, 11, items));
        assert!((measured / expected - 1.0).abs() < 0.1, "{measured} instead of {expected}");
    }

    proptest! {
        #[test]
        fn it_is_a_map(steps in proptest::collection::vec((0_u64..60, 0_u8..3, any::<u8>()), 0..200)) {
            // Full now and then: 40 cells for up to 60 keys.
            let mut filter = Cuckoo::new(40, 23);
            let mut model = BTreeMap::new();
            for (number, operation, state) in steps {
                match (operation, model.contains_key(&number)) {
                    (0, false) if filter.insert(key(number), state).is_ok() => {
                        model.insert(number, state);
                    }
                    (1, _) => prop_assert_eq!(filter.modify(key(number), state),
                        model.get_mut(&number).map(|known| std::mem::replace(known, state))),
                    (2, _) => prop_assert_eq!(filter.remove(key(number)), model.remove(&number)),
                    _ => {}
                }
                for number in 0..60 {
                    prop_assert_eq!(filter.lookup(key(number)), model.get(&number).copied());
                }
            }
        }
    }
}
