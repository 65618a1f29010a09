//! Fingerprints with a counter or a state, in levels of decreasing size: the multi-level counting Bloom filter (MLCBF)
//! of MLCBF, chapter 3.
//!
//! A key has one bucket in each level; each bucket has a few cells. With first available (FA), a new item goes to the
//! first of its buckets with a free cell, so most items are in the first and largest level. With least load (LL), it
//! goes to the bucket with the fewest items. A change to an item changes one cell only, which makes the structure cheap
//! to replicate.
//!
//! A cell is one word of 32 bits:
//!
//! ```text
//! 31     30 … F + C   F + C - 1 … F            F - 1 … 0
//! taken  zero         content (state, count)   fingerprint
//! ```
//!
//! The "taken" bits of a bucket are the load bitmap (LB) of MLCBF: one instruction gathers them, and one comparison
//! finds all cells with the key's fingerprint. A lookup reads all buckets of a key without a branch on the first one:
//! the level is unpredictable, and a mispredicted branch costs more than a further bucket.
//!
//! Beside false positives, two items with the same fingerprint may share a bucket in one level but not in all. Removing
//! one can then free the cell of the other. The counting filter counts both in one cell where it can; for states,
//! [`MultiLevel::insert_distinct`] gives each item a cell. The probability that two items collide is
//! [`crate::theory::FirstAvailable::false_positive`].

mod counters;
mod probe;
mod search;
mod states;
#[cfg(target_arch = "x86_64")]
mod wide;

use core::marker::PhantomData;

use self::probe::{Level, TAKEN};
use self::search::Search;
use crate::exchange::Exchange;
use crate::hash::KeyHash;
use crate::memory::Memory;
use crate::shape::{Content, LEVELS_MAX, MultiLevelShape, Shape, ShapeError};

/// The cells contain the number of insertions of an item.
#[derive(Clone, Copy, Debug)]
pub enum Counters {}

/// The cells contain an item's state.
#[derive(Clone, Copy, Debug)]
pub enum States {}

/// The content of cells: [`Counters`] or [`States`].
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

/// A multi-level counting Bloom filter; a d-left one where all levels are of one size.
#[derive(Clone)]
pub struct MultiLevel<H> {
    memory: Memory,
    shape: MultiLevelShape,
    levels: [Level; LEVELS_MAX as usize],
    search: Search,
    /// The binary logarithm of the stride between buckets, in words.
    stride_log2: u32,
    /// The fingerprint's bits of a cell.
    fingerprint_mask: u32,
    /// The bits of a [`Probe`] that represent cells.
    cells_mask: u64,
    /// The number of taken cells.
    items: usize,
    holding: PhantomData<H>,
}

/// The cost of a sequential search as MLCBF counts it: cells that are read one after the other.
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
    /// The shape is invalid.
    pub fn new(shape: MultiLevelShape) -> Result<Self, ShapeError> {
        let words = Shape::MultiLevel(shape, H::CONTENT).words()?;
        let mut levels = [Level::default(); LEVELS_MAX as usize];
        let mut first = 0;
        for (level, buckets) in levels.iter_mut().zip(shape.buckets()?) {
            *level = Level { buckets: buckets as u32, first };
            first += buckets as u32;
        }
        let memory = Memory::new(words);
        Ok(Self {
            search: Search::of(shape, &levels, &memory),
            memory,
            shape,
            levels,
            stride_log2: shape.stride().ilog2(),
            fingerprint_mask: (1 << shape.fingerprint_bits) - 1,
            cells_mask: shape.cells_mask(),
            items: 0,
            holding: PhantomData,
        })
    }

    /// The same, searched with instructions that every processor has instead of this one's fastest. The results are the same.
    #[must_use]
    pub fn with_portable_search(self) -> Self {
        Self { search: Search::portable(self.shape), ..self }
    }

    /// Whether it is searched with vectors of a bucket's size (AVX2).
    #[must_use]
    pub const fn has_wide_search(&self) -> bool {
        #[cfg(target_arch = "x86_64")]
        return matches!(self.search, Search::Wide(_));
        #[cfg(not(target_arch = "x86_64"))]
        false
    }

    /// The number of taken cells: the number of items, except for items that share one.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.items
    }

    /// Nothing is in it.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// The number of cells.
    #[must_use]
    pub fn cells(&self) -> usize {
        let buckets: u32 = self.levels.iter().map(|level| level.buckets).sum();
        buckets as usize * usize::from(self.shape.cells_per_bucket)
    }

    /// Its size in bytes, without marks.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }

    /// Cells taken in each level.
    #[must_use]
    pub fn items_by_level(&self) -> [usize; LEVELS_MAX as usize] {
        let words = self.memory.words();
        self.levels.map(|level| {
            let first = level.first as usize * self.shape.stride();
            let of_level = &words[first..first + level.buckets as usize * self.shape.stride()];
            of_level.iter().filter(|word| **word & TAKEN != 0).count()
        })
    }

    /// The cost of a sequential search for the key, cell by cell and level by level.
    #[must_use]
    pub fn search_cost(&self, key: KeyHash) -> SearchCost {
        let (mask, pattern) = (self.mask(), self.pattern(key));
        let mut cells = 0;
        for level in 0..usize::from(self.shape.levels) {
            let first = self.place(key, level);
            for index in first..first + usize::from(self.shape.cells_per_bucket) {
                let word = self.memory.word(index);
                cells += u32::from(word & TAKEN != 0);
                if word & mask == pattern {
                    return SearchCost { cells, is_found: true };
                }
            }
        }
        SearchCost { cells, is_found: false }
    }

    /// Prefetches the key's buckets for a later lookup.
    #[inline]
    pub fn prefetch(&self, key: KeyHash) {
        for level in 0..usize::from(self.shape.levels) {
            self.memory.prefetch(self.place(key, level));
        }
    }

    #[inline(always)]
    fn take_cell(&mut self, index: usize, key: KeyHash, content: u32) {
        self.memory.set(index, self.pattern(key) | content << self.shape.fingerprint_bits);
        self.items += 1;
    }

    #[inline(always)]
    fn free(&mut self, index: usize) {
        self.memory.set(index, 0);
        self.items -= 1;
    }

    #[inline(always)]
    fn content(&self, index: usize) -> u32 {
        self.content_of(self.memory.word(index))
    }

    #[inline(always)]
    fn content_of(&self, cell: u32) -> u32 {
        (cell & !TAKEN) >> self.shape.fingerprint_bits
    }

    #[inline(always)]
    fn set_content(&mut self, index: usize, content: u32) {
        let fingerprint = self.memory.word(index) & self.fingerprint_mask;
        self.memory.set(index, TAKEN | content << self.shape.fingerprint_bits | fingerprint);
    }

    /// The highest count or state of a cell.
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
        let content = self.content_of(word);
        let is_content = content <= self.content_max().into() && (content > 0 || H::CONTENT == Content::States);
        word == 0 || is_cell && word & TAKEN != 0 && is_content
    }

    fn put(&mut self, index: usize, word: u32) {
        self.items -= usize::from(self.memory.word(index) & TAKEN != 0);
        self.items += usize::from(word & TAKEN != 0);
        self.memory.set(index, word);
    }
}

#[cfg(test)]
mod tests;
