//! The search of a filter of four levels and eight cells a bucket with vectors of 256 bits, where the processor has them:
//! a bucket is one. The portable twin is [`MultiLevel::probe`].

use core::arch::x86_64::{
    __cpuid, __cpuid_count, __m256i, _mm256_and_si256, _mm256_castsi256_ps, _mm256_cmpeq_epi32, _mm256_movemask_ps,
    _mm256_set1_epi32, _xgetbv,
};
use core::sync::atomic::{AtomicU8, Ordering};

use super::{Holding, MultiLevel, TAKEN};
use crate::hash::KeyHash;

/// Whether the processor has AVX2 and BMI2, and the operating system keeps its registers: asked once, as asking takes long in a
/// virtual machine.
pub(super) fn is_available() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    match KNOWN.load(Ordering::Relaxed) {
        UNKNOWN => {
            let is_available = ask();
            KNOWN.store(if is_available { YES } else { NO }, Ordering::Relaxed);
            is_available
        }
        known => known == YES,
    }
}

#[allow(unsafe_code, unused_unsafe)]
fn ask() -> bool {
    const OSXSAVE_AND_AVX: u32 = 1 << 27 | 1 << 28;
    const AVX2_AND_BMI2: u32 = 1 << 5 | 1 << 8;
    /// The 128-bit and the 256-bit registers.
    const REGISTERS: u64 = 0b110;
    // SAFETY: every x86_64 has CPUID, and XGETBV where CPUID says that the operating system uses XSAVE.
    unsafe {
        if __cpuid(0).eax < 7 || __cpuid(1).ecx & OSXSAVE_AND_AVX != OSXSAVE_AND_AVX {
            return false;
        }
        #[target_feature(enable = "xsave")]
        fn kept_registers() -> u64 {
            // SAFETY: the caller knows that there is such an instruction.
            unsafe { _xgetbv(0) }
        }
        kept_registers() & REGISTERS == REGISTERS && __cpuid_count(7, 0).ebx & AVX2_AND_BMI2 == AVX2_AND_BMI2
    }
}

/// The cell with the key's fingerprint, of several the first, in a filter whose search is [`super::Search::Wide`].
#[inline(always)]
#[allow(unsafe_code)]
pub(super) fn find<H: Holding>(filter: &MultiLevel<H>, key: KeyHash) -> Option<usize> {
    debug_assert!(is_available(), "asked when the filter was made");
    // SAFETY: a filter's search is `Search::Wide` only where the processor was found to have these instructions.
    unsafe { find_avx2(filter, key) }
}

#[target_feature(enable = "avx2,bmi2")]
fn find_avx2<H: Holding>(filter: &MultiLevel<H>, key: KeyHash) -> Option<usize> {
    let mask = _mm256_set1_epi32((TAKEN | filter.fingerprint_mask) as i32);
    let pattern = _mm256_set1_epi32((TAKEN | (key.fingerprint(31) & filter.fingerprint_mask)) as i32);
    let (mut found, mut buckets) = (0, [0; 4]);
    for (level, place) in buckets.iter_mut().enumerate() {
        *place = filter.bucket(key, level);
        let cells: __m256i = zerocopy::transmute!(*filter.memory.group::<8>(*place));
        let same = _mm256_cmpeq_epi32(_mm256_and_si256(cells, mask), pattern);
        found |= (_mm256_movemask_ps(_mm256_castsi256_ps(same)) as u32) << (8 * level);
    }
    let bit = found.trailing_zeros() as usize;
    (found != 0).then(|| buckets[bit / 8 % 4] * 8 + bit % 8)
}
