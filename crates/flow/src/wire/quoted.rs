//! The TCP header of a packet as its sender sent it: for ICMP errors, which quote a packet that functions have renumbered meanwhile.

use super::checksum::Sum;
use super::rewrite::update;
use super::segment::{add_to, timestamps_offset};
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES, TCP_HEADER_BYTES_MAX, TcpView, option};
use super::{Packet, Transport, tcp_flags};

const SEQUENCE_OFFSET: usize = 4;
const ACKNOWLEDGEMENT_OFFSET: usize = 8;
const FLAGS_OFFSET: usize = 13;
const WINDOW_OFFSET: usize = 14;

/// A TCP header as far as a quotation reaches: at least ports and sequence number. What is not there is left out.
#[derive(Debug)]
pub struct QuotedTcp<'a> {
    bytes: &'a mut [u8],
}

impl<'a> QuotedTcp<'a> {
    /// The header at the beginning of `bytes`, which may end within it.
    fn new(bytes: &'a mut [u8]) -> Self {
        let header_bytes = bytes.get(12).map_or(bytes.len(), |offset| usize::from(offset >> 4) * 4);
        let there = bytes.len().min(header_bytes.clamp(TCP_HEADER_BYTES, TCP_HEADER_BYTES_MAX));
        Self { bytes: &mut bytes[..there] }
    }

    /// Its flags, if they are there: bits of [`tcp_flags`].
    #[must_use]
    pub fn flags(&self) -> Option<u8> {
        self.bytes.get(FLAGS_OFFSET).copied()
    }

    /// Maps the sequence number by `sequence`; the acknowledgement, if it is one, and the edges of SACK blocks by `acknowledged`.
    pub fn renumber(&mut self, sequence: impl Fn(u32) -> u32, acknowledged: impl Fn(u32) -> u32) {
        map(self.bytes, SEQUENCE_OFFSET, sequence);
        if self.flags().is_none_or(|flags| flags & tcp_flags::ACK != 0) {
            map(self.bytes, ACKNOWLEDGEMENT_OFFSET, &acknowledged);
        }
        let options = TcpView::new_checked(self.bytes).ok().map(|view| view.options());
        let blocks = options.and_then(|options| options.map_while(Result::ok).find(|found| found.kind == option::SACK));
        if let Some(range) = blocks.map(|found| (TCP_HEADER_BYTES + found.value_offset, found.value.len())) {
            (range.0..range.0 + range.1 / 4 * 4).step_by(4).for_each(|at| map(self.bytes, at, &acknowledged));
        }
    }

    /// Maps the window field, which is not scaled.
    pub fn map_window(&mut self, window: impl Fn(u16) -> u16) {
        if let Some(field) = self.bytes.get_mut(WINDOW_OFFSET..).and_then(|rest| rest.first_chunk_mut::<2>()) {
            *field = window(u16::from_be_bytes(*field)).to_be_bytes();
        }
    }

    /// Adds to the value and to the echo reply of the timestamps, modulo 2^32, as [`Packet::shift_timestamps`].
    pub fn shift_timestamps(&mut self, value: u32, echo: u32) {
        let Some(at) = timestamps_offset(self.bytes) else { return };
        add_to(&mut self.bytes[at..], value);
        if self.flags().is_some_and(|flags| flags & tcp_flags::ACK != 0) {
            add_to(&mut self.bytes[at + 4..], echo);
        }
    }

    /// Edits the header, and has its checksum follow, if that is there and `has_checksum`. Returns the change of the whole.
    fn edit(bytes: &mut [u8], has_checksum: bool, edit: impl FnOnce(&mut QuotedTcp<'_>)) -> Sum {
        let quoted = QuotedTcp::new(bytes);
        let QuotedTcp { bytes } = quoted;
        let mut copy = [0; TCP_HEADER_BYTES_MAX];
        let former = &mut copy[..bytes.len()];
        former.copy_from_slice(bytes);
        edit(&mut QuotedTcp { bytes: &mut *bytes });
        if bytes == former {
            return Sum::ZERO;
        }
        let before = Sum::of(former);
        let delta = Sum::of(bytes).minus(before);
        if has_checksum && bytes.len() >= TCP_CHECKSUM_OFFSET + 2 {
            update(&mut bytes[TCP_CHECKSUM_OFFSET..], delta);
        }
        Sum::of(bytes).minus(before)
    }
}

/// Maps the number at `at`, if it is there.
fn map(bytes: &mut [u8], at: usize, by: impl Fn(u32) -> u32) {
    if let Some(field) = bytes.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<4>()) {
        *field = by(u32::from_be_bytes(*field)).to_be_bytes();
    }
}

/// A copy of a TCP header with its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TcpHeader {
    bytes: [u8; TCP_HEADER_BYTES_MAX],
    length_bytes: u8,
}

impl TcpHeader {
    /// That of a packet; `None` for packets of other protocols.
    #[must_use]
    pub fn of(packet: &Packet<'_, '_>) -> Option<Self> {
        let header = packet.tcp_header();
        let mut bytes = [0; TCP_HEADER_BYTES_MAX];
        bytes.get_mut(..header.len()).filter(|place| !place.is_empty())?.copy_from_slice(header);
        Some(Self { bytes, length_bytes: header.len() as u8 })
    }

    /// Edits the copy. Its checksum follows, unless that of `packet` is left to hardware.
    pub fn edit(&mut self, packet: &Packet<'_, '_>, edit: impl FnOnce(&mut QuotedTcp<'_>)) {
        QuotedTcp::edit(&mut self.bytes[..usize::from(self.length_bytes)], !packet.is_partial(), edit);
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length_bytes)]
    }
}

