//! Turns a TCP packet into another segment in place, and translates windows and timestamps: for a SYN proxy, which answers in place
//! of servers, and joins two handshakes whose options differ.

use super::build::Tcp;
use super::checksum::{self, Sum};
use super::ethernet::{self, EthernetView};
use super::ipv4::IPV4_HEADER_BYTES;
use super::ipv6::IPV6_HEADER_BYTES;
use super::rewrite::update;
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TcpView, option};
use super::{Packet, TcpSegment, Transport, ip_protocol, tcp_flags};
use crate::key::unmapped;
use crate::{Checksum, Segmentation, Tuple};

const WINDOW_OFFSET: usize = 14;

impl Packet<'_, '_> {
    /// Replaces the packet by a segment without payload, from `tuple`'s source to its destination, with this time to live. The link
    /// header stays. IP options and extension headers are left out, and traffic class and flow label are 0. Returns false, without
    /// changes, when the frame's buffer has no room or the packet is no TCP segment.
    ///
    /// # Panics
    /// The options do not fit 40 bytes.
    #[must_use]
    pub fn become_segment(&mut self, tuple: &Tuple, ttl: u8, tcp: &Tcp<'_>) -> bool {
        if !matches!(self.headers.transport, Transport::Tcp(_)) || self.headers.tuple.version != tuple.version {
            return false;
        }
        let options = tcp.options();
        let l3 = usize::from(self.headers.l3_offset);
        let ip_bytes = if tuple.version == 4 { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        let header_bytes = TCP_HEADER_BYTES + options.len();
        let (l4, end) = (l3 + ip_bytes, l3 + ip_bytes + header_bytes);
        if !self.frame.set_length(end) {
            return false;
        }
        let bytes = self.frame.bytes_mut();
        if tuple.version == 4 {
            put_ipv4(&mut bytes[l3..l4], tuple, ttl, (ip_bytes + header_bytes) as u16);
        } else {
            put_ipv6(&mut bytes[l3..l4], tuple, ttl, header_bytes as u16);
        }
        put_tcp(&mut bytes[l4..end], tuple, tcp, &options);
        (self.frame.checksum, self.frame.segmentation) = (Checksum::Valid, Segmentation::default());
        let headers = &mut *self.headers;
        (headers.tuple, headers.ttl, headers.is_fragment) = (*tuple, ttl, false);
        (headers.l4_offset, headers.payload_offset, headers.l3_bytes) = (l4 as u16, end as u16, (end - l3) as u32);
        headers.transport = Transport::Tcp(segment_of(tcp));
        true
    }

    /// Swaps the link addresses: the frame goes back to where it came from. False for a frame without a whole link header.
    pub fn turn_back(&mut self) -> bool {
        let bytes = self.frame.bytes_mut();
        let Ok(link) = EthernetView::new_checked(bytes) else { return false };
        let (to, from) = (link.source(), link.destination());
        ethernet::set_addresses(bytes, to, from)
    }

    /// Sets a TCP segment's window field. Packets of other protocols stay unchanged.
    pub fn set_tcp_window(&mut self, window: u16) {
        let is_partial = self.is_partial();
        let l4 = usize::from(self.headers.l4_offset);
        let Transport::Tcp(segment) = &mut self.headers.transport else { return };
        let Some(header) = self.frame.bytes_mut().get_mut(l4..l4 + TCP_HEADER_BYTES) else { return };
        let field = WINDOW_OFFSET..WINDOW_OFFSET + 2;
        let delta = Sum::of(&window.to_be_bytes()).minus(Sum::of(&header[field.clone()]));
        header[field].copy_from_slice(&window.to_be_bytes());
        segment.window = window;
        // A partial checksum covers the pseudo-header alone.
        if !is_partial {
            update(&mut header[TCP_CHECKSUM_OFFSET..], delta);
        }
    }

    /// Adds to the value and to the echo reply of a TCP segment's timestamps (RFC 7323), modulo 2^32. An echo reply without ACK
    /// means nothing and stays. Segments without timestamps stay unchanged.
    pub fn shift_timestamps(&mut self, value: u32, echo: u32) {
        let is_partial = self.is_partial();
        let (l4, payload) = (usize::from(self.headers.l4_offset), usize::from(self.headers.payload_offset));
        let Transport::Tcp(segment) = self.headers.transport else { return };
        let Some(header) = self.frame.bytes_mut().get_mut(l4..payload) else { return };
        let Some(at) = timestamps_offset(header) else { return };
        let before = Sum::of(header);
        add_to(&mut header[at..], value);
        if segment.has(tcp_flags::ACK) {
            add_to(&mut header[at + 4..], echo);
        }
        let delta = Sum::of(header).minus(before);
        if !is_partial {
            update(&mut header[TCP_CHECKSUM_OFFSET..], delta);
        }
    }

    /// The TCP header with its options; empty for packets of other protocols.
    #[must_use]
    pub fn tcp_header(&self) -> &[u8] {
        let Transport::Tcp(_) = self.headers.transport else { return &[] };
        let (l4, payload) = (usize::from(self.headers.l4_offset), usize::from(self.headers.payload_offset));
        self.frame.bytes().get(l4..payload).unwrap_or_default()
    }
}

/// Adds to the number at the beginning of `bytes`.
pub(super) fn add_to(bytes: &mut [u8], by: u32) {
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = u32::from_be_bytes(*place).wrapping_add(by).to_be_bytes();
    }
}

