//! A frame in a buffer, its offload state, and a batch of frames.
//!
//! Frames are borrowed: the receiver (an `AF_PACKET` socket, an `AF_XDP` ring, a test) lends its buffer, so that no
//! stage copies a packet to read it.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use crate::DropReason;

/// The most frames that a batch holds.
pub const BATCH_FRAMES_MAX: usize = 64;

/// One of a node's ports: the index of an interface in the node's configuration, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PortId(pub u8);

/// The verification state of a frame's transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Checksum {
    /// Unverified: it must be checked before the packet is used.
    #[default]
    Unverified,
    /// The sender left it to hardware: the field holds the *uncomplemented* sum of the pseudo-header alone.
    /// `start` is where summing begins and `offset` where the result goes, counted from `start`
    /// (the virtio-net header's `csum_start` and `csum_offset`, both in bytes).
    Partial {
        /// Offset of the transport header from the start of the frame, in bytes.
        start: u16,
        /// Offset of the checksum field from `start`, in bytes.
        offset: u16,
    },
    /// The receiving hardware or the kernel has verified it.
    Valid,
}

/// The segmentation to apply when the frame leaves on a real wire.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SegmentationKind {
    /// An ordinary packet.
    #[default]
    None,
    /// TCP over IPv4.
    TcpIpv4,
    /// TCP over IPv6.
    TcpIpv6,
    /// UDP datagrams of equal size (`UDP_SEGMENT`).
    Udp,
}

/// Segmentation offload state: one frame that represents several packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Segmentation {
    /// The kind of segmentation.
    pub kind: SegmentationKind,
    /// Payload bytes of each packet.
    pub size_bytes: u16,
    /// Bytes of header to repeat before each packet's payload, as the sender stated them (0: not stated).
    pub header_bytes: u16,
    /// The first packet alone carries the congestion-window-reduced flag (RFC 3168).
    pub ecn: bool,
}

/// The disposition of a frame after processing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disposition {
    /// Undecided. A frame that remains so is a defect and is dropped as [`DropReason::Undecided`].
    Undecided,
    /// Send it on this port.
    Transmit(PortId),
    /// Do not send it.
    Drop(DropReason),
    /// It was for the node itself, such as a neighbour advertisement, and has been processed.
    Consumed,
}

/// A frame lent by its receiver.
#[derive(Debug)]
pub struct Frame<'a> {
    buffer: &'a mut [u8],
    start: usize,
    length_bytes: usize,
    /// The port that it arrived on.
    pub ingress: PortId,
    /// The state of its transport checksum.
    pub checksum: Checksum,
    /// Its segmentation offload.
    pub segmentation: Segmentation,
    /// Its disposition.
    pub disposition: Disposition,
}

impl<'a> Frame<'a> {
    /// A frame of `length_bytes` that begins `start` bytes into `buffer`. The bytes before and behind it are
    /// room to grow. `None` when it does not fit.
    #[must_use]
    pub fn new(buffer: &'a mut [u8], start: usize, length_bytes: usize, ingress: PortId) -> Option<Self> {
        (start.checked_add(length_bytes)? <= buffer.len()).then_some(Self {
            buffer,
            start,
            length_bytes,
            ingress,
            checksum: Checksum::Unverified,
            segmentation: Segmentation::default(),
            disposition: Disposition::Undecided,
        })
    }

    /// The frame from its link header on.
    #[must_use]
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.start + self.length_bytes]
    }

    /// Packets that the frame stands for on the wire.
    #[must_use]
    #[inline(always)]
    pub fn packets(&self) -> u64 {
        let segmentation = self.segmentation;
        if segmentation.kind == SegmentationKind::None || segmentation.size_bytes == 0 {
            return 1;
        }
        let payload = self.length_bytes.saturating_sub(usize::from(segmentation.header_bytes));
        payload.div_ceil(usize::from(segmentation.size_bytes)).max(1) as u64
    }

    /// The frame, to be rewritten.
    #[inline]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.buffer[self.start..self.start + self.length_bytes]
    }

    /// Makes the frame `length_bytes` long, cutting or growing it at its end (grown bytes keep the buffer's content).
    /// Returns false, without changes, when the buffer is too small.
    pub fn set_length(&mut self, length_bytes: usize) -> bool {
        let fits = self.start + length_bytes <= self.buffer.len();
        if fits {
            self.length_bytes = length_bytes;
        }
        fits
    }

    /// The whole buffer and where the frame lies in it, for the backend that lent it: (buffer, start, length).
    pub fn buffer_parts(&mut self) -> (&mut [u8], usize, usize) {
        (self.buffer, self.start, self.length_bytes)
    }
}

/// A copy of a received frame, for later reinjection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnedFrame {
    /// The frame from its link header on.
    pub bytes: Vec<u8>,
    ingress: PortId,
    checksum: Checksum,
    segmentation: Segmentation,
    /// Of `bytes`, those behind the frame.
    room_bytes: usize,
}

impl OwnedFrame {
    /// A frame that the node created, to be processed as if it had arrived on `ingress`.
    #[must_use]
    pub const fn new(bytes: Vec<u8>, ingress: PortId, checksum: Checksum, segmentation: Segmentation) -> Self {
        Self { bytes, ingress, checksum, segmentation, room_bytes: 0 }
    }

    /// A copy of `frame`, undecided.
    #[must_use]
    pub fn copy_of(frame: &Frame<'_>) -> Self {
        Self {
            bytes: frame.bytes().to_vec(),
            ingress: frame.ingress,
            checksum: frame.checksum,
            segmentation: frame.segmentation,
            room_bytes: 0,
        }
    }

    /// Gives the frame this much room to grow, so that a function can turn it into an answer that is larger.
    pub fn make_room(&mut self, room_bytes: usize) {
        let length_bytes = self.bytes.len() - self.room_bytes;
        self.bytes.resize(length_bytes + room_bytes, 0);
        self.room_bytes = room_bytes;
    }

    /// The frame as received.
    #[must_use]
    pub fn frame(&mut self) -> Frame<'_> {
        let length_bytes = self.bytes.len() - self.room_bytes;
        Frame {
            buffer: &mut self.bytes,
            start: 0,
            length_bytes,
            ingress: self.ingress,
            checksum: self.checksum,
            segmentation: self.segmentation,
            disposition: Disposition::Undecided,
        }
    }
}

/// Frames handled together, at most [`BATCH_FRAMES_MAX`].
pub type PacketBatch<'a> = ArrayVec<Frame<'a>, BATCH_FRAMES_MAX>;
