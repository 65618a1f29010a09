//! Max-Match: a fingerprint is an anchor, around which bytes are compared in both directions (RE, figure 4.5).
//!
//! Three passes over a block's markers prefetch memory long before its use: the slots, then the candidates of the
//! slots, then the comparisons. The passes of several blocks are interleaved.

use alloc::vec::Vec;
use core::ops::Range;

use flow::table::prefetch::prefetch;

use super::{Match, Reach};
use crate::fingerprint::{Fingerprinter, Marks};
use crate::fingerprint_index::FingerprintIndex;
use crate::limits::MATCHES_MAX;

/// The state of one block's markers between the passes, reused from block to block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Markers whose slot has the same tag, and the slot's position in the ring.
    candidates: Vec<(u32, u32)>,
}

/// The finder.
#[derive(Clone, Debug)]
pub(crate) struct MaxMatch {
    index: FingerprintIndex,
}

impl MaxMatch {
    pub(crate) const fn new(index: FingerprintIndex) -> Self {
        Self { index }
    }

    pub(crate) const fn memory_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// The first pass: prefetches the slots.
    #[inline(always)]
    pub(crate) fn prefetch_slots(&self, marks: &Marks) {
        for fingerprint in marks.fingerprints() {
            self.index.prefetch(self.index.slot_key(*fingerprint));
        }
    }

    /// The second pass: enters the block's markers, and prefetches the candidates of the slots.
    #[inline(always)]
    pub(crate) fn ask_candidates(&mut self, ring: &[u8], block_offset: usize, marks: &Marks, probe: &mut Probe) {
        probe.candidates.clear();
        for (fingerprint, at) in marks.fingerprints().iter().zip(marks.offsets()) {
            let slot_key = self.index.slot_key(*fingerprint);
            if let Some(offset) = self.index.replace(slot_key, block_offset + *at as usize) {
                prefetch(ring, offset, 0);
                probe.candidates.push((*at, offset as u32));
            }
        }
    }

    /// The third pass: finds matches of at least `shortest` bytes in order, none overlapping another.
    #[inline(always)]
    pub(crate) fn find(
        ring: &[u8],
        reach: &Reach<'_>,
        (block, probe): (&[u8], &Probe),
        shortest: usize,
        matches: &mut Vec<Match>,
    ) {
        let mut covered = 0;
        for (at, offset) in &probe.candidates {
            let (at, offset) = (*at as usize, *offset as usize);
            if at < covered || matches.len() == MATCHES_MAX {
                continue;
            }
            let Some(run) = reach.run_of(offset) else {
                if let Some(own) = reach.own_offset(offset, at) {
                    let found = within(block, covered..at, own, reach.base());
                    if found.length >= shortest {
                        covered = found.start + found.length;
                        matches.push(found);
                    }
                }
                continue;
            };
            let forward = common_prefix(&block[at..], &ring[offset..run.end]);
            if forward == 0 {
                continue;
            }
            let backward = common_suffix(&block[covered..at], &ring[run.start..offset]);
            let found = reach.usable_around(offset, offset - backward..offset + forward);
            if found.len() < shortest {
                continue;
            }
            let start = at + found.start - offset;
            matches.push(Match { start, length: found.len(), source: reach.position(found.start) });
            covered = start + found.len();
        }
    }

    /// Enters the markers of data that is already in the ring.
    pub(crate) fn enter(&mut self, fingerprinter: &Fingerprinter, ring: &[u8], offset: usize, marks: &mut Marks) {
        fingerprinter.mark(ring, marks);
        for (fingerprint, at) in marks.fingerprints().iter().zip(marks.offsets()) {
            let slot_key = self.index.slot_key(*fingerprint);
            self.index.replace(slot_key, offset + *at as usize);
        }
    }
}

/// The run around byte `free.end` of the block that equals the one around its earlier byte `own`. The two may overlap:
/// a decoder copies from the front.
fn within(block: &[u8], free: Range<usize>, own: usize, base: u64) -> Match {
    let forward = common_prefix(&block[free.end..], &block[own..]);
    let backward = common_suffix(&block[free.clone()], &block[..own]);
    Match { start: free.end - backward, length: backward + forward, source: base + (own - backward) as u64 }
}

/// Bytes compared at once.
const STRIDE_BYTES: usize = 32;

