//! The arrays for a batch of receives or sends, built once and reused.
//!
//! Each frame's buffer begins with the virtio-net header, so that one I/O vector a frame does:
//!
//! ```text
//! | headroom | virtio-net header | frame ...                          | rest |
//! 0          118                 128                                   BUFFER_BYTES
//! ```

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use flow::wire::checksum::complete_partial;
use flow::wire::sctp::SCTP_CHECKSUM_OFFSET;
use flow::{BATCH_FRAMES_MAX, Checksum, Frame, PacketBatch, PortId};

use crate::fixed::Fixed;
use crate::packet_io::PortCounters;
use crate::system::zeroed;
use crate::virtio::{self, HEADER_BYTES};
use crate::{IoError, TransmitFailure};

/// Bytes before a received frame: headroom for a tag or tunnel header.
const HEADROOM_BYTES: usize = 128;
/// The largest frame received: 64 KB of segments with their headers.
const FRAME_BYTES_MAX: usize = 70_000;
/// A frame's buffer. Not a multiple of the page, so that the headers of a batch do not all fall on the same cache sets.
const BUFFER_BYTES: usize = 70_208;
/// Bytes of a VLAN tag (IEEE 802.1Q).
const VLAN_TAG_BYTES: usize = 4;
/// Bytes of the two link addresses before the tag.
const LINK_ADDRESSES_BYTES: usize = 12;
/// The EtherType of a VLAN tag where the kernel states none.
const ETHERTYPE_VLAN: u16 = 0x8100;

/// Frames from this mean size on are received [`BATCH_LARGE_FRAMES_MAX`] at a time.
const LARGE_FRAME_BYTES: usize = 8192;
/// A single 64 KB frame in a fixed buffer is still in the second-level cache when it is sent: this costs less than the
/// system calls that a larger batch would save (`mainstay bench bulk`).
const BATCH_LARGE_FRAMES_MAX: usize = 1;

const _: () = assert!(HEADROOM_BYTES + FRAME_BYTES_MAX <= BUFFER_BYTES);
const _: () = assert!(HEADROOM_BYTES >= HEADER_BYTES + VLAN_TAG_BYTES);
const _: () = assert!(BATCH_LARGE_FRAMES_MAX <= BATCH_FRAMES_MAX);

/// Space for the one control message that is requested (`PACKET_AUXDATA`).
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Receives batches of frames.
pub(super) struct ReceiveRing {
    buffers: Fixed<u8>,
    control: Fixed<Control>,
    /// Owns the memory that the messages point to.
    _vectors: Fixed<libc::iovec>,
    messages: Fixed<libc::mmsghdr>,
    limit: usize,
}

// SAFETY: the raw pointers in `vectors` and `messages` lead into the other arrays of the same value, which stay where they are
// when it moves.
unsafe impl Send for ReceiveRing {}

impl ReceiveRing {
    pub(super) fn new() -> Self {
        // Memory is used only as frames of that size arrive: zeroed allocations of this size are fresh mappings.
        let buffers = Fixed::new(vec![0_u8; BUFFER_BYTES * BATCH_FRAMES_MAX]);
        let control = Fixed::new(vec![Control([0; 64]); BATCH_FRAMES_MAX]);
        let vector = |index| libc::iovec {
            iov_base: buffers.pointer(index * BUFFER_BYTES + HEADROOM_BYTES - HEADER_BYTES).cast(),
            iov_len: HEADER_BYTES + FRAME_BYTES_MAX,
        };
        let vectors = Fixed::new((0..BATCH_FRAMES_MAX).map(vector).collect());
        let message = |index| {
            let mut message = message_of(&vectors, index);
            message.msg_hdr.msg_control = control.pointer(index).cast();
            message
        };
        let messages = Fixed::new((0..BATCH_FRAMES_MAX).map(message).collect());
        Self { buffers, control, _vectors: vectors, messages, limit: BATCH_FRAMES_MAX }
    }

