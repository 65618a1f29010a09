//! Reading bytes for SAMPLEBYTE, 64 at a time.
//!
//! All bytes are classified (two shuffles look a byte's low half up, one its high half), which leaves a bit for each. The walk
//! from marker to marker then is made of bits too, and has no branch that depends on them: of 64 bits, no more can be markers
//! than fit with what is passed over between them, so that many are taken, those that are not there included. Each step waits
//! for the one before, and so two blocks are walked side by side.

use core::arch::x86_64::{
    __m128i, _mm_loadu_si128, _mm256_and_si256, _mm256_blendv_epi8, _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8,
    _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_shuffle_epi8, _mm256_srli_epi16,
    _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_mask_shuffle_epi8, _mm512_movepi8_mask,
    _mm512_set1_epi8, _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_test_epi8_mask,
};

use super::window_hash::WindowHash;
use super::{Marks, SampleTable};

/// Bytes classified at once.
const STRIDE_BYTES: usize = 64;
/// Beyond so many bytes passed over, a walk goes from marker to marker: there is one in 64 at most.
const SKIP_BYTES_FAR: usize = STRIDE_BYTES;

/// A table as shuffles look it up: for each low half of a byte the high halves below eight with which it is in the table, as
/// bits; and those from eight.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Halves([[u8; 16]; 2]);

impl Halves {
    pub(super) const fn of(table: &SampleTable) -> Self {
        let mut halves = [[0; 16]; 2];
        let mut byte = 0;
        while byte < 256 {
            if table.has(byte as u8) {
                halves[byte >> 7][byte & 0xf] |= 1 << (byte >> 4 & 7);
            }
            byte += 1;
        }
        Self(halves)
    }
}

/// What all blocks are marked by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking<'a> {
    pub(super) halves: &'a Halves,
    pub(super) skip_bytes: usize,
    pub(super) window_bytes: usize,
    pub(super) hash: &'a WindowHash,
}

impl Marking<'_> {
    /// Marks blocks side by side. Each has a window at least.
    #[inline(always)]
    fn mark_by<const N: usize>(
        &self,
        classify: impl Fn(&[u8; STRIDE_BYTES]) -> u64,
        blocks: [&[u8]; N],
        marks: &mut [&mut Marks; N],
    ) {
        let mut walks = core::array::from_fn(|lane| Walk::new(blocks[lane], self.window_bytes));
        let offsets = marks.each_mut().map(|marks| &mut marks.offsets);
        // Branches that are the same for all blocks, so that the steps within are unrolled.
        match STRIDE_BYTES.div_ceil(self.skip_bytes + 1) {
            0 | 1 => {}
            2 => walk_all::<N, 2>(&mut walks, offsets, self.skip_bytes, &classify),
            3 | 4 => walk_all::<N, 4>(&mut walks, offsets, self.skip_bytes, &classify),
            5..=8 => walk_all::<N, 8>(&mut walks, offsets, self.skip_bytes, &classify),
            _ => walk_all::<N, 32>(&mut walks, offsets, self.skip_bytes, &classify),
        }
        for (walk, marks) in walks.iter_mut().zip(marks) {
            if self.skip_bytes >= SKIP_BYTES_FAR {
                walk.walk_far(&mut marks.offsets, self.skip_bytes, &classify);
            }
            self.hash.finish(walk.block, self.window_bytes, marks);
        }
    }
}

/// A block that is walked through.
struct Walk<'a> {
    block: &'a [u8],
    /// Where the last window begins, and one more.
    candidates: usize,
    /// Markers found.
    found: usize,
    /// Bits of the next 64 bytes that are passed over.
    passed: u64,
}

