//! The memory that frames lie in (the kernel calls it UMEM), shared by all ports and queues, and who has which part of it.
//!
//! ```text
//! chunk 0                            chunk 1
//! | room 256 | frame ...      | rest | room 256 | frame ...
//! 0                                  chunk_bytes
//! ```
//! A chunk is in one place at a time: free, on one of a queue's rings, or lent in a batch.

use std::io;
use std::ptr::NonNull;

use flow::{Frame, PacketBatch, PortId};

/// Bytes that the kernel leaves free before a received frame (`XDP_PACKET_HEADROOM`): room to grow.
pub(super) const HEADROOM_BYTES: usize = 256;
/// The largest chunk that the kernel takes: a page.
pub(super) const CHUNK_BYTES_MAX: usize = 4096;
/// The chunk that frames of an ordinary Ethernet fit into.
const CHUNK_BYTES_ORDINARY: usize = 2048;
/// Link header and a VLAN tag, in bytes.
pub(super) const LINK_BYTES_MAX: usize = 18;

/// The largest MTU whose frames fit into a chunk, in bytes of IP packet.
pub const MTU_BYTES_MAX: u32 = (CHUNK_BYTES_MAX - HEADROOM_BYTES - LINK_BYTES_MAX) as u32;

/// The chunk for frames of this MTU; `None` when it is larger than [`MTU_BYTES_MAX`].
pub(super) fn chunk_bytes_for(mtu_bytes: u32) -> Option<usize> {
    let wanted = HEADROOM_BYTES + LINK_BYTES_MAX + mtu_bytes as usize;
    [CHUNK_BYTES_ORDINARY, CHUNK_BYTES_MAX].into_iter().find(|chunk_bytes| wanted <= *chunk_bytes)
}

/// Pages mapped into the process, unmapped with the value.
pub(super) struct Mapping {
    start: NonNull<u8>,
    length_bytes: usize,
}

// SAFETY: the mapping belongs to the value alone and is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length_bytes` of what `descriptor` has at `offset`; of nothing, zeroed, when `descriptor` is -1.
    pub(super) fn new(length_bytes: usize, descriptor: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let flags = match descriptor {
            -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            _ => libc::MAP_SHARED | libc::MAP_POPULATE,
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping wherever the kernel likes touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length_bytes, protection, flags, descriptor, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
        Ok(Self { start, length_bytes })
    }

    pub(super) const fn start(&self) -> NonNull<u8> {
        self.start
    }

    pub(super) const fn length_bytes(&self) -> usize {
        self.length_bytes
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the pages were mapped by `new`, and nothing that the value lent out outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length_bytes) };
    }
}

/// The chunks. Addresses are offsets from the beginning of the memory, as the rings have them.
pub(super) struct Memory {
    mapping: Mapping,
    chunk_bytes: usize,
    /// Chunks that are in no other place. The one freed last is taken first: it is the likeliest to be in the cache.
    free: Vec<u64>,
}

impl Memory {
    /// `chunks` free chunks.
    pub(super) fn new(chunk_bytes: usize, chunks: usize) -> io::Result<Self> {
        let mapping = Mapping::new(chunk_bytes * chunks, -1, 0)?;
        let free = (0..chunks).rev().map(|chunk| (chunk * chunk_bytes) as u64).collect();
        Ok(Self { mapping, chunk_bytes, free })
    }

    /// How the memory is told to the kernel.
    pub(super) fn registration(&self) -> libc::xdp_umem_reg {
        libc::xdp_umem_reg {
            addr: self.mapping.start().as_ptr() as u64,
            len: self.mapping.length_bytes() as u64,
            chunk_size: self.chunk_bytes as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        }
    }

    pub(super) const fn chunk_bytes(&self) -> usize {
        self.chunk_bytes
    }

    /// A free chunk; `None` when there is none.
    pub(super) fn take(&mut self) -> Option<u64> {
        self.free.pop()
    }