    /// Receives the pending frames, at most a batch. Returns the number of messages for [`ReceiveRing::lend`].
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        let messages = self.messages.as_mut_slice();
        for message in &mut messages[..self.limit] {
            message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        }
        // SAFETY: the first `limit` messages point to vectors, buffers and control space that live as long as `self`,
        // are exclusively borrowed, and are as large as stated. No timeout is passed.
        let received = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                messages.as_mut_ptr(),
                self.limit as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
        let bytes: usize = messages[..received].iter().map(|message| message.msg_len as usize).sum();
        self.limit = if bytes >= received * LARGE_FRAME_BYTES { BATCH_LARGE_FRAMES_MAX } else { BATCH_FRAMES_MAX };
        Ok(received)
    }

    /// The first `received` messages as frames. Unusable messages are counted.
    pub(super) fn lend(&mut self, received: usize, ingress: PortId, counters: &mut PortCounters) -> PacketBatch<'_> {
        let mut batch = PacketBatch::new();
        let messages = &self.messages.as_slice()[..received];
        let buffers = self.buffers.as_mut_slice().chunks_exact_mut(BUFFER_BYTES);
        for ((message, control), buffer) in messages.iter().zip(self.control.as_slice()).zip(buffers) {
            if message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
                counters.received_oversized += 1;
                continue;
            }
            let Some(length_bytes) = (message.msg_len as usize).checked_sub(HEADER_BYTES) else { continue };
            let auxiliary = auxiliary_data(&message.msg_hdr, control);
            let Some(frame) = received_frame(buffer, length_bytes, ingress, auxiliary.as_ref()) else {
                counters.received_unsupported_offload += 1;
                continue;
            };
            counters.received_frames += 1;
            counters.received_bytes += frame.bytes().len() as u64;
            batch.push(frame);
        }
        batch
    }
}

/// A message of one vector, that at `index`.
fn message_of(vectors: &Fixed<libc::iovec>, index: usize) -> libc::mmsghdr {
    // SAFETY: all-zero bytes are a valid mmsghdr: null pointers and zero lengths.
    let mut message: libc::mmsghdr = unsafe { zeroed() };
    message.msg_hdr.msg_iov = vectors.pointer(index);
    message.msg_hdr.msg_iovlen = 1;
    message
}

/// The `PACKET_AUXDATA` control message, if the kernel supplied one.
fn auxiliary_data(header: &libc::msghdr, control: &Control) -> Option<libc::tpacket_auxdata> {
    let length_bytes = size_of::<libc::cmsghdr>() + size_of::<libc::tpacket_auxdata>();
    if header.msg_controllen < length_bytes {
        return None;
    }
    let at = size_of::<libc::cmsghdr>();
    // SAFETY: `Control` is aligned and long enough for a control message header, of which all bytes are initialised.
    let message: libc::cmsghdr = unsafe { control.0.as_ptr().cast::<libc::cmsghdr>().read() };
    let asked_for = message.cmsg_level == libc::SOL_PACKET && message.cmsg_type == libc::PACKET_AUXDATA;
    // SAFETY: the kernel reports that the data is present, and it lies within `Control`; any bytes make a valid value.
    (asked_for && message.cmsg_len >= length_bytes)
        .then(|| unsafe { control.0[at..].as_ptr().cast::<libc::tpacket_auxdata>().read_unaligned() })
}

