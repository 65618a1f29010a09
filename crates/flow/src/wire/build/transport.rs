//! TCP segments, UDP datagrams, echoes.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use super::{Envelope, IcmpHeader, fill_checksum};
use crate::wire::icmp::{self, ICMP_CHECKSUM_OFFSET};
use crate::wire::sctp::{self, SCTP_HEADER_BYTES};
use crate::wire::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TCP_HEADER_BYTES_MAX, option};
use crate::wire::udp::{UDP_CHECKSUM_OFFSET, UDP_HEADER_BYTES};
use crate::wire::{Headers, Parsed, Transport, checksum, icmpv6, parse};
use crate::{Checksum, Frame, PortId, Tuple};

/// Bytes of the options of a TCP header at most.
pub(crate) const OPTIONS_BYTES_MAX: usize = TCP_HEADER_BYTES_MAX - TCP_HEADER_BYTES;

/// The fields of a TCP header beside its ports.
#[derive(Clone, Copy, Debug)]
pub struct Tcp<'a> {
    /// Bits of [`tcp_flags`](crate::wire::tcp_flags).
    pub flags: u8,
    /// Sequence number.
    pub sequence: u32,
    /// Acknowledgement number.
    pub acknowledgement: u32,
    /// The window field, not scaled.
    pub window: u16,
    /// The maximum segment size option, in bytes.
    pub maximum_segment_bytes: Option<u16>,
    /// The window scale option's shift.
    pub window_scale: Option<u8>,
    /// The SACK-permitted option.
    pub sack_permitted: bool,
    /// SACK blocks: (left edge, right edge); at most four, three with timestamps.
    pub sack_blocks: &'a [(u32, u32)],
    /// The timestamps option: (value, echo reply).
    pub timestamps: Option<(u32, u32)>,
}

impl Default for Tcp<'_> {
    /// No flags, no options, a window of 65 535.
    fn default() -> Self {
        Self {
            flags: 0,
            sequence: 0,
            acknowledgement: 0,
            window: u16::MAX,
            maximum_segment_bytes: None,
            window_scale: None,
            sack_permitted: false,
            sack_blocks: &[],
            timestamps: None,
        }
    }
}

impl Tcp<'_> {
    /// The options, padded in front to four bytes each as most stacks do. On the stack: the SYN proxy answers floods with them.
    ///
    /// # Panics
    /// They do not fit 40 bytes.
    pub(crate) fn options(&self) -> ArrayVec<u8, OPTIONS_BYTES_MAX> {
        let mut out = ArrayVec::new();
        let mut put = |bytes: &[u8]| out.try_extend_from_slice(bytes).expect("TCP options have at most 40 bytes");
        if let Some(bytes) = self.maximum_segment_bytes {
            put(&[option::MAXIMUM_SEGMENT, 4]);
            put(&bytes.to_be_bytes());
        }
        if self.sack_permitted {
            put(&[option::NOP, option::NOP, option::SACK_PERMITTED, 2]);
        }
        if let Some((value, echo)) = self.timestamps {
            put(&[option::NOP, option::NOP, option::TIMESTAMPS, 10]);
            put(&value.to_be_bytes());
            put(&echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            put(&[option::NOP, option::WINDOW_SCALE, 3, shift]);
        }
        if !self.sack_blocks.is_empty() {
            put(&[option::NOP, option::NOP, option::SACK, (2 + 8 * self.sack_blocks.len()) as u8]);
            for (left, right) in self.sack_blocks {
                put(&left.to_be_bytes());
                put(&right.to_be_bytes());
            }
        }
        out
    }
}

/// The fields of an echo beside its identifier.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Echo {
    /// A reply, else a request.
    pub is_reply: bool,
    /// Sequence number.
    pub sequence: u16,
}

