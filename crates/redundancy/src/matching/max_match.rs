//! Max-Match: a fingerprint is a hook; around it the bytes are compared in both directions (seed, figure 4.5).
//!
//! Three passes over a block's markers, so that memory is asked for long before it is read: the slots, then what the slots
//! point to, then the comparisons. Of several blocks the passes take turns.

use alloc::vec::Vec;
use core::ops::Range;

use flow::table::prefetch::prefetch;

use super::{Match, Reach};
use crate::fingerprint::{Fingerprinter, Marks};
use crate::fingerprint_index::FingerprintIndex;
use crate::limits::MATCHES_MAX;

/// What is known of one block's markers on the way through the passes, used again from block to block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    /// Markers whose slot had the same tag, and where in the ring it points.
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

    /// The first pass: asks for the slots.
    #[inline(always)]
    pub(crate) fn ask_slots(&self, marks: &Marks) {
        for fingerprint in marks.fingerprints() {
            self.index.prefetch(self.index.hook(*fingerprint));
        }
    }

    /// The second pass: enters the block's markers, and asks for what the slots pointed to.
    #[inline(always)]
    pub(crate) fn ask_candidates(&mut self, ring: &[u8], block_offset: usize, marks: &Marks, probe: &mut Probe) {
        probe.candidates.clear();
        for (fingerprint, at) in marks.fingerprints().iter().zip(marks.offsets()) {
            let hook = self.index.hook(*fingerprint);
            if let Some(offset) = self.index.replace(hook, block_offset + *at as usize) {
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

    /// Enters the markers of what is in the ring already.
    pub(crate) fn enter(&mut self, fingerprinter: &Fingerprinter, ring: &[u8], offset: usize, marks: &mut Marks) {
        fingerprinter.mark(ring, marks);
        for (fingerprint, at) in marks.fingerprints().iter().zip(marks.offsets()) {
            let hook = self.index.hook(*fingerprint);
            self.index.replace(hook, offset + *at as usize);
        }
    }
}

/// The run around byte `free.end` of the block that is the same as the one around its byte `own`, before it. The two may overlap:
/// a decoder copies from the front.
fn within(block: &[u8], free: Range<usize>, own: usize, base: u64) -> Match {
    let forward = common_prefix(&block[free.end..], &block[own..]);
    let backward = common_suffix(&block[free.clone()], &block[..own]);
    Match { start: free.end - backward, length: backward + forward, source: base + (own - backward) as u64 }
}

/// Bytes compared at once.
const STRIDE_BYTES: usize = 32;

/// Where two strides begin to differ.
#[inline(always)]
fn first_difference(one: &[u8; STRIDE_BYTES], other: &[u8; STRIDE_BYTES]) -> Option<usize> {
    difference(one, other, |word| u64::from_le_bytes(*word), 0..STRIDE_BYTES / 8)
}

/// The same from their ends.
#[inline(always)]
fn last_difference(one: &[u8; STRIDE_BYTES], other: &[u8; STRIDE_BYTES]) -> Option<usize> {
    difference(one, other, |word| u64::from_be_bytes(*word), (0..STRIDE_BYTES / 8).rev())
}

/// How many bytes come before two strides differ, their words taken in this order.
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

/// How many bytes at the beginning are the same.
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
    // What is less than a stride is compared as part of one that begins earlier.
    match (one.last_chunk(), other.last_chunk()) {
        (Some(last), Some(other_last)) => {
            first_difference(last, other_last).map_or(length, |same| length - STRIDE_BYTES + same)
        }
        _ => rest.iter().zip(other_rest).take_while(|(one, other)| one == other).count(),
    }
}

/// How many bytes at the end are the same.
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
    fn a_run_within_the_block_may_overlap_what_it_repeats() {
        let mut block = [7; 200];
        block[..20].copy_from_slice(&core::array::from_fn::<u8, 20, _>(|at| at as u8));
        // From byte 21 on all is what byte 20 is, and stands one byte before.
        assert_eq!(within(&block, 0..60, 59, 640), Match { start: 21, length: 179, source: 640 + 20 });
        assert_eq!(within(&block, 50..60, 59, 640), Match { start: 50, length: 150, source: 640 + 49 });
    }
}
