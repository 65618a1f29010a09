//! Parses a frame once, from the link header to the transport checksum.

use super::checksum::{self, Sum};
use super::ethernet::ETHERNET_HEADER_BYTES;
use super::icmp::{self, Class, ICMP_HEADER_BYTES, IcmpView};
use super::ipv4::{self, IPV4_HEADER_BYTES, Ipv4View};
use super::ipv6::{self, IPV6_HEADER_BYTES, Ipv6View};
use super::sctp::{SCTP_HEADER_BYTES, SctpView};
use super::tcp::{TCP_HEADER_BYTES, TcpView};
use super::udp::{UDP_HEADER_BYTES, UdpView};
use super::{Headers, IcmpError, IcmpQuery, Parsed, Transport, arp, ethernet, icmpv6, ip_protocol};
use crate::key::mapped;
use crate::{Checksum, DropReason, Frame, QUERY_REPLY, Tuple};

/// Bytes of the transport header that every ICMP error quotes (RFC 792).
const QUOTED_TRANSPORT_BYTES_MIN: usize = 8;

/// Checks a frame and reads its headers.
///
/// Checked are: lengths (padding behind the packet is permitted), versions, header lengths, the IPv4 header's checksum,
/// the transport checksum of an unfragmented packet where it is [`Checksum::Unverified`], addresses that no packet may
/// carry, and source routing, which is refused. Frames to link broadcast and multicast addresses pass; the node decides
/// whether it accepts them.
///
/// Later fragments are [`Transport::Other`] with ports 0, as only the first has the ports.
///
/// # Errors
/// The reason for which the frame is to be dropped. Never panics, whatever the bytes.
#[inline]
pub fn parse(frame: &Frame<'_>) -> Result<Parsed, DropReason> {
    let mut headers = Headers::NONE;
    Ok(match parse_into(frame, &mut headers)? {
        Parsed::Ip(()) => Parsed::Ip(headers),
        Parsed::Arp(offset) => Parsed::Arp(offset),
    })
}

/// As [`parse`], with the headers written to the caller's buffer, which avoids a copy. They change only if the frame is
/// an IP packet.
///
/// # Errors
/// Those of [`parse`].
#[inline]
pub fn parse_into(frame: &Frame<'_>, headers: &mut Headers) -> Result<Parsed<()>, DropReason> {
    if parse_plain_tcp(frame.bytes(), frame.checksum, headers).is_some() {
        return Ok(Parsed::Ip(()));
    }
    Ok(match parse_any(frame)? {
        Parsed::Ip(found) => {
            *headers = found;
            Parsed::Ip(())
        }
        Parsed::Arp(offset) => Parsed::Arp(offset),
    })
}

#[inline(never)]
fn parse_any(frame: &Frame<'_>) -> Result<Parsed, DropReason> {
    let bytes = frame.bytes();
    let (ether_type, l3_offset) = ethernet::network_layer(bytes)?;
    let packet = bytes.get(l3_offset..).ok_or(DropReason::Truncated)?;
    if let Checksum::Partial { start, offset } = frame.checksum
        && usize::from(start) + usize::from(offset) + 2 > bytes.len()
    {
        return Err(DropReason::Malformed);
    }
    match ether_type {
        ethernet::ether_type::IPV4 => parse_ipv4(packet, l3_offset, frame.checksum),
        ethernet::ether_type::IPV6 => parse_ipv6(packet, l3_offset, frame.checksum),
        ethernet::ether_type::ARP => {
            arp::ArpView::new_checked(packet)?;
            Ok(Parsed::Arp(l3_offset as u16))
        }
        _ => Err(DropReason::UnsupportedLinkProtocol),
    }
}

