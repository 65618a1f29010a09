//! Fingerprints with a counter or a state, in levels that become smaller: the multi-level counting Bloom filter (MLCBF) of
//! seed 000, chapter 3.
//!
//! A key has one bucket in each level; each bucket has a few cells. A new item goes to the first of its buckets that has a
//! free cell (first available, FA), so that most are in the first and largest level, or to the one that has the fewest
//! items (least load, LL). A change to an item changes one cell and nothing else, which is what makes the structure cheap
//! to replicate.
//!
//! A cell is one word of 32 bits, without waste where fingerprint and content fill it:
//!
//! ```text
//! 31     30 … F + C   F + C - 1 … F            F - 1 … 0
//! taken  zero         content (state, count)   fingerprint
//! ```
//!
//! The bits "taken" of a bucket are the seed's load bitmap (LB): one instruction gathers those of a bucket, and one
//! comparison all cells whose fingerprint is the key's. All buckets of a key are looked at, without a branch on what was
//! found in the first: which level it is in cannot be foretold, and a wrong guess costs more than a further bucket.
//!
//! What can go wrong beside false positives: two items with the same fingerprint whose buckets meet in one level and not in
//! all. Then removing the one can take the other's cell. The counting filter counts them in one cell where it can; the one
//! with states has [`MultiLevel::insert_distinct`], which gives each item its own. How seldom that is,
//! [`crate::theory::FirstAvailable::false_positive`] tells: an item meets another with that probability.

mod counters;
mod states;
#[cfg(target_arch = "x86_64")]
mod wide;

use alloc::boxed::Box;
use core::marker::PhantomData;

use crate::counting_bloom::CountingBloom;
use crate::exchange::Exchange;
use crate::hash::KeyHash;
use crate::memory::Memory;
use crate::scan;
use crate::shape::{Content, CountingBloomShape, Insertion, LEVELS_MAX, MultiLevelShape, Shape, ShapeError};

/// The bit that says that a cell is taken.
const TAKEN: u32 = 1 << 31;
/// Keys whose buckets are fetched before the first of them is looked up.
const BATCH_KEYS: usize = 16;

/// The cells hold how often an item was inserted.
#[derive(Clone, Copy, Debug)]
pub enum Counters {}

/// The cells hold an item's state.
#[derive(Clone, Copy, Debug)]
pub enum States {}

/// What cells hold: [`Counters`] or [`States`].
pub trait Holding {
    /// The same as a value.
    const CONTENT: Content;
}

impl Holding for Counters {
    const CONTENT: Content = Content::Counters;
}

impl Holding for States {
    const CONTENT: Content = Content::States;
}

/// A multi-level counting Bloom filter; a [d-left](crate::d_left) one where all levels are of one size.
#[derive(Clone)]
pub struct MultiLevel<H> {
    memory: Memory,
    shape: MultiLevelShape,
    levels: [Level; LEVELS_MAX as usize],
    search: Search,
    /// The binary logarithm of the words from a bucket to the next.
    stride_log2: u32,
    /// The fingerprint's bits of a cell.
    fingerprint_mask: u32,
    /// Which bits of a [`Probe`] are cells.
    cells_mask: u64,
    /// Cells that are taken.
    items: usize,
    auxiliary: Option<Box<CountingBloom>>,
    holding: PhantomData<H>,
}

#[derive(Clone, Copy, Default)]
struct Level {
    buckets: u64,
    /// The number of its first bucket in all.
    first: usize,
}

/// How cells are searched for a fingerprint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Search {
    /// Any shape.
    Any,
    /// Four levels of buckets of eight cells, the shape that is made the fastest.
    FourByEight,
    /// The same, with vectors that hold a bucket.
    #[cfg(target_arch = "x86_64")]
    Wide,
}

impl Search {
    fn of(shape: MultiLevelShape) -> Self {
        if shape.levels != 4 || shape.stride() != 8 {
            return Self::Any;
        }
        #[cfg(target_arch = "x86_64")]
        if wide::is_available() {
            return Self::Wide;
        }
        Self::FourByEight
    }
}

/// What a key's buckets look like: a bit a cell, those of the first level's bucket lowest, as many a level as there are
/// words from a bucket to the next.
#[derive(Clone, Copy)]
struct Probe {
    /// Cells that are taken and have the key's fingerprint.
    matches: u64,
    /// Cells that are taken.
    taken: u64,
}

/// What a search cost, as the seed counts: cells that are looked at one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SearchCost {
    /// Cells that were compared.
    pub cells: u32,
    /// Whether the key was found.
    pub is_found: bool,
}

