//! Prefetches memory that will be read soon.

/// Bytes that one prefetch fetches.
pub const CACHE_LINE_BYTES: usize = 64;

/// Prefetches the cache line `offset_bytes` into element `index` of `elements`. It is a hint: an index beyond the end
/// is permitted.
#[inline(always)]
pub fn prefetch<T>(elements: &[T], index: usize, offset_bytes: usize) {
    let line = elements.as_ptr().wrapping_add(index).cast::<u8>().wrapping_add(offset_bytes);
    prefetch_line(line);
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
#[allow(unsafe_code)]
fn prefetch_line(line: *const u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch reads nothing into the program and faults on no address; SSE is part of x86_64.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn prefetch_line(_line: *const u8) {}