/// The fast path for most packets: valid TCP in IPv4 in Ethernet, without tags, IP options or fragmentation. `None`,
/// without side effects, sends the frame to the general path, which classifies it or reports its fault.
#[inline(always)]
fn parse_plain_tcp(bytes: &[u8], state: Checksum, found: &mut Headers) -> Option<()> {
    const L4_OFFSET: usize = ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES;
    let headers = bytes.first_chunk::<{ L4_OFFSET + TCP_HEADER_BYTES }>()?;
    let ip = headers[ETHERNET_HEADER_BYTES..].first_chunk::<IPV4_HEADER_BYTES>()?;
    let is_plain = headers[ETHERNET_HEADER_BYTES - 2..ETHERNET_HEADER_BYTES]
        == ethernet::ether_type::IPV4.to_be_bytes()
        && ip[0] == 0x45
        && u16::from_be_bytes([ip[6], ip[7]]) & 0x3fff == 0
        && ip[9] == ip_protocol::TCP;
    let l3_bytes = u16::from_be_bytes([ip[2], ip[3]]);
    let transport = bytes.get(L4_OFFSET..ETHERNET_HEADER_BYTES + usize::from(l3_bytes))?;
    let (source, destination) = ([ip[12], ip[13], ip[14], ip[15]], [ip[16], ip[17], ip[18], ip[19]]);
    if !is_plain || ipv4::is_martian_source(source) || ipv4::is_martian_destination(destination) {
        return None;
    }
    let checksums_are_right = Sum::of(ip).is_whole()
        && match state {
            Checksum::Unverified => {
                let length_and_protocol = transport.len() as u32 + u32::from(ip_protocol::TCP);
                Sum::of(transport).plus(Sum::of(&ip[12..])).plus_u32(length_and_protocol).is_whole()
            }
            Checksum::Partial { start, offset } => usize::from(start) + usize::from(offset) + 2 <= bytes.len(),
            Checksum::Valid => true,
        };
    let tcp = TcpView::new_checked(transport).ok().filter(|_| checksums_are_right)?;
    let segment = tcp.segment().ok()?;
    *found = Headers {
        tuple: Tuple::of_ipv4(ip_protocol::TCP, (source, tcp.source_port()), (destination, tcp.destination_port())),
        transport: Transport::Tcp(segment),
        l3_offset: ETHERNET_HEADER_BYTES as u16,
        l4_offset: L4_OFFSET as u16,
        payload_offset: (L4_OFFSET + tcp.header_bytes()) as u16,
        l3_bytes: l3_bytes.into(),
        ttl: ip[8],
        is_fragment: false,
    };
    Some(())
}

#[inline(always)]
fn parse_ipv4(packet: &[u8], l3_offset: usize, state: Checksum) -> Result<Parsed, DropReason> {
    let ip = Ipv4View::new_checked(packet)?;
    if !ip.checksum_is_right() {
        return Err(DropReason::BadIpChecksum);
    }
    if !ip.options().is_empty() {
        ipv4::check_options(ip.options())?;
    }
    if ipv4::is_martian_source(ip.source()) || ipv4::is_martian_destination(ip.destination()) {
        return Err(DropReason::MartianAddress);
    }
    let mut network = Network {
        tuple: ipv4_tuple(&ip),
        l3_offset,
        l4_offset: l3_offset + ip.header_bytes(),
        l3_bytes: u32::from(ip.total_length()),
        ttl: ip.ttl(),
        address_sum: ip.address_sum(),
        fragment: Fragment::Whole,
        verify: state == Checksum::Unverified,
    };
    if ip.is_fragment() {
        network.note_fragment(ip.fragment_offset_bytes(), ip.payload().len())?;
    }
    network.parse_transport(ip.payload())
}

#[inline(always)]
fn parse_ipv6(packet: &[u8], l3_offset: usize, state: Checksum) -> Result<Parsed, DropReason> {
    let ip = Ipv6View::new_checked(packet)?;
    let upper = ip.upper_layer()?;
    let transport = ip.payload().get(upper.offset_bytes..).ok_or(DropReason::Malformed)?;
    let tuple = ipv6_tuple(&ip, upper.protocol);
    let source_is_martian = ipv6::is_martian_source(&tuple.source) && !is_address_less_discovery(&tuple, transport);
    if source_is_martian || ipv6::is_martian_destination(&tuple.destination) {
        return Err(DropReason::MartianAddress);
    }
    let mut network = Network {
        tuple,
        l3_offset,
        l4_offset: l3_offset + IPV6_HEADER_BYTES + upper.offset_bytes,
        l3_bytes: IPV6_HEADER_BYTES as u32 + u32::from(ip.payload_length()),
        ttl: ip.hop_limit(),
        address_sum: checksum::addresses(&tuple.source, &tuple.destination),
        fragment: Fragment::Whole,
        verify: state == Checksum::Unverified,
    };
    if let Some(fragment) = upper.fragment.filter(|fragment| !fragment.is_whole()) {
        network.note_fragment(fragment.offset_bytes, transport.len())?;
    }
    network.parse_transport(transport)
}

