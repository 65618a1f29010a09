//! A set with removal, in two buckets for each key (Fan et al., "Cuckoo filter: practically better than Bloom", 2014).
//!
//! A key's fingerprint lies in one of two buckets of four cells. The second bucket is computed from the first one and the
//! fingerprint alone, so a fingerprint can move between its buckets while the key is unknown:
//!
//! ```text
//! word  0      1      2      3
//!       ┌──┬──┬──┬──┐ ┌──┬──┬──┬──┐
//!       │16│16│16│16│ │16│16│16│16│     cells of a fingerprint, 0: free
//!       └──┴──┴──┴──┘ └──┴──┴──┴──┘
//!         bucket i      bucket (hash of the fingerprint − i) modulo the number of buckets
//! ```
//!
//! An insertion that finds both buckets full searches the shortest sequence of moves, so it changes few words for
//! receivers ([`crate::exchange`]). While the words of a move are in two datagrams, of which one has not arrived, a receiver may miss the
//! moved key.

use alloc::vec::Vec;

use crate::Full;
use crate::exchange::Exchange;
use crate::hash::{KeyHash, mix};
use crate::memory::Memory;
use crate::shape::{CuckooShape, Shape, ShapeError};

/// Cells of a bucket.
pub const CELLS_PER_BUCKET: usize = 4;
/// Bits of a fingerprint.
pub const FINGERPRINT_BITS: u32 = 16;
/// The most buckets that an insertion looks at. Up to a load of 95 % it needs fewer.
pub const SEARCH_BUCKETS_MAX: usize = 2048;
/// Cells of a word.
const CELLS_PER_WORD: usize = 32 / FINGERPRINT_BITS as usize;
const FINGERPRINT_MASK: u32 = (1 << FINGERPRINT_BITS) - 1;

/// A cuckoo filter. It finds every inserted key, and other keys with the probability that
/// [`crate::theory::cuckoo_false_positive`] computes.
///
/// It is a multiset: a key that was inserted twice has two cells, of at most eight.
#[derive(Clone)]
pub struct Cuckoo {
    memory: Memory,
    shape: CuckooShape,
    items: usize,
}

/// A bucket that a search has reached.
#[derive(Clone, Copy)]
struct Reached {
    bucket: usize,
    /// The place in the search, and the cell, whose fingerprint may move to this bucket. `None`: a bucket of the new key.
    from: Option<(usize, usize)>,
}

impl Cuckoo {
    /// An empty one.
    ///
    /// # Errors
    /// The shape is invalid.
    pub fn new(shape: CuckooShape) -> Result<Self, ShapeError> {
        Ok(Self { memory: Memory::new(Shape::Cuckoo(shape).words()?), shape, items: 0 })
    }