    /// The chunk that holds `address` is free again.
    pub(super) fn give_back(&mut self, address: u64) {
        self.free.push(self.chunk_of(address) as u64);
    }

    #[cfg(test)]
    pub(super) fn free_chunks(&self) -> usize {
        self.free.len()
    }

    const fn chunk_of(&self, address: u64) -> usize {
        let address = address as usize;
        address - address % self.chunk_bytes
    }

    /// Writes `bytes` into the chunk at `address`, behind the room to grow. Returns the frame's address.
    ///
    /// The chunk must have been [taken](Self::take) and be in no other place; `bytes` must fit.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> (u64, &mut [u8]) {
        let start = HEADROOM_BYTES;
        // SAFETY: the chunk is in the caller's hand alone, as `take` gave it out.
        let chunk = unsafe { self.chunk_mut(address) };
        let frame = &mut chunk[start..start + bytes.len()];
        frame.copy_from_slice(bytes);
        (address + start as u64, frame)
    }

    /// The frames that the kernel has just handed over in `descriptors`, which are on no ring any more.
    pub(super) fn lend(&mut self, descriptors: &[libc::xdp_desc], ingress: PortId) -> PacketBatch<'_> {
        let mut batch = PacketBatch::new();
        for descriptor in descriptors {
            let start = descriptor.addr as usize - self.chunk_of(descriptor.addr);
            // SAFETY: the kernel hands a chunk over once, so that the frames of a batch lie in different chunks; the
            // batch borrows the memory, so that nothing else reaches them while it lives.
            let chunk = unsafe { self.chunk_mut(descriptor.addr) };
            let frame = Frame::new(chunk, start, descriptor.len as usize, ingress);
            batch.push(frame.expect("the kernel keeps frames within their chunks"));
        }
        batch
    }

    /// The chunk that holds `address`, with a lifetime of the caller's choice.
    ///
    /// # Safety
    /// Nobody else may have the chunk, neither the kernel nor another slice, while the slice lives.
    unsafe fn chunk_mut<'a>(&mut self, address: u64) -> &'a mut [u8] {
        let at = self.chunk_of(address);
        assert!(at + self.chunk_bytes <= self.mapping.length_bytes(), "the kernel named memory that it does not have");
        // SAFETY: the chunk lies within the mapping, as was just made sure; the caller vouches for the rest.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start().as_ptr().add(at), self.chunk_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_as_large_as_the_mtu_needs_and_no_larger_than_a_page() {
        assert_eq!(chunk_bytes_for(1500), Some(2048));
        assert_eq!(chunk_bytes_for(1774), Some(2048));
        assert_eq!(chunk_bytes_for(1775), Some(4096));
        assert_eq!(chunk_bytes_for(MTU_BYTES_MAX), Some(4096));
        assert_eq!(chunk_bytes_for(MTU_BYTES_MAX + 1), None);
    }

    #[test]
    fn frames_are_lent_where_they_lie_with_room_before_and_behind() {
        let mut memory = Memory::new(2048, 4).unwrap();
        let chunks = [memory.take().unwrap(), memory.take().unwrap()];
        let descriptors = chunks.map(|chunk| {
            let (addr, _) = memory.write(chunk, &[chunk as u8 + 1; 60]);
            libc::xdp_desc { addr, len: 60, options: 0 }
        });
        let mut batch = memory.lend(&descriptors, PortId(3));
        for (frame, chunk) in batch.iter_mut().zip(chunks) {
            assert_eq!(frame.bytes(), [chunk as u8 + 1; 60]);
            assert!(frame.set_length(2048 - HEADROOM_BYTES));
            assert!(!frame.set_length(2048 - HEADROOM_BYTES + 1));
            assert_eq!((frame.ingress, frame.buffer_parts().1), (PortId(3), HEADROOM_BYTES));
        }
        drop(batch);
        for descriptor in descriptors {
            memory.give_back(descriptor.addr);
        }
        assert_eq!(memory.free_chunks(), 4);
    }
}
