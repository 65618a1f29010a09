//! Tuples as attributes, and values of a known size.

use alloc::vec::Vec;
use core::net::IpAddr;

use flow::netfilter::{Discriminator, Tuple};
use flow::wire::tlv::{self, TlvError};

use crate::session::ApplyError;

const PORTS: u8 = 0;
const ICMP: u8 = 1;
const NOTHING: u8 = 2;

/// A whole tuple with its zone, as the first of these kinds for IPv4 and the second for IPv6.
#[inline(always)]
pub(super) fn put_original([v4, v6]: [u16; 2], tuple: &Tuple, zone: u16, out: &mut Vec<u8>) {
    let (discriminator, kind) = discriminator_bytes(tuple.discriminator);
    let [zone_high, zone_low] = zone.to_be_bytes();
    let tail = [tuple.protocol, kind, zone_high, zone_low];
    match (tuple.source, tuple.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => tlv::put_fixed::<20>(out, v4, 16, |bytes| {
            bytes[4..8].copy_from_slice(&source.octets());
            bytes[8..12].copy_from_slice(&destination.octets());
            bytes[12..16].copy_from_slice(&discriminator);
            bytes[16..].copy_from_slice(&tail);
        }),
        (source, destination) => tlv::put_fixed::<44>(out, v6, 40, |bytes| {
            bytes[4..20].copy_from_slice(&octets_v6(source));
            bytes[20..36].copy_from_slice(&octets_v6(destination));
            bytes[36..40].copy_from_slice(&discriminator);
            bytes[40..].copy_from_slice(&tail);
        }),
    }
}

/// A tuple without what it has in common with its original.
#[inline]
pub(super) fn put_reply(kinds: [u16; 2], tuple: &Tuple, out: &mut Vec<u8>) {
    // The same layout, so that both are read by one function; protocol and zone are the original's.
    put_original(kinds, &Tuple { protocol: 0, ..*tuple }, 0, out);
}

/// The tuple and the zone.
pub(super) fn read_original(kind: u16, is_v6: bool, value: &[u8]) -> Result<(Tuple, u16), ApplyError> {
    let (source, destination, rest): (IpAddr, IpAddr, [u8; 8]) = if is_v6 {
        let value = sized::<40>(kind, value)?;
        (address_v6(&value[..16]), address_v6(&value[16..32]), last_eight(&value))
    } else {
        let value = sized::<16>(kind, value)?;
        let address = |at: usize| IpAddr::from([value[at], value[at + 1], value[at + 2], value[at + 3]]);
        (address(0), address(4), last_eight(&value))
    };
    let [first_high, first_low, second_high, second_low, protocol, discriminator_kind, zone_high, zone_low] = rest;
    let (first, second) = (u16::from_be_bytes([first_high, first_low]), u16::from_be_bytes([second_high, second_low]));
    let discriminator = match discriminator_kind {
        PORTS => Discriminator::Ports { source: first, destination: second },
        ICMP => Discriminator::Icmp { id: first, kind: second_high, code: second_low },
        NOTHING => Discriminator::Nothing,
        _ => return Err(ApplyError::Value(kind)),
    };
    Ok((Tuple { source, destination, protocol, discriminator }, u16::from_be_bytes([zone_high, zone_low])))
}

pub(super) fn read_reply(kind: u16, is_v6: bool, value: &[u8], original: &Tuple) -> Result<Tuple, ApplyError> {
    let (reply, _) = read_original(kind, is_v6, value)?;
    if is_v6 != original.is_v6() {
        return Err(ApplyError::Value(kind));
    }
    Ok(Tuple { protocol: original.protocol, ..reply })
}

pub(super) fn sized<const BYTES: usize>(kind: u16, value: &[u8]) -> Result<[u8; BYTES], ApplyError> {
    value.try_into().map_err(|_| TlvError::ValueSize(kind).into())
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn discriminator_bytes(discriminator: Discriminator) -> ([u8; 4], u8) {
    match discriminator {
        Discriminator::Ports { source, destination } => {
            let ([a, b], [c, d]) = (source.to_be_bytes(), destination.to_be_bytes());
            ([a, b, c, d], PORTS)
        }
        Discriminator::Icmp { kind, code, id } => {
            let [a, b] = id.to_be_bytes();
            ([a, b, kind, code], ICMP)
        }
        Discriminator::Nothing => ([0; 4], NOTHING),
    }
}

/// Tuples are of one family; one that is not, which no kernel makes, is sent in its mapped form.
const fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V6(address) => address.octets(),
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
    }
}

fn address_v6(bytes: &[u8]) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    IpAddr::from(octets)
}

fn last_eight(bytes: &[u8]) -> [u8; 8] {
    let mut last = [0; 8];
    last.copy_from_slice(&bytes[bytes.len() - 8..]);
    last
}