    /// The number of taken cells.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items
    }

    /// Whether no cell is taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Taken cells as a share of all, from 0 to 1.
    #[must_use]
    pub fn load(&self) -> f64 {
        self.items as f64 / (self.shape.buckets as f64 * CELLS_PER_BUCKET as f64)
    }

    /// Never zero, as zero marks a free cell.
    fn fingerprint(key: KeyHash) -> u32 {
        key.fingerprint(FINGERPRINT_BITS).max(1)
    }

    fn buckets(&self, key: KeyHash) -> [usize; 2] {
        let first = key.index(0, self.shape.buckets);
        [first, self.other(first, Self::fingerprint(key))]
    }

    /// The other bucket of a fingerprint. Of the other bucket, it is this one.
    fn other(&self, bucket: usize, fingerprint: u32) -> usize {
        let buckets = self.shape.buckets;
        let sum = mix(fingerprint.into()) % buckets;
        ((sum + buckets - bucket as u64) % buckets) as usize
    }

    fn cell(&self, bucket: usize, cell: usize) -> u32 {
        let index = bucket * CELLS_PER_BUCKET + cell;
        self.memory.word(index / CELLS_PER_WORD) >> Self::shift(index) & FINGERPRINT_MASK
    }

    fn set(&mut self, bucket: usize, cell: usize, fingerprint: u32) {
        let index = bucket * CELLS_PER_BUCKET + cell;
        let (word, shift) = (self.memory.word(index / CELLS_PER_WORD), Self::shift(index));
        self.memory.set(index / CELLS_PER_WORD, word & !(FINGERPRINT_MASK << shift) | fingerprint << shift);
    }

    const fn shift(index: usize) -> u32 {
        (index % CELLS_PER_WORD) as u32 * FINGERPRINT_BITS
    }

    /// The first cell of a bucket with this fingerprint; 0 finds a free one.
    fn find(&self, bucket: usize, fingerprint: u32) -> Option<usize> {
        (0..CELLS_PER_BUCKET).find(|cell| self.cell(bucket, *cell) == fingerprint)
    }

    /// Adds a key.
    ///
    /// # Errors
    /// No sequence of moves within [`SEARCH_BUCKETS_MAX`] buckets frees a cell; nothing changes.
    pub fn insert(&mut self, key: KeyHash) -> Result<(), Full> {
        let reached = self.free_path(self.buckets(key)).ok_or(Full)?;
        let (mut at, mut free) = (reached.0.len() - 1, reached.1);
        // From the end of the path back, so that each fingerprint moves to a cell that is free by then.
        while let Some((parent, cell)) = reached.0[at].from {
            let moved = self.cell(reached.0[parent].bucket, cell);
            self.set(reached.0[at].bucket, free, moved);
            (at, free) = (parent, cell);
        }
        self.set(reached.0[at].bucket, free, Self::fingerprint(key));
        self.items += 1;
        Ok(())
    }

    /// Searches breadth first for a bucket with a free cell. Returns the reached buckets, of which the last has it, and
    /// the cell.
    fn free_path(&self, buckets: [usize; 2]) -> Option<(Vec<Reached>, usize)> {
        let mut reached: Vec<Reached> = Vec::with_capacity(2);
        for bucket in buckets {
            reached.push(Reached { bucket, from: None });
            if let Some(free) = self.find(bucket, 0) {
                return Some((reached, free));
            }
        }
        let mut at = 0;
        while at < reached.len() && reached.len() < SEARCH_BUCKETS_MAX {
            let bucket = reached[at].bucket;
            for cell in 0..CELLS_PER_BUCKET {
                let next = self.other(bucket, self.cell(bucket, cell));
                // A path that returns to a bucket would move a fingerprint twice.
                if is_on_path(&reached, at, next) {
                    continue;
                }
                reached.push(Reached { bucket: next, from: Some((at, cell)) });
                if let Some(free) = self.find(next, 0) {
                    return Some((reached, free));
                }
            }
            at += 1;
        }
        None
    }

    /// Whether the filter contains the key, or a false positive.
    #[must_use]
    pub fn contains(&self, key: KeyHash) -> bool {
        let fingerprint = Self::fingerprint(key);
        self.buckets(key).into_iter().any(|bucket| self.find(bucket, fingerprint).is_some())
    }

    /// Removes a key once. Returns whether the filter contained it; if not, nothing changes.
    ///
    /// Removing a false positive removes another key: the caller must remove only keys that it inserted.
    pub fn remove(&mut self, key: KeyHash) -> bool {
        let fingerprint = Self::fingerprint(key);
        let found = self.buckets(key).into_iter().find_map(|bucket| Some((bucket, self.find(bucket, fingerprint)?)));
        let Some((bucket, cell)) = found else { return false };
        self.set(bucket, cell, 0);
        self.items -= 1;
        true
    }
}

/// Whether the path to the bucket reached at `at` contains a bucket.
fn is_on_path(reached: &[Reached], at: usize, bucket: usize) -> bool {
    let mut steps = core::iter::successors(Some(at), |at| reached[*at].from.map(|(parent, _)| parent));
    steps.any(|at| reached[at].bucket == bucket)
}

