//! Reading bytes for SAMPLEBYTE, one by one or 32 at a time.
//!
//! The vectors classify all bytes (two shuffles look a byte's low half up, one its high half) and leave a bit for each; the
//! walk from marker to marker then reads bits. What is passed over is classified for nothing, and still that is faster: a walk
//! that depends on each byte's lookup waits for every one. Both ways choose the same markers.

use super::{Marks, SampleTable};

/// How bytes are read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Scan(Way);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Portable,
    /// Only [`Scan::detect`] makes this, where the processor and the system have AVX2.
    #[cfg(target_arch = "x86_64")]
    Avx2,
}

impl Scan {
    /// One by one, on every processor.
    pub const PORTABLE: Self = Self(Way::Portable);

    /// The fastest that this processor knows.
    #[must_use]
    pub fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if avx2::is_there() {
            return Self(Way::Avx2);
        }
        Self::PORTABLE
    }

    /// The name of what it uses.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Way::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => "AVX2",
        }
    }

    /// Marks the bytes of `candidates` that are in the table, `skip_bytes` passed over after each.
    #[inline]
    pub(super) fn mark(self, table: &SampleTable, candidates: &[u8], skip_bytes: usize, marks: &mut Marks) {
        match self.0 {
            Way::Portable => mark_one_by_one(table, candidates, skip_bytes, marks),
            #[cfg(target_arch = "x86_64")]
            Way::Avx2 => {
                avx2::classify(table, candidates, &mut marks.scratch);
                walk(candidates.len(), skip_bytes, marks);
            }
        }
    }
}

fn mark_one_by_one(table: &SampleTable, candidates: &[u8], skip_bytes: usize, marks: &mut Marks) {
    let mut at = 0;
    while let Some(found) = candidates.get(at..).and_then(|rest| rest.iter().position(|byte| table.has(*byte))) {
        marks.offsets.push((at + found) as u32);
        at += found + skip_bytes + 1;
    }
}

/// Goes from set bit to set bit. Behind the bits of `length` bytes there are eight bytes of zeros at least.
fn walk(length: usize, skip_bytes: usize, marks: &mut Marks) {
    /// Bits that a read which begins anywhere in a byte is sure to have.
    const SURE_BITS: usize = 57;
    let Marks { offsets, scratch: bits, .. } = marks;
    let mut at = 0;
    while at < length {
        let Some(bytes) = bits.get(at / 8..at / 8 + 8) else { return };
        let word = u64::from_le_bytes(bytes.try_into().expect("it is cut to eight bytes")) >> (at % 8);
        if word == 0 {
            at += SURE_BITS;
            continue;
        }
        at += word.trailing_zeros() as usize;
        offsets.push(at as u32);
        at += skip_bytes + 1;
    }
}

#[cfg(target_arch = "x86_64")]
mod avx2 {
    use core::arch::x86_64::{
        __cpuid, __cpuid_count, __m128i, __m256i, _mm_loadu_si128, _mm256_and_si256, _mm256_blendv_epi8,
        _mm256_broadcastsi128_si256, _mm256_cmpeq_epi8, _mm256_loadu_si256, _mm256_movemask_epi8, _mm256_set1_epi8,
        _mm256_shuffle_epi8, _mm256_srli_epi16, _xgetbv,
    };

    use alloc::vec::Vec;

    use super::SampleTable;

    const VECTOR_BYTES: usize = 32;
    /// The walk reads so many bytes of bits at once.
    const SLACK_BYTES: usize = 8;

    /// Whether the processor has AVX2 and the system keeps its registers (Intel SDM volume 1, section 14.3).
    #[allow(unsafe_code, unused_unsafe)]
    pub(super) fn is_there() -> bool {
        const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
        const AVX2: u32 = 1 << 5;
        const XMM_AND_YMM: u64 = 0b110;
        // SAFETY: every x86_64 processor has the instruction. Newer compilers know.
        let [most, features, more_features] = unsafe { [__cpuid(0).eax, __cpuid(1).ecx, __cpuid_count(7, 0).ebx] };
        if most < 7 || features & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
            return false;
        }
        // SAFETY: OSXSAVE says that the system has enabled the instruction.
        let kept = unsafe { enabled_registers() };
        kept & XMM_AND_YMM == XMM_AND_YMM && more_features & AVX2 != 0
    }

    /// # Safety
    /// The processor must have OSXSAVE set.
    #[target_feature(enable = "xsave")]
    #[allow(unsafe_code)]
    unsafe fn enabled_registers() -> u64 {
        // SAFETY: register 0 is there where the instruction is, and that is the caller's promise.
        unsafe { _xgetbv(0) }
    }

    /// For each low half of a byte the high halves below eight with which it is in the table, as bits; and those from eight.
    fn halves(table: &SampleTable) -> [[u8; 16]; 2] {
        let mut halves = [[0; 16]; 2];
        for byte in table.bytes() {
            halves[usize::from(byte >> 7)][usize::from(byte & 0xf)] |= 1 << (byte >> 4 & 7);
        }
        halves
    }

    /// A bit for each of `bytes` that is in the table, and zeros behind them.
    #[allow(unsafe_code)]
    pub(super) fn classify(table: &SampleTable, bytes: &[u8], bits: &mut Vec<u8>) {
        bits.clear();
        bits.resize(bytes.len().div_ceil(VECTOR_BYTES) * VECTOR_BYTES / 8 + SLACK_BYTES, 0);
        // SAFETY: only a `Scan` that found AVX2 calls this.
        unsafe { classify_vectors(&halves(table), bytes, bits) }
    }

    /// # Safety
    /// The processor must have AVX2.
    #[target_feature(enable = "avx2")]
    #[allow(unsafe_code)]
    unsafe fn classify_vectors(halves: &[[u8; 16]; 2], bytes: &[u8], bits: &mut [u8]) {
        const BIT_OF_HALF: [u8; 16] = [1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128];
        // SAFETY: each array has the sixteen bytes that are read.
        let [low, high, bit] = unsafe {
            [&halves[0], &halves[1], &BIT_OF_HALF]
                .map(|table| _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast::<__m128i>())))
        };
        let half = _mm256_set1_epi8(0xf);
        let classify = |bytes: &[u8; VECTOR_BYTES]| {
            // SAFETY: the array has the 32 bytes that are read.
            let vector = unsafe { _mm256_loadu_si256(bytes.as_ptr().cast::<__m256i>()) };
            // A shuffle looks at the low half of a byte, and gives zero where the highest bit is set.
            let lower = _mm256_and_si256(vector, half);
            let upper = _mm256_and_si256(_mm256_srli_epi16::<4>(vector), half);
            let row = _mm256_blendv_epi8(_mm256_shuffle_epi8(low, lower), _mm256_shuffle_epi8(high, lower), vector);
            let column = _mm256_shuffle_epi8(bit, upper);
            _mm256_movemask_epi8(_mm256_cmpeq_epi8(_mm256_and_si256(row, column), column)) as u32
        };
        let (vectors, rest) = bytes.as_chunks::<VECTOR_BYTES>();
        let (words, tail) = bits.as_chunks_mut::<4>();
        for (word, vector) in words.iter_mut().zip(vectors) {
            *word = classify(vector).to_le_bytes();
        }
        if !rest.is_empty() {
            let mut padded = [0; VECTOR_BYTES];
            padded[..rest.len()].copy_from_slice(rest);
            let mask = (1_u32 << rest.len()) - 1;
            words[vectors.len()] = (classify(&padded) & mask).to_le_bytes();
        }
        debug_assert!(tail.is_empty());
    }
}
