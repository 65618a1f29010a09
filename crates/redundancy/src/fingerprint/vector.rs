//! Vector implementation of SAMPLEBYTE, 64 bytes at a time.
//!
//! All bytes are classified (two shuffles look up a byte's low half, one its high half), which yields a bit for each.
//! The search from marker to marker works on these bits without data-dependent branches: it always processes the
//! maximum number of markers that fit 64 bits with the skips between them, including absent ones.

use core::arch::x86_64::{
    __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_blendv_epi8, _mm256_broadcastsi128_si256,
    _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8, _mm256_shuffle_epi8,
    _mm256_srli_epi16, _mm512_and_si512, _mm512_broadcast_i32x4, _mm512_loadu_si512, _mm512_mask_shuffle_epi8,
    _mm512_movepi8_mask, _mm512_set1_epi8, _mm512_shuffle_epi8, _mm512_srli_epi16, _mm512_test_epi8_mask,
};

use alloc::vec::Vec;

use super::window_hash::WindowHash;
use super::{Marks, SampleTable};

/// Bytes classified at once.
const STRIDE_BYTES: usize = 64;

/// A table in the form of shuffles: for each low half of a byte, the high halves below eight that form a table entry,
/// as bits; and those from eight.
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

/// The common parameters of marking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Marking<'a> {
    pub(super) halves: &'a Halves,
    pub(super) skip_bytes: usize,
    pub(super) window_bytes: usize,
    pub(super) hash: &'a WindowHash,
}

impl Marking<'_> {
    /// Marks a block of at least a window.
    #[inline(always)]
    fn mark_by(&self, classify: impl Fn(&[u8; STRIDE_BYTES]) -> u64, block: &[u8], marks: &mut Marks) {
        let mut search = MarkerSearch::new(block, self.window_bytes);
        let offsets = &mut marks.offsets;
        // The inner steps are unrolled.
        match STRIDE_BYTES.div_ceil(self.skip_bytes + 1) {
            0 | 1 => search.search_far(offsets, self.skip_bytes, &classify),
            2 => search.search_near::<2>(offsets, self.skip_bytes, &classify),
            3 | 4 => search.search_near::<4>(offsets, self.skip_bytes, &classify),
            5..=8 => search.search_near::<8>(offsets, self.skip_bytes, &classify),
            _ => search.search_near::<32>(offsets, self.skip_bytes, &classify),
        }
        marks.found = search.found;
        self.hash.finish(block, self.window_bytes, marks);
    }
}

/// The state of a search through a block.
struct MarkerSearch<'a> {
    block: &'a [u8],
    /// The number of window positions.
    candidates: usize,
    /// Markers found.
    found: usize,
    /// The bits of the next 64 bytes that are skipped.
    passed: u64,
}

/// The constants of a step.
struct Step<const STEPS: usize> {
    /// The bits behind the first marker and its skipped bytes.
    after: u64,
    /// The bits whose marker skips bytes of the next stride.
    last: u32,
}

impl<const STEPS: usize> Step<STEPS> {
    #[inline(always)]
    const fn new(skip_bytes: usize) -> Self {
        Self { after: u64::MAX << ((skip_bytes + 1) % STRIDE_BYTES), last: ((STRIDE_BYTES - 1) - skip_bytes) as u32 }
    }
}

impl<'a> MarkerSearch<'a> {
    #[inline(always)]
    const fn new(block: &'a [u8], window_bytes: usize) -> Self {
        Self { block, candidates: (block.len() + 1).saturating_sub(window_bytes), found: 0, passed: 0 }
    }

    /// A bit for each of 64 bytes that is in the table and begins a window.
    #[inline(always)]
    fn flags(&self, stride: usize, classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64) -> u64 {
        let base = stride * STRIDE_BYTES;
        let flags = if let Some(bytes) = self.block.get(base..).and_then(<[u8]>::first_chunk) {
            classify(bytes)
        } else if let Some(last) = self.block.last_chunk() {
            // The block's last 64 bytes, with those before the stride shifted out.
            classify(last) >> ((base + STRIDE_BYTES - self.block.len()) % STRIDE_BYTES)
        } else {
            let mut padded = [0; STRIDE_BYTES];
            padded[..self.block.len()].copy_from_slice(self.block);
            classify(&padded)
        };
        let left = self.candidates.saturating_sub(base);
        if left < STRIDE_BYTES { flags & ((1 << left) - 1) } else { flags }
    }

