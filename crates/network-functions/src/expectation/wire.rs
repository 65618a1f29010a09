//! Expectations as attributes, in the update of their master.
//!
//! | type | value |
//! |---|---|
//! | 1, 2 | an expected connection of IPv4 or IPv6: source, destination, outgoing source, outgoing destination (4 or 16 each), their ports in the same order (2 each), protocol 1, flags 1 (1 permanent), function 2, milliseconds until it is given up 4 |

use alloc::vec::Vec;
use core::time::Duration;

use flow::wire::tlv::{self, TlvError};
use flow::{Instant, Tuple};

use super::{ANY_ADDRESS, EXPECTATIONS_PER_MASTER_MAX, Expectation};

const EXPECTED_V4: u16 = 1;
const EXPECTED_V6: u16 = 2;
const PERMANENT: u8 = 1;
/// The fields behind the addresses.
const TAIL_BYTES: usize = 16;
/// `::ffff:0:0/96`, the prefix of IPv4 addresses (RFC 4291, section 2.5.5.2).
const V4_MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

pub(super) fn encode(now: Instant, expectation: &Expectation, out: &mut Vec<u8>) {
    let Expectation { tuple, outgoing, function, expires_at, is_permanent } = expectation;
    let (kind, skipped_bytes) = if tuple.version == 4 { (EXPECTED_V4, V4_MAPPED.len()) } else { (EXPECTED_V6, 0) };
    let mut value = Vec::with_capacity(4 * 16 + TAIL_BYTES);
    for address in [tuple.source, tuple.destination, outgoing.source, outgoing.destination] {
        value.extend_from_slice(&address[skipped_bytes..]);
    }
    for port in [tuple.source_port, tuple.destination_port, outgoing.source_port, outgoing.destination_port] {
        value.extend_from_slice(&port.to_be_bytes());
    }
    value.extend_from_slice(&[tuple.protocol, if *is_permanent { PERMANENT } else { 0 }]);
    value.extend_from_slice(&function.to_be_bytes());
    let left_ms = u32::try_from(expires_at.saturating_since(now).as_millis()).unwrap_or(u32::MAX);
    value.extend_from_slice(&left_ms.to_be_bytes());
    tlv::put(out, kind, &value);
}

/// Decodes the output of [`super::Expectations::encode`], possibly of another program version: at most
/// [`EXPECTATIONS_PER_MASTER_MAX`], further ones are ignored.
///
/// # Errors
/// The attributes are malformed.
pub fn decode(now: Instant, attributes: &[u8]) -> Result<Vec<Expectation>, TlvError> {
    let mut expected = Vec::new();
    for attribute in tlv::read(attributes) {
        let (kind, value) = attribute?;
        let version = match kind {
            EXPECTED_V4 => 4,
            EXPECTED_V6 => 6,
            _ => continue,
        };
        let expectation = decode_one(now, version, value).ok_or(TlvError::ValueSize(kind))?;
        if expected.len() < EXPECTATIONS_PER_MASTER_MAX {
            expected.push(expectation);
        }
    }
    Ok(expected)
}

fn decode_one(now: Instant, version: u8, value: &[u8]) -> Option<Expectation> {
    let address_bytes = if version == 4 { 4 } else { 16 };
    let (addresses, tail) = value.split_at_checked(4 * address_bytes)?;
    let tail: &[u8; TAIL_BYTES] = tail.try_into().ok()?;
    let mut addresses = addresses.chunks_exact(address_bytes).map(|part| whole_address(version, part));
    let u16_at = |at: usize| u16::from_be_bytes([tail[at], tail[at + 1]]);
    let mut tuple = |ports_at: usize| -> Option<Tuple> {
        Some(Tuple {
            source: addresses.next()?,
            destination: addresses.next()?,
            source_port: u16_at(ports_at),
            destination_port: u16_at(ports_at + 2),
            protocol: tail[8],
            version,
            discriminator: 0,
        })
    };
    let (tuple, outgoing) = (tuple(0)?, tuple(4)?);
    let left_ms = u32::from_be_bytes([tail[12], tail[13], tail[14], tail[15]]);
    Some(Expectation {
        tuple,
        outgoing,
        function: u16_at(10),
        expires_at: now + Duration::from_millis(left_ms.into()),
        is_permanent: tail[9] & PERMANENT != 0,
    })
}

/// An address in the form of tuples. IPv4's zero means any address.
fn whole_address(version: u8, part: &[u8]) -> [u8; 16] {
    let mut address = ANY_ADDRESS;
    if version == 4 && part.iter().any(|byte| *byte != 0) {
        address[..12].copy_from_slice(&V4_MAPPED);
    }
    address[16 - part.len()..].copy_from_slice(part);
    address
}
