//! Changes a packet's payload and a TCP segment's numbers; lengths and checksums follow.
//!
//! For functions that rewrite payload. A change of length shifts the sequence numbers of all later bytes; the function
//! must keep account of that.

use core::ops::Range;

use super::checksum::{self, Sum};
use super::rewrite::update;
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TcpView, option};
use super::udp::UDP_CHECKSUM_OFFSET;
use super::{Packet, Transport, tcp_flags};

const IPV4_LENGTH_OFFSET: usize = 2;
const IPV4_CHECKSUM_OFFSET: usize = 10;
const IPV6_LENGTH_OFFSET: usize = 4;
/// The bits of explicit congestion notification below the DSCP (RFC 3168 section 5).
const ECN_MASK: u8 = 0x3;
const IPV6_HEADER_BYTES: usize = 40;
const TCP_SEQUENCE_OFFSET: usize = 4;
const TCP_ACKNOWLEDGEMENT_OFFSET: usize = 8;
const TCP_FLAGS_OFFSET: usize = 13;
const UDP_LENGTH_OFFSET: usize = 4;

impl Packet<'_, '_> {
    /// Sets a TCP segment's sequence number, its acknowledgement if it carries one, and maps each edge of its SACK
    /// blocks by `selective`. Packets of other protocols stay unchanged.
    pub fn renumber_tcp(&mut self, sequence: u32, acknowledgement: u32, selective: impl Fn(u32) -> u32) {
        let is_partial = self.is_partial();
        let (l4, payload) = (usize::from(self.headers.l4_offset), usize::from(self.headers.payload_offset));
        let Transport::Tcp(segment) = &mut self.headers.transport else { return };
        let Some(header) = self.frame.bytes_mut().get_mut(l4..payload) else { return };
        if header.len() < TCP_HEADER_BYTES {
            return;
        }
        let before = Sum::of(header);
        header[TCP_SEQUENCE_OFFSET..TCP_SEQUENCE_OFFSET + 4].copy_from_slice(&sequence.to_be_bytes());
        segment.sequence = sequence;
        if segment.flags & tcp_flags::ACK != 0 {
            let place = &mut header[TCP_ACKNOWLEDGEMENT_OFFSET..TCP_ACKNOWLEDGEMENT_OFFSET + 4];
            place.copy_from_slice(&acknowledgement.to_be_bytes());
            let has_blocks = segment.sack_end != segment.acknowledgement;
            segment.sack_end = if has_blocks { selective(segment.sack_end) } else { acknowledgement };
            segment.acknowledgement = acknowledgement;
        }
        if let Some(blocks) = sack_blocks(header) {
            for edge in header[blocks].as_chunks_mut::<4>().0 {
                *edge = selective(u32::from_be_bytes(*edge)).to_be_bytes();
            }
        }
        let delta = Sum::of(header).minus(before);
        // A partial checksum covers the pseudo-header alone.
        if !is_partial {
            update(&mut header[TCP_CHECKSUM_OFFSET..], delta);
        }
    }

    /// Sets the differentiated services code point, 0 to 63 (RFC 2474 section 3), of the packet's own IP header. The bits of explicit
    /// congestion notification stay. The checksum of an IPv4 header follows; no other one covers the field.
    pub fn set_dscp(&mut self, dscp: u8) {
        let at = usize::from(self.headers.l3_offset);
        let is_v4 = self.headers.tuple.version == 4;
        let Some(header) = self.frame.bytes_mut().get_mut(at..at + IPV4_CHECKSUM_OFFSET + 2) else { return };
        let before = Sum::of(&header[..2]);
        if is_v4 {
            header[1] = dscp << 2 | (header[1] & ECN_MASK);
            let delta = Sum::of(&header[..2]).minus(before);
            update(&mut header[IPV4_CHECKSUM_OFFSET..], delta);
        } else {
            // The traffic class lies between the version and the flow label, across two bytes.
            let class = dscp << 2 | (header[1] >> 4 & ECN_MASK);
            header[0] = (header[0] & 0xf0) | class >> 4;
            header[1] = class << 4 | (header[1] & 0x0f);
        }
    }

