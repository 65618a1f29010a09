//! Many datagrams by one system call.
//!
//! ```text
//!   pushed     a1 b1 A2 A3 B2 A4          (capitals: datagrams of the same length)
//!   messages   [a1] [b1] [A2 A3 A4] [B2]  by sendmmsg; the kernel cuts the third into datagrams (UDP_SEGMENT)
//! ```
//!
//! Consecutive datagrams of equal length to one address form a message, which the kernel routes once and cuts late. The last one
//! may be shorter. The order of the datagrams to an address is kept. So is the order of first datagrams of different addresses.

use std::io;
use std::mem;
use std::net::SocketAddr;
use std::os::fd::AsRawFd;

use super::{Failure, STALE_ERRORS_MAX, Sent, UdpSocket, raw_address};
use crate::IoError;
use crate::system::{check, zeroed};

/// The most datagrams that a batch holds; also the most that the kernel cuts a message into (`UDP_MAX_SEGMENTS`).
pub const BATCH_DATAGRAMS_MAX: usize = 64;
/// The most bytes of a message that is cut: with its headers it must be a valid IP packet.
const MESSAGE_MAX_BYTES: usize = 65_000;

/// What became of the datagrams of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BatchSent {
    /// Datagrams that the kernel has.
    pub queued: usize,
    /// Datagrams lost as in [`Sent::Lost`].
    pub lost: usize,
}

impl BatchSent {
    const fn count(&mut self, sent: Sent, datagrams: usize) {
        match sent {
            Sent::Queued => self.queued += datagrams,
            Sent::Lost => self.lost += datagrams,
        }
    }
}

/// Datagrams that wait to be sent together by [`UdpSocket::send_batch`], at most [`BATCH_DATAGRAMS_MAX`]. Its buffers are used again.
#[derive(Debug, Default)]
pub struct DatagramBatch {
    /// The first `filled` wait; the buffers behind them are free.
    datagrams: Vec<Vec<u8>>,
    filled: usize,
    messages: Vec<Message>,
    /// The kernel refused to cut a message.
    refuses_segments: bool,
}

/// Datagrams to an address that are sent as one message.
#[derive(Clone, Debug)]
struct Message {
    to: SocketAddr,
    /// The length of each datagram but the last, which may be shorter.
    segment_bytes: usize,
    bytes: usize,
    /// Positions in the batch.
    datagrams: Vec<usize>,
    /// A datagram shorter than the others, which ends the message, is in it.
    is_complete: bool,
}

impl Message {
    const fn takes(&self, length_bytes: usize) -> bool {
        !self.is_complete
            && length_bytes > 0
            && length_bytes <= self.segment_bytes
            && self.bytes + length_bytes <= MESSAGE_MAX_BYTES
    }

    const fn is_segmented(&self) -> bool {
        self.datagrams.len() > 1
    }
}

impl DatagramBatch {
    /// The buffer of the next datagram, to be written before [`DatagramBatch::push`]. Call only if the batch is not full.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.filled == self.datagrams.len() {
            self.datagrams.push(Vec::new());
        }
        &mut self.datagrams[self.filled]
    }

    /// The datagram in [`DatagramBatch::buffer`] goes to this address.
    pub fn push(&mut self, to: SocketAddr) {
        let (datagram, length_bytes) = (self.filled, self.buffer().len());
        self.filled += 1;
        let newest = self.messages.iter_mut().rev().find(|message| message.to == to);
        match newest.filter(|message| !self.refuses_segments && message.takes(length_bytes)) {
            Some(message) => {
                message.is_complete = length_bytes < message.segment_bytes;
                message.bytes += length_bytes;
                message.datagrams.push(datagram);
            }
            None => self.messages.push(Message {
                to,
                segment_bytes: length_bytes,
                bytes: length_bytes,
                datagrams: vec![datagram],
                is_complete: false,
            }),
        }
    }

    /// Whether it holds [`BATCH_DATAGRAMS_MAX`] datagrams.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.filled >= BATCH_DATAGRAMS_MAX
    }

    fn clear(&mut self) {
        self.filled = 0;
        self.messages.clear();
    }
}

impl UdpSocket {
    /// Sends the datagrams of a batch, which is empty afterwards. A peer that cannot be reached does not keep datagrams to others
    /// back. Where the kernel refuses to cut a message, its datagrams are sent singly, and later ones too.
    ///
    /// # Errors
    /// Those of [`UdpSocket::send_to`]. The remaining datagrams of the batch are then lost.
    pub fn send_batch(&self, batch: &mut DatagramBatch) -> Result<BatchSent, IoError> {
        let result = self.send_messages(batch);
        batch.clear();
        result
    }