/// A host without an address sends neighbour solicitations (duplicate address detection, RFC 4862 section 5.4.2) and
/// router solicitations from the unspecified address.
fn is_address_less_discovery(tuple: &Tuple, transport: &[u8]) -> bool {
    tuple.source == [0; 16]
        && tuple.protocol == ip_protocol::ICMPV6
        && matches!(
            transport.first(),
            Some(&(icmpv6::kind::NEIGHBOUR_SOLICITATION | icmpv6::kind::ROUTER_SOLICITATION))
        )
}

#[inline(always)]
fn ipv4_tuple(ip: &Ipv4View<'_>) -> Tuple {
    Tuple {
        source: mapped(ip.source()),
        destination: mapped(ip.destination()),
        source_port: 0,
        destination_port: 0,
        protocol: ip.protocol(),
        version: 4,
        discriminator: 0,
    }
}

#[inline(always)]
fn ipv6_tuple(ip: &Ipv6View<'_>, protocol: u8) -> Tuple {
    Tuple {
        source: ip.source(),
        destination: ip.destination(),
        source_port: 0,
        destination_port: 0,
        protocol,
        version: 6,
        discriminator: 0,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fragment {
    Whole,
    First,
    Later,
}

/// The content of the network header.
struct Network {
    tuple: Tuple,
    l3_offset: usize,
    l4_offset: usize,
    l3_bytes: u32,
    ttl: u8,
    address_sum: Sum,
    fragment: Fragment,
    verify: bool,
}

impl Network {
    #[cold]
    fn note_fragment(&mut self, offset_bytes: u32, payload_bytes: usize) -> Result<(), DropReason> {
        // A datagram cannot end behind 65 535 bytes, and the second eight bytes of a TCP header must not come in a
        // fragment of their own, where they could replace flags already seen (RFC 1858 section 3.2.2).
        if offset_bytes as usize + payload_bytes > usize::from(u16::MAX) {
            return Err(DropReason::FragmentTooLong);
        }
        if self.tuple.protocol == ip_protocol::TCP && offset_bytes == 8 {
            return Err(DropReason::TinyFragment);
        }
        self.fragment = if offset_bytes == 0 { Fragment::First } else { Fragment::Later };
        Ok(())
    }

    #[inline(always)]
    fn parse_transport(mut self, transport: &[u8]) -> Result<Parsed, DropReason> {
        match self.fragment {
            Fragment::Whole => {}
            Fragment::First => check_first_fragment(self.tuple.protocol, transport)?,
            Fragment::Later => return Ok(self.headers(Transport::Other, 0)),
        }
        match (self.tuple.protocol, self.tuple.version) {
            (ip_protocol::TCP, _) => {
                let tcp = TcpView::new_checked(transport)?;
                self.verify_with_pseudo_header(transport)?;
                let segment = tcp.segment()?;
                self.tuple.source_port = tcp.source_port();
                self.tuple.destination_port = tcp.destination_port();
                Ok(self.headers(Transport::Tcp(segment), tcp.header_bytes()))
            }
            (ip_protocol::UDP, _) => self.parse_udp(transport),
            (ip_protocol::SCTP, _) => self.parse_sctp(transport),
            (ip_protocol::ICMP, 4) => {
                if self.must_verify() && !Sum::of(transport).is_whole() {
                    return Err(DropReason::BadTransportChecksum);
                }
                self.parse_icmp(transport, icmp::classify)
            }
            (ip_protocol::ICMPV6, 6) => {
                self.verify_with_pseudo_header(transport)?;
                self.parse_icmp(transport, icmpv6::classify)
            }
            _ => Ok(self.headers(Transport::Other, 0)),
        }
    }

    #[inline(always)]
    fn parse_udp(mut self, transport: &[u8]) -> Result<Parsed, DropReason> {
        let udp = match self.fragment {
            Fragment::Whole => UdpView::new_checked(transport)?,
            Fragment::First | Fragment::Later => UdpView::new_first_part(transport)?,
        };
        // Zero means "no checksum". Over IPv6, tunnels send such datagrams (RFC 6935). The receiving socket decides
        // whether to accept them; middleboxes pass them (RFC 6936 section 4).
        if udp.checksum() != 0 {
            self.verify_with_pseudo_header(udp.datagram())?;
        }
        self.tuple.source_port = udp.source_port();
        self.tuple.destination_port = udp.destination_port();
        Ok(self.headers(Transport::Udp, UDP_HEADER_BYTES))
    }

    fn parse_sctp(mut self, transport: &[u8]) -> Result<Parsed, DropReason> {
        let sctp = SctpView::new_checked(transport)?;
        if self.must_verify() && !sctp.checksum_is_right() {
            return Err(DropReason::BadTransportChecksum);
        }
        let packet = sctp.packet(self.fragment == Fragment::Whole)?;
        self.tuple.source_port = sctp.source_port();
        self.tuple.destination_port = sctp.destination_port();
        Ok(self.headers(Transport::Sctp(packet), SCTP_HEADER_BYTES))
    }

    fn parse_icmp(mut self, transport: &[u8], classify: fn(u8) -> Class) -> Result<Parsed, DropReason> {
        let message = IcmpView::new_checked(transport)?;
        let (kind, code) = (message.kind(), message.code());
        let transport = match classify(kind) {
            Class::Query { request, is_reply } => {
                if self.tuple.version == 4
                    && request == icmp::kind::TIMESTAMP
                    && self.fragment == Fragment::Whole
                    && transport.len() < icmp::ICMP_TIMESTAMP_BYTES
                {
                    return Err(DropReason::Malformed);
                }
                set_query(&mut self.tuple, &message, request, is_reply);
                Transport::IcmpQuery(IcmpQuery { kind, code, is_reply })
            }
            Class::Error => {
                let (inner, inner_header_bytes) = parse_quoted(message.body(), self.tuple.version)?;
                // It would reach the quoted connection's owner, whatever its destination.
                if self.tuple.destination != inner.source {
                    return Err(DropReason::MisdirectedIcmpError);
                }
                let inner_l3_offset = self.l4_offset + ICMP_HEADER_BYTES;
                Transport::IcmpError(IcmpError {
                    kind,
                    code,
                    inner,
                    inner_l3_offset: inner_l3_offset as u16,
                    inner_l4_offset: (inner_l3_offset + inner_header_bytes) as u16,
                })
            }
            Class::Other => Transport::IcmpOther(kind, code),
        };
        Ok(self.headers(transport, ICMP_HEADER_BYTES))
    }

    #[inline(always)]
    fn must_verify(&self) -> bool {
        self.verify && self.fragment == Fragment::Whole
    }

    #[inline(always)]
    fn verify_with_pseudo_header(&self, transport: &[u8]) -> Result<(), DropReason> {
        if !self.must_verify() {
            return Ok(());
        }
        let length_and_protocol = transport.len() as u32 + u32::from(self.tuple.protocol);
        let sum = Sum::of(transport).plus(self.address_sum).plus_u32(length_and_protocol);
        if sum.is_whole() { Ok(()) } else { Err(DropReason::BadTransportChecksum) }
    }

    // Offsets fit 16 bits: two tags, the IP header and eight extension headers come to less than 17 000 bytes.
    #[inline(always)]
    fn headers(&self, transport: Transport, transport_header_bytes: usize) -> Parsed {
        Parsed::Ip(Headers {
            tuple: self.tuple,
            transport,
            l3_offset: self.l3_offset as u16,
            l4_offset: self.l4_offset as u16,
            payload_offset: (self.l4_offset + transport_header_bytes) as u16,
            l3_bytes: self.l3_bytes,
            ttl: self.ttl,
            is_fragment: self.fragment != Fragment::Whole,
        })
    }
}

/// The first fragment must contain the whole transport header: otherwise no function could classify the packet (RFC
/// 1858 section 4.2, RFC 7112).
#[cold]
fn check_first_fragment(protocol: u8, transport: &[u8]) -> Result<(), DropReason> {
    let header_bytes = match protocol {
        // The data offset, in words, is in the upper half of the thirteenth byte.
        ip_protocol::TCP => transport.get(12).map_or(TCP_HEADER_BYTES, |byte| usize::from(byte >> 4) * 4),
        ip_protocol::UDP => UDP_HEADER_BYTES,
        ip_protocol::SCTP => SCTP_HEADER_BYTES,
        ip_protocol::ICMP | ip_protocol::ICMPV6 => ICMP_HEADER_BYTES,
        _ => 0,
    };
    if transport.len() < header_bytes { Err(DropReason::TinyFragment) } else { Ok(()) }
}

/// A query's identifier is stored as both ports; the request's type distinguishes the kinds of queries.
fn set_query(tuple: &mut Tuple, message: &IcmpView<'_>, request: u8, is_reply: bool) {
    tuple.source_port = message.identifier();
    tuple.destination_port = message.identifier();
    tuple.discriminator = u16::from(request) | if is_reply { QUERY_REPLY } else { 0 };
}

/// The packet that an ICMP error quotes: its tuple as it was sent, and the bytes of its network headers.
///
/// Neither its header checksum nor its transport checksum is verified: the error's own covers the quote, and routers
/// quote packets that they had changed already.
fn parse_quoted(quote: &[u8], version: u8) -> Result<(Tuple, usize), DropReason> {
    let (mut tuple, transport, header_bytes, is_later_fragment) =
        if version == 4 { quoted_ipv4(quote)? } else { quoted_ipv6(quote)? };
    if is_later_fragment {
        return Err(DropReason::Fragment);
    }
    if transport.len() < QUOTED_TRANSPORT_BYTES_MIN {
        return Err(DropReason::Malformed);
    }
    let classify = match (tuple.protocol, version) {
        (ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP, _) => {
            // The ports are at the same place in all of them.
            let ports = UdpView::new_first_part(transport)?;
            tuple.source_port = ports.source_port();
            tuple.destination_port = ports.destination_port();
            return Ok((tuple, header_bytes));
        }
        (ip_protocol::ICMP, 4) => icmp::classify,
        (ip_protocol::ICMPV6, 6) => icmpv6::classify,
        _ => return Ok((tuple, header_bytes)),
    };
    let message = IcmpView::new_checked(transport)?;
    match classify(message.kind()) {
        Class::Query { request, is_reply } => set_query(&mut tuple, &message, request, is_reply),
        // An error about an error must not be sent (RFC 1122 section 3.2.2, RFC 4443 section 2.4).
        Class::Error => return Err(DropReason::Malformed),
        Class::Other => {}
    }
    Ok((tuple, header_bytes))
}

type Quoted<'a> = (Tuple, &'a [u8], usize, bool);

fn quoted_ipv4(quote: &[u8]) -> Result<Quoted<'_>, DropReason> {
    let ip = Ipv4View::new_quoted(quote)?;
    Ok((ipv4_tuple(&ip), ip.payload(), ip.header_bytes(), ip.fragment_offset_bytes() != 0))
}