    /// Clears these bits of [`tcp_flags`] in a TCP segment. Packets of other protocols stay unchanged.
    pub fn clear_tcp_flags(&mut self, flags: u8) {
        let is_partial = self.is_partial();
        let l4 = usize::from(self.headers.l4_offset);
        let Transport::Tcp(segment) = &mut self.headers.transport else { return };
        let Some(header) = self.frame.bytes_mut().get_mut(l4..l4 + TCP_HEADER_BYTES) else { return };
        segment.flags &= !flags;
        let word = TCP_FLAGS_OFFSET - 1..TCP_FLAGS_OFFSET + 1;
        let before = Sum::of(&header[word.clone()]);
        header[TCP_FLAGS_OFFSET] &= !flags;
        let delta = Sum::of(&header[word]).minus(before);
        // A partial checksum covers the pseudo-header alone.
        if !is_partial {
            update(&mut header[TCP_CHECKSUM_OFFSET..], delta);
        }
    }

    /// Replaces the options of a TCP segment that `keeps` refuses, by kind, with no-operations (RFC 9293 section 3.1). Packets of other protocols stay
    /// unchanged.
    pub fn remove_tcp_options(&mut self, keeps: impl Fn(u8) -> bool) {
        let is_partial = self.is_partial();
        let (l4, payload) = (usize::from(self.headers.l4_offset), usize::from(self.headers.payload_offset));
        let Transport::Tcp(_) = &self.headers.transport else { return };
        let Some(header) = self.frame.bytes_mut().get_mut(l4..payload) else { return };
        let before = Sum::of(header);
        let mut at = TCP_HEADER_BYTES;
        while let Some(rest) = header.get_mut(at..) {
            let length_bytes = match *rest {
                [] | [option::END, ..] => break,
                [option::NOP, ..] => 1,
                [_, length_bytes, ..] => usize::from(length_bytes),
                [_] => 0,
            };
            let Some(found) = rest.get_mut(..length_bytes).filter(|found| !found.is_empty()) else { break };
            if !keeps(found[0]) {
                found.fill(option::NOP);
            }
            at += length_bytes;
        }
        let delta = Sum::of(header).minus(before);
        // A partial checksum covers the pseudo-header alone.
        if !is_partial {
            update(&mut header[TCP_CHECKSUM_OFFSET..], delta);
        }
    }

    /// Replaces the bytes `range` of a TCP or UDP payload by `with`. Returns false, without changes, when the frame's
    /// buffer has no room, the packet would exceed the length of an IP packet, the range is invalid, or the protocol is
    /// another. Link padding is removed.
    ///
    /// The caller checks whether the packet still fits the outgoing link.
    #[must_use]
    pub fn replace_payload(&mut self, range: Range<usize>, with: &[u8]) -> bool {
        let (l3, end) = (usize::from(self.headers.l3_offset), self.headers.l3_end());
        let payload = usize::from(self.headers.payload_offset);
        let (from, to) = (payload + range.start, payload + range.end);
        let is_known = matches!(self.headers.transport, Transport::Tcp(_) | Transport::Udp);
        if !is_known || from > to || to > end || end > self.frame.bytes().len() {
            return false;
        }
        let new_end = from + with.len() + (end - to);
        let headroom_bytes = if self.headers.tuple.version == 4 { 0 } else { IPV6_HEADER_BYTES };
        if new_end - l3 > usize::from(u16::MAX) + headroom_bytes || !self.frame.set_length(end.max(new_end)) {
            return false;
        }
        let bytes = self.frame.bytes_mut();
        bytes.copy_within(to..end, from + with.len());
        bytes[from..from + with.len()].copy_from_slice(with);
        let is_shorter = self.frame.set_length(new_end);
        debug_assert!(is_shorter, "a frame can always be made shorter");
        self.fix_lengths(end, new_end);
        true
    }

