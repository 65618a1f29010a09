//! A connection of the kernel's as one number: what a node and its peer must agree on.

use core::net::IpAddr;

use flow::netfilter::{Discriminator, Tuple};

use crate::representation::item::{FACTORS, mix};
use crate::session::Item;

/// As [`crate::representation::item()`]: both tuples, the zone, and the version, which names what was sent.
#[must_use]
pub fn item(key: u64, original: &Tuple, reply: &Tuple, zone: u16, version: u32) -> Item {
    let name = hash_tuple(key ^ u64::from(zone) << 24, original);
    let version = u64::from(version).wrapping_mul(FACTORS[1]);
    let check = mix(hash_tuple(!key, reply), name ^ version);
    Item::new(name as u32, (check >> 32) as u32)
}

#[inline]
fn hash_tuple(key: u64, tuple: &Tuple) -> u64 {
    let halves = |address: IpAddr| match address {
        IpAddr::V4(address) => [0, u64::from(u32::from(address))],
        IpAddr::V6(address) => {
            let whole = u128::from(address);
            [(whole >> 64) as u64, whole as u64]
        }
    };
    let ([source, source_low], [destination, destination_low]) = (halves(tuple.source), halves(tuple.destination));
    let addresses = mix(source ^ key ^ FACTORS[0], source_low ^ key.rotate_left(32))
        ^ mix(destination ^ key.rotate_left(16) ^ FACTORS[1], destination_low ^ key.rotate_left(48));
    let discriminator = match tuple.discriminator {
        Discriminator::Ports { source, destination } => u64::from(source) << 48 | u64::from(destination) << 32,
        Discriminator::Icmp { kind, code, id } => {
            u64::from(id) << 48 | u64::from(kind) << 40 | u64::from(code) << 32 | 1
        }
        Discriminator::Nothing => 2,
    };
    let kind = u64::from(tuple.protocol) << 24 | u64::from(tuple.is_v6()) << 16;
    mix(addresses ^ FACTORS[1], discriminator ^ kind ^ key ^ FACTORS[0])
}