/// The offset at which two strides begin to differ.
#[inline(always)]
fn first_difference(one: &[u8; STRIDE_BYTES], other: &[u8; STRIDE_BYTES]) -> Option<usize> {
    difference(one, other, |word| u64::from_le_bytes(*word), 0..STRIDE_BYTES / 8)
}

/// The same from their ends.
#[inline(always)]
fn last_difference(one: &[u8; STRIDE_BYTES], other: &[u8; STRIDE_BYTES]) -> Option<usize> {
    difference(one, other, |word| u64::from_be_bytes(*word), (0..STRIDE_BYTES / 8).rev())
}

/// The number of bytes before two strides differ, with their words in this order.
#[inline(always)]
fn difference(
    one: &[u8; STRIDE_BYTES],
    other: &[u8; STRIDE_BYTES],
    read: impl Fn(&[u8; 8]) -> u64,
    order: impl Iterator<Item = usize>,
) -> Option<usize> {
    if one == other {
        return None;
    }
    let [(one, _), (other, _)] = [one, other].map(|stride| stride.as_chunks::<8>());
    let mut same = 0;
    for at in order {
        let differing = read(&one[at]) ^ read(&other[at]);
        if differing != 0 {
            same += differing.trailing_zeros() as usize / 8;
            break;
        }
        same += 8;
    }
    Some(same)
}

/// The number of equal bytes at the beginning.
#[inline(always)]
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[..length], &other[..length]);
    let (strides, rest) = one.as_chunks::<STRIDE_BYTES>();
    let (other_strides, other_rest) = other.as_chunks::<STRIDE_BYTES>();
    for (number, (stride, other)) in strides.iter().zip(other_strides).enumerate() {
        if let Some(same) = first_difference(stride, other) {
            return number * STRIDE_BYTES + same;
        }
    }
    // A remainder shorter than a stride is compared as part of an overlapping stride.
    match (one.last_chunk(), other.last_chunk()) {
        (Some(last), Some(other_last)) => {
            first_difference(last, other_last).map_or(length, |same| length - STRIDE_BYTES + same)
        }
        _ => rest.iter().zip(other_rest).take_while(|(one, other)| one == other).count(),
    }
}

/// The number of equal bytes at the end.
#[inline(always)]
fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[one.len() - length..], &other[other.len() - length..]);
    let (rest, strides) = one.as_rchunks::<STRIDE_BYTES>();
    let (other_rest, other_strides) = other.as_rchunks::<STRIDE_BYTES>();
    for (number, (stride, other)) in strides.iter().zip(other_strides).rev().enumerate() {
        if let Some(same) = last_difference(stride, other) {
            return number * STRIDE_BYTES + same;
        }
    }
    match (one.first_chunk(), other.first_chunk()) {
        (Some(first), Some(other_first)) => {
            last_difference(first, other_first).map_or(length, |same| length - STRIDE_BYTES + same)
        }
        _ => rest.iter().rev().zip(other_rest.iter().rev()).take_while(|(one, other)| one == other).count(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_ends_are_found_to_the_byte() {
        let one: [u8; 150] = core::array::from_fn(|at| (at * 7) as u8);
        for differing in 0..150 {
            let mut other = one;
            other[differing] ^= 1;
            assert_eq!(common_prefix(&one, &other), differing);
            assert_eq!(common_suffix(&one, &other), 149 - differing);
        }
        for length in 0..70 {
            for differing in 0..length {
                let mut other = one;
                other[differing] ^= 0x80;
                let (one, other) = (&one[..length], &other[..length]);
                assert_eq!((common_prefix(one, other), common_suffix(one, other)), (differing, length - 1 - differing));
            }
        }
        assert_eq!((common_prefix(&one, &one[..77]), common_suffix(&one, &one[10..])), (77, 140));
        assert_eq!((common_prefix(&[], &one), common_suffix(&one, &[])), (0, 0));
    }

    #[test]
    fn a_run_within_the_block_may_overlap_its_source() {
        let mut block = [7; 200];
        block[..20].copy_from_slice(&core::array::from_fn::<u8, 20, _>(|at| at as u8));
        // From byte 21 on every byte equals byte 20, at distance one.
        assert_eq!(within(&block, 0..60, 59, 640), Match { start: 21, length: 179, source: 640 + 20 });
        assert_eq!(within(&block, 50..60, 59, 640), Match { start: 50, length: 150, source: 640 + 49 });
    }
}
