//! Buffers into which many datagrams are received by one system call.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::system::zeroed;

/// The maximum number of datagrams of one system call.
pub(super) const DATAGRAMS_MAX: usize = 64;
/// The maximum length of a datagram, in bytes. Events have a few hundred bytes at most, one in a datagram.
pub(super) const DATAGRAM_BYTES_MAX: usize = 4096;

/// The buffers, made once.
#[derive(Debug)]
pub(super) struct Ring {
    bytes: Vec<u8>,
}

/// The result of one system call.
pub(super) struct Batch<'a> {
    bytes: &'a [u8],
    /// The length of each datagram; `None` if it was truncated.
    lengths: [Option<usize>; DATAGRAMS_MAX],
    count: usize,
}

impl Ring {
    pub(super) fn new() -> Self {
        Self { bytes: vec![0; DATAGRAMS_MAX * DATAGRAM_BYTES_MAX] }
    }

    /// Receives pending datagrams, at most `datagrams_max`. An empty queue is the error `EAGAIN`.
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, datagrams_max: usize) -> io::Result<Batch<'_>> {
        // SAFETY: all-zero bytes are a valid mmsghdr and a valid iovec: no address, no buffer.
        let mut headers: [libc::mmsghdr; DATAGRAMS_MAX] = unsafe { zeroed() };
        // SAFETY: as above.
        let mut vectors: [libc::iovec; DATAGRAMS_MAX] = unsafe { zeroed() };
        let buffers = self.bytes.chunks_exact_mut(DATAGRAM_BYTES_MAX);
        for ((header, vector), buffer) in headers.iter_mut().zip(&mut vectors).zip(buffers) {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            header.msg_hdr.msg_iov = &raw mut *vector;
            header.msg_hdr.msg_iovlen = 1;
        }
        let wanted = datagrams_max.min(DATAGRAMS_MAX) as libc::c_uint;
        // SAFETY: each of the first `wanted` headers leads to a vector that leads to a buffer of its own, writable for the
        // stated length; all of them outlive the call. No time is given.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                wanted,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let count = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let mut lengths = [None; DATAGRAMS_MAX];
        for (length, header) in lengths.iter_mut().zip(&headers).take(count) {
            let is_whole = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            *length = is_whole.then_some(header.msg_len as usize);
        }
        Ok(Batch { bytes: &self.bytes, lengths, count })
    }
}

impl Batch<'_> {
    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// The datagrams; `None` for a truncated one.
    pub(super) fn datagrams(&self) -> impl Iterator<Item = Option<&[u8]>> {
        let buffers = self.bytes.chunks_exact(DATAGRAM_BYTES_MAX);
        buffers.zip(&self.lengths).take(self.count).map(|(buffer, length)| buffer.get(..(*length)?))
    }
}
