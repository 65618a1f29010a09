//! Writes whole frames with valid checksums: for frames that a node sends, for the simulator and for tests.
//!
//! ```
//! use core::net::Ipv4Addr;
//! use flow::wire::{build, ip_protocol, tcp_flags};
//! use flow::Tuple;
//!
//! let client = (Ipv4Addr::new(10, 0, 0, 2), 4000);
//! let server = (Ipv4Addr::new(192, 0, 2, 1), 80);
//! let tuple = Tuple::v4(ip_protocol::TCP, client, server);
//! let syn = build::tcp(&tuple, build::Tcp { flags: tcp_flags::SYN, sequence: 1000, ..Default::default() }, b"");
//! assert_eq!(syn.len(), 14 + 20 + 20);
//! ```

mod neighbour;
mod transport;

use alloc::vec::Vec;
use core::net::IpAddr;

use super::checksum::{self, Sum};
use super::ethernet::{self, MacAddress, VLAN_TAGS_MAX, ether_type};
use super::icmp::{ICMP_CHECKSUM_OFFSET, ICMP_HEADER_BYTES};
use super::ipv4::{IPV4_HEADER_BYTES, Ipv4View};
use super::ipv6::{FragmentHeader, IPV6_HEADER_BYTES, Ipv6View};
use super::{ip_protocol, vlan};
use crate::Tuple;
use crate::key::{address_bytes, unmapped};

pub use neighbour::{
    arp, arp_reply, arp_request, gratuitous_arp, neighbour_advertisement, neighbour_solicitation,
    unsolicited_neighbour_advertisement,
};
pub use transport::{Echo, Tcp, offload_checksum};

/// An ICMP error about an IPv4 packet, from its IP header on, is at most this long (RFC 1812 section 4.3.2.3).
pub const ICMP_ERROR_BYTES_MAX: usize = 576;
/// The same for ICMPv6: the smallest link MTU (RFC 4443 section 2.4).
pub const ICMPV6_ERROR_BYTES_MAX: usize = 1280;

/// A TCP segment in an ordinary envelope; see [`Envelope::tcp`].
#[must_use]
pub fn tcp(tuple: &Tuple, segment: Tcp<'_>, payload: &[u8]) -> Vec<u8> {
    Envelope::default().tcp(tuple, segment, payload)
}

/// A UDP datagram in an ordinary envelope; see [`Envelope::udp`].
#[must_use]
pub fn udp(tuple: &Tuple, payload: &[u8]) -> Vec<u8> {
    Envelope::default().udp(tuple, payload)
}

/// An echo request or reply in an ordinary envelope; see [`Envelope::echo`].
#[must_use]
pub fn echo(tuple: &Tuple, echo: Echo, data: &[u8]) -> Vec<u8> {
    Envelope::default().echo(tuple, echo, data)
}

/// An ICMP or ICMPv6 error in an ordinary envelope; see [`Envelope::icmp_error`].
#[must_use]
pub fn icmp_error(source: IpAddr, error: IcmpHeader, about: &[u8]) -> Option<Vec<u8>> {
    Envelope::default().icmp_error(source, error, about)
}

/// The fixed part of an ICMP or ICMPv6 message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct IcmpHeader {
    /// Type of the message.
    pub kind: u8,
    /// Code of the message.
    pub code: u8,
    /// The second word: an error's MTU or pointer, for example.
    pub parameter: u32,
}

/// The parts of a frame around a transport header that are not in its tuple.
#[derive(Clone, Copy, Debug)]
pub struct Envelope<'a> {
    /// The link address that the frame comes from.
    pub source: MacAddress,
    /// The link address that the frame goes to.
    pub destination: MacAddress,
    /// VLAN numbers, the outermost first; at most [`VLAN_TAGS_MAX`].
    pub vlans: &'a [u16],
    /// Time to live, or hop limit.
    pub ttl: u8,
    /// Type of service, or traffic class.
    pub traffic_class: u8,
    /// IPv4 options: a multiple of 4 bytes, at most 40.
    pub ipv4_options: &'a [u8],
    /// IPv6 extension headers, by protocol number and body (from the third byte on): 6 bytes, or 8 n more.
    pub ipv6_extensions: &'a [(u8, &'a [u8])],
    /// The packet is this fragment; offsets are multiples of 8 bytes. IPv4 has 16 bits of identification.
    pub fragment: Option<FragmentHeader>,
}