    fn send_messages(&self, batch: &mut DatagramBatch) -> Result<BatchSent, IoError> {
        let mut sent = BatchSent::default();
        if let [only] = &batch.messages[..]
            && let [datagram] = only.datagrams[..]
        {
            sent.count(self.send_to(&batch.datagrams[datagram], only.to)?, 1);
            return Ok(sent);
        }
        let (mut next, mut stale_errors) = (0, 0);
        while let Some(message) = batch.messages.get(next) {
            let error = match self.send_from(batch, next) {
                Ok(messages) => {
                    for message in &batch.messages[next..next + messages] {
                        sent.count(Sent::Queued, message.datagrams.len());
                    }
                    (next, stale_errors) = (next + messages, 0);
                    continue;
                }
                Err(error) => error,
            };
            match Failure::of(&error) {
                Failure::Stale if stale_errors < STALE_ERRORS_MAX => {
                    stale_errors += 1;
                    continue;
                }
                Failure::Stale | Failure::Lost => sent.count(Sent::Lost, message.datagrams.len()),
                // A route with a small MTU, a device without checksum offload, or a kernel without the option: they differ
                // in the error's number.
                Failure::Fault if message.is_segmented() => {
                    for datagram in &message.datagrams {
                        sent.count(self.send_to(&batch.datagrams[*datagram], message.to)?, 1);
                    }
                    batch.refuses_segments = true;
                }
                Failure::Fault => {
                    let operation = format!("sending {} bytes to {}", message.bytes, message.to);
                    return Err(IoError::from_io(error, operation));
                }
            }
            (next, stale_errors) = (next + 1, 0);
        }
        Ok(sent)
    }

    /// Hands the messages from `first` on to the kernel. Returns how many it took: the next one failed, or is to be handed over
    /// once more.
    fn send_from(&self, batch: &DatagramBatch, first: usize) -> io::Result<usize> {
        let messages = &batch.messages[first..];
        let order = messages.iter().flat_map(|message| &message.datagrams);
        let mut vectors: Vec<libc::iovec> = order
            .map(|datagram| {
                let bytes = &batch.datagrams[*datagram];
                // The kernel only reads what a sent message refers to.
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
            })
            .collect();
        let mut addresses: Vec<_> = messages.iter().map(|message| raw_address(message.to)).collect();
        let mut controls: Vec<_> = messages.iter().map(SegmentSize::of).collect();
        let mut headers = Vec::with_capacity(messages.len());
        let mut rest = vectors.as_mut_slice();
        for ((message, address), control) in messages.iter().zip(&mut addresses).zip(&mut controls) {
            let (own, others) = rest.split_at_mut(message.datagrams.len());
            rest = others;
            // SAFETY: all-zero bytes are a valid msghdr.
            let mut header: libc::msghdr = unsafe { zeroed() };
            header.msg_name = (&raw mut address.0).cast();
            header.msg_namelen = address.1;
            header.msg_iov = own.as_mut_ptr();
            header.msg_iovlen = own.len() as _;
            if message.is_segmented() {
                header.msg_control = (&raw mut *control).cast();
                header.msg_controllen = mem::size_of::<SegmentSize>() as _;
            }
            headers.push(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        }
        let number = libc::c_uint::try_from(headers.len()).expect("a batch has few messages");
        // SAFETY: names, vectors and control messages live in the vectors above, which are not moved, and the datagrams in `batch`.
        check(unsafe { libc::sendmmsg(self.socket.as_raw_fd(), headers.as_mut_ptr(), number, libc::MSG_DONTWAIT as _) })
            .map(|taken| usize::try_from(taken).unwrap_or(0))
    }
}

/// The control message with the length of the datagrams that a message is cut into (udp(7), `UDP_SEGMENT`).
#[repr(C)]
struct SegmentSize {
    header: libc::cmsghdr,
    bytes: u16,
    /// Control messages end at a multiple of the header's alignment.
    padding: [u8; 6],
}

impl SegmentSize {
    fn of(message: &Message) -> Self {
        // SAFETY: all-zero bytes are a valid cmsghdr.
        let mut header: libc::cmsghdr = unsafe { zeroed() };
        header.cmsg_len = (mem::size_of::<libc::cmsghdr>() + mem::size_of::<u16>()) as _;
        header.cmsg_level = libc::SOL_UDP;
        header.cmsg_type = libc::UDP_SEGMENT;
        Self { header, bytes: u16::try_from(message.segment_bytes).unwrap_or(u16::MAX), padding: [0; 6] }
    }
}

const _: () = assert!(mem::size_of::<SegmentSize>() == mem::size_of::<libc::cmsghdr>() + 8);

#[cfg(test)]
mod tests;
