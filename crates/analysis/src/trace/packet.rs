//! From a captured frame to a packet.

use flow::wire::ethernet::{self, ether_type};
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::tcp::TCP_CHECKSUM_OFFSET;
use flow::wire::udp::UDP_CHECKSUM_OFFSET;
use flow::wire::{Headers, Parsed, Transport, checksum, parse_into};
use flow::{Checksum, DropReason, Frame, Instant, PortId, Tuple};
use packet_io::pcap::{LinkType, SNAPSHOT_BYTES_MAX};

use super::Skip;
use super::admission::{self, Admission};

/// Bytes that ICMP errors quote of the transport header at least (RFC 792).
const QUOTED_TRANSPORT_BYTES: usize = 8;

/// A packet of a trace, lent until the next one is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// When it was captured, from the Unix epoch on; not before the packet before it.
    pub at: Instant,
    /// Which of the captures it is from: which node or site saw it.
    pub capture_index: usize,
    /// Its interface among those of the capture.
    pub interface: usize,
    /// Which frame of its capture it is, from 1.
    pub frame_number: u64,
    /// Its headers.
    pub headers: Headers,
    /// The frame from its link header on, as far as the capture holds it. Frames of other links have been made Ethernet's.
    pub frame: &'a [u8],
    /// What the transport carries, as far as the capture holds it, without the link's padding. Of a fragment behind the
    /// first, and of protocols without a known header, what the IP header carries.
    pub payload: &'a [u8],
    /// Bytes that the transport carried on the wire, of which the capture may hold fewer.
    pub payload_bytes: u32,
    /// Bytes of the frame on the wire, from the link header on.
    pub wire_bytes: u32,
}

impl Packet<'_> {
    /// Its tuple; ports are 0 in fragments behind the first.
    #[must_use]
    pub const fn tuple(&self) -> &Tuple {
        &self.headers.tuple
    }

    /// The capture holds its beginning only.
    #[must_use]
    pub const fn is_truncated(&self) -> bool {
        (self.payload.len() as u64) < self.payload_bytes as u64
    }
}

/// What was seen of a frame. Its bytes are the caller's.
pub(super) struct Seen {
    pub(super) headers: Headers,
    /// Bytes of the frame that the capture holds.
    kept_bytes: usize,
    pub(super) is_unfinished: bool,
}

impl Seen {
    pub(super) fn is_truncated(&self) -> bool {
        self.headers.l3_end() > self.kept_bytes
    }

    pub(super) fn packet<'a>(
        &self,
        frame: &'a [u8],
        capture_index: usize,
        interface: usize,
        (frame_number, at): (u64, Instant),
        wire_bytes: u32,
    ) -> Packet<'a> {
        let frame = &frame[..self.kept_bytes];
        let from = usize::from(self.headers.payload_offset);
        let end = self.headers.l3_end();
        let payload = frame.get(from..end.min(frame.len())).unwrap_or_default();
        let payload_bytes = end.saturating_sub(from) as u32;
        let headers = self.headers;
        Packet { at, capture_index, interface, frame_number, headers, frame, payload, payload_bytes, wire_bytes }
    }
}

/// Reads a frame of which the capture holds `frame` and `wire_bytes` were on the wire. It is made an Ethernet frame, as long as
/// it was, the bytes that the capture does not hold zero.
pub(super) fn look(
    frame: &mut Vec<u8>,
    link_type: LinkType,
    wire_bytes: u32,
    admission: Admission,
) -> Result<Seen, Skip> {
    if !link_type.make_ethernet(frame) {
        return Err(Skip::LinkType);
    }
    let kept_bytes = frame.len();
    let wire_bytes = wire_bytes.saturating_add_signed(link_type.added_bytes()).min(SNAPSHOT_BYTES_MAX) as usize;
    let is_truncated = wire_bytes > kept_bytes;
    if is_truncated {
        frame.resize(wire_bytes, 0);
    }
    let mut headers = Headers::NONE;
    // A sum over missing bytes is not checked.
    let is_believed = is_truncated || admission.believes_checksums;
    let checksum = if is_believed { Checksum::Valid } else { Checksum::Unverified };
    let (is_unfinished, parsed) = match parse(frame, checksum, &mut headers) {
        Err(reason) => match finish(frame, reason, &mut headers) {
            Some(()) => (true, Ok(Parsed::Ip(()))),
            None => (false, admission::admit(frame, reason, is_believed, admission, &mut headers).map(Parsed::Ip)),
        },
        parsed => (false, parsed),
    };
    match parsed {
        Ok(Parsed::Ip(())) if headers_end(&headers) <= kept_bytes => Ok(Seen { headers, kept_bytes, is_unfinished }),
        Ok(Parsed::Ip(())) => Err(Skip::TruncatedInHeaders),
        Ok(Parsed::Arp(_)) => Err(Skip::NotIp),
        Err(DropReason::UnsupportedLinkProtocol) => Err(Skip::NotIp),
        // Bytes beyond the kept ones are zero, and so are the headers there.
        Err(_) if is_truncated => Err(Skip::TruncatedInHeaders),
        Err(reason) => Err(Skip::of(reason)),
    }
}

