//! Finds runs of a block in the cache: around fingerprints ([`max_match`]) or chunk by chunk ([`chunk_match`]).

pub(crate) mod chunk_match;
pub(crate) mod max_match;

use core::ops::Range;

use crate::limits::GRANULE_BYTES;
use crate::packet_cache::{GranuleSet, Place, granules_for, granules_touched};

/// A run of the block that is in the cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Match {
    /// Its start in the block.
    pub(crate) start: usize,
    pub(crate) length: usize,
    /// Its position in the cache: the numbering of granules, in bytes. From the block's own position on it lies in the
    /// block itself.
    pub(crate) source: u64,
}

/// The part of the ring that a block may point to.
///
/// ```text
///   0        place                     former end      the ring's end
///   |─────────|▒▒▒▒▒▒▒▒▒|┄┄┄┄┄┄┄┄|───────────|···········|
///    this turn  the block  margin  former turn   passed over
/// ```
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reach<'a> {
    pub(crate) place: Place,
    ring_bytes: usize,
    /// The start of the former turn's data that may be referenced.
    former_start: usize,
    /// The granules that the decoder holds.
    usable: &'a GranuleSet,
}

impl<'a> Reach<'a> {
    pub(crate) const fn new(
        place: Place,
        block_bytes: usize,
        [ring_bytes, margin_bytes]: [usize; 2],
        usable: &'a GranuleSet,
    ) -> Self {
        let former_start = place.offset + granules_for(block_bytes) as usize * GRANULE_BYTES + margin_bytes;
        Self { place, ring_bytes, former_start, usable }
    }

    /// The run of ring bytes around `offset` that may be referenced, without granules that the decoder lacks.
    #[inline(always)]
    pub(crate) const fn run_of(&self, offset: usize) -> Option<Range<usize>> {
        if offset < self.place.offset {
            Some(0..self.place.offset)
        } else if offset >= self.former_start && offset < self.place.former_end {
            Some(self.former_start..self.place.former_end)
        } else {
            None
        }
    }

    /// The position of the block itself.
    #[inline]
    pub(crate) const fn base(&self) -> u64 {
        self.place.number * GRANULE_BYTES as u64
    }

    /// The offset in the block itself of a ring position before byte `at`, if it is there: repetitions within a block
    /// need no cache.
    #[inline]
    pub(crate) const fn own_offset(&self, offset: usize, at: usize) -> Option<usize> {
        match offset.checked_sub(self.place.offset) {
            Some(own) if own < at => Some(own),
            _ => None,
        }
    }

    /// The position of the data in the ring at `offset`.
    #[inline(always)]
    pub(crate) const fn position(&self, offset: usize) -> u64 {
        let turn = self.place.number * GRANULE_BYTES as u64 - self.place.offset as u64;
        if offset < self.place.offset { turn + offset as u64 } else { turn + offset as u64 - self.ring_bytes as u64 }
    }

    /// The part of `range` around `anchor` whose granules the decoder holds.
    #[inline(always)]
    pub(crate) fn usable_around(&self, anchor: usize, range: Range<usize>) -> Range<usize> {
        let touched = granules_touched(&range);
        if self.usable.has_all(touched.clone()) {
            return range;
        }
        let home = anchor / GRANULE_BYTES;
        if !self.usable.has(home) {
            return anchor..anchor;
        }
        let first = (touched.start..home).rev().take_while(|granule| self.usable.has(*granule)).last().unwrap_or(home);
        let end = (home..touched.end).find(|granule| !self.usable.has(*granule)).unwrap_or(touched.end);
        range.start.max(first * GRANULE_BYTES)..range.end.min(end * GRANULE_BYTES)
    }
}