    /// Processes the next 64 bytes.
    #[inline(always)]
    fn search_near<const STEPS: usize>(
        &mut self,
        offsets: &mut Vec<u32>,
        skip_bytes: usize,
        classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64,
    ) {
        // Each step writes the next marker's position, whether there is one or not.
        let room = self.candidates.div_ceil(skip_bytes + 1) + STEPS;
        if offsets.len() < room {
            offsets.resize(room, 0);
        }
        let step = Step::<STEPS>::new(skip_bytes);
        let (strides, _) = self.block[..self.candidates].as_chunks::<STRIDE_BYTES>();
        for (stride, bytes) in strides.iter().enumerate() {
            self.step(&step, stride, classify(bytes), offsets);
        }
        if strides.len() * STRIDE_BYTES < self.candidates {
            self.step(&step, strides.len(), self.flags(strides.len(), classify), offsets);
        }
    }

    /// Extracts the markers of 64 bytes, at most `STEPS`.
    #[inline(always)]
    fn step<const STEPS: usize>(&mut self, step: &Step<STEPS>, stride: usize, flags: u64, offsets: &mut [u32]) {
        let Some(slots) = offsets.get_mut(self.found..).and_then(<[u32]>::first_chunk_mut::<STEPS>) else { return };
        let base = (stride * STRIDE_BYTES) as u32;
        let mut left = flags & !self.passed;
        let mut markers = 0;
        for slot in slots {
            let at = left.trailing_zeros();
            *slot = base + at;
            markers |= left & left.wrapping_neg();
            // Where nothing was left, nothing is.
            left &= step.after << (at % STRIDE_BYTES as u32);
        }
        self.found += markers.count_ones() as usize;
        // Only the last marker can skip bytes of the next stride.
        self.passed = (markers >> (step.last % STRIDE_BYTES as u32)).saturating_sub(1);
    }

    /// Searches for markers further apart than 64 bytes.
    #[inline(always)]
    fn search_far(
        &mut self,
        offsets: &mut Vec<u32>,
        skip_bytes: usize,
        classify: &impl Fn(&[u8; STRIDE_BYTES]) -> u64,
    ) {
        offsets.clear();
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
            self.found += 1;
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

#[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
pub(super) fn mark_avx2(marking: &Marking<'_>, block: &[u8], marks: &mut Marks) {
    let [low, high, bit] = load_tables(marking.halves);
    // No closure for `map`, which is compiled without these instructions.
    let tables =
        [_mm256_broadcastsi128_si256(low), _mm256_broadcastsi128_si256(high), _mm256_broadcastsi128_si256(bit)];
    let classify = |bytes: &[u8; STRIDE_BYTES]| {
        let (vectors, _) = bytes.as_chunks::<32>();
        u64::from(classify_32(&vectors[0], tables)) | u64::from(classify_32(&vectors[1], tables)) << 32
    };
    marking.mark_by(classify, block, marks);
}

#[inline]
#[target_feature(enable = "avx2")]
#[allow(unsafe_code)]
fn classify_32(bytes: &[u8; 32], [low, high, bit]: [__m256i; 3]) -> u32 {
    let half = _mm256_set1_epi8(0xf);
    // SAFETY: the array has the 32 bytes that are read.
    let vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) };
    // A shuffle uses the low half of a byte, and yields zero where the highest bit is set.
    let lower = _mm256_and_si256(vector, half);
    let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(vector), half);
    let row = _mm256_blendv_epi8(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, lower), vector);
    let column = _mm256_shuffle_epi8(bit, upper);
    _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(row, column), column)) as u32
}

#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,popcnt")]
#[allow(unsafe_code)]
pub(super) fn mark_avx512(marking: &Marking<'_>, block: &[u8], marks: &mut Marks) {
    let [low, high, bit] = load_tables(marking.halves);
    let [low, high, bit] = [_mm512_broadcast_i32x4(low), _mm512_broadcast_i32x4(high), _mm512_broadcast_i32x4(bit)];
    let half = _mm512_set1_epi8(0xf);
    let classify = |bytes: &[u8; STRIDE_BYTES]| {
        // SAFETY: the array has the 64 bytes that are read.
        let vector = unsafe { _mm512_loadu_si512(bytes.as_ptr().cast()) };
        let lower = _mm512_and_si512(vector, half);
        let upper = _mm512_and_si512(_mm512_srli_epi16::<4>(vector), half);
        // The lookup rows of bytes below 128, overlaid by those of the others.
        let row = _mm512_shuffle_epi8(low, lower);
        let row = _mm512_mask_shuffle_epi8(row, _mm512_movepi8_mask(vector), high, lower);
        _mm512_test_epi8_mask(row, _mm512_shuffle_epi8(bit, upper))
    };
    marking.mark_by(classify, block, marks);
}