impl Default for Envelope<'_> {
    /// Untagged, from 02:00:00:00:00:01 to 02:00:00:00:00:02, time to live 64, routine traffic, no options.
    fn default() -> Self {
        Self {
            source: MacAddress([2, 0, 0, 0, 0, 1]),
            destination: MacAddress([2, 0, 0, 0, 0, 2]),
            vlans: &[],
            ttl: 64,
            traffic_class: 0,
            ipv4_options: &[],
            ipv6_extensions: &[],
            fragment: None,
        }
    }
}

impl Envelope<'_> {
    /// An IP packet that contains `transport` (header and payload, unchanged) from the tuple's source to its
    /// destination, with the tuple's protocol.
    ///
    /// # Panics
    /// The packet would be longer than 65 535 bytes, or the envelope's fields contradict each other.
    #[must_use]
    pub fn raw(&self, tuple: &Tuple, transport: &[u8]) -> Vec<u8> {
        let mut frame = Vec::with_capacity(128 + transport.len());
        if tuple.version == 4 {
            self.emit_link(&mut frame, ether_type::IPV4);
            self.emit_ipv4(&mut frame, tuple, transport.len());
        } else {
            self.emit_link(&mut frame, ether_type::IPV6);
            self.emit_ipv6(&mut frame, tuple, transport.len());
        }
        frame.extend_from_slice(transport);
        frame
    }

    /// An ICMP or ICMPv6 error about `about`, an IP packet from its IP header on (whole or truncated), sent by `source`
    /// to that packet's source. It quotes as much as permitted. `None`: `about` is no IP packet of the family of
    /// `source`. The caller decides whether an error may be sent at all (RFC 1122 section 3.2.2).
    #[must_use]
    pub fn icmp_error(&self, source: IpAddr, error: IcmpHeader, about: &[u8]) -> Option<Vec<u8>> {
        let (protocol, version, destination, quote_bytes_max) = match source {
            IpAddr::V4(_) => {
                let ip = Ipv4View::new_quoted(about).ok()?;
                let room = ICMP_ERROR_BYTES_MAX - IPV4_HEADER_BYTES - ICMP_HEADER_BYTES;
                let there = usize::from(ip.total_length()).min(room);
                (ip_protocol::ICMP, 4, address_bytes(IpAddr::from(ip.source())), there)
            }
            IpAddr::V6(_) => {
                let ip = Ipv6View::new_quoted(about).ok()?;
                let room = ICMPV6_ERROR_BYTES_MAX - IPV6_HEADER_BYTES - ICMP_HEADER_BYTES;
                let there = (IPV6_HEADER_BYTES + usize::from(ip.payload_length())).min(room);
                (ip_protocol::ICMPV6, 6, ip.source(), there)
            }
        };
        let source = address_bytes(source);
        let tuple =
            Tuple { source, destination, source_port: 0, destination_port: 0, protocol, version, discriminator: 0 };
        Some(self.icmp(&tuple, error, &about[..about.len().min(quote_bytes_max)]))
    }

    /// An ICMP or ICMPv6 message of any kind between the tuple's addresses; its ports do not matter.
    #[must_use]
    pub fn icmp(&self, tuple: &Tuple, header: IcmpHeader, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(ICMP_HEADER_BYTES + body.len());
        message.extend_from_slice(&[header.kind, header.code, 0, 0]);
        message.extend_from_slice(&header.parameter.to_be_bytes());
        message.extend_from_slice(body);
        fill_checksum(tuple, &mut message, ICMP_CHECKSUM_OFFSET);
        self.raw(tuple, &message)
    }

    fn emit_link(&self, out: &mut Vec<u8>, kind: u16) {
        assert!(self.vlans.len() <= VLAN_TAGS_MAX, "a frame carries at most {VLAN_TAGS_MAX} tags");
        let type_of_tag = |behind: usize| match behind {
            0 => kind,
            1 => ether_type::VLAN,
            _ => ether_type::SERVICE_VLAN,
        };
        ethernet::emit(out, self.destination, self.source, type_of_tag(self.vlans.len()));
        for (index, id) in self.vlans.iter().enumerate() {
            vlan::emit(out, *id, type_of_tag(self.vlans.len() - index - 1));
        }
    }

    fn emit_ipv4(&self, out: &mut Vec<u8>, tuple: &Tuple, transport_bytes: usize) {
        let start = out.len();
        let header_bytes = IPV4_HEADER_BYTES + self.ipv4_options.len();
        assert!(header_bytes <= 60 && header_bytes.is_multiple_of(4), "IPv4 options are 4 n bytes, at most 40");
        let total = u16::try_from(header_bytes + transport_bytes).expect("an IPv4 packet has at most 65 535 bytes");
        let (identification, flags_and_offset) = self.fragment.map_or((0, 0x4000), |fragment| {
            let more = if fragment.more { 0x2000 } else { 0 };
            (fragment.identification as u16, more | (fragment.offset_bytes / 8) as u16)
        });
        out.extend_from_slice(&[0x40 | (header_bytes / 4) as u8, self.traffic_class]);
        out.extend_from_slice(&total.to_be_bytes());
        out.extend_from_slice(&identification.to_be_bytes());
        out.extend_from_slice(&flags_and_offset.to_be_bytes());
        out.extend_from_slice(&[self.ttl, tuple.protocol, 0, 0]);
        out.extend_from_slice(&unmapped(&tuple.source));
        out.extend_from_slice(&unmapped(&tuple.destination));
        out.extend_from_slice(self.ipv4_options);
        let checksum = Sum::of(&out[start..]).checksum();
        out[start + 10..start + 12].copy_from_slice(&checksum.to_be_bytes());
    }

    fn emit_ipv6(&self, out: &mut Vec<u8>, tuple: &Tuple, transport_bytes: usize) {
        let extensions = self.emit_extensions(tuple.protocol);
        let payload_bytes =
            u16::try_from(extensions.len() + transport_bytes).expect("an IPv6 packet carries at most 65 535 bytes");
        let first = self.ipv6_extensions.first().map(|(kind, _)| *kind);
        let first = first.or(self.fragment.map(|_| ip_protocol::FRAGMENT)).unwrap_or(tuple.protocol);
        out.extend_from_slice(&[0x60 | self.traffic_class >> 4, self.traffic_class << 4, 0, 0]);
        out.extend_from_slice(&payload_bytes.to_be_bytes());
        out.extend_from_slice(&[first, self.ttl]);
        out.extend_from_slice(&tuple.source);
        out.extend_from_slice(&tuple.destination);
        out.extend_from_slice(&extensions);
    }

    /// The extension headers in their order, the fragment header last.
    fn emit_extensions(&self, protocol: u8) -> Vec<u8> {
        let mut out = Vec::new();
        let behind_all = if self.fragment.is_some() { ip_protocol::FRAGMENT } else { protocol };
        for (index, (_, body)) in self.ipv6_extensions.iter().enumerate() {
            assert!((body.len() + 2).is_multiple_of(8), "an extension header has 8 n bytes");
            let next = self.ipv6_extensions.get(index + 1).map_or(behind_all, |(kind, _)| *kind);
            out.extend_from_slice(&[next, ((body.len() + 2) / 8 - 1) as u8]);
            out.extend_from_slice(body);
        }
        if let Some(fragment) = self.fragment {
            out.extend_from_slice(&[protocol, 0]);
            out.extend_from_slice(&(fragment.offset_bytes as u16 & 0xfff8 | u16::from(fragment.more)).to_be_bytes());
            out.extend_from_slice(&fragment.identification.to_be_bytes());
        }
        out
    }
}

/// Writes the checksum of `transport` (header and payload, the field zero) at `at`. ICMP alone has no pseudo-header.
fn fill_checksum(tuple: &Tuple, transport: &mut [u8], at: usize) {
    let mut sum = Sum::of(transport);
    if tuple.protocol != ip_protocol::ICMP {
        sum = sum.plus(checksum::pseudo_header(tuple, transport.len() as u32));
    }
    let checksum = match tuple.protocol {
        ip_protocol::UDP => checksum::non_zero(sum.checksum()),
        _ => sum.checksum(),
    };
    transport[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
}