#[inline]
pub(super) fn parse(frame: &mut [u8], checksum: Checksum, headers: &mut Headers) -> Result<Parsed<()>, DropReason> {
    let length_bytes = frame.len();
    let mut frame = Frame::new(frame, 0, length_bytes, PortId(0)).ok_or(DropReason::Truncated)?;
    frame.checksum = checksum;
    parse_into(&frame, headers)
}

/// Where the headers that are read end in the frame.
fn headers_end(headers: &Headers) -> usize {
    match headers.transport {
        Transport::IcmpError(error) => usize::from(error.inner_l4_offset) + QUOTED_TRANSPORT_BYTES,
        _ => headers.payload_offset.into(),
    }
}

/// Reads a frame that the sending host left unfinished to its hardware, which is where captures on that host are taken: an
/// IPv4 header without its checksum or without its length (a segment still to be cut), a transport checksum that is the
/// sum of the pseudo-header alone. `None`: something else is wrong with it.
#[cold]
fn finish(frame: &mut [u8], reason: DropReason, headers: &mut Headers) -> Option<()> {
    let reason = match reason {
        DropReason::BadIpChecksum | DropReason::Malformed => {
            let checksum = finish_ipv4(frame)?;
            match parse(frame, checksum, headers) {
                Ok(Parsed::Ip(())) => return Some(()),
                Ok(Parsed::Arp(_)) => return None,
                Err(reason) => reason,
            }
        }
        reason => reason,
    };
    if reason != DropReason::BadTransportChecksum {
        return None;
    }
    let mut found = Headers::NONE;
    parse(frame, Checksum::Valid, &mut found).ok()?;
    if !is_left_to_hardware(frame, &found)? {
        return None;
    }
    *headers = found;
    Some(())
}

/// Whether a transport checksum is the sum of the pseudo-header alone; `None` if the transport has none that hosts leave to hardware.
pub(super) fn is_left_to_hardware(frame: &[u8], headers: &Headers) -> Option<bool> {
    let offset = match headers.transport {
        Transport::Tcp(_) => TCP_CHECKSUM_OFFSET,
        Transport::Udp => UDP_CHECKSUM_OFFSET,
        _ => return None,
    };
    let at = usize::from(headers.l4_offset) + offset;
    let field = u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]);
    let transport_bytes = headers.l3_bytes.checked_sub(u32::from(headers.l4_offset - headers.l3_offset))?;
    Some(field == checksum::pseudo_header(&headers.tuple, transport_bytes).fold())
}

/// Completes an IPv4 header whose length or checksum is zero, and returns what follows for the transport's checksum.
fn finish_ipv4(frame: &mut [u8]) -> Option<Checksum> {
    let (kind, at) = ethernet::network_layer(frame).ok()?;
    let packet = frame.get_mut(at..).filter(|_| kind == ether_type::IPV4)?;
    let header_bytes = usize::from(*packet.first()? & 0x0f) * 4;
    let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
    let header = packet.get_mut(..header_bytes).filter(|header| header.len() >= IPV4_HEADER_BYTES)?;
    let (is_without_length, is_without_checksum) = (header[2..4] == [0, 0], header[10..12] == [0, 0]);
    if !is_without_length && !is_without_checksum {
        return None;
    }
    if is_without_length {
        header[2..4].copy_from_slice(&length.to_be_bytes());
    }
    write_ipv4_checksum(header);
    // The device that cuts a segment fills in the checksums of its parts.
    Some(if is_without_length { Checksum::Valid } else { Checksum::Unverified })
}

/// Gives an IPv4 header the checksum that is right for it.
pub(super) fn write_ipv4_checksum(header: &mut [u8]) {
    header[10..12].fill(0);
    let checksum = checksum::Sum::of(header).checksum();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
}