/// The frame of `length_bytes` in `buffer`, with its VLAN tag, which the kernel strips, inserted again. `None` for an
/// unsupported offload.
fn received_frame<'a>(
    buffer: &'a mut [u8],
    mut length_bytes: usize,
    ingress: PortId,
    auxiliary: Option<&libc::tpacket_auxdata>,
) -> Option<Frame<'a>> {
    let mut header = [0; HEADER_BYTES];
    header.copy_from_slice(&buffer[HEADROOM_BYTES - HEADER_BYTES..HEADROOM_BYTES]);
    let status = auxiliary.map_or(0, |auxiliary| auxiliary.tp_status);
    let mut start = HEADROOM_BYTES;
    if let Some(auxiliary) = auxiliary.filter(|_| status & libc::TP_STATUS_VLAN_VALID != 0)
        && length_bytes >= LINK_ADDRESSES_BYTES
    {
        let ethertype =
            if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { auxiliary.tp_vlan_tpid } else { ETHERTYPE_VLAN };
        buffer.copy_within(start..start + LINK_ADDRESSES_BYTES, start - VLAN_TAG_BYTES);
        start -= VLAN_TAG_BYTES;
        length_bytes += VLAN_TAG_BYTES;
        let tag_at = start + LINK_ADDRESSES_BYTES;
        buffer[tag_at..tag_at + 2].copy_from_slice(&ethertype.to_be_bytes());
        buffer[tag_at + 2..tag_at + 4].copy_from_slice(&auxiliary.tp_vlan_tci.to_be_bytes());
    }
    let (checksum, segmentation) = virtio::parse(header, (HEADROOM_BYTES - start) as u16)?;
    let mut frame = Frame::new(buffer, start, length_bytes, ingress)?;
    frame.segmentation = segmentation;
    frame.checksum = match checksum {
        Checksum::Unverified if status & libc::TP_STATUS_CSUM_VALID != 0 => Checksum::Valid,
        // The virtio-net header supports sums only: a CRC32c is computed here, once.
        Checksum::Partial { start, offset }
            if usize::from(offset) == SCTP_CHECKSUM_OFFSET && complete_partial(frame.bytes_mut(), start, offset) =>
        {
            Checksum::Valid
        }
        checksum => checksum,
    };
    Some(frame)
}

/// Sends batches of frames.
pub(super) struct TransmitRing {
    vectors: Fixed<libc::iovec>,
    messages: Fixed<libc::mmsghdr>,
}

// SAFETY: the pointers in `messages` lead into `vectors`, which stay where they are when the value moves; those in `vectors`
// lead into frames only while `send` runs.
unsafe impl Send for TransmitRing {}

impl TransmitRing {
    pub(super) fn new() -> Self {
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let vectors = Fixed::new(vec![nothing; BATCH_FRAMES_MAX]);
        let messages = Fixed::new((0..BATCH_FRAMES_MAX).map(|index| message_of(&vectors, index)).collect());
        Self { vectors, messages }
    }

    /// Sends the frames of the batch that leave on `port`, in order. Failures are counted.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        port: PortId,
        batch: &mut PacketBatch<'_>,
        counters: &mut PortCounters,
    ) {
        let mut count = 0;
        for frame in batch.iter_mut().filter(|frame| frame.disposition == flow::Disposition::Transmit(port)) {
            let header = virtio::emit(frame.checksum, frame.segmentation, frame.bytes());
            let (buffer, start, length_bytes) = frame.buffer_parts();
            let Some(header_at) = start.checked_sub(HEADER_BYTES) else {
                counters.transmit_failures.count(TransmitFailure::Invalid);
                continue;
            };
            buffer[header_at..start].copy_from_slice(&header);
            let message = &mut buffer[header_at..start + length_bytes];
            self.vectors.as_mut_slice()[count] =
                libc::iovec { iov_base: message.as_mut_ptr().cast(), iov_len: message.len() };
            count += 1;
        }
        self.send_vectors(socket, count, counters);
    }

    fn send_vectors(&mut self, socket: BorrowedFd<'_>, count: usize, counters: &mut PortCounters) {
        let mut done = 0;
        while done < count {
            let rest = &mut self.messages.as_mut_slice()[done..count];
            // SAFETY: each message points to a vector of `self`, which points to a frame of the batch that the caller
            // borrows exclusively; all live until the call returns.
            let sent = unsafe {
                libc::sendmmsg(
                    socket.as_raw_fd(),
                    rest.as_mut_ptr(),
                    rest.len() as libc::c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            };
            if let Ok(sent @ 1..) = usize::try_from(sent) {
                let vectors = &self.vectors.as_slice()[done..done + sent];
                counters.sent_frames += sent as u64;
                counters.sent_bytes += vectors.iter().map(|vector| (vector.iov_len - HEADER_BYTES) as u64).sum::<u64>();
                done += sent;
                continue;
            }
            let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
            if errno == libc::EINTR {
                continue;
            }
            let cause = TransmitFailure::from_errno(errno);
            // A refused frame does not affect the next one; an interface that is down accepts none.
            let lost = if cause == TransmitFailure::Down { count - done } else { 1 };
            (0..lost).for_each(|_| counters.transmit_failures.count(cause));
            done += lost;
        }
    }
}

