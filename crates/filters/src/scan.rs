//! Compares all cells of a bucket at once.

/// The cells that equal `pattern` in the bits of `mask`: the lowest bit is the first cell.
#[inline(always)]
#[must_use]
pub fn matches<const CELLS: usize>(cells: &[u32; CELLS], mask: u32, pattern: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if CELLS == 8 {
        let (quads, _) = cells.as_chunks::<4>();
        return vector::matches_8(&quads[0], &quads[1], mask, pattern);
    }
    matches_one_by_one(cells, mask, pattern)
}

/// The cells with their top bit set: the lowest bit is the first cell.
#[inline(always)]
#[must_use]
pub fn top_bits<const CELLS: usize>(cells: &[u32; CELLS]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if CELLS == 8 {
        let (quads, _) = cells.as_chunks::<4>();
        return vector::top_bits_8(&quads[0], &quads[1]);
    }
    matches_one_by_one(cells, 1 << 31, 1 << 31)
}

/// [`matches`] of four buckets of eight cells: those of the first are the lowest eight bits.
#[inline(always)]
pub(crate) fn matches_4_by_8(buckets: [&[u32; 8]; 4], mask: u32, pattern: u32) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return vector::matches_4_by_8(buckets, mask, pattern);
    #[cfg(not(target_arch = "x86_64"))]
    in_a_row(buckets.map(|cells| matches_one_by_one(cells, mask, pattern)))
}

/// [`top_bits`] of four buckets of eight cells, likewise.
#[inline(always)]
pub(crate) fn top_bits_4_by_8(buckets: [&[u32; 8]; 4]) -> u32 {
    #[cfg(target_arch = "x86_64")]
    return vector::top_bits_4_by_8(buckets);
    #[cfg(not(target_arch = "x86_64"))]
    in_a_row(buckets.map(|cells| matches_one_by_one(cells, 1 << 31, 1 << 31)))
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn in_a_row(found: [u32; 4]) -> u32 {
    found.into_iter().rev().fold(0, |row, bits| row << 8 | bits)
}

/// The portable comparison.
#[inline(always)]
fn matches_one_by_one<const CELLS: usize>(cells: &[u32; CELLS], mask: u32, pattern: u32) -> u32 {
    cells.iter().enumerate().fold(0, |found, (index, cell)| found | u32::from(cell & mask == pattern) << index)
}

#[cfg(target_arch = "x86_64")]
mod vector {
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi32, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32, _mm_set1_epi32,
        _mm_setzero_si128,
    };

    /// Compares four cells; a lane is all ones where they agree.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn compare(cells: &[u32; 4], mask: u32, pattern: u32) -> __m128i {
        let cells: __m128i = zerocopy::transmute!(*cells);
        // SAFETY: these instructions are SSE2's, which every x86_64 has, and they touch no memory.
        unsafe {
            let masked = _mm_and_si128(cells, _mm_set1_epi32(mask as i32));
            _mm_cmpeq_epi32(masked, _mm_set1_epi32(pattern as i32))
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn matches_8(low: &[u32; 4], high: &[u32; 4], mask: u32, pattern: u32) -> u32 {
        let (low, high) = (compare(low, mask, pattern), compare(high, mask, pattern));
        // SAFETY: these instructions are SSE2's, which every x86_64 has, and they touch no memory.
        unsafe {
            let words = _mm_packs_epi32(low, high);
            _mm_movemask_epi8(_mm_packs_epi16(words, _mm_setzero_si128())) as u32
        }
    }

    /// Compares four buckets; they share the instructions that narrow and gather the results.
    #[inline(always)]
    pub(super) fn matches_4_by_8(buckets: [&[u32; 8]; 4], mask: u32, pattern: u32) -> u32 {
        gather(buckets.map(|cells| {
            let (quads, _) = cells.as_chunks::<4>();
            [compare(&quads[0], mask, pattern), compare(&quads[1], mask, pattern)]
        }))
    }

    #[inline(always)]
    pub(super) fn top_bits_4_by_8(buckets: [&[u32; 8]; 4]) -> u32 {
        gather(buckets.map(|cells| {
            let (quads, _) = cells.as_chunks::<4>();
            [zerocopy::transmute!(quads[0]), zerocopy::transmute!(quads[1])]
        }))
    }

    /// The signs of 32 numbers.
    #[inline(always)]
    #[allow(unsafe_code)]
    fn gather(lanes: [[__m128i; 2]; 4]) -> u32 {
        // SAFETY: these instructions are SSE2's, which every x86_64 has, and they touch no memory.
        unsafe {
            // Saturated narrowing keeps a number's sign.
            let [a, b, c, d] = lanes.map(|[low, high]| _mm_packs_epi32(low, high));
            let low = _mm_movemask_epi8(_mm_packs_epi16(a, b)) as u32;
            low | (_mm_movemask_epi8(_mm_packs_epi16(c, d)) as u32) << 16
        }
    }

    #[inline(always)]
    #[allow(unsafe_code)]
    pub(super) fn top_bits_8(low: &[u32; 4], high: &[u32; 4]) -> u32 {
        let (low, high): (__m128i, __m128i) = (zerocopy::transmute!(*low), zerocopy::transmute!(*high));
        // SAFETY: these instructions are SSE2's, which every x86_64 has, and they touch no memory.
        unsafe {
            // Saturated narrowing keeps a number's sign.
            let words = _mm_packs_epi32(low, high);
            _mm_movemask_epi8(_mm_packs_epi16(words, _mm_setzero_si128())) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Few distinct cells, so that several match.
        #[test]
        fn the_vector_scan_equals_the_portable_scan(
            cells in proptest::array::uniform8(prop_oneof![0_u32..3, (0_u32..3).prop_map(|low| low | 1 << 31)]),
            pattern in prop_oneof![0_u32..3, (0_u32..3).prop_map(|low| low | 1 << 31)],
            mask in prop_oneof![Just(u32::MAX), Just(1 << 31), Just(1 << 31 | 1)],
        ) {
            prop_assert_eq!(
                matches(&cells, mask, pattern & mask),
                matches_one_by_one(&cells, mask, pattern & mask)
            );
            prop_assert_eq!(top_bits(&cells), matches_one_by_one(&cells, 1 << 31, 1 << 31));
            let turned = core::array::from_fn(|index| cells[(index + 3) % 8]);
            let buckets = [&cells, &turned, &[0; 8], &cells];
            let expected = in_a_row(buckets.map(|cells| matches_one_by_one(cells, mask, pattern & mask)));
            prop_assert_eq!(matches_4_by_8(buckets, mask, pattern & mask), expected);
            let expected = in_a_row(buckets.map(|cells| matches_one_by_one(cells, 1 << 31, 1 << 31)));
            prop_assert_eq!(top_bits_4_by_8(buckets), expected);
        }
    }
}