    /// Updates lengths and checksums after the packet's end moved from `old_end` to `new_end`.
    fn fix_lengths(&mut self, old_end: usize, new_end: usize) {
        let is_partial = self.is_partial();
        let (l3, l4) = (usize::from(self.headers.l3_offset), usize::from(self.headers.l4_offset));
        let tuple = self.headers.tuple;
        self.headers.l3_bytes = (new_end - l3) as u32;
        let bytes = self.frame.bytes_mut();
        if tuple.version == 4 {
            let old = Sum::of(&bytes[l3 + IPV4_LENGTH_OFFSET..l3 + IPV4_LENGTH_OFFSET + 2]);
            let new = ((new_end - l3) as u16).to_be_bytes();
            bytes[l3 + IPV4_LENGTH_OFFSET..l3 + IPV4_LENGTH_OFFSET + 2].copy_from_slice(&new);
            update(&mut bytes[l3 + IPV4_CHECKSUM_OFFSET..], Sum::of(&new).minus(old));
        } else {
            let length = (new_end - l3 - IPV6_HEADER_BYTES) as u16;
            bytes[l3 + IPV6_LENGTH_OFFSET..l3 + IPV6_LENGTH_OFFSET + 2].copy_from_slice(&length.to_be_bytes());
        }
        let (old_bytes, new_bytes) = ((old_end - l4) as u32, (new_end - l4) as u32);
        let is_tcp = match &mut self.headers.transport {
            Transport::Tcp(segment) => {
                segment.payload_bytes = (new_end - usize::from(self.headers.payload_offset)) as u32;
                true
            }
            _ => {
                bytes[l4 + UDP_LENGTH_OFFSET..l4 + UDP_LENGTH_OFFSET + 2]
                    .copy_from_slice(&(new_bytes as u16).to_be_bytes());
                false
            }
        };
        let field = l4 + if is_tcp { TCP_CHECKSUM_OFFSET } else { UDP_CHECKSUM_OFFSET };
        let old = u16::from_be_bytes([bytes[field], bytes[field + 1]]);
        let new = if is_partial {
            checksum::updated_partial(old, Sum::ZERO.plus_u32(new_bytes).minus(Sum::ZERO.plus_u32(old_bytes)))
        } else if !is_tcp && old == 0 {
            0
        } else {
            bytes[field..field + 2].fill(0);
            let sum = Sum::of(&bytes[l4..new_end]).plus(checksum::pseudo_header(&tuple, new_bytes));
            if is_tcp { sum.checksum() } else { checksum::non_zero(sum.checksum()) }
        };
        bytes[field..field + 2].copy_from_slice(&new.to_be_bytes());
    }
}

