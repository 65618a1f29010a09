//! A filter's cells as a search finds them: levels, buckets and what is in them.

use crate::shape::{Insertion, LEVELS_MAX};

/// The bit that says that a cell is taken.
pub(super) const TAKEN: u32 = 1 << 31;
/// Keys whose buckets are fetched before the first of them is looked up.
pub(super) const BATCH_KEYS: usize = 32;

/// One level of a filter.
#[derive(Clone, Copy, Default)]
pub(super) struct Level {
    pub(super) buckets: u32,
    /// The number of its first bucket in all.
    pub(super) first: u32,
}

/// What a key's buckets look like: a bit a cell, those of the first level's bucket lowest, as many a level as there are
/// words from a bucket to the next.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Cells that are taken and have the key's fingerprint.
    pub(super) matches: u64,
    /// Cells that are taken.
    pub(super) taken: u64,
    /// The first word of each level's bucket.
    pub(super) places: [u64; LEVELS_MAX as usize],
}

/// Where a key is, or goes to: the index of a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// The cell with its fingerprint: of several the first.
    Found(usize),
    /// None has it, and this one is for a new item.
    Free(usize),
    /// None has it, and all are taken.
    None,
}

/// The free cells that a new item may take the first of, of all free cells: a bit each, as in a [`Probe`].
#[inline(always)]
pub(super) fn vacancies(insertion: Insertion, stride: usize, free: u64) -> u64 {
    match insertion {
        Insertion::FirstAvailable => free,
        Insertion::LeastLoad => free & least_loaded(stride, free),
    }
}

/// The bits of the bucket with the most free cells; of several the first.
#[inline(always)]
fn least_loaded(stride: usize, free: u64) -> u64 {
    let of_bucket = (1 << stride) - 1_u64;
    let (mut best, mut best_free) = (0, 0);
    // Behind the last free cell nothing is loaded the least.
    for shift in (0..u64::BITS).step_by(stride).take_while(|shift| free >> shift != 0) {
        let free = (free >> shift & of_bucket).count_ones();
        if free > best_free {
            (best, best_free) = (of_bucket << shift, free);
        }
    }
    best
}
