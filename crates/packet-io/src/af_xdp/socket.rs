//! One queue's socket with its four rings.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::busy::{EBUSY_RETRY, retry_while_busy};
use super::memory::Memory;
use super::ring::{Consumer, Producer};
use crate::system::{check, own, set_buffers, set_option, zeroed};

/// The number of entries of each ring of a socket. Frames beyond it are dropped and counted.
pub(super) const RING_FRAMES_MAX: u32 = 2048;
/// The maximum number of chunks on a queue's rings: those for reception and those for transmission.
pub(super) const CHUNKS_PER_QUEUE: usize = 2 * RING_FRAMES_MAX as usize;
/// Bytes of buffers that the kernel may hold for frames being sent in copy mode: the whole ring.
const SOCKET_BUFFER_BYTES: i32 = RING_FRAMES_MAX as i32 * 4096;
/// The maximum number of consecutive send requests to the kernel while it makes progress; it takes about 32 frames each
/// time.
const KICKS_MAX: u32 = 16;

/// The memory of a socket, and its mode of binding to a queue.
#[derive(Clone, Copy)]
pub(super) enum Binding<'a> {
    /// It registers the memory. `copy` disables zero-copy.
    First {
        /// Disables zero-copy.
        copy: bool,
    },
    /// It shares the memory of a bound socket, and thereby its mode.
    Sharing(BorrowedFd<'a>),
}

/// A queue of an interface, and the chunks that the kernel owns.
pub(super) struct Queue {
    socket: OwnedFd,
    fill: Producer<u64>,
    completion: Consumer<u64>,
    receive: Consumer<libc::xdp_desc>,
    transmit: Producer<libc::xdp_desc>,
    /// Chunks that await frames or hold received ones.
    receiving: u32,
    /// Chunks that are being sent.
    sending: u32,
    /// Whether the ring has frames that the kernel has not been notified of.
    is_unsent: bool,
    is_zero_copy: bool,
}

impl Queue {
    /// Opens a socket for `queue` of the interface and supplies the kernel with chunks.
    pub(super) fn open(
        memory: &mut Memory,
        interface_index: u32,
        queue: u32,
        binding: Binding<'_>,
    ) -> io::Result<Self> {
        let kind = libc::SOCK_RAW | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: socket takes no pointers.
        let socket = own(unsafe { libc::socket(libc::AF_XDP, kind, 0) })?;
        let descriptor = socket.as_fd();
        if matches!(binding, Binding::First { .. }) {
            set_option(descriptor, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory.registration())?;
        }
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING] {
            set_option(descriptor, libc::SOL_XDP, ring, &RING_FRAMES_MAX)?;
        }
        set_buffers(descriptor, SOCKET_BUFFER_BYTES)?;
        // SAFETY: all-zero bytes are valid offsets.
        let mut offsets: libc::xdp_mmap_offsets = unsafe { zeroed() };
        read_option(descriptor, libc::XDP_MMAP_OFFSETS, &mut offsets)?;
        let size = RING_FRAMES_MAX;
        let (fill_page, completion_page) = (libc::XDP_UMEM_PGOFF_FILL_RING, libc::XDP_UMEM_PGOFF_COMPLETION_RING);
        let fill = Producer::map(descriptor, offsets.fr, size, fill_page as libc::off_t)?;
        let completion = Consumer::map(descriptor, offsets.cr, size, completion_page as libc::off_t)?;
        let receive = Consumer::map(descriptor, offsets.rx, size, libc::XDP_PGOFF_RX_RING)?;
        let transmit = Producer::map(descriptor, offsets.tx, size, libc::XDP_PGOFF_TX_RING)?;
        retry_while_busy(EBUSY_RETRY, || bind(descriptor, interface_index, queue, binding))?;
        // SAFETY: all-zero bytes are valid options.
        let mut options: libc::xdp_options = unsafe { zeroed() };
        read_option(descriptor, libc::XDP_OPTIONS, &mut options)?;
        let is_zero_copy = options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0;
        let (receiving, sending, is_unsent) = (0, 0, false);
        let mut opened =
            Self { socket, fill, completion, receive, transmit, receiving, sending, is_unsent, is_zero_copy };
        opened.refill(memory);
        Ok(opened)
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    pub(super) const fn is_zero_copy(&self) -> bool {
        self.is_zero_copy
    }

    /// Takes the next received frame off the ring.
    pub(super) fn pop_received(&mut self) -> Option<libc::xdp_desc> {
        let descriptor = self.receive.pop();
        self.receiving -= u32::from(descriptor.is_some());
        descriptor
    }

