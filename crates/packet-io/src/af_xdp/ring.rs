//! The four rings of a socket, shared with the kernel (Documentation/networking/af_xdp.rst): one side writes entries and
//! the producer's number, the other reads them and writes the consumer's. Numbers only rise, and wrap.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use super::memory::Mapping;

/// The common part of both kinds of ring.
struct Shared<T> {
    /// Keeps the mapping of the pointers alive.
    _mapping: Mapping,
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    mask: u32,
}

// SAFETY: the pointers lead into the mapping, which belongs to the value and moves between threads with it.
unsafe impl<T: Send> Send for Shared<T> {}

impl<T: Copy> Shared<T> {
    /// Maps the ring of `socket` at `page_offset`; `size` entries, a power of two, as requested.
    fn map(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        size: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        assert!(size.is_power_of_two());
        let length_bytes = offsets.desc as usize + size as usize * size_of::<T>();
        let mapping = Mapping::new(length_bytes, socket.as_raw_fd(), page_offset)?;
        // SAFETY: the kernel guarantees that these offsets lie within the mapping just made, aligned for what they hold.
        let at = |offset: u64| unsafe { mapping.start().add(offset as usize) };
        Ok(Self {
            producer: at(offsets.producer).cast(),
            consumer: at(offsets.consumer).cast(),
            flags: at(offsets.flags).cast(),
            entries: at(offsets.desc).cast(),
            mask: size - 1,
            _mapping: mapping,
        })
    }

    const fn producer(&self) -> &AtomicU32 {
        // SAFETY: the pointer leads into the mapping, which lives as long as `self`; the kernel changes it atomically.
        unsafe { self.producer.as_ref() }
    }

    const fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    fn needs_wakeup(&self) -> bool {
        // SAFETY: as for the producer.
        unsafe { self.flags.as_ref() }.load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    const fn entry(&self, number: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the entry within the mapping.
        unsafe { self.entries.add((number & self.mask) as usize) }
    }
}

/// A ring that the program writes: to be filled, or to be sent.
pub(super) struct Producer<T> {
    shared: Shared<T>,
    /// Entries written so far, published or not.
    written: u32,
    /// The consumer's number when it was last looked at.
    consumed: u32,
}

impl<T: Copy> Producer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        size: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self { shared: Shared::map(socket, offsets, size, page_offset)?, written: 0, consumed: 0 })
    }

    /// Writes an entry, which the kernel sees after [`Producer::publish`]. Returns false, without changes, when the
    /// ring is full.
    pub(super) fn push(&mut self, value: T) -> bool {
        if self.written.wrapping_sub(self.consumed) > self.shared.mask {
            self.consumed = self.shared.consumer().load(Ordering::Acquire);
            if self.written.wrapping_sub(self.consumed) > self.shared.mask {
                return false;
            }
        }
        // SAFETY: the entry is within the mapping, and the consumer has released it.
        unsafe { self.shared.entry(self.written).write(value) };
        self.written = self.written.wrapping_add(1);
        true
    }

    /// Publishes the written entries to the kernel.
    pub(super) fn publish(&self) {
        self.shared.producer().store(self.written, Ordering::Release);
    }

    /// Entries that the kernel has not taken yet.
    pub(super) fn waiting(&self) -> u32 {
        self.written.wrapping_sub(self.shared.consumer().load(Ordering::Acquire))
    }

    /// Whether the kernel is idle and needs a system call.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.shared.needs_wakeup()
    }
}

/// A ring that the program reads: received, or completed.
pub(super) struct Consumer<T> {
    shared: Shared<T>,
    /// Entries read so far, released or not.
    read: u32,
    /// The producer's number when it was last looked at.
    produced: u32,
}

impl<T: Copy> Consumer<T> {
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        offsets: libc::xdp_ring_offset,
        size: u32,
        page_offset: libc::off_t,
    ) -> io::Result<Self> {
        Ok(Self { shared: Shared::map(socket, offsets, size, page_offset)?, read: 0, produced: 0 })
    }

    /// Reads the next entry, which [`Consumer::release`] returns to the kernel.
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.read == self.produced {
            self.produced = self.shared.producer().load(Ordering::Acquire);
            if self.read == self.produced {
                return None;
            }
        }
        // SAFETY: the entry is within the mapping, and the producer has written it; any bytes make a valid entry.
        let value = unsafe { self.shared.entry(self.read).read() };
        self.read = self.read.wrapping_add(1);
        Some(value)
    }

    /// Returns the read entries to the kernel.
    pub(super) fn release(&self) {
        self.shared.consumer().store(self.read, Ordering::Release);
    }
}