impl<H: Holding> MultiLevel<H> {
    /// An empty one.
    ///
    /// # Errors
    /// There is no such filter.
    pub fn new(shape: MultiLevelShape) -> Result<Self, ShapeError> {
        let words = Shape::MultiLevel(shape, H::CONTENT).words()?;
        let mut levels = [Level::default(); LEVELS_MAX as usize];
        let mut first = 0;
        for (level, buckets) in levels.iter_mut().zip(shape.buckets()?) {
            *level = Level { buckets, first };
            first += buckets as usize;
        }
        let of_bucket = (1 << shape.cells_per_bucket) - 1_u64;
        let cells_mask =
            (0..usize::from(shape.levels)).fold(0, |mask, level| mask | of_bucket << (level * shape.stride()));
        Ok(Self {
            memory: Memory::new(words),
            shape,
            levels,
            search: Search::of(shape),
            stride_log2: shape.stride().ilog2(),
            fingerprint_mask: (1 << shape.fingerprint_bits) - 1,
            cells_mask,
            items: 0,
            auxiliary: None,
            holding: PhantomData,
        })
    }

    /// An empty one with a counting Bloom filter beside it (the seed's ACBF) that says of most keys that are not in it that
    /// they are not, before any bucket is looked at. It is not told to other nodes: a copy that took over words has none.
    ///
    /// # Errors
    /// There is no such filter.
    pub fn with_auxiliary(shape: MultiLevelShape, auxiliary: CountingBloomShape) -> Result<Self, ShapeError> {
        Ok(Self { auxiliary: Some(Box::new(CountingBloom::new(auxiliary)?)), ..Self::new(shape)? })
    }