/// Sends one frame from memory of the caller.
pub(super) fn send_one(socket: BorrowedFd<'_>, port: PortId, frame: &Frame<'_>) -> Result<(), IoError> {
    let bytes = frame.bytes();
    let mut header = virtio::emit(frame.checksum, frame.segmentation, bytes);
    let mut vectors = [
        libc::iovec { iov_base: header.as_mut_ptr().cast(), iov_len: HEADER_BYTES },
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() },
    ];
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut message: libc::msghdr = unsafe { zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = 2;
    loop {
        // SAFETY: the message points to two vectors, which point to the header and the frame; the kernel only reads.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT) };
        if sent >= 0 {
            return Ok(());
        }
        let errno = io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
        if errno != libc::EINTR {
            return Err(IoError::Transmit { port, cause: TransmitFailure::from_errno(errno) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offloaded_sctp_checksum_is_completed_on_reception() {
        use flow::Tuple;
        use flow::wire::build::Envelope;
        let end = |last: u8| (std::net::Ipv4Addr::new(10, 0, 0, last), 2905);
        let whole = Envelope::default().sctp(&Tuple::v4(132, end(1), end(2)), 7, &[3, 0, 0, 4]);
        let mut buffer = vec![0; 300];
        buffer[HEADROOM_BYTES..HEADROOM_BYTES + whole.len()].copy_from_slice(&whole);
        buffer[HEADROOM_BYTES + 34 + 8..][..4].fill(0);
        let header = virtio::emit(Checksum::Partial { start: 34, offset: 8 }, flow::Segmentation::default(), &whole);
        buffer[HEADROOM_BYTES - HEADER_BYTES..HEADROOM_BYTES].copy_from_slice(&header);
        let frame = received_frame(&mut buffer, whole.len(), PortId(1), None).unwrap();
        assert_eq!((frame.bytes(), frame.checksum), (&whole[..], Checksum::Valid));
    }

    #[test]
    fn a_vlan_tag_is_restored_between_addresses_and_type() {
        let mut buffer = vec![0; 300];
        let untagged: Vec<u8> = (1..=20).collect();
        buffer[HEADROOM_BYTES..HEADROOM_BYTES + 20].copy_from_slice(&untagged);
        let auxiliary = libc::tpacket_auxdata {
            tp_status: libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID | libc::TP_STATUS_CSUM_VALID,
            tp_len: 20,
            tp_snaplen: 20,
            tp_mac: 0,
            tp_net: 0,
            tp_vlan_tci: 0x2064,
            tp_vlan_tpid: 0x88a8,
        };
        let frame = received_frame(&mut buffer, 20, PortId(1), Some(&auxiliary)).unwrap();
        assert_eq!(&frame.bytes()[..12], &untagged[..12]);
        assert_eq!(&frame.bytes()[12..16], [0x88, 0xa8, 0x20, 0x64]);
        assert_eq!(&frame.bytes()[16..], &untagged[12..]);
        assert_eq!(frame.checksum, Checksum::Valid);
    }
}
