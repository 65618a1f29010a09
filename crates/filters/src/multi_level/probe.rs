//! The result of reading a key's buckets: levels, cells, and which of them are taken.

use crate::shape::{Insertion, LEVELS_MAX};

/// The bit that marks a cell as taken.
pub(super) const TAKEN: u32 = 1 << 31;
/// The number of keys whose buckets are prefetched before the first lookup of a batch.
pub(super) const BATCH_KEYS: usize = 32;

/// One level of a filter.
#[derive(Clone, Copy, Default)]
pub(super) struct Level {
    pub(super) buckets: u32,
    /// The index of its first bucket among all levels.
    pub(super) first: u32,
}

/// A snapshot of a key's buckets with a bit for each cell. The lowest bits belong to the first level; a level has as
/// many bits as its buckets have words.
#[derive(Clone, Copy)]
pub(super) struct Probe {
    /// Cells that are taken and have the key's fingerprint.
    pub(super) matches: u64,
    /// Cells that are taken.
    pub(super) taken: u64,
    /// The first word of each level's bucket.
    pub(super) places: [u64; LEVELS_MAX as usize],
}

/// The index of a key's cell, or of a cell for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Spot {
    /// The cell with its fingerprint: the first of several.
    Found(usize),
    /// No cell matches; this one is for a new item.
    Free(usize),
    /// No cell matches, and all are taken.
    None,
}

/// The free cells of which a new item takes the first: a bit each, as in a [`Probe`].
#[inline(always)]
pub(super) fn vacancies(insertion: Insertion, stride: usize, free: u64) -> u64 {
    match insertion {
        Insertion::FirstAvailable => free,
        Insertion::LeastLoad => free & least_loaded(stride, free),
    }
}

/// The bits of the bucket with the most free cells, the first of several.
#[inline(always)]
fn least_loaded(stride: usize, free: u64) -> u64 {
    let of_bucket = (1 << stride) - 1_u64;
    let (mut best, mut best_free) = (0, 0);
    // Buckets behind the last free cell are full.
    for shift in (0..u64::BITS).step_by(stride).take_while(|shift| free >> shift != 0) {
        let free = (free >> shift & of_bucket).count_ones();
        if free > best_free {
            (best, best_free) = (of_bucket << shift, free);
        }
    }
    best
}