/// The positions of the SACK blocks' edges in a TCP header.
fn sack_blocks(header: &[u8]) -> Option<Range<usize>> {
    let mut options = TcpView::new_checked(header).ok()?.options().filter_map(Result::ok);
    let found = options.find(|option| option.kind == option::SACK)?;
    let start = TCP_HEADER_BYTES + found.value_offset;
    Some(start..start + found.value.len())
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Headers, Parsed, build, ip_protocol, parse};
    use crate::{Checksum, Frame, PortId, Tuple};

    fn tuple(is_ipv4: bool, protocol: u8) -> Tuple {
        if is_ipv4 {
            Tuple::v4(protocol, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 21))
        } else {
            let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            Tuple::v6(protocol, (address(2), 4000), (address(1), 21))
        }
    }

    fn headers(frame: &Frame<'_>) -> Headers {
        let Ok(Parsed::Ip(headers)) = parse(frame) else { panic!("the packet is sound: {:?}", parse(frame)) };
        headers
    }

    /// The frame with spare room, changed; returns the headers, the headers of a new parse, and the bytes.
    fn changed(bytes: &[u8], change: impl FnOnce(&mut Packet<'_, '_>)) -> (Headers, Headers, Vec<u8>) {
        let mut buffer = bytes.to_vec();
        buffer.resize(bytes.len() + 64, 0xee);
        let mut frame = Frame::new(&mut buffer, 0, bytes.len(), PortId(0)).unwrap();
        let mut known = headers(&frame);
        change(&mut Packet { frame: &mut frame, headers: &mut known });
        let afresh = headers(&frame);
        (known, afresh, frame.bytes().to_vec())
    }

    proptest! {
        #[test]
        fn a_packet_with_changed_payload_equals_one_built_with_it(
            is_ipv4: bool, is_tcp: bool,
            payload in prop::collection::vec(any::<u8>(), 0..80),
            with in prop::collection::vec(any::<u8>(), 0..60),
            ends in any::<(prop::sample::Index, prop::sample::Index)>(),
            padding in 0usize..7,
        ) {
            let (a, b) = (ends.0.index(payload.len() + 1), ends.1.index(payload.len() + 1));
            let range = a.min(b)..a.max(b);
            let protocol = if is_tcp { ip_protocol::TCP } else { ip_protocol::UDP };
            let make = |payload: &[u8]| if is_tcp {
                build::tcp(&tuple(is_ipv4, protocol), build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() }, payload)
            } else {
                build::udp(&tuple(is_ipv4, protocol), payload)
            };
            let mut expected = payload.clone();
            expected.splice(range.clone(), with.iter().copied());
            let mut bytes = make(&payload);
            bytes.resize(bytes.len() + padding, 0);
            let (known, afresh, bytes) = changed(&bytes, |packet| assert!(packet.replace_payload(range, &with)));
            prop_assert_eq!(known, afresh);
            prop_assert_eq!(bytes, make(&expected));
        }

        #[test]
        fn a_renumbered_segment_equals_one_built_with_the_numbers(
            is_ipv4: bool, sequence: u32, acknowledgement: u32, shift: u32,
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..4), timestamps in any::<Option<(u32, u32)>>(),
        ) {
            let make = |sequence, acknowledgement, sack_blocks: &[(u32, u32)]| {
                let segment = build::Tcp {
                    flags: tcp_flags::ACK, sequence, acknowledgement, sack_blocks, timestamps, ..build::Tcp::default()
                };
                build::tcp(&tuple(is_ipv4, ip_protocol::TCP), segment, b"odd")
            };
            let shifted: Vec<(u32, u32)> =
                blocks.iter().map(|(left, right)| (left.wrapping_add(shift), right.wrapping_add(shift))).collect();
            let bytes = make(1, 2, &blocks);
            let (known, afresh, bytes) = changed(&bytes, |packet| {
                packet.renumber_tcp(sequence, acknowledgement, |edge| edge.wrapping_add(shift));
            });
            prop_assert_eq!((known.tuple, known.l3_bytes), (afresh.tuple, afresh.l3_bytes));
            prop_assert_eq!(bytes, make(sequence, acknowledgement, &shifted));
        }
    }

    #[test]
    fn an_offloaded_checksum_stays_offloaded() {
        for is_ipv4 in [true, false] {
            let tuple = tuple(is_ipv4, ip_protocol::TCP);
            let segment = build::Tcp { flags: tcp_flags::ACK, sequence: 7, ..build::Tcp::default() };
            let make = |sequence, payload: &[u8]| build::tcp(&tuple, build::Tcp { sequence, ..segment }, payload);
            let mut buffer = make(7, b"PORT 1");
            let length_bytes = buffer.len();
            buffer.resize(length_bytes + 20, 0);
            let checksum = build::offload_checksum(&mut buffer[..length_bytes]);
            let mut frame = Frame::new(&mut buffer, 0, length_bytes, PortId(0)).unwrap();
            frame.checksum = checksum;
            let mut headers = headers(&frame);
            let mut packet = Packet { frame: &mut frame, headers: &mut headers };
            packet.renumber_tcp(9, 0, |edge| edge);
            assert!(packet.replace_payload(5..6, b"1234"));
            let Checksum::Partial { start, offset } = frame.checksum else { panic!("still left to the hardware") };
            assert!(checksum::complete_partial(frame.bytes_mut(), start, offset));
            assert_eq!(frame.bytes(), make(9, b"PORT 1234"));
        }
    }

    #[test]
    fn options_that_are_not_kept_become_no_operations() {
        for is_ipv4 in [true, false] {
            let tuple = tuple(is_ipv4, ip_protocol::TCP);
            let segment = build::Tcp { timestamps: Some((1, 2)), sack_blocks: &[(3, 4)], ..build::Tcp::default() };
            let bytes = build::tcp(&tuple, segment, b"data");
            let (known, afresh, bytes) =
                changed(&bytes, |packet| packet.remove_tcp_options(|kind| kind == option::TIMESTAMPS));
            assert_eq!(known.l3_bytes, afresh.l3_bytes);
            let header = &bytes[usize::from(afresh.l4_offset)..usize::from(afresh.payload_offset)];
            let kinds: Vec<u8> =
                TcpView::new_checked(header).unwrap().options().filter_map(Result::ok).map(|it| it.kind).collect();
            assert_eq!(kinds, [option::TIMESTAMPS], "and the checksum is right: it was parsed");
        }
    }

    #[test]
    fn a_frame_without_room_is_unchanged() {
        let before = build::tcp(&tuple(true, ip_protocol::TCP), build::Tcp::default(), b"abc");
        let mut buffer = before.clone();
        let mut frame = Frame::new(&mut buffer, 0, before.len(), PortId(0)).unwrap();
        let known = headers(&frame);
        let mut headers = known;
        let mut packet = Packet { frame: &mut frame, headers: &mut headers };
        assert!(!packet.replace_payload(0..1, b"xyz"));
        assert!(!packet.replace_payload(2..9, b""));
        assert_eq!(headers, known);
        assert_eq!(frame.bytes(), before);
    }
}
