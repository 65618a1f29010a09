//! The frame memory (the kernel's UMEM), shared by all ports and queues, and the owner of each chunk.
//!
//! ```text
//! chunk 0                            chunk 1
//! | room 256 | frame ...      | rest | room 256 | frame ...
//! 0                                  chunk_bytes
//! ```
//! A chunk is in one place at a time: free, in the program's hand (lent in a batch, or being written), or on a ring of the
//! kernel's. [`Memory`] keeps account of it, so that no chunk is ever reached from two sides:
//!
//! ```text
//!             take                       hand_over
//!   Free ──────────────► Program ───────────────────────► Kernel
//!    ▲                     │   ▲                            │ │
//!    └──── give_back ──────┘   └───────────── lend ─────────┘ │
//!    └──────────────────── give_back ─────────────────────────┘
//! ```
//! Any other move is a defect of this program or of the kernel's driver, and ends the process: the alternative is frames
//! that overwrite each other.

use std::io;
use std::ptr::NonNull;

use flow::{Frame, PacketBatch, PortId};

/// Bytes that the kernel keeps free before a received frame (`XDP_PACKET_HEADROOM`): headroom to grow.
pub(super) const HEADROOM_BYTES: usize = 256;
/// The largest chunk that the kernel accepts: a page.
pub(super) const CHUNK_BYTES_MAX: usize = 4096;
/// The chunk for frames of ordinary Ethernet.
const CHUNK_BYTES_ORDINARY: usize = 2048;
/// Link header and a VLAN tag, in bytes.
pub(super) const LINK_BYTES_MAX: usize = 18;

/// The largest MTU for which frames fit into a chunk, in bytes of IP packet.
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

// SAFETY: the value owns the mapping exclusively, and it is not tied to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Maps `length_bytes` of `descriptor` at `offset`; anonymous zeroed memory when `descriptor` is -1.
    pub(super) fn new(length_bytes: usize, descriptor: libc::c_int, offset: libc::off_t) -> io::Result<Self> {
        let flags = match descriptor {
            -1 => libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            _ => libc::MAP_SHARED | libc::MAP_POPULATE,
        };
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a mapping at an address of the kernel's choice touches no existing memory.
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
        // SAFETY: the pages were mapped by `new`, and no borrow of the value outlives it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length_bytes) };
    }
}

/// The owner of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum ChunkOwner {
    /// None: it is in the free list.
    Free,
    /// This program.
    Program,
    /// The kernel: it is on a ring, awaits a frame or is being sent.
    Kernel,
}

/// The chunks. Addresses are offsets from the beginning of the memory, as in the rings.
pub(super) struct Memory {
    mapping: Mapping,
    chunk_bytes: usize,
    /// Free chunks. The one freed last is taken first: it is the likeliest to be in the cache.
    free: Vec<u64>,
    /// The owner of each chunk.
    owners: Vec<ChunkOwner>,
}

impl Memory {
    /// `chunks` free chunks.
    pub(super) fn new(chunk_bytes: usize, chunks: usize) -> io::Result<Self> {
        let mapping = Mapping::new(chunk_bytes * chunks, -1, 0)?;
        let free = (0..chunks).rev().map(|chunk| (chunk * chunk_bytes) as u64).collect();
        Ok(Self { mapping, chunk_bytes, free, owners: vec![ChunkOwner::Free; chunks] })
    }

    /// The description of the memory for the kernel.
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

    /// A free chunk, which the program then owns; `None` when there is none.
    pub(super) fn take(&mut self) -> Option<u64> {
        let chunk = self.free.pop()?;
        *self.place(chunk) = ChunkOwner::Program;
        Some(chunk)
    }

    /// Passes the chunk at `address` from the program to a ring.
    ///
    /// # Panics
    /// The program does not own it.
    pub(super) fn hand_over(&mut self, address: u64) {
        let place = self.place(address);
        assert!(*place == ChunkOwner::Program, "a chunk goes onto a ring that the program does not own: {place:?}");
        *place = ChunkOwner::Kernel;
    }

    /// Frees the chunk at `address`.
    ///
    /// # Panics
    /// It is free already.
    pub(super) fn give_back(&mut self, address: u64) {
        let place = self.place(address);
        assert!(*place != ChunkOwner::Free, "a chunk is freed twice");
        *place = ChunkOwner::Free;
        self.free.push(self.chunk_of(address) as u64);
    }

    /// The owner of the chunk at `address`.
    fn place(&mut self, address: u64) -> &mut ChunkOwner {
        let chunk = address as usize / self.chunk_bytes;
        self.owners.get_mut(chunk).expect("the kernel named memory beyond the mapping")
    }

    #[cfg(test)]
    pub(super) fn free_chunks(&self) -> usize {
        self.free.len()
    }

    const fn chunk_of(&self, address: u64) -> usize {
        let address = address as usize;
        address - address % self.chunk_bytes
    }

    /// Writes `bytes` into the chunk at `address`, behind the headroom. Returns the frame's address.
    ///
    /// # Panics
    /// The program does not own the chunk ([`Memory::take`]), or `bytes` do not fit.
    pub(super) fn write(&mut self, address: u64, bytes: &[u8]) -> (u64, &mut [u8]) {
        let place = *self.place(address);
        assert!(place == ChunkOwner::Program, "a chunk is written that the program does not own: {place:?}");
        let start = HEADROOM_BYTES;
        // SAFETY: the program owns the chunk, as checked above, and no batch is lent while `self` is borrowed.
        let chunk = unsafe { self.chunk_mut(address) };
        let frame = &mut chunk[start..start + bytes.len()];
        frame.copy_from_slice(bytes);
        (address + start as u64, frame)
    }

