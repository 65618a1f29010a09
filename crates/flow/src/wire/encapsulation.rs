//! Wraps a packet in another one that leads to the end of a tunnel: IP in IP (RFC 2003, RFC 2473 and RFC 4213), and Generic UDP
//! Encapsulation in its variant 1, which has no header of its own (draft-ietf-intarea-gue section 4): behind the UDP header lies the IP
//! packet.
//!
//! ```text
//!   IP in IP   [ link | outer IP | packet ]
//!   GUE        [ link | outer IP | UDP | packet ]      source port: from the flow's hash
//! ```
//!
//! The tunnel has no state and no answer. The outer packet is never fragmented: the caller checks its length beforehand.

use core::net::{IpAddr, SocketAddr};

use super::checksum::{Sum, non_zero, pseudo_header};
use super::ethernet::ether_type;
use super::ipv4::IPV4_HEADER_BYTES;
use super::ipv6::IPV6_HEADER_BYTES;
use super::udp::{UDP_CHECKSUM_OFFSET, UDP_HEADER_BYTES};
use super::{Headers, Packet, Transport, ip_protocol};
use crate::{Checksum, HashKey, Segmentation, Tuple};

/// The UDP port of the far end, unless another is chosen: the one that load balancers with direct return commonly use.
pub const GUE_PORT_DEFAULT: u16 = 6080;
/// The time to live of the outer packet, before the forwarder takes one off.
const TTL: u8 = 65;
/// The first of the 16,384 source ports (RFC 6335 section 6).
const SOURCE_PORT_FIRST: u16 = 0xc000;
/// Flows are spread over source ports and flow labels by a hash that all nodes share: a connection's packets keep theirs through a failover.
const FLOW_KEY: HashKey = HashKey([0x6d61_696e_7374_6179, 0x7475_6e6e_656c]);

/// How packets are wrapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Encapsulation {
    /// IP in IP.
    IpIp,
    /// Generic UDP Encapsulation, to this port.
    Gue {
        /// The UDP port of the far end.
        port: u16,
    },
}

/// The far end of a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TunnelEnd {
    /// Its address, of either family.
    pub address: IpAddr,
    /// How packets to it are wrapped.
    pub encapsulation: Encapsulation,
}

impl TunnelEnd {
    /// Bytes that a packet becomes longer by: 20 to 48.
    #[must_use]
    pub const fn overhead_bytes(&self) -> usize {
        let udp = match self.encapsulation {
            Encapsulation::IpIp => 0,
            Encapsulation::Gue { .. } => UDP_HEADER_BYTES,
        };
        self.ip_header_bytes() + udp
    }

    const fn ip_header_bytes(&self) -> usize {
        if self.address.is_ipv4() { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES }
    }
}

impl Packet<'_, '_> {
    /// Wraps the packet for a tunnel from `source`, which is of the family of the far end. Returns the headers of the outer packet, which
    /// the frame then has; `self.headers` stay those of the packet inside, and no longer fit the frame. Link padding is removed.
    ///
    /// The packet's own transport checksum must be complete. `None`, without changes: the frame's buffer has no room, the families
    /// differ, or the outer packet would be longer than an IP packet can be.
    #[must_use]
    pub fn encapsulate(&mut self, source: IpAddr, end: &TunnelEnd) -> Option<Headers> {
        let inner = *self.headers;
        let (l3, l3_end) = (usize::from(inner.l3_offset), inner.l3_end());
        let overhead = end.overhead_bytes();
        let outer_bytes = inner.l3_bytes as usize + overhead;
        let is_sound = source.is_ipv4() == end.address.is_ipv4() && l3 >= 2 && l3_end <= self.frame.bytes().len();
        if !is_sound || outer_bytes > usize::from(u16::MAX) || !self.frame.set_length(l3_end + overhead) {
            return None;
        }
        let tuple = outer_tuple(source, end, &inner.tuple);
        let bytes = self.frame.bytes_mut();
        let class = traffic_class(&bytes[l3..], inner.tuple.version);
        bytes.copy_within(l3..l3_end, l3 + overhead);
        let l4 = l3 + end.ip_header_bytes();
        let kind = if tuple.version == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
        bytes[l3 - 2..l3].copy_from_slice(&kind.to_be_bytes());
        if tuple.version == 4 {
            put_ipv4(&mut bytes[l3..l4], &tuple, class, outer_bytes as u16);
        } else {
            put_ipv6(
                &mut bytes[l3..l4],
                &tuple,
                class,
                flow_hash(&inner.tuple) as u32,
                outer_bytes - IPV6_HEADER_BYTES,
            );
        }
        if tuple.protocol == ip_protocol::UDP {
            put_udp(&mut bytes[l4..], &tuple);
        }
        (self.frame.checksum, self.frame.segmentation) = (Checksum::Valid, Segmentation::default());
        let transport = if tuple.protocol == ip_protocol::UDP { Transport::Udp } else { Transport::Other };
        Some(Headers {
            tuple,
            transport,
            l3_offset: inner.l3_offset,
            l4_offset: l4 as u16,
            payload_offset: (l3 + overhead) as u16,
            l3_bytes: outer_bytes as u32,
            ttl: TTL,
            is_fragment: false,
        })
    }
}