/// Taken cells of a word.
fn taken(word: u32) -> usize {
    (0..CELLS_PER_WORD).filter(|cell| word >> Cuckoo::shift(*cell) & FINGERPRINT_MASK != 0).count()
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

    fn admits(&self, _index: usize, _word: u32) -> bool {
        // Every value of a cell is a fingerprint or free.
        true
    }

    fn put(&mut self, index: usize, word: u32) {
        self.items = self.items + taken(word) - taken(self.memory.word(index));
        self.memory.set(index, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, Update, theory};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn key(number: u64) -> KeyHash {
        Secret::new([21, 22]).spread(number)
    }

    fn filled(items: u64, buckets: u64) -> Cuckoo {
        let mut filter = Cuckoo::new(CuckooShape { buckets }).expect("a shape");
        (0..items).for_each(|number| filter.insert(key(number)).expect("room"));
        filter
    }

    #[test]
    fn at_95_percent_load_all_keys_are_found_and_the_error_is_that_of_theory() {
        let (buckets, tests) = (25_000, 2_000_000_u64);
        let items = buckets * 4 * 95 / 100;
        let filter = filled(items, buckets);
        assert!((0..items).all(|number| filter.contains(key(number))));
        assert!((filter.load() - 0.95).abs() < 0.001 && filter.len() as u64 == items);
        let found = (0..tests).filter(|number| filter.contains(key(items + number))).count();
        let (measured, expected) = (found as f64 / tests as f64, theory::cuckoo_false_positive(filter.load()));
        assert!((measured / expected - 1.0).abs() < 0.25, "{measured} instead of {expected}");
        assert!(expected < theory::cuckoo_false_positive(1.0));
    }

    #[test]
    fn the_shape_for_items_has_room_for_them_at_any_size() {
        for items in [1, 10, 100, 1000, 10_000, 50_000] {
            let mut filter = Cuckoo::new(CuckooShape::for_items(items)).expect("a shape");
            (0..items).for_each(|number| filter.insert(key(number)).expect("room"));
        }
    }

    #[test]
    fn a_full_filter_refuses_and_stays_unchanged() {
        let mut filter = Cuckoo::new(CuckooShape { buckets: 4 }).expect("a shape");
        let refused = (0..100).find(|number| filter.insert(key(*number)).is_err()).expect("it has 16 cells");
        let before = filter.memory.words().to_vec();
        assert_eq!(filter.insert(key(refused)), Err(Full));
        assert_eq!(filter.memory.words(), before);
        assert!((0..refused).all(|number| filter.contains(key(number))));
    }

    #[test]
    fn an_insertion_at_high_load_changes_few_words() {
        let mut filter = filled(3_750, 1000);
        let mark = filter.memory.mark().expect("the first");
        (0..50).for_each(|number| filter.insert(key(10_000 + number)).expect("room"));
        assert!(filter.memory.changed(mark) < 50 * 5, "{}", filter.memory.changed(mark));
    }

    #[test]
    fn each_bucket_is_the_other_of_its_other() {
        let filter = Cuckoo::new(CuckooShape { buckets: 1013 }).expect("a shape");
        for fingerprint in 1..5000 {
            let other = filter.other(fingerprint as usize % 1013, fingerprint);
            assert_eq!(filter.other(other, fingerprint), fingerprint as usize % 1013);
        }
    }

    proptest! {
        #[test]
        fn inserted_keys_are_found_until_they_are_removed_and_a_replica_follows(
            steps in proptest::collection::vec((0_u64..60, any::<bool>()), 0..200), buckets in 12_u64..40,
        ) {
            let mut filter = Cuckoo::new(CuckooShape { buckets }).expect("a shape");
            let mut replica = Cuckoo::empty(filter.shape()).expect("the same");
            let mark = filter.memory.mark().expect("the first");
            let mut model = BTreeMap::<u64, usize>::new();
            for (number, is_insertion) in steps {
                let count = model.entry(number).or_default();
                if is_insertion {
                    *count += usize::from(filter.insert(key(number)).is_ok());
                } else if *count > 0 {
                    prop_assert!(filter.remove(key(number)));
                    *count -= 1;
                }
            }
            prop_assert_eq!(filter.len(), model.values().sum::<usize>());
            let (mut changes, mut bytes) = (Vec::new(), Vec::new());
            filter.memory.take_changes(mark, usize::MAX, &mut changes);
            Update::encode(&mut changes, &mut bytes);
            let words = filter.memory.words().len();
            replica.apply(&Update::parse(&bytes, words).expect("encoded")).expect("valid");
            prop_assert_eq!(replica.len(), filter.len());
            for (number, count) in model {
                prop_assert!(count == 0 || filter.contains(key(number)) && replica.contains(key(number)));
            }
        }
    }
}
