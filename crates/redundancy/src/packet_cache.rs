//! The packet cache: a ring of fixed size, first in, first out (RE, section 3.4).
//!
//! A block's number is that of its first granule, counted from the encoder's first block on and never reused. It
//! determines the position: number modulo the cache's granules.
//!
//! Explicit eviction is not needed: data a whole cache older than the newest block has been overwritten, as its number
//! shows. A block never wraps around the ring's end: the granules left there are skipped. The rest of a block's last
//! granule is zeros on both sides.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use crate::limits::{CACHE_BYTES_MAX, CACHE_BYTES_MIN, GRANULE_BYTES};

/// An invalid cache size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a cache has from 65536 to 268435456 bytes, not {0}: 10485760 is a good default")]
pub struct CacheSizeError(pub usize);

/// The granules of a cache of `bytes` bytes.
///
/// # Errors
/// The size is out of bounds.
pub(crate) const fn granules_of(cache_bytes: usize) -> Result<u64, CacheSizeError> {
    if cache_bytes < CACHE_BYTES_MIN || cache_bytes > CACHE_BYTES_MAX {
        return Err(CacheSizeError(cache_bytes));
    }
    Ok((cache_bytes / GRANULE_BYTES) as u64)
}

/// The granules of a block of `bytes` bytes.
pub(crate) const fn granules_for(length_bytes: usize) -> u64 {
    length_bytes.div_ceil(GRANULE_BYTES) as u64
}

/// The bytes themselves.
#[derive(Clone, Debug)]
pub(crate) struct Ring {
    bytes: Box<[u8]>,
}

impl Ring {
    /// A ring of `granules` granules, zeros.
    pub(crate) fn new(granules: u64) -> Self {
        Self { bytes: vec![0; granules as usize * GRANULE_BYTES].into_boxed_slice() }
    }

    pub(crate) const fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Limits it to the first `granules` granules.
    pub(crate) fn truncated(self, granules: u64) -> Self {
        let mut bytes = self.bytes.into_vec();
        bytes.truncate(granules as usize * GRANULE_BYTES);
        Self { bytes: bytes.into_boxed_slice() }
    }

    /// Writes a block, followed by zeros. It must fit before the end.
    #[inline(always)]
    pub(crate) fn write(&mut self, offset: usize, block: &[u8]) {
        let end = offset + block.len();
        self.bytes[offset..end].copy_from_slice(block);
        self.bytes[end..end.next_multiple_of(GRANULE_BYTES)].fill(0);
    }
}

/// The position of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Its number: the granule that it begins at, since the encoder's first.
    pub(crate) number: u64,
    /// Its first byte in the ring.
    pub(crate) offset: usize,
    /// The end of the previous turn's data, where this block wraps to the ring's start.
    pub(crate) former_end: usize,
}

/// Assigns positions to blocks, in order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    granules: u64,
    next: u64,
    /// Where the data of the turn before this ends, in bytes. Zero in the first.
    former_end: usize,
}

impl Placement {
    /// The next block gets number `next` or the next turn's first.
    pub(crate) const fn new(granules: u64, next: u64) -> Self {
        let former_end = if next < granules { 0 } else { granules as usize * GRANULE_BYTES };
        Self { granules, next, former_end }
    }

    /// The number after the last block's.
    pub(crate) const fn next(&self) -> u64 {
        self.next
    }

    /// The position of a block of this length; at most the whole ring.
    pub(crate) const fn peek(&self, length_bytes: usize) -> Place {
        let index = self.next % self.granules;
        let offset = index as usize * GRANULE_BYTES;
        if index + granules_for(length_bytes) > self.granules {
            return Place { number: self.next - index + self.granules, offset: 0, former_end: offset };
        }
        // The first block of a turn finds the former one filled to the end.
        let former_end =
            if index == 0 && self.next > 0 { self.granules as usize * GRANULE_BYTES } else { self.former_end };
        Place { number: self.next, offset, former_end }
    }