fn flow_hash(inner: &Tuple) -> u64 {
    FLOW_KEY.hash(inner)
}

fn outer_tuple(source: IpAddr, end: &TunnelEnd, inner: &Tuple) -> Tuple {
    let (protocol, source_port, port) = match end.encapsulation {
        Encapsulation::IpIp if inner.version == 4 => (ip_protocol::IPIP, 0, 0),
        Encapsulation::IpIp => (ip_protocol::IPV6_IN_IP, 0, 0),
        Encapsulation::Gue { port } => {
            (ip_protocol::UDP, SOURCE_PORT_FIRST | flow_hash(inner) as u16 & !SOURCE_PORT_FIRST, port)
        }
    };
    Tuple::new(protocol, SocketAddr::new(source, source_port), SocketAddr::new(end.address, port))
}

/// The type of service or traffic class, which the outer header repeats (RFC 2983, RFC 6040 section 4.1).
fn traffic_class(ip: &[u8], version: u8) -> u8 {
    if version == 4 { ip[1] } else { ip[0] << 4 | ip[1] >> 4 }
}

fn put_ipv4(out: &mut [u8], tuple: &Tuple, class: u8, total_bytes: u16) {
    out[..2].copy_from_slice(&[0x45, class]);
    out[2..4].copy_from_slice(&total_bytes.to_be_bytes());
    // Not to be fragmented, so that the identification may be 0 (RFC 6864).
    out[4..8].copy_from_slice(&[0, 0, 0x40, 0]);
    out[8..12].copy_from_slice(&[TTL, tuple.protocol, 0, 0]);
    out[12..16].copy_from_slice(&tuple.source[12..]);
    out[16..20].copy_from_slice(&tuple.destination[12..]);
    let checksum = Sum::of(&out[..IPV4_HEADER_BYTES]).checksum();
    out[10..12].copy_from_slice(&checksum.to_be_bytes());
}

fn put_ipv6(out: &mut [u8], tuple: &Tuple, class: u8, flow_label: u32, payload_bytes: usize) {
    let word = 6 << 28 | u32::from(class) << 20 | flow_label & 0xf_ffff;
    out[..4].copy_from_slice(&word.to_be_bytes());
    out[4..6].copy_from_slice(&(payload_bytes as u16).to_be_bytes());
    out[6..8].copy_from_slice(&[tuple.protocol, TTL]);
    out[8..24].copy_from_slice(&tuple.source);
    out[24..40].copy_from_slice(&tuple.destination);
}