/// The position of the timestamps in a TCP header.
pub(super) fn timestamps_offset(header: &[u8]) -> Option<usize> {
    let mut options = TcpView::new_checked(header).ok()?.options().map_while(Result::ok);
    let found = options.find(|found| found.kind == option::TIMESTAMPS && found.value.len() == 8)?;
    Some(TCP_HEADER_BYTES + found.value_offset)
}

fn put_ipv4(out: &mut [u8], tuple: &Tuple, ttl: u8, total_bytes: u16) {
    out[..2].copy_from_slice(&[0x45, 0]);
    out[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    // Not to be fragmented, so that the identification may be 0 (RFC 6864).
    out[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    out[8..12].copy_from_slice(&[ttl, ip_protocol::TCP, 0, 0]);
    out[12..16].copy_from_slice(&unmapped(&tuple.source));
    out[16..20].copy_from_slice(&unmapped(&tuple.destination));
    let checksum = Sum::of(&out[..IPV4_HEADER_BYTES]).checksum();
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn put_ipv6(out: &mut [u8], tuple: &Tuple, ttl: u8, payload_bytes: u16) {
    out[..4].copy_from_slice(&[0x60, 0, 0, 0]);
    out[4..6].copy_from_slice(&payload_bytes.to_be_bytes());
    out[6..8].copy_from_slice(&[ip_protocol::TCP, ttl]);
    out[8..24].copy_from_slice(&tuple.source);
    out[24..40].copy_from_slice(&tuple.destination);
}

fn put_tcp(out: &mut [u8], tuple: &Tuple, tcp: &Tcp<'_>, options: &[u8]) {
    out[..2].copy_from_slice(&tuple.source_port.to_be_bytes());
    out[2..4].copy_from_slice(&tuple.destination_port.to_be_bytes());
    out[4..8].copy_from_slice(&tcp.sequence.to_be_bytes());
    out[8..12].copy_from_slice(&tcp.acknowledgement.to_be_bytes());
    let header_words = (out.len() / 4) as u8;
    out[12..14].copy_from_slice(&[header_words << 4, tcp.flags]);
    out[14..16].copy_from_slice(&tcp.window.to_be_bytes());
    out[16..20].fill(0);
    out[TCP_HEADER_BYTES..].copy_from_slice(options);
    let sum = Sum::of(out).plus(checksum::pseudo_header(tuple, out.len() as u32));
    out[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// The segment as parsing the header would give it.
fn segment_of(tcp: &Tcp<'_>) -> TcpSegment {
    let is_syn = tcp.flags & tcp_flags::SYN != 0;
    TcpSegment {
        sequence: tcp.sequence,
        acknowledgement: tcp.acknowledgement,
        flags: tcp.flags,
        window: tcp.window,
        payload_bytes: 0,
        window_scale: tcp.window_scale.filter(|_| is_syn),
        sack_permitted: tcp.sack_permitted && is_syn,
        sack_end: tcp.acknowledgement,
        maximum_segment_bytes: tcp.maximum_segment_bytes.filter(|_| is_syn),
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Headers, Parsed, build, parse};
    use crate::{Frame, PortId};

    fn tuple(is_ipv4: bool) -> Tuple {
        if is_ipv4 {
            Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80))
        } else {
            let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            Tuple::v6(ip_protocol::TCP, (address(2), 4000), (address(1), 80))
        }
    }

    fn headers(frame: &Frame<'_>) -> Headers {
        let Ok(Parsed::Ip(headers)) = parse(frame) else { panic!("the packet is sound: {:?}", parse(frame)) };
        headers
    }

    /// The frame with spare room, changed; returns the headers, those of a new parse, and the bytes.
    fn changed(bytes: &[u8], change: impl FnOnce(&mut Packet<'_, '_>)) -> (Headers, Headers, Vec<u8>) {
        let mut buffer = bytes.to_vec();
        buffer.resize(bytes.len() + 64, 0xee);
        let mut frame = Frame::new(&mut buffer, 0, bytes.len(), PortId(0)).unwrap();
        let mut known = headers(&frame);
        change(&mut Packet { frame: &mut frame, headers: &mut known });
        frame.checksum = Checksum::Unverified;
        let afresh = headers(&frame);
        (known, afresh, frame.bytes().to_vec())
    }

    proptest! {
        #[test]
        fn a_segment_in_place_equals_one_that_is_built(
            is_ipv4: bool, sequence: u32, acknowledgement: u32, window: u16, is_syn: bool,
            maximum_segment_bytes in any::<Option<u16>>(), window_scale in proptest::option::of(0u8..=14),
            sack_permitted: bool, timestamps in any::<Option<(u32, u32)>>(), payload in 0usize..80,
        ) {
            let flags = if is_syn { tcp_flags::SYN | tcp_flags::ACK } else { tcp_flags::ACK };
            let made = build::Tcp {
                flags, sequence, acknowledgement, window, maximum_segment_bytes, window_scale, sack_permitted, timestamps,
                ..build::Tcp::default()
            };
            let before = build::tcp(&tuple(is_ipv4), build::Tcp::default(), &[7; 80][..payload]);
            let inverse = tuple(is_ipv4).inverse();
            let (known, afresh, bytes) =
                changed(&before, |packet| assert!(packet.become_segment(&inverse, 64, &made)));
            prop_assert_eq!(known, afresh);
            prop_assert_eq!(bytes, build::tcp(&inverse, made, b""));
        }

        #[test]
        fn translated_windows_and_timestamps_equal_built_ones(
            is_ipv4: bool, window: u16, before: (u32, u32), by: (u32, u32),
        ) {
            let make = |window, timestamps| {
                let segment = build::Tcp { flags: tcp_flags::ACK, window, timestamps: Some(timestamps), ..build::Tcp::default() };
                build::tcp(&tuple(is_ipv4), segment, b"odd")
            };
            let (known, afresh, bytes) = changed(&make(1, before), |packet| {
                packet.set_tcp_window(window);
                packet.shift_timestamps(by.0, by.1);
            });
            prop_assert_eq!(known, afresh);
            prop_assert_eq!(bytes, make(window, (before.0.wrapping_add(by.0), before.1.wrapping_add(by.1))));
        }
    }

    #[test]
    fn a_frame_without_room_is_unchanged() {
        let before = build::tcp(&tuple(true), build::Tcp::default(), b"");
        let mut buffer = before.clone();
        let mut frame = Frame::new(&mut buffer, 0, before.len(), PortId(0)).unwrap();
        let mut known = headers(&frame);
        let mut packet = Packet { frame: &mut frame, headers: &mut known };
        let made = build::Tcp { maximum_segment_bytes: Some(1460), ..build::Tcp::default() };
        assert!(!packet.become_segment(&tuple(true).inverse(), 64, &made));
        assert_eq!(frame.bytes(), before);
    }

    #[test]
    fn a_frame_turns_back_to_its_sender() {
        let before = build::tcp(&tuple(true), build::Tcp::default(), b"");
        let (_, _, bytes) = changed(&before, |packet| assert!(packet.turn_back()));
        assert_eq!((&bytes[..6], &bytes[6..12]), (&before[6..12], &before[..6]));
    }
}