    /// The frames that the kernel has just passed in `descriptors`. The program then owns their chunks.
    ///
    /// # Panics
    /// The kernel did not own one of the chunks, names one twice, or names a frame beyond its chunk.
    pub(super) fn lend(&mut self, descriptors: &[libc::xdp_desc], ingress: PortId) -> PacketBatch<'_> {
        let mut batch = PacketBatch::new();
        for descriptor in descriptors {
            let place = self.place(descriptor.addr);
            assert!(*place == ChunkOwner::Kernel, "the kernel passes a chunk that it does not own: {place:?}");
            *place = ChunkOwner::Program;
            let start = descriptor.addr as usize - self.chunk_of(descriptor.addr);
            // SAFETY: the kernel owned the chunk until now, so no other frame of the batch lies in it. The batch
            // borrows the memory, so nothing else accesses the chunk meanwhile.
            let chunk = unsafe { self.chunk_mut(descriptor.addr) };
            let frame = Frame::new(chunk, start, descriptor.len as usize, ingress);
            batch.push(frame.expect("the kernel keeps frames within their chunks"));
        }
        batch
    }

    /// The chunk at `address`, with a lifetime that the caller chooses.
    ///
    /// # Safety
    /// The program owns the chunk, no other slice of it exists while this one does, and the slice does not outlive
    /// `self`.
    unsafe fn chunk_mut<'a>(&mut self, address: u64) -> &'a mut [u8] {
        let at = self.chunk_of(address);
        assert!(at + self.chunk_bytes <= self.mapping.length_bytes(), "the kernel named memory beyond the mapping");
        // SAFETY: the chunk lies within the mapping, as checked above; the caller guarantees the rest.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.start().as_ptr().add(at), self.chunk_bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_fit_the_mtu_and_are_at_most_a_page() {
        assert_eq!(chunk_bytes_for(1500), Some(2048));
        assert_eq!(chunk_bytes_for(1774), Some(2048));
        assert_eq!(chunk_bytes_for(1775), Some(4096));
        assert_eq!(chunk_bytes_for(MTU_BYTES_MAX), Some(4096));
        assert_eq!(chunk_bytes_for(MTU_BYTES_MAX + 1), None);
    }

    /// The kernel's descriptor after receiving a frame of 60 bytes into `chunk`.
    fn received(memory: &mut Memory, chunk: u64, filled_with: u8) -> libc::xdp_desc {
        let (addr, _) = memory.write(chunk, &[filled_with; 60]);
        memory.hand_over(chunk);
        libc::xdp_desc { addr, len: 60, options: 0 }
    }

    #[test]
    fn a_chunk_circulates_between_the_program_and_the_kernel() {
        let mut memory = Memory::new(2048, 1).unwrap();
        for round in 1..=3 {
            let chunk = memory.take().unwrap();
            assert_eq!(memory.take(), None);
            let descriptor = received(&mut memory, chunk, round);
            assert_eq!(memory.lend(&[descriptor], PortId(0))[0].bytes(), [round; 60]);
            memory.hand_over(descriptor.addr);
            memory.give_back(descriptor.addr);
            assert_eq!(memory.free_chunks(), 1);
        }
    }

    #[test]
    #[should_panic(expected = "the kernel passes a chunk that it does not own: Program")]
    fn a_duplicate_descriptor_is_refused() {
        let mut memory = Memory::new(2048, 2).unwrap();
        let chunk = memory.take().unwrap();
        let descriptor = received(&mut memory, chunk, 1);
        let _ = memory.lend(&[descriptor, descriptor], PortId(0));
    }

    #[test]
    #[should_panic(expected = "the kernel passes a chunk that it does not own: Free")]
    fn a_free_chunk_is_not_lent() {
        let mut memory = Memory::new(2048, 2).unwrap();
        let _ = memory.lend(&[libc::xdp_desc { addr: 256, len: 60, options: 0 }], PortId(0));
    }

    #[test]
    #[should_panic(expected = "a chunk is written that the program does not own: Kernel")]
    fn a_chunk_of_the_kernel_is_not_written() {
        let mut memory = Memory::new(2048, 2).unwrap();
        let chunk = memory.take().unwrap();
        memory.hand_over(chunk);
        memory.write(chunk, b"too late");
    }

    #[test]
    #[should_panic(expected = "a chunk is freed twice")]
    fn a_chunk_is_not_freed_twice() {
        let mut memory = Memory::new(2048, 2).unwrap();
        let chunk = memory.take().unwrap();
        memory.give_back(chunk);
        memory.give_back(chunk + 100);
    }

    #[test]
    #[should_panic(expected = "the kernel named memory beyond the mapping")]
    fn a_descriptor_behind_the_memory_is_refused() {
        let mut memory = Memory::new(2048, 2).unwrap();
        let _ = memory.lend(&[libc::xdp_desc { addr: 2 * 2048, len: 60, options: 0 }], PortId(0));
    }

    #[test]
    fn frames_are_lent_in_place_with_room_before_and_behind() {
        let mut memory = Memory::new(2048, 4).unwrap();
        let chunks = [memory.take().unwrap(), memory.take().unwrap()];
        let descriptors = chunks.map(|chunk| received(&mut memory, chunk, chunk as u8 + 1));
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
