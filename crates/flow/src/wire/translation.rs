//! The translation of a connection's packets, computed once: what later packets change by.
//!
//! [`Packet::rewrite`](super::Packet::rewrite) compares, subtracts and sums for each packet. The difference of the sums depends on
//! the two tuples alone. A property test below compares the results.

use super::checksum::{self, Sum};
use super::ethernet::ETHERNET_HEADER_BYTES;
use super::ipv4::{self, IPV4_HEADER_BYTES};
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use super::{Headers, MacAddress, Transport};
use crate::key::unmapped;
use crate::{Checksum, Frame, Tuple};

const L4_OFFSET: usize = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES;
/// The headers of a frame that is forwarded by a [`Translation`].
const HEADERS_BYTES: usize = L4_OFFSET + TCP_HEADER_BYTES;

/// By how much a translation changes the checksums of a TCP packet over IPv4.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Translation {
    /// The change of the sum of the addresses; 0 where nothing is translated (a change by nothing is `0xffff`).
    addresses: u16,
    /// The change of the sum of addresses and ports.
    addresses_and_ports: u16,
}

impl Translation {
    /// The translation of packets that come in with one tuple and go out with the other.
    #[must_use]
    pub fn new(incoming: &Tuple, outgoing: &Tuple) -> Self {
        if incoming == outgoing {
            return Self::default();
        }
        let addresses = checksum::addresses(&outgoing.source, &outgoing.destination)
            .minus(checksum::addresses(&incoming.source, &incoming.destination));
        let ports = |tuple: &Tuple| Sum::ZERO.plus_u16(tuple.source_port).plus_u16(tuple.destination_port);
        let addresses_and_ports = addresses.plus(ports(outgoing)).minus(ports(incoming));
        Self { addresses: addresses.fold(), addresses_and_ports: addresses_and_ports.fold() }
    }

    /// Whether packets with these headers can be forwarded by a translation: TCP behind an IPv4 header without options, behind an
    /// Ethernet header without tags.
    #[must_use]
    #[inline(always)]
    pub const fn applies_to(headers: &Headers) -> bool {
        matches!(headers.transport, Transport::Tcp(_))
            && headers.tuple.version == 4
            && headers.l3_offset as usize == ETHERNET_HEADER_BYTES
            && headers.l4_offset as usize == L4_OFFSET
            && !headers.is_fragment
    }

