//! An array of the kernel's, mapped into the process.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

use crate::shapes::{ConnectionCell, ControlCell};

/// What may lie in memory that the program changes at any time.
///
/// # Safety
/// The type consists of atomic integers alone, without padding: every content is valid, and every access is atomic.
pub(crate) unsafe trait Shared {}

// SAFETY: all fields are atomic integers, and the sizes are asserted in `shapes`.
unsafe impl Shared for ConnectionCell {}
// SAFETY: as above.
unsafe impl Shared for ControlCell {}

/// The values of an array that was made with `BPF_F_MMAPABLE`, as a slice. Unmapped with the value.
#[derive(Debug)]
pub(crate) struct Mapping<T> {
    start: NonNull<T>,
    count: usize,
}

// SAFETY: the mapping is not tied to a thread, and its content is accessed by atomic operations alone.
unsafe impl<T: Shared> Send for Mapping<T> {}
// SAFETY: as above.
unsafe impl<T: Shared> Sync for Mapping<T> {}

impl<T: Shared> Mapping<T> {
    /// Maps the first `count` values of the array `map`, whose values have the size of `T`, a multiple of 8 bytes.
    pub(crate) fn new(map: BorrowedFd<'_>, count: u32) -> io::Result<Self> {
        let count = count as usize;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let length_bytes = count * size_of::<T>();
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, count })
    }
}

impl<T: Shared> Deref for Mapping<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: the kernel has mapped `count` values from `start` on, page-aligned, until `drop`. `Shared` guarantees that any
        // content is valid and that concurrent changes are atomic.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.count) }
    }
}

impl<T> Drop for Mapping<T> {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `new`, and no borrow of the value outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.count * size_of::<T>()) };
    }
}