    /// How many cells are taken: the number of items, but for those that share one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items
    }

    /// Nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// How many cells it has.
    #[must_use]
    pub fn cells(&self) -> usize {
        let buckets: u64 = self.levels.iter().map(|level| level.buckets).sum();
        buckets as usize * usize::from(self.shape.cells_per_bucket)
    }

    /// What it takes, in bytes, with the auxiliary filter and without marks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes() + self.auxiliary.as_ref().map_or(0, |auxiliary| auxiliary.memory().bytes())
    }

    /// Cells taken in each level.
    #[must_use]
    pub fn items_by_level(&self) -> [usize; LEVELS_MAX as usize] {
        let words = self.memory.words();
        self.levels.map(|level| {
            let first = level.first * self.shape.stride();
            let of_level = &words[first..first + level.buckets as usize * self.shape.stride()];
            of_level.iter().filter(|word| **word & TAKEN != 0).count()
        })
    }

    /// What it would cost to find the key by looking at one cell after the other, level by level; nothing where the auxiliary filter
    /// knows that it is not there.
    #[must_use]
    pub fn search_cost(&self, key: KeyHash) -> SearchCost {
        if self.is_known_absent(key) {
            return SearchCost { cells: 0, is_found: false };
        }
        let pattern = TAKEN | key.fingerprint(self.shape.fingerprint_bits.into());
        let mut cells = 0;
        for level in 0..usize::from(self.shape.levels) {
            let first = self.bucket(key, level) * self.shape.stride();
            for index in first..first + usize::from(self.shape.cells_per_bucket) {
                let word = self.memory.word(index);
                cells += u32::from(word & TAKEN != 0);
                if word & (TAKEN | self.fingerprint_mask) == pattern {
                    return SearchCost { cells, is_found: true };
                }
            }
        }
        SearchCost { cells, is_found: false }
    }

    /// Asks for the key's buckets, so that they are there when it is looked up.
    #[inline]
    pub fn prefetch(&self, key: KeyHash) {
        let stride = self.shape.stride();
        for level in 0..usize::from(self.shape.levels) {
            self.memory.prefetch(self.bucket(key, level) * stride);
        }
    }

    #[inline(always)]
    fn bucket(&self, key: KeyHash, level: usize) -> usize {
        let Level { buckets, first } = self.levels[level];
        first + key.index(level as u64, buckets)
    }

    /// The word that a bit of a [`Probe`] stands for.
    #[inline(always)]
    fn word_at(&self, key: KeyHash, bit: u32) -> usize {
        let level = (bit >> self.stride_log2) as usize;
        let cell = bit as usize & ((1 << self.stride_log2) - 1);
        (self.bucket(key, level % self.levels.len()) << self.stride_log2) + cell
    }

    #[inline(always)]
    fn probe(&self, key: KeyHash) -> Probe {
        if self.search == Search::Any { self.probe_any(key) } else { self.probe_4_by_8(key) }
    }

    #[inline(always)]
    fn probe_4_by_8(&self, key: KeyHash) -> Probe {
        let mask = TAKEN | self.fingerprint_mask;
        let pattern = TAKEN | (key.fingerprint(31) & self.fingerprint_mask);
        let buckets = core::array::from_fn(|level| self.memory.group::<8>(self.bucket(key, level)));
        Probe {
            matches: scan::matches_4_by_8(buckets, mask, pattern).into(),
            taken: scan::top_bits_4_by_8(buckets).into(),
        }
    }

    #[inline(never)]
    fn probe_any(&self, key: KeyHash) -> Probe {
        let levels = self.shape.levels.into();
        match self.shape.stride() {
            1 => self.probe_levels::<1>(key, levels),
            2 => self.probe_levels::<2>(key, levels),
            4 => self.probe_levels::<4>(key, levels),
            _ => self.probe_levels::<8>(key, levels),
        }
    }

    #[inline(always)]
    fn probe_levels<const STRIDE: usize>(&self, key: KeyHash, levels: usize) -> Probe {
        let mask = TAKEN | self.fingerprint_mask;
        let pattern = TAKEN | (key.fingerprint(31) & self.fingerprint_mask);
        (0..levels).fold(Probe { matches: 0, taken: 0 }, |probe, level| {
            let cells = self.memory.group::<STRIDE>(self.bucket(key, level));
            let shift = level * STRIDE;
            Probe {
                matches: probe.matches | u64::from(scan::matches(cells, mask, pattern)) << shift,
                taken: probe.taken | u64::from(scan::top_bits(cells)) << shift,
            }
        })
    }

    /// The cell with the key's fingerprint: of several the first.
    #[inline(always)]
    fn find(&self, key: KeyHash) -> Option<usize> {
        #[cfg(target_arch = "x86_64")]
        if self.search == Search::Wide {
            return wide::find(self, key);
        }
        let matches = self.probe(key).matches;
        (matches != 0).then(|| self.word_at(key, matches.trailing_zeros()))
    }

    /// Whether the auxiliary filter knows that the key is not in this one.
    #[inline(always)]
    fn is_known_absent(&self, key: KeyHash) -> bool {
        self.auxiliary.as_ref().is_some_and(|auxiliary| !auxiliary.contains(key))
    }

    /// The bit of the cell that a new item goes to, in a row of free cells.
    #[inline(always)]
    fn vacancy(&self, free: u64) -> Option<u32> {
        let first = match self.shape.insertion {
            Insertion::FirstAvailable => free,
            Insertion::LeastLoad => free & self.least_loaded(free),
        };
        (first != 0).then(|| first.trailing_zeros())
    }

    /// The bits of the bucket with the most free cells; of several the first.
    fn least_loaded(&self, free: u64) -> u64 {
        let stride = self.shape.stride();
        let of_bucket = (1 << stride) - 1;
        let (mut best, mut best_free) = (0, 0);
        for level in 0..usize::from(self.shape.levels) {
            let bits = of_bucket << (level * stride);
            let free = (free & bits).count_ones();
            if free > best_free {
                (best, best_free) = (bits, free);
            }
        }
        best
    }

    /// The free cell for a key that is known not to be in the filter: by first available, buckets behind the first one
    /// with room are not looked at.
    fn free_cell(&self, key: KeyHash) -> Option<usize> {
        if self.shape.insertion == Insertion::LeastLoad {
            return self.vacancy(!self.probe(key).taken & self.cells_mask).map(|bit| self.word_at(key, bit));
        }
        (0..usize::from(self.shape.levels)).find_map(|level| {
            let first = self.bucket(key, level) * self.shape.stride();
            let end = first + usize::from(self.shape.cells_per_bucket);
            (first..end).find(|index| self.memory.word(*index) & TAKEN == 0)
        })
    }

    #[inline(always)]
    fn take_cell(&mut self, index: usize, key: KeyHash, content: u32) {
        let fingerprint = key.fingerprint(31) & self.fingerprint_mask;
        self.memory.set(index, TAKEN | content << self.shape.fingerprint_bits | fingerprint);
        self.items += 1;
    }

    #[inline(always)]
    fn free(&mut self, index: usize) {
        self.memory.set(index, 0);
        self.items -= 1;
    }

    #[inline(always)]
    fn content(&self, index: usize) -> u32 {
        (self.memory.word(index) & !TAKEN) >> self.shape.fingerprint_bits
    }

    #[inline(always)]
    fn set_content(&mut self, index: usize, content: u32) {
        let fingerprint = self.memory.word(index) & self.fingerprint_mask;
        self.memory.set(index, TAKEN | content << self.shape.fingerprint_bits | fingerprint);
    }

    /// The highest count or state that a cell holds.
    #[must_use]
    #[inline]
    pub const fn content_max(&self) -> u16 {
        ((1_u32 << self.shape.content_bits) - 1) as u16
    }
}

impl<H: Holding> Exchange for MultiLevel<H> {
    fn empty(shape: Shape) -> Result<Self, ShapeError> {
        match shape {
            Shape::MultiLevel(shape, content) if content == H::CONTENT => Self::new(shape),
            _ => Err(ShapeError::OtherShape),
        }
    }

    fn shape(&self) -> Shape {
        Shape::MultiLevel(self.shape, H::CONTENT)
    }

    fn memory(&self) -> &Memory {
        &self.memory
    }

    fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn admits(&self, index: usize, word: u32) -> bool {
        let is_cell = index % self.shape.stride() < usize::from(self.shape.cells_per_bucket);
        let content = (word & !TAKEN) >> self.shape.fingerprint_bits;
        let is_content = content <= self.content_max().into() && (content > 0 || H::CONTENT == Content::States);
        word == 0 || is_cell && word & TAKEN != 0 && is_content
    }

    fn put(&mut self, index: usize, word: u32) {
        // It knows keys, and words tell of none.
        self.auxiliary = None;
        self.items -= usize::from(self.memory.word(index) & TAKEN != 0);
        self.items += usize::from(word & TAKEN != 0);
        self.memory.set(index, word);
    }
}

#[cfg(test)]
mod tests;