    /// Forwards a packet to which a translation [applies](Self::applies_to): gives it the inverse of `answer`, the tuple that answers
    /// come in with, and new link addresses, and takes one off its time to live. The result is that of [`Packet::rewrite`](super::Packet::rewrite),
    /// [`Packet::decrement_ttl`](super::Packet::decrement_ttl) and [`ethernet::set_addresses`](super::ethernet::set_addresses), but
    /// for the packet's headers, which stay as parsed. The time to live must be above 1. Returns false, without changes, for a frame
    /// that is too short.
    #[inline(always)]
    pub fn forward(self, frame: &mut Frame<'_>, answer: &Tuple, to: MacAddress, from: MacAddress) -> bool {
        let is_partial = matches!(frame.checksum, Checksum::Partial { .. });
        let Some(headers) = frame.bytes_mut().first_chunk_mut::<HEADERS_BYTES>() else { return false };
        headers[..6].copy_from_slice(&to.0);
        headers[6..12].copy_from_slice(&from.0);
        let (before, tcp) = headers.split_at_mut(L4_OFFSET);
        let ip = &mut before[ETHERNET_HEADER_BYTES..];
        let mut ip_checksum = u16::from_be_bytes([ip[10], ip[11]]);
        if self.addresses != 0 {
            ip_checksum = checksum::updated(ip_checksum, Sum::ZERO.plus_u16(self.addresses));
            ip[12..16].copy_from_slice(&unmapped(&answer.destination));
            ip[16..].copy_from_slice(&unmapped(&answer.source));
            tcp[..2].copy_from_slice(&answer.destination_port.to_be_bytes());
            tcp[2..4].copy_from_slice(&answer.source_port.to_be_bytes());
            let field = &mut tcp[TCP_CHECKSUM_OFFSET..TCP_CHECKSUM_OFFSET + 2];
            let old = u16::from_be_bytes([field[0], field[1]]);
            let new = if is_partial {
                checksum::updated_partial(old, Sum::ZERO.plus_u16(self.addresses))
            } else {
                checksum::updated(old, Sum::ZERO.plus_u16(self.addresses_and_ports))
            };
            field.copy_from_slice(&new.to_be_bytes());
        }
        ip[8] -= 1;
        ip[10..12].copy_from_slice(&ipv4::checksum_after_hop(ip_checksum).to_be_bytes());
        true
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::PortId;
    use crate::wire::{Packet, Parsed, build, ethernet, parse};

    /// Few values, so that sums come out even; addresses that packets may carry.
    fn tuple() -> impl Strategy<Value = Tuple> {
        let address = || {
            prop_oneof![
                Just([10, 0, 0, 1]),
                Just([10, 0, 1, 0]),
                (1u8..200, any::<[u8; 3]>()).prop_map(|(first, [b, c, d])| [
                    if first == 127 { 1 } else { first },
                    b,
                    c,
                    d
                ])
            ]
        };
        let port = || prop_oneof![Just(0u16), Just(0xffff), any::<u16>()];
        (address(), port(), address(), port()).prop_map(|(source, source_port, destination, destination_port)| {
            Tuple::v4(6, (source.into(), source_port), (destination.into(), destination_port))
        })
    }

    proptest! {
        #[test]
        fn a_packet_is_forwarded_to_the_same_bytes_as_step_by_step(
            incoming in tuple(),
            outgoing in tuple(),
            is_translated in any::<bool>(),
            segment in (any::<u32>(), any::<u32>(), any::<u16>()),
            payload in prop::collection::vec(any::<u8>(), 0..40),
            ttl in 2u8..=255,
            is_partial in any::<bool>(),
            fields in any::<[u16; 2]>(),
        ) {
            let outgoing = if is_translated { outgoing } else { incoming };
            let (sequence, acknowledgement, window) = segment;
            let segment = build::Tcp { flags: 0x10, sequence, acknowledgement, window, ..build::Tcp::default() };
            let envelope = build::Envelope { ttl, ..build::Envelope::default() };
            let mut bytes = envelope.tcp(&incoming, segment, &payload);
            let length_bytes = bytes.len();
            let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
            let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { return Ok(()) };
            prop_assert!(Translation::applies_to(&headers));
            if is_partial {
                frame.checksum = Checksum::Partial { start: L4_OFFSET as u16, offset: TCP_CHECKSUM_OFFSET as u16 };
            }
            // The update must be the same whatever the fields hold.
            for (at, field) in [(ETHERNET_HEADER_BYTES + 10, fields[0]), (L4_OFFSET + TCP_CHECKSUM_OFFSET, fields[1])] {
                frame.bytes_mut()[at..at + 2].copy_from_slice(&field.to_be_bytes());
            }
            let mut copy: Vec<u8> = frame.bytes().to_vec();
            let mut other = Frame::new(&mut copy, 0, length_bytes, PortId(0)).unwrap();
            other.checksum = frame.checksum;
            let (to, from) = (MacAddress([2, 0, 0, 0, 0, 9]), MacAddress([2, 0, 0, 0, 0, 8]));

            prop_assert!(Translation::new(&incoming, &outgoing).forward(&mut other, &outgoing.inverse(), to, from));

            let mut packet = Packet { frame: &mut frame, headers: &mut headers };
            if packet.headers.tuple != outgoing {
                packet.rewrite(&outgoing);
            }
            packet.decrement_ttl().unwrap();
            ethernet::set_addresses(packet.frame.bytes_mut(), to, from);
            prop_assert_eq!(frame.bytes(), other.bytes());
        }
    }
}