    /// A block went there.
    pub(crate) const fn take(&mut self, place: Place, length_bytes: usize) {
        self.next = place.number + granules_for(length_bytes);
        self.former_end = place.former_end;
    }
}

/// A bit for each granule of a ring.
#[derive(Clone, Debug)]
pub(crate) struct GranuleSet {
    words: Box<[u64]>,
}

impl GranuleSet {
    pub(crate) fn new(granules: u64) -> Self {
        Self { words: vec![0; granules.div_ceil(64) as usize].into_boxed_slice() }
    }

    pub(crate) fn clear(&mut self) {
        self.words.fill(0);
    }

    pub(crate) const fn has(&self, granule: usize) -> bool {
        self.words[granule / 64] >> (granule % 64) & 1 == 1
    }

    /// The bits of one word that lie in the range.
    #[inline(always)]
    const fn mask(word: usize, range: &Range<usize>) -> u64 {
        let low = range.start.saturating_sub(word * 64);
        let high = range.end.saturating_sub(word * 64);
        let up_to_high = if high >= 64 { u64::MAX } else { (1 << high) - 1 };
        let up_to_low = if low >= 64 { u64::MAX } else { (1 << low) - 1 };
        up_to_high & !up_to_low
    }

    #[inline(always)]
    pub(crate) fn has_all(&self, range: Range<usize>) -> bool {
        let words = range.start / 64..range.end.div_ceil(64);
        words.into_iter().all(|word| {
            let mask = Self::mask(word, &range);
            self.words[word] & mask == mask
        })
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, range: Range<usize>, value: bool) {
        for word in range.start / 64..range.end.div_ceil(64) {
            let mask = Self::mask(word, &range);
            if value {
                self.words[word] |= mask;
            } else {
                self.words[word] &= !mask;
            }
        }
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.words.len() * 8
    }
}

/// The granules of a ring that bytes `range` touch.
pub(crate) const fn granules_touched(range: &Range<usize>) -> Range<usize> {
    range.start / GRANULE_BYTES..range.end.div_ceil(GRANULE_BYTES)
}

/// Ranges of numbers, merged where they touch, of bounded number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ranges(Vec<Range<u64>>);

impl Ranges {
    /// Adds a range. Returns false, without adding it, when there would be more than `ranges_max`.
    pub(crate) fn add(&mut self, range: Range<u64>, ranges_max: usize) -> bool {
        if let Some(last) = self.0.last_mut()
            && range.start <= last.end
            && range.end >= last.start
        {
            *last = last.start.min(range.start)..last.end.max(range.end);
            return true;
        }
        let has_room = self.0.len() < ranges_max;
        if has_room {
            self.0.push(range);
        }
        has_room
    }

    pub(crate) fn as_slice(&self) -> &[Range<u64>] {
        &self.0
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_exceeds_the_end_begins_the_next_turn() {
        let mut placement = Placement::new(8, 0);
        for (length, number, offset, former_end) in
            [(64 * 5, 0, 0, 0), (64, 5, 320, 0), (129, 8, 0, 384), (64 * 5, 11, 192, 384), (1, 16, 0, 512)]
        {
            let place = placement.peek(length);
            assert_eq!(place, Place { number, offset, former_end });
            placement.take(place, length);
        }
        assert_eq!(placement.next(), 17);
    }

    #[test]
    fn a_set_of_granules_supports_ranges_across_words() {
        let mut set = GranuleSet::new(200);
        set.set(60..130, true);
        assert!(set.has_all(60..130) && set.has(60) && set.has(129));
        assert!(!set.has(59) && !set.has(130) && !set.has_all(59..61) && !set.has_all(0..200));
        set.set(64..65, false);
        assert!(set.has_all(60..64) && !set.has_all(63..65) && set.has_all(65..130) && set.has_all(70..70));
    }
}