fn quoted_ipv6(quote: &[u8]) -> Result<Quoted<'_>, DropReason> {
    let ip = Ipv6View::new_quoted(quote)?;
    let upper = ip.upper_layer()?;
    let transport = ip.payload().get(upper.offset_bytes..).ok_or(DropReason::Malformed)?;
    let is_later_fragment = upper.fragment.is_some_and(|fragment| fragment.offset_bytes != 0);
    Ok((ipv6_tuple(&ip, upper.protocol), transport, IPV6_HEADER_BYTES + upper.offset_bytes, is_later_fragment))
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;
    use core::net::Ipv4Addr;

    use proptest::prelude::*;

    use super::*;
    use crate::PortId;
    use crate::wire::build;

    proptest! {
        #[test]
        fn the_fast_path_equals_the_general_path(
            flags: u8,
            timestamps in any::<Option<(u32, u32)>>(),
            payload in prop::collection::vec(any::<u8>(), 0..40),
            source in any::<u32>().prop_map(Ipv4Addr::from),
            padding in 0usize..8,
            damage in prop::option::of((any::<prop::sample::Index>(), any::<u8>())),
            checksum in prop_oneof![
                Just(Checksum::Unverified),
                Just(Checksum::Valid),
                (0u16..100, 0u16..60).prop_map(|(start, offset)| Checksum::Partial { start, offset }),
            ],
        ) {
            let tuple = Tuple::v4(ip_protocol::TCP, (source, 4000), (Ipv4Addr::new(192, 0, 2, 1), 80));
            let mut bytes: Vec<u8> = build::tcp(&tuple, build::Tcp { flags, timestamps, ..Default::default() }, &payload);
            bytes.resize(bytes.len() + padding, 0);
            if let Some((at, value)) = damage {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            let length_bytes = bytes.len();
            let mut frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0)).unwrap();
            frame.checksum = checksum;
            let mut headers = Headers::NONE;
            if parse_plain_tcp(frame.bytes(), frame.checksum, &mut headers).is_some() {
                prop_assert_eq!(parse_any(&frame), Ok(Parsed::Ip(headers)));
            } else if damage.is_none() && !matches!(checksum, Checksum::Partial { .. }) {
                prop_assert!(ipv4::is_martian_source(source.octets()), "it is valid");
            }
        }
    }
}