/// Writes the UDP header at the beginning of `out`, which ends with the datagram. The packet inside has checksums of its own: over IPv4 the
/// datagram has none. Over IPv6 it has one, as receivers drop datagrams without one unless configured to take them (RFC 6935).
fn put_udp(out: &mut [u8], tuple: &Tuple) {
    let length = out.len() as u16;
    out[..2].copy_from_slice(&tuple.source_port.to_be_bytes());
    out[2..4].copy_from_slice(&tuple.destination_port.to_be_bytes());
    out[4..6].copy_from_slice(&length.to_be_bytes());
    out[UDP_CHECKSUM_OFFSET..UDP_HEADER_BYTES].fill(0);
    if tuple.version == 6 {
        let checksum = pseudo_header(tuple, u32::from(length)).plus(Sum::of(out)).checksum();
        out[UDP_CHECKSUM_OFFSET..UDP_HEADER_BYTES].copy_from_slice(&non_zero(checksum).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::build::Envelope;
    use crate::wire::ethernet::ETHERNET_HEADER_BYTES;
    use crate::wire::{Parsed, build, parse};
    use crate::{Frame, PortId};

    fn inner(is_v4: bool, payload: &[u8]) -> Vec<u8> {
        if is_v4 {
            let tuple = Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, 1), 9), (Ipv4Addr::new(192, 0, 2, 1), 53));
            return Envelope { ttl: 7, ..Envelope::default() }.udp(&tuple, payload);
        }
        let host = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        build::udp(&Tuple::v6(ip_protocol::UDP, (host(1), 9), (host(2), 53)), payload)
    }

    fn ends(is_v4: bool) -> (IpAddr, IpAddr) {
        if is_v4 {
            (Ipv4Addr::new(10, 1, 0, 1).into(), Ipv4Addr::new(10, 1, 0, 20).into())
        } else {
            (Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::new(0xfd01, 0, 0, 0, 0, 0, 0, 0x20).into())
        }
    }

    /// Wraps a frame in a buffer with `room` bytes behind it. Returns the outer headers and the frame.
    fn wrapped(frame: &[u8], room: usize, source: IpAddr, end: &TunnelEnd) -> Option<(Headers, Vec<u8>)> {
        let mut buffer = frame.to_vec();
        buffer.resize(frame.len() + room, 0xee);
        let mut frame = Frame::new(&mut buffer, 0, frame.len(), PortId(0)).unwrap();
        let Ok(Parsed::Ip(mut headers)) = parse(&frame) else { panic!("a packet") };
        let outer = Packet { frame: &mut frame, headers: &mut headers }.encapsulate(source, end)?;
        Some((outer, frame.bytes().to_vec()))
    }

    proptest! {
        #[test]
        fn an_outer_packet_parses_and_contains_the_packet_unchanged(
            inner_v4: bool, outer_v4: bool, is_gue: bool, payload in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let frame = inner(inner_v4, &payload);
            let (source, address) = ends(outer_v4);
            let encapsulation = if is_gue { Encapsulation::Gue { port: 6080 } } else { Encapsulation::IpIp };
            let end = TunnelEnd { address, encapsulation };
            let (headers, mut bytes) = wrapped(&frame, 48, source, &end).unwrap();
            let length = bytes.len();
            let outer = Frame::new(&mut bytes, 0, length, PortId(0)).unwrap();
            let Ok(Parsed::Ip(parsed)) = parse(&outer) else { panic!("a valid packet with valid checksums") };
            prop_assert_eq!(parsed.tuple, headers.tuple);
            prop_assert_eq!((parsed.l3_bytes, parsed.ttl), (headers.l3_bytes, headers.ttl));
            prop_assert_eq!((parsed.tuple.source_ip(), parsed.tuple.destination_ip()), (source, address));
            let inside = &bytes[ETHERNET_HEADER_BYTES + end.overhead_bytes()..];
            let inner_bytes = &frame[ETHERNET_HEADER_BYTES..];
            prop_assert_eq!(&inside[..inner_bytes.len()], inner_bytes);
            prop_assert_eq!(inside.len(), headers.l3_bytes as usize - end.overhead_bytes(), "no padding");
        }
    }

    #[test]
    fn packets_without_room_or_with_a_source_of_another_family_stay() {
        let (source, address) = ends(true);
        let end = TunnelEnd { address, encapsulation: Encapsulation::Gue { port: 6080 } };
        let frame = inner(true, &[1; 100]);
        assert!(wrapped(&frame, 27, source, &end).is_none());
        assert!(wrapped(&frame, 28, source, &end).is_some());
        assert!(wrapped(&frame, 48, ends(false).0, &end).is_none());
    }

    #[test]
    fn the_source_port_depends_on_the_flow_alone() {
        let (source, address) = ends(true);
        let end = TunnelEnd { address, encapsulation: Encapsulation::Gue { port: 6080 } };
        let port = |payload: &[u8]| wrapped(&inner(true, payload), 28, source, &end).unwrap().0.tuple.source_port;
        assert_eq!(port(&[1; 10]), port(&[2; 99]));
        assert!(port(&[1]) >= SOURCE_PORT_FIRST);
    }

    #[test]
    fn the_traffic_class_is_repeated_outside() {
        let (source, address) = ends(false);
        let end = TunnelEnd { address, encapsulation: Encapsulation::IpIp };
        let mut frame = inner(true, &[0; 64]);
        frame[ETHERNET_HEADER_BYTES + 1] = 0xb8;
        let header = ETHERNET_HEADER_BYTES..ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES;
        frame[header.start + 10..header.start + 12].fill(0);
        let checksum = Sum::of(&frame[header.clone()]).checksum();
        frame[header.start + 10..header.start + 12].copy_from_slice(&checksum.to_be_bytes());
        let (_, bytes) = wrapped(&frame, 48, source, &end).unwrap();
        assert_eq!(traffic_class(&bytes[ETHERNET_HEADER_BYTES..], 6), 0xb8);
    }
}
