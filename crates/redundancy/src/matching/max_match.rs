//! Max-Match: a fingerprint is a hook; around it the bytes are compared in both directions (seed, figure 4.5).
//!
//! Three passes over a block's markers, so that memory is asked for long before it is read: the slots, then what the slots
//! point to, then the comparisons. Of several blocks the passes take turns.

use alloc::vec::Vec;
use core::ops::Range;

use flow::table::prefetch::prefetch;

use super::{Match, Reach};
use crate::fingerprint::{Fingerprinter, Marks};
use crate::fingerprint_index::{FingerprintIndex, Hook};
use crate::limits::MATCHES_MAX;

/// What is known of one block's markers on the way through the passes, used again from block to block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Probe {
    hooks: Vec<Hook>,
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
    pub(crate) fn ask_slots(&self, marks: &Marks, probe: &mut Probe) {
        probe.hooks.clear();
        probe.hooks.extend(marks.fingerprints().iter().map(|fingerprint| {
            let hook = self.index.hook(*fingerprint);
            self.index.prefetch(hook);
            hook
        }));
    }

    /// The second pass: enters the block's markers, and asks for what the slots pointed to.
    pub(crate) fn ask_candidates(&mut self, ring: &[u8], block_offset: usize, marks: &Marks, probe: &mut Probe) {
        probe.candidates.clear();
        for (hook, at) in probe.hooks.iter().zip(marks.offsets()) {
            if let Some(offset) = self.index.replace(*hook, block_offset + *at as usize) {
                prefetch(ring, offset, 0);
                probe.candidates.push((*at, offset as u32));
            }
        }
    }

    /// The third pass: finds matches of at least `shortest` bytes in order, none overlapping another.
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

fn words(bytes: &[u8; STRIDE_BYTES]) -> [u64; 4] {
    let (words, _) = bytes.as_chunks::<8>();
    core::array::from_fn(|at| u64::from_le_bytes(words[at]))
}

/// How many bytes at the beginning are the same.
#[inline]
fn common_prefix(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[..length], &other[..length]);
    let (strides, _) = one.as_chunks::<STRIDE_BYTES>();
    let (other_strides, _) = other.as_chunks::<STRIDE_BYTES>();
    let mut same = 0;
    for (left, right) in strides.iter().zip(other_strides) {
        let [a, b, c, d] = words(left);
        let [e, f, g, h] = words(right);
        if (a ^ e) | (b ^ f) | (c ^ g) | (d ^ h) != 0 {
            break;
        }
        same += STRIDE_BYTES;
    }
    let rest = one[same..].iter().zip(&other[same..]);
    same + rest.take_while(|(left, right)| left == right).count()
}

/// How many bytes at the end are the same.
#[inline]
fn common_suffix(one: &[u8], other: &[u8]) -> usize {
    let length = one.len().min(other.len());
    let (one, other) = (&one[one.len() - length..], &other[other.len() - length..]);
    let (_, strides) = one.as_rchunks::<STRIDE_BYTES>();
    let (_, other_strides) = other.as_rchunks::<STRIDE_BYTES>();
    let mut same = 0;
    for (left, right) in strides.iter().zip(other_strides).rev() {
        if left != right {
            break;
        }
        same += STRIDE_BYTES;
    }
    let rest = one[..length - same].iter().rev().zip(other[..length - same].iter().rev());
    same + rest.take_while(|(left, right)| left == right).count()
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