    /// Returns the received entries to the kernel, and supplies free chunks.
    pub(super) fn refill(&mut self, memory: &mut Memory) {
        self.receive.release();
        let mut is_changed = false;
        while self.receiving < RING_FRAMES_MAX {
            let Some(chunk) = memory.take() else { break };
            if !self.fill.push(chunk) {
                memory.give_back(chunk);
                break;
            }
            memory.hand_over(chunk);
            self.receiving += 1;
            is_changed = true;
        }
        if is_changed {
            self.fill.publish();
        }
        if self.fill.needs_wakeup() {
            // SAFETY: no buffer is passed. The call only makes the driver process the ring and returns nothing.
            unsafe {
                let (socket, null) = (self.socket.as_raw_fd(), std::ptr::null_mut());
                libc::recvfrom(socket, null, 0, libc::MSG_DONTWAIT, null.cast(), null.cast());
            }
        }
    }

    /// Takes back the chunks of frames that have been sent.
    pub(super) fn reap(&mut self, memory: &mut Memory) {
        if self.sending == 0 {
            return;
        }
        while let Some(address) = self.completion.pop() {
            memory.give_back(address);
            self.sending -= 1;
        }
        self.completion.release();
    }

    /// Puts a frame on the ring; the kernel then owns the chunk. Returns false, without changes, when there is no room.
    pub(super) fn push(&mut self, memory: &mut Memory, address: u64, length_bytes: u32) -> bool {
        let has_room = self.sending < RING_FRAMES_MAX
            && self.transmit.push(libc::xdp_desc { addr: address, len: length_bytes, options: 0 });
        if has_room {
            memory.hand_over(address);
            self.sending += 1;
            self.is_unsent = true;
        }
        has_room
    }

    /// Makes the kernel send the frames on the ring. The next call retries those that it does not accept.
    ///
    /// # Errors
    /// The interface is down or deleted.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.is_unsent {
            return Ok(());
        }
        self.transmit.publish();
        for _ in 0..KICKS_MAX {
            let waiting = self.transmit.waiting();
            if waiting == 0 || !self.transmit.needs_wakeup() {
                self.is_unsent = false;
                return Ok(());
            }
            // SAFETY: no buffer and no address are passed.
            let result = unsafe {
                let null = std::ptr::null();
                libc::sendto(self.socket.as_raw_fd(), null, 0, libc::MSG_DONTWAIT, null.cast(), 0)
            };
            if result >= 0 {
                continue;
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                // The kernel has taken its maximum for one call, or has no room for more.
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) if self.transmit.waiting() < waiting => {}
                Some(libc::EAGAIN | libc::EBUSY | libc::ENOBUFS) => return Ok(()),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
        Ok(())
    }

    /// The kernel's counters since the socket was opened; zeros if they cannot be read.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        // SAFETY: all-zero bytes are valid statistics.
        let mut statistics: libc::xdp_statistics = unsafe { zeroed() };
        // On failure the zeros stay.
        let _ = read_option(self.socket(), libc::XDP_STATISTICS, &mut statistics);
        statistics
    }
}

fn bind(socket: BorrowedFd<'_>, interface_index: u32, queue: u32, binding: Binding<'_>) -> io::Result<()> {
    let (flags, shared) = match binding {
        Binding::First { copy: false } => (libc::XDP_USE_NEED_WAKEUP, 0),
        Binding::First { copy: true } => (libc::XDP_USE_NEED_WAKEUP | libc::XDP_COPY, 0),
        Binding::Sharing(with) => (libc::XDP_SHARED_UMEM, with.as_raw_fd() as u32),
    };
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: interface_index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: shared,
    };
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: `address` is a sockaddr_xdp of the stated length.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) }).map(drop)
}

/// Reads an option of the level `SOL_XDP`; older kernels fill in less of `value`.
fn read_option<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, value: &mut T) -> io::Result<()> {
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for the stated length; the options read here are plain numbers.
    let result =
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_XDP, name, (&raw mut *value).cast(), &raw mut length) };
    check(result).map(drop)
}

/// Makes the interface promiscuous while the descriptor is open.
pub(super) fn hold_promiscuous(interface_index: u32) -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointers. Protocol 0: the socket receives nothing.
    let socket = own(unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: all-zero bytes are a valid packet_mreq.
    let mut membership: libc::packet_mreq = unsafe { zeroed() };
    membership.mr_ifindex = libc::c_int::try_from(interface_index).unwrap_or_default();
    membership.mr_type = libc::PACKET_MR_PROMISC as _;
    set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &membership)?;
    Ok(socket)
}