impl Packet<'_, '_> {
    /// Edits the TCP header of the packet that an ICMP error quotes, with all checksums. Does nothing to other packets.
    pub fn edit_quoted_tcp(&mut self, edit: impl FnOnce(&mut QuotedTcp<'_>)) {
        let Transport::IcmpError(error) = self.headers.transport else { return };
        if error.inner.protocol != super::ip_protocol::TCP {
            return;
        }
        let at = usize::from(error.inner_l4_offset);
        let end = self.headers.l3_end().min(self.frame.bytes().len());
        let Some(quoted) = self.frame.bytes_mut().get_mut(at..end) else { return };
        let delta = QuotedTcp::edit(quoted, true, edit);
        self.fix_transport_checksum(delta);
    }

    /// Replaces the TCP header by an edited copy of it, of the same length.
    pub fn set_tcp_header(&mut self, header: &TcpHeader) {
        let at = usize::from(self.headers.l4_offset);
        let place = self.frame.bytes_mut().get_mut(at..at + usize::from(header.length_bytes));
        let Some(place) = place.filter(|_| matches!(self.headers.transport, Transport::Tcp(_))) else { return };
        place.copy_from_slice(header.bytes());
        if let (Transport::Tcp(segment), Ok(view)) = (&mut self.headers.transport, TcpView::new_checked(header.bytes()))
        {
            (segment.sequence, segment.acknowledgement) = (view.sequence(), view.acknowledgement());
            segment.window = view.window();
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::wire::{Parsed, build, ip_protocol, parse};
    use crate::{Frame, PortId, Tuple};

    const ETHERNET_BYTES: usize = 14;

    fn tuple(is_ipv4: bool) -> Tuple {
        if is_ipv4 {
            Tuple::v4(ip_protocol::TCP, (Ipv4Addr::new(10, 0, 0, 2), 4000), (Ipv4Addr::new(192, 0, 2, 1), 80))
        } else {
            let address = |last| Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last);
            Tuple::v6(ip_protocol::TCP, (address(2), 4000), (address(1), 80))
        }
    }

    /// An error that quotes so many bytes of the transport header and more.
    fn error(is_ipv4: bool, segment: build::Tcp<'_>, quoted_bytes: usize) -> Vec<u8> {
        let about = build::tcp(&tuple(is_ipv4), segment, b"some payload behind the header");
        let ip_bytes = if is_ipv4 { 20 } else { 40 };
        let header =
            build::IcmpHeader { kind: if is_ipv4 { 3 } else { 2 }, code: if is_ipv4 { 4 } else { 0 }, parameter: 1000 };
        let from: IpAddr =
            if is_ipv4 { Ipv4Addr::new(203, 0, 113, 9).into() } else { "2001:db8:9::1".parse().unwrap() };
        let end = (ETHERNET_BYTES + ip_bytes + quoted_bytes).min(about.len());
        build::icmp_error(from, header, &about[ETHERNET_BYTES..end]).unwrap()
    }

    proptest! {
        #[test]
        fn a_quoted_header_edited_equals_one_quoted_from_the_packet_as_sent(
            is_ipv4: bool, numbers: (u32, u32, u16), shift: (u32, u32), clock: (u32, u32),
            blocks in prop::collection::vec(any::<(u32, u32)>(), 0..3), has_timestamps: bool, quoted_bytes in 8usize..80,
        ) {
            let (sequence, acknowledgement, window) = numbers;
            let moved: Vec<(u32, u32)> =
                blocks.iter().map(|(left, right)| (left.wrapping_add(shift.1), right.wrapping_add(shift.1))).collect();
            let sent = build::Tcp {
                flags: tcp_flags::ACK, sequence, acknowledgement, window, sack_blocks: &blocks,
                timestamps: has_timestamps.then_some((7, 9)), ..build::Tcp::default()
            };
            let rewritten = build::Tcp {
                sequence: sequence.wrapping_add(shift.0), acknowledgement: acknowledgement.wrapping_add(shift.1),
                window: window ^ 0xff, sack_blocks: &moved,
                timestamps: has_timestamps.then_some((7u32.wrapping_add(clock.0), 9u32.wrapping_add(clock.1))),
                ..sent
            };
            // A field or an option that is cut off cannot be mapped.
            let header_bytes = 20 + sent.options().len();
            let quoted_bytes = if quoted_bytes > 20 { quoted_bytes.max(header_bytes) } else { quoted_bytes / 4 * 4 };
            let expected = error(is_ipv4, sent, quoted_bytes);
            let mut bytes = error(is_ipv4, rewritten, quoted_bytes);
            let length_bytes = bytes.len();
            let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
            let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("the error is sound") };
            let mut packet = Packet { frame: &mut frame, headers: &mut headers };
            packet.edit_quoted_tcp(|quoted| {
                quoted.renumber(|number| number.wrapping_sub(shift.0), |number| number.wrapping_sub(shift.1));
                quoted.map_window(|window| window ^ 0xff);
                quoted.shift_timestamps(clock.0.wrapping_neg(), clock.1.wrapping_neg());
            });
            prop_assert!(matches!(parse(&frame), Ok(Parsed::Ip(_))), "checksums are right: {:?}", parse(&frame));
            // The acknowledgement of a quotation that ends before the flags is taken for one. Sums of zero have two forms.
            let quote = ETHERNET_BYTES + if is_ipv4 { 28 + 20 } else { 48 + 40 };
            let checksum = quote + TCP_CHECKSUM_OFFSET;
            for (at, (is, should)) in frame.bytes().iter().zip(&expected).enumerate() {
                let is_checksum = (checksum..checksum + 2).contains(&at) || at < quote;
                prop_assert!(is == should || is_checksum, "byte {} behind the quoted IP header", at - quote);
            }
        }
    }
}
