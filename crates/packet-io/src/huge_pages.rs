//! A global allocator that uses huge pages for large blocks: big tables with random access.

use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr;

/// The size of a huge page, in bytes (x86-64 and AArch64 with 4 KiB pages).
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// The system's allocator, except that an allocation of [`HUGE_PAGE_BYTES`] or more is a separate mapping, aligned to a
/// huge page and advised by `madvise(MADV_HUGEPAGE)`. It is zero and uses memory only when touched. The kernel decides
/// whether it gets huge pages.
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: packet_io::huge_pages::HugePages = packet_io::huge_pages::HugePages;
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

/// Whether a block of this layout is a separate mapping. It depends on the layout alone, so that `dealloc` can decide.
const fn is_mapped(layout: Layout) -> bool {
    layout.size() >= HUGE_PAGE_BYTES && layout.align() <= HUGE_PAGE_BYTES
}

/// A new mapping of `bytes`, aligned to a huge page; null when out of memory.
fn map(bytes: usize) -> *mut u8 {
    let Some(mapped_bytes) = bytes.checked_add(HUGE_PAGE_BYTES) else { return ptr::null_mut() };
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches no existing memory.
    let mapping = unsafe {
        libc::mmap(ptr::null_mut(), mapped_bytes, protection, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    };
    if mapping == libc::MAP_FAILED {
        return ptr::null_mut();
    }
    let lead_bytes = mapping.align_offset(HUGE_PAGE_BYTES);
    let block = mapping.wrapping_byte_add(lead_bytes);
    let end = bytes.next_multiple_of(4096);
    // SAFETY: both ranges lie within the mapping just made, before and behind the block. The mapping begins and ends at
    // page boundaries, and so do the ranges. The advice concerns the block alone and may be refused.
    unsafe {
        if lead_bytes > 0 {
            libc::munmap(mapping, lead_bytes);
        }
        let tail_bytes = mapped_bytes.next_multiple_of(4096) - lead_bytes - end;
        if tail_bytes > 0 {
            libc::munmap(block.wrapping_byte_add(end), tail_bytes);
        }
        libc::madvise(block, bytes, libc::MADV_HUGEPAGE);
    }
    block.cast()
}

// SAFETY: a block is made and freed the same way because `is_mapped` decides by its layout alone; mapped blocks are
// aligned to a huge page, which `is_mapped` makes sure is enough.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's call, forwarded.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_mapped(layout) {
            return map(layout.size());
        }
        // SAFETY: the caller's call, forwarded.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if is_mapped(layout) {
            // SAFETY: the block is a mapping of this size, which the caller no longer uses.
            unsafe { libc::munmap(block.cast(), layout.size()) };
        } else {
            // SAFETY: the caller's call, forwarded.
            unsafe { System.dealloc(block, layout) }
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees that `new_size` is not 0 and fits a layout of this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(new_size, layout.align()) };
        if !is_mapped(layout) && !is_mapped(new_layout) {
            // SAFETY: the caller's call, forwarded.
            return unsafe { System.realloc(block, layout, new_size) };
        }
        // SAFETY: the new layout has a size because the caller's has.
        let new_block = unsafe { self.alloc(new_layout) };
        if !new_block.is_null() {
            // SAFETY: both blocks hold at least the copied bytes and do not overlap; the old one is then freed once.
            unsafe {
                new_block.copy_from_nonoverlapping(block, layout.size().min(new_size));
                self.dealloc(block, layout);
            }
        }
        new_block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_blocks_lie_on_huge_page_borders_and_keep_their_contents() {
        let small = Layout::from_size_align(1 << 20, 8).unwrap();
        let large = Layout::from_size_align((5 << 20) + 3, 8).unwrap();
        // SAFETY: the layouts have a size, the blocks are freed with the size they have then, and only their own bytes
        // are touched.
        unsafe {
            let block = HugePages.alloc_zeroed(small);
            block.write(7);
            let block = HugePages.realloc(block, small, large.size());
            assert_eq!(block as usize % HUGE_PAGE_BYTES, 0);
            assert_eq!(block.read(), 7);
            block.add(large.size() - 1).write(9);
            let block = HugePages.realloc(block, large, small.size());
            assert_eq!(block.read(), 7);
            HugePages.dealloc(block, small);

            let zeroed = HugePages.alloc_zeroed(large);
            assert_eq!(zeroed as usize % HUGE_PAGE_BYTES, 0);
            assert!(std::slice::from_raw_parts(zeroed, large.size()).iter().all(|byte| *byte == 0));
            HugePages.dealloc(zeroed, large);
        }
    }

    #[test]
    fn a_block_too_large_for_the_machine_is_refused() {
        let layout = Layout::from_size_align(1 << 62, 8).unwrap();
        // SAFETY: the layout has a size; nothing is allocated.
        assert!(unsafe { HugePages.alloc(layout) }.is_null());
    }
}
