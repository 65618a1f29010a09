//! Tuples, as attributes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flow::netfilter::{Discriminator, Tuple};

use super::attributes::{Writer, for_each_attribute, u8_of, u16_of};
use super::numbers::{ip, protocol, tuple};

/// The number of ICMPv6.
const ICMP_V6: u8 = 58;

/// A tuple, and the zone where it is of this direction only (a zone of both directions is the connection's).
pub(super) fn decode(value: &[u8]) -> Option<(Tuple, Option<u16>)> {
    let (mut addresses, mut of_protocol, mut zone) = (None, None, None);
    for_each_attribute(value, |kind, value| {
        match kind {
            tuple::IP => addresses = Some(decode_addresses(value)?),
            tuple::PROTOCOL => of_protocol = Some(decode_protocol(value)?),
            tuple::ZONE => zone = Some(u16_of(value)?),
            _ => {}
        }
        Some(())
    })?;
    let ((source, destination), (protocol, discriminator)) = (addresses?, of_protocol?);
    Some((Tuple { source, destination, protocol, discriminator }, zone))
}

fn decode_addresses(value: &[u8]) -> Option<(IpAddr, IpAddr)> {
    let (mut source, mut destination) = (None, None);
    for_each_attribute(value, |kind, value| {
        match kind {
            ip::V4_SOURCE => source = Some(v4(value)?),
            ip::V4_DESTINATION => destination = Some(v4(value)?),
            ip::V6_SOURCE => source = Some(v6(value)?),
            ip::V6_DESTINATION => destination = Some(v6(value)?),
            _ => {}
        }
        Some(())
    })?;
    let (source, destination) = (source?, destination?);
    (source.is_ipv4() == destination.is_ipv4()).then_some((source, destination))
}

fn v4(value: &[u8]) -> Option<IpAddr> {
    value.first_chunk::<4>().map(|octets| Ipv4Addr::from(*octets).into())
}

fn v6(value: &[u8]) -> Option<IpAddr> {
    value.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets).into())
}

fn decode_protocol(value: &[u8]) -> Option<(u8, Discriminator)> {
    let (mut number, mut ports, mut icmp) = (None, [None; 2], (None, None, None));
    for_each_attribute(value, |kind, value| {
        match kind {
            protocol::NUMBER => number = Some(u8_of(value)?),
            protocol::SOURCE_PORT => ports[0] = Some(u16_of(value)?),
            protocol::DESTINATION_PORT => ports[1] = Some(u16_of(value)?),
            protocol::ICMP_ID | protocol::ICMP_V6_ID => icmp.2 = Some(u16_of(value)?),
            protocol::ICMP_TYPE | protocol::ICMP_V6_TYPE => icmp.0 = Some(u8_of(value)?),
            protocol::ICMP_CODE | protocol::ICMP_V6_CODE => icmp.1 = Some(u8_of(value)?),
            _ => {}
        }
        Some(())
    })?;
    let discriminator = match (ports, icmp) {
        ([Some(source), Some(destination)], _) => Discriminator::Ports { source, destination },
        (_, (Some(kind), Some(code), Some(id))) => Discriminator::Icmp { kind, code, id },
        _ => Discriminator::Nothing,
    };
    Some((number?, discriminator))
}

/// Appends a tuple as the attribute `kind`.
pub(super) fn encode(writer: &mut Writer<'_>, kind: u16, tuple: &Tuple) {
    encode_in_zone(writer, kind, tuple, None);
}

/// As [`encode`], with the zone where it is of this direction only.
pub(super) fn encode_in_zone(writer: &mut Writer<'_>, kind: u16, tuple: &Tuple, zone: Option<u16>) {
    writer.nest(kind, |writer| {
        writer.nest(tuple::IP, |writer| {
            encode_address(writer, [ip::V4_SOURCE, ip::V6_SOURCE], tuple.source);
            encode_address(writer, [ip::V4_DESTINATION, ip::V6_DESTINATION], tuple.destination);
        });
        writer.nest(tuple::PROTOCOL, |writer| encode_protocol(writer, tuple));
        zone.into_iter().for_each(|zone| writer.put_u16(tuple::ZONE, zone));
    });
}

/// Appends an address as the first attribute of `kinds` for IPv4, else as the second.
pub(super) fn encode_address(writer: &mut Writer<'_>, kinds: [u16; 2], address: IpAddr) {
    match address {
        IpAddr::V4(address) => writer.put(kinds[0], &address.octets()),
        IpAddr::V6(address) => writer.put(kinds[1], &address.octets()),
    }
}

fn encode_protocol(writer: &mut Writer<'_>, tuple: &Tuple) {
    writer.put(protocol::NUMBER, &[tuple.protocol]);
    match tuple.discriminator {
        Discriminator::Ports { source, destination } => {
            writer.put_u16(protocol::SOURCE_PORT, source);
            writer.put_u16(protocol::DESTINATION_PORT, destination);
        }
        Discriminator::Icmp { kind, code, id } => {
            let kinds = if tuple.protocol == ICMP_V6 {
                [protocol::ICMP_V6_ID, protocol::ICMP_V6_TYPE, protocol::ICMP_V6_CODE]
            } else {
                [protocol::ICMP_ID, protocol::ICMP_TYPE, protocol::ICMP_CODE]
            };
            writer.put_u16(kinds[0], id);
            writer.put(kinds[1], &[kind]);
            writer.put(kinds[2], &[code]);
        }
        Discriminator::Nothing => {}
    }
}

/// The address family of a message about the tuple.
pub(super) const fn family(tuple: &Tuple) -> libc::c_int {
    if tuple.is_v6() { libc::AF_INET6 } else { libc::AF_INET }
}