#[inline(always)]
fn walk_all<const N: usize, const STEPS: usize>(
    walks: &mut [Walk<'_>; N],
    mut offsets: [&mut alloc::vec::Vec<u32>; N],
    skip_bytes: usize,
    classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64,
) {
    for (walk, offsets) in walks.iter().zip(&mut offsets) {
        // A step writes where the next marker would be, whether it is one or not.
        offsets.resize(walk.candidates.div_ceil(skip_bytes + 1) + STEPS, 0);
    }
    let together = walks.iter().map(|walk| walk.candidates / STRIDE_BYTES).min().unwrap_or(0);
    for stride in 0..together {
        for (walk, offsets) in walks.iter_mut().zip(&mut offsets) {
            walk.step::<STEPS>(stride, offsets, skip_bytes, classify);
        }
    }
    for (walk, offsets) in walks.iter_mut().zip(&mut offsets) {
        for stride in together..walk.candidates.div_ceil(STRIDE_BYTES) {
            walk.step::<STEPS>(stride, offsets, skip_bytes, classify);
        }
        offsets.truncate(walk.found);
    }
}

impl<'a> Walk<'a> {
    #[inline(always)]
    const fn new(block: &'a [u8], window_bytes: usize) -> Self {
        Self { block, candidates: (block.len() + 1).saturating_sub(window_bytes), found: 0, passed: 0 }
    }

    /// A bit for each of 64 bytes that is in the table and at which a window begins.
    #[inline(always)]
    fn flags(&self, stride: usize, classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64) -> u64 {
        let base = stride * STRIDE_BYTES;
        let flags = if let Some(bytes) = self.block.get(base..).and_then(<[u8]>::first_chunk) {
            classify(bytes)
        } else if let Some(last) = self.block.last_chunk() {
            // The block's last 64 bytes, those before the stride shifted out.
            classify(last) >> ((base + STRIDE_BYTES - self.block.len()) % STRIDE_BYTES)
        } else {
            let mut padded = [0; STRIDE_BYTES];
            padded[..self.block.len()].copy_from_slice(self.block);
            classify(&padded)
        };
        let left = self.candidates.saturating_sub(base);
        if left < STRIDE_BYTES { flags & ((1 << left) - 1) } else { flags }
    }

    /// Takes the markers of 64 bytes, of which there are at most `STEPS`.
    #[inline(always)]
    fn step<const STEPS: usize>(
        &mut self,
        stride: usize,
        offsets: &mut [u32],
        skip_bytes: usize,
        classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64,
    ) {
        const { assert!(STEPS.is_power_of_two()) };
        let mut left = self.flags(stride, classify) & !self.passed;
        let Some(slots) = offsets.get_mut(self.found..).and_then(<[u32]>::first_chunk_mut::<STEPS>) else { return };
        let after = u64::MAX << (skip_bytes + 1) % STRIDE_BYTES;
        let (mut taken, mut markers) = (0, 0);
        for _ in 0..STEPS {
            let at = left.trailing_zeros();
            slots[taken % STEPS] = (stride * STRIDE_BYTES) as u32 + at;
            taken += usize::from(left != 0);
            markers |= left & left.wrapping_neg();
            left &= after << (at % STRIDE_BYTES as u32);
        }
        self.found += taken;
        // Of the last marker alone something may be passed over in what follows.
        self.passed = (markers >> ((STRIDE_BYTES - 1 - skip_bytes) % STRIDE_BYTES)).saturating_sub(1);
    }

    /// Goes from marker to marker, more than 64 bytes at a time.
    #[inline(always)]
    fn walk_far(
        &mut self,
        offsets: &mut alloc::vec::Vec<u32>,
        skip_bytes: usize,
        classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64,
    ) {
        let mut at = 0;
        while at < self.candidates {
            let stride = at / STRIDE_BYTES;
            let flags = self.flags(stride, classify) & u64::MAX << (at % STRIDE_BYTES);
            if flags == 0 {
                at = (stride + 1) * STRIDE_BYTES;
                continue;
            }
            at = stride * STRIDE_BYTES + flags.trailing_zeros() as usize;
            offsets.push(at as u32);
            at += skip_bytes + 1;
        }
    }
}

const BIT_OF_HALF: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];

#[inline(always)]
#[allow(unsafe_code)]
fn load_tables(Halves(halves): &Halves) -> [__m128i; 3] {
    // SAFETY: each array has the sixteen bytes that are read, and SSE2 is part of x86_64.
    [&halves[0], &halves[1], &BIT_OF_HALF].map(|table| unsafe { _mm_loadu_si128(table.as_ptr().cast::<__m128i>()) })
}

#[target_feature(enable = "avx2,bmi1,bmi2")]
#[allow(unsafe_code)]
pub(super) fn mark_avx2<const N: usize>(marking: &Marking<'_>, blocks: [&[u8]; N], marks: &mut [&mut Marks; N]) {
    let [low, high, bit] = load_tables(marking.halves).map(|table| _mm256_broadcastsi128_si256(table));
    let half = _mm256_set1_epi8(0xf);
    let classify = |bytes: &[u8; STRIDE_BYTES]| {
        let (vectors, _) = bytes.as_chunks::<32>();
        let [lower, upper] = [&vectors[0], &vectors[1]].map(|bytes| {
            // SAFETY: the array has the 32 bytes that are read.
            let vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
            // A shuffle looks at the low half of a byte, and gives zero where the highest bit is set.
            let lower = _mm256_and_si256(vector, half);
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(vector), half);
            let [low, high] = [low, high].map(|rows| _mm256_shuffle_epi8(rows, lower));
            let column = _mm256_shuffle_epi8(bit, upper);
            let row = _mm256_blendv_epi8(low, high, vector);
            u64::from(_mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(row, column), column)) as u32)
        });
        lower | upper << 32
    };
    marking.mark_by(classify, blocks, marks);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2")]
#[allow(unsafe_code)]
pub(super) fn mark_avx512<const N: usize>(marking: &Marking<'_>, blocks: [&[u8]; N], marks: &mut [&mut Marks; N]) {
    let [low, high, bit] = load_tables(marking.halves).map(|table| _mm512_broadcast_i32x4(table));
    let half = _mm512_set1_epi8(0xf);
    let classify = |bytes: &[u8; STRIDE_BYTES]| {
        // SAFETY: the array has the 64 bytes that are read.
        let vector = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let lower = _mm512_and_si512(vector, half);
        let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(vector), half);
        // The rows of bytes below 128, and over them those of the others.
        let row = _mm512_shuffle_epi8(low, lower);
        let row = _mm512_mask_shuffle_epi8(row, _mm512_movepi8_mask(vector), high, lower);
        _mm512_test_epi8_mask(row, _mm512_shuffle_epi8(bit, upper))
    };
    marking.mark_by(classify, blocks, marks);
}