impl Envelope<'_> {
    /// A TCP segment from the tuple's source to its destination.
    ///
    /// # Panics
    /// The options do not fit 40 bytes, or the packet 65 535.
    #[must_use]
    pub fn tcp(&self, tuple: &Tuple, segment: Tcp<'_>, payload: &[u8]) -> Vec<u8> {
        let options = segment.options();
        let header_bytes = TCP_HEADER_BYTES + options.len();
        let mut out = Vec::with_capacity(header_bytes + payload.len());
        out.extend_from_slice(&tuple.source_port.to_be_bytes());
        out.extend_from_slice(&tuple.destination_port.to_be_bytes());
        out.extend_from_slice(&segment.sequence.to_be_bytes());
        out.extend_from_slice(&segment.acknowledgement.to_be_bytes());
        out.extend_from_slice(&[((header_bytes / 4) << 4) as u8, segment.flags]);
        out.extend_from_slice(&segment.window.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&options);
        out.extend_from_slice(payload);
        fill_checksum(tuple, &mut out, TCP_CHECKSUM_OFFSET);
        self.raw(tuple, &out)
    }

    /// A UDP datagram from the tuple's source to its destination.
    ///
    /// # Panics
    /// The packet does not fit 65 535 bytes.
    #[must_use]
    pub fn udp(&self, tuple: &Tuple, payload: &[u8]) -> Vec<u8> {
        let length = u16::try_from(UDP_HEADER_BYTES + payload.len()).expect("a datagram has at most 65 535 bytes");
        let mut out = Vec::with_capacity(usize::from(length));
        out.extend_from_slice(&tuple.source_port.to_be_bytes());
        out.extend_from_slice(&tuple.destination_port.to_be_bytes());
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(&[0; 2]);
        out.extend_from_slice(payload);
        fill_checksum(tuple, &mut out, UDP_CHECKSUM_OFFSET);
        self.raw(tuple, &out)
    }

    /// An SCTP packet from the tuple's source to its destination, with this verification tag, that carries `chunks`, padded as
    /// they are.
    ///
    /// # Panics
    /// The packet does not fit 65 535 bytes.
    #[must_use]
    pub fn sctp(&self, tuple: &Tuple, verification_tag: u32, chunks: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(SCTP_HEADER_BYTES + chunks.len());
        out.extend_from_slice(&tuple.source_port.to_be_bytes());
        out.extend_from_slice(&tuple.destination_port.to_be_bytes());
        out.extend_from_slice(&verification_tag.to_be_bytes());
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(chunks);
        let _ = sctp::fill_checksum(&mut out);
        self.raw(tuple, &out)
    }

    /// An echo request or reply from the tuple's source to its destination, of the tuple's family; the identifier is its
    /// source port. See [`Tuple::echo`].
    ///
    /// # Panics
    /// The packet does not fit 65 535 bytes.
    #[must_use]
    pub fn echo(&self, tuple: &Tuple, echo: Echo, data: &[u8]) -> Vec<u8> {
        let kind = match (tuple.version, echo.is_reply) {
            (4, false) => icmp::kind::ECHO_REQUEST,
            (4, true) => icmp::kind::ECHO_REPLY,
            (_, false) => icmpv6::kind::ECHO_REQUEST,
            (_, true) => icmpv6::kind::ECHO_REPLY,
        };
        let parameter = u32::from(tuple.source_port) << 16 | u32::from(echo.sequence);
        self.icmp(tuple, IcmpHeader { kind, code: 0, parameter }, data)
    }
}

/// Turns a whole frame into one for checksum offload: the transport checksum field holds the uncomplemented sum of the
/// pseudo-header. Frames without such a checksum, and those that [`parse`] refuses, stay unchanged and
/// [`Checksum::Unverified`].
#[must_use]
pub fn offload_checksum(frame: &mut [u8]) -> Checksum {
    let length_bytes = frame.len();
    let parsed = Frame::new(frame, 0, length_bytes, PortId(0)).map(|frame| parse(&frame));
    let Some(Ok(Parsed::Ip(headers))) = parsed else { return Checksum::Unverified };
    let Some((offset, has_pseudo_header)) = checksum_offset(&headers) else { return Checksum::Unverified };
    let transport_bytes = headers.l3_bytes - u32::from(headers.l4_offset - headers.l3_offset);
    let partial = if has_pseudo_header { checksum::pseudo_header(&headers.tuple, transport_bytes).fold() } else { 0 };
    let at = usize::from(headers.l4_offset) + offset;
    frame[at..at + 2].copy_from_slice(&partial.to_be_bytes());
    Checksum::Partial { start: headers.l4_offset, offset: offset as u16 }
}

fn checksum_offset(headers: &Headers) -> Option<(usize, bool)> {
    match headers.transport {
        _ if headers.is_fragment => None,
        Transport::Tcp(_) => Some((TCP_CHECKSUM_OFFSET, true)),
        Transport::Udp => Some((UDP_CHECKSUM_OFFSET, true)),
        Transport::IcmpQuery(_) | Transport::IcmpError(_) | Transport::IcmpOther(..) => {
            Some((ICMP_CHECKSUM_OFFSET, headers.tuple.version == 6))
        }
        Transport::Sctp(_) | Transport::Other => None,
    }
}
