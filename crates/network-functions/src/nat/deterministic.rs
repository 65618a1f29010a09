//! Source NAT whose mapping is computed (RFC 7422): every inside address has a fixed block of ports.
//!
//! ```text
//!   inside addresses, numbered      0 … H−1      in the order of their prefixes
//!   blocks of `block_ports` ports   0 … S−1      of the first outside address, then of the next
//!
//!   block of a host   sequential: its number     keyed: a permutation of 0 … S−1 under a secret (RFC 6431 section 2.2)
//!   port in the block (inside port + turn of the host) mod block_ports     turn: sequential 0, keyed from the secret
//! ```
//!
//! So an operator finds the host behind an outside address and port without a log of translations. Another node
//! computes the translation from a connection's inside tuple alone. In the other direction, one outside port maps to
//! one host and ⌈65536 / `block_ports`⌉ of its ports: they are enumerated, and the caller determines by other means (a
//! filter) which of them has a connection.
//!
//! **Port collisions.** Two inside ports of a host that differ by a multiple of the block's size have the same outside
//! port. Stacks choose ports towards one destination consecutively, so this is rare; towards different destinations it
//! does not matter.
//!
//! The second connection, or one that collides with another host's tuple, gets the next free port of the same block.
//! Its host still follows from the port, but not its inside port, so it needs precise replication
//! ([`crate::chain::Chain::is_restorable`]). A host whose block is used up towards a destination cannot begin further
//! connections to it; it never gets a port of another block.
//!
//! **Nodes** compute the same mapping, so they do not divide the ports. A host's connections through two nodes at once
//! may collide; the table of the node that learns of the second one refuses it.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::net::IpAddr;

use flow::wire::ip_protocol;
use flow::{HashKey, IpFamily, Tuple};

use super::PORT_PROBES_MAX;
use crate::address::{Prefix, bounds, family, from_tuple_bytes, tuple_bytes};
use crate::port_range::PortRange;
use crate::restoration::ORIGINALS_MAX;
use crate::rule_set::has_ports;

/// The minimum size of a block. With fewer ports, one outside port would have too many candidates.
pub const BLOCK_PORTS_MIN: u16 = 128;

const _: () = assert!(65_536 / BLOCK_PORTS_MIN as usize <= ORIGINALS_MAX / 4, "a few rules may match one reply");

/// The secret of a keyed mapping; the same on all nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MappingKey(pub [u64; 2]);

impl fmt::Debug for MappingKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MappingKey(secret)")
    }
}

/// The mapping of inside addresses to blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Algorithm {
    /// In order: anyone can compute it (RFC 7422 section 2.2, "sequential").
    #[default]
    Sequential,
    /// By a permutation under a secret: outsiders cannot derive a host's address and neighbours from its ports.
    Keyed(MappingKey),
}

/// The computed mapping of a source NAT rule.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Mapping {
    /// The assignment of blocks to hosts.
    pub algorithm: Algorithm,
    /// Ports of a block; `None`: the maximum for the number of hosts.
    pub block_ports: Option<u16>,
}

impl Mapping {
    /// The formula in text and numbers, with which an operator finds the host behind an outside port. It is for a rule
    /// with these sources, outside addresses, and ports.
    ///
    /// # Errors
    /// The mapping is invalid.
    pub fn formula(&self, sources: &[Prefix], addresses: &[IpAddr], ports: PortRange) -> Result<String, MappingError> {
        let family = addresses.first().map_or(IpFamily::V4, |address| family(*address));
        let pool = addresses.iter().map(|address| tuple_bytes(*address)).collect();
        Ok(Computed::new(sources, pool, family, ports, *self)?.describe())
    }
}

/// Why a mapping cannot be computed: a mistake in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum MappingError {
    /// There are no inside addresses to number.
    #[error("a computed mapping numbers the inside addresses: list their prefixes as the rule's sources")]
    NoHosts,
    /// Blocks too small to enumerate candidates.
    #[error(
        "blocks of {0} ports are too small: write {BLOCK_PORTS_MIN} or more, and add outside addresses if they do not suffice"
    )]
    BlockTooSmall(u16),
    /// There are fewer blocks than hosts.
    #[error(
        "the sources are {hosts} addresses, and {addresses} outside have only {blocks} blocks of {block_ports} ports: \
         narrow the sources, add outside addresses, or choose smaller blocks (down to {BLOCK_PORTS_MIN})"
    )]
    TooFewBlocks {
        /// Inside addresses.
        hosts: u128,
        /// The number of blocks.
        blocks: u32,
        /// Their size.
        block_ports: u16,
        /// Outside addresses.
        addresses: usize,
    },
}

/// Consecutive inside addresses.
#[derive(Clone, Copy, Debug)]
struct Hosts {
    first: u128,
    count: u32,
    /// The number of addresses in the ranges before.
    before: u32,
}

/// A computed mapping of one source rule.
#[derive(Clone, Debug)]
pub(super) struct Computed {
    /// Ascending and disjoint.
    hosts: Vec<Hosts>,
    addresses: Vec<[u8; 16]>,
    family: IpFamily,
    ports: PortRange,
    block_ports: u16,
    blocks_per_address: u32,
    key: Option<HashKey>,
}

/// One host's ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    address: [u8; 16],
    first: u16,
    turn: u16,
}

impl Computed {
    pub(super) fn new(
        sources: &[Prefix],
        addresses: Vec<[u8; 16]>,
        family: IpFamily,
        ports: PortRange,
        mapping: Mapping,
    ) -> Result<Self, MappingError> {
        let ranges = disjoint(sources, family);
        let count = ranges.iter().fold(0u128, |sum, &(_, count)| sum.saturating_add(count));
        if count == 0 {
            return Err(MappingError::NoHosts);
        }
        let addresses_count = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let block_ports = match mapping.block_ports {
            Some(block_ports) => block_ports,
            // The compression ratio of RFC 7422: hosts per address.
            None => u32::try_from(count.div_ceil(addresses_count.into()))
                .map_or(0, |ratio| u16::try_from(ports.count() / ratio).unwrap_or(u16::MAX))
                .max(BLOCK_PORTS_MIN),
        };
        if block_ports < BLOCK_PORTS_MIN {
            return Err(MappingError::BlockTooSmall(block_ports));
        }
        let blocks_per_address = ports.count() / u32::from(block_ports);
        let blocks = blocks_per_address * addresses_count;
        if count > blocks.into() {
            let addresses = addresses.len();
            return Err(MappingError::TooFewBlocks { hosts: count, blocks, block_ports, addresses });
        }
        let mut before = 0;
        let hosts = ranges.into_iter().map(|(first, count)| {
            // Below `blocks`, as checked above.
            let hosts = Hosts { first, count: u32::try_from(count).unwrap_or(u32::MAX), before };
            before += hosts.count;
            hosts
        });
        let key = match mapping.algorithm {
            Algorithm::Sequential => None,
            Algorithm::Keyed(MappingKey(key)) => Some(HashKey(key)),
        };
        Ok(Self { hosts: hosts.collect(), addresses, family, ports, block_ports, blocks_per_address, key })
    }

    pub(super) fn addresses(&self) -> &[[u8; 16]] {
        &self.addresses
    }

    /// The formula in text and numbers, for an operator who later looks for a host.
    pub(super) fn describe(&self) -> String {
        let hosts: u32 = self.hosts.iter().map(|hosts| hosts.count).sum();
        let algorithm = if self.key.is_some() { "keyed" } else { "sequential" };
        let first = self.hosts.first().map_or(0, |hosts| hosts.first);
        format!(
            "{algorithm}: inside addresses from {} on, {hosts} in all, in blocks of {} ports of {}; of outside addresses from {} on, \
             {} in all, each has {} blocks; port = first of block + (inside port{}) mod {}",
            from_tuple_bytes(first.to_be_bytes(), self.family),
            self.block_ports,
            self.ports,
            self.addresses.first().map_or(IpAddr::from([0; 4]), |address| from_tuple_bytes(*address, self.family)),
            self.addresses.len(),
            self.blocks_per_address,
            if self.key.is_some() { " + turn of the host" } else { "" },
            self.block_ports,
        )
    }

    /// The computed translation of `outgoing`; `None` when its source is no host of the rule.
    pub(super) fn translate(&self, outgoing: &Tuple) -> Option<Tuple> {
        self.candidates(outgoing)?.next()
    }

    /// The permitted translations of `outgoing`: the computed port, then the others of the host's block.
    pub(super) fn candidates(&self, outgoing: &Tuple) -> Option<impl Iterator<Item = Tuple> + use<>> {
        let number = self.number_of(&outgoing.source)?;
        let block = self.block_of(number);
        let translated = Tuple { source: block.address, ..*outgoing };
        let set_port = port_setter(outgoing.protocol);
        let size = u32::from(self.block_ports);
        let offset = (u32::from(outgoing.source_port) + u32::from(block.turn)) % size;
        let probes = if set_port.is_some() { size.min(PORT_PROBES_MAX as u32) } else { 1 };
        Some((0..probes).map(move |probe| {
            let mut candidate = translated;
            if let Some(set_port) = set_port {
                set_port(&mut candidate, block.first + ((offset + probe) % size) as u16);
            }
            candidate
        }))
    }

    /// Appends the tuples that [`Computed::translate`] maps to `outgoing`.
    pub(super) fn invert(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        let Some(address) = self.addresses.iter().position(|address| *address == outgoing.source) else { return };
        let first_slot = u32::try_from(address).unwrap_or(u32::MAX).saturating_mul(self.blocks_per_address);
        let Some(set_port) = port_setter(outgoing.protocol) else {
            // The packet does not identify the host of the address.
            let hosts = (first_slot..first_slot + self.blocks_per_address).filter_map(|slot| self.host_in(slot));
            incoming.extend(hosts.map(|source| Tuple { source, ..*outgoing }));
            return;
        };
        if !self.ports.contains(outgoing.source_port) {
            return;
        }
        let place = u32::from(outgoing.source_port - self.ports.first());
        let (block, offset) = (place / u32::from(self.block_ports), place % u32::from(self.block_ports));
        if block >= self.blocks_per_address {
            return;
        }
        let Some(source) = self.host_in(first_slot + block) else { return };
        let size = u32::from(self.block_ports);
        let turn = u32::from(self.turn_of(&source));
        let least = (offset + size - turn) % size;
        incoming.extend((least..=u32::from(u16::MAX)).step_by(size as usize).map(|port| {
            let mut tuple = Tuple { source, ..*outgoing };
            set_port(&mut tuple, port as u16);
            tuple
        }));
    }

    /// The number of an inside address.
    fn number_of(&self, source: &[u8; 16]) -> Option<u32> {
        let address = u128::from_be_bytes(*source);
        let behind = self.hosts.partition_point(|hosts| hosts.first <= address);
        let hosts = self.hosts.get(behind.checked_sub(1)?)?;
        let offset = u32::try_from(address - hosts.first).ok().filter(|offset| *offset < hosts.count)?;
        Some(hosts.before + offset)
    }

    /// The inside address of a number.
    fn address_of(&self, number: u32) -> Option<[u8; 16]> {
        let behind = self.hosts.partition_point(|hosts| hosts.before <= number);
        let hosts = self.hosts.get(behind.checked_sub(1)?)?;
        let offset = number - hosts.before;
        (offset < hosts.count).then(|| (hosts.first + u128::from(offset)).to_be_bytes())
    }

    fn block_of(&self, number: u32) -> Block {
        let slot = self.permuted(number, Feistel::forwards);
        let (address, block) = (slot / self.blocks_per_address, slot % self.blocks_per_address);
        let turn = self.address_of(number).map_or(0, |source| self.turn_of(&source));
        // Below the last port: the range contains that many blocks.
        let first = self.ports.first() + (block * u32::from(self.block_ports)) as u16;
        Block { address: self.addresses[address as usize], first, turn }
    }

    /// The host that owns block `slot`.
    fn host_in(&self, slot: u32) -> Option<[u8; 16]> {
        self.address_of(self.permuted(slot, Feistel::backwards))
    }

    fn turn_of(&self, source: &[u8; 16]) -> u16 {
        let Some(key) = &self.key else { return 0 };
        let host = Tuple { source: *source, version: 6, ..Tuple::NONE };
        (key.hash(&host) % u64::from(self.block_ports)) as u16
    }

    /// `number` under the keyed permutation, or unchanged without a key. Numbers that the permutation of the next power
    /// of four maps out of the range are permuted again until they are in it.
    fn permuted(&self, number: u32, step: fn(&Feistel, u32) -> u32) -> u32 {
        let Some(key) = self.key else { return number };
        let slots = self.blocks_per_address * self.addresses.len() as u32;
        let bits = (u32::BITS - (slots - 1).leading_zeros()).div_ceil(2).max(1);
        let feistel = Feistel { key, half_bits: bits };
        let mut moved = step(&feistel, number);
        while moved >= slots {
            moved = step(&feistel, moved);
        }
        moved
    }
}

/// Rounds of the permutation: four rounds make a pseudorandom permutation (Luby and Rackoff, 1988); two more cost
/// little.
const FEISTEL_ROUNDS: u8 = 6;

/// A permutation of numbers of twice `half_bits` bits.
struct Feistel {
    key: HashKey,
    half_bits: u32,
}

impl Feistel {
    fn forwards(&self, number: u32) -> u32 {
        let (mut left, mut right) = self.halves(number);
        for round in 0..FEISTEL_ROUNDS {
            (left, right) = (right, left ^ self.round(round, right));
        }
        left << self.half_bits | right
    }

    fn backwards(&self, number: u32) -> u32 {
        let (mut left, mut right) = self.halves(number);
        for round in (0..FEISTEL_ROUNDS).rev() {
            (left, right) = (right ^ self.round(round, left), left);
        }
        left << self.half_bits | right
    }

    const fn halves(&self, number: u32) -> (u32, u32) {
        (number >> self.half_bits, number & self.mask())
    }

    const fn mask(&self) -> u32 {
        (1 << self.half_bits) - 1
    }

    fn round(&self, round: u8, half: u32) -> u32 {
        let mut input = Tuple { protocol: round, version: 6, ..Tuple::NONE };
        input.source[..4].copy_from_slice(&half.to_be_bytes());
        self.key.hash(&input) as u32 & self.mask()
    }
}

/// The addresses of `prefixes` of a family as ascending disjoint ranges. (Two prefixes are disjoint or one contains the
/// other.)
fn disjoint(prefixes: &[Prefix], of: IpFamily) -> Vec<(u128, u128)> {
    let of_family = prefixes.iter().filter(|prefix| family(prefix.addr()) == of);
    // An IPv6 prefix of zero bits has one address more than can be counted; it exceeds any limit without it.
    let range = |[first, last]: [u128; 2]| (first, (last - first).saturating_add(1));
    let mut ranges: Vec<_> = of_family.map(bounds).map(range).collect();
    ranges.sort_unstable_by_key(|&(first, count)| (first, core::cmp::Reverse(count)));
    let mut end = None;
    ranges.retain(|&(first, count)| {
        let is_new = end.is_none_or(|end| first > end);
        if is_new {
            end = Some(first.saturating_add(count - 1));
        }
        is_new
    });
    ranges
}

/// Sets the source port, or the identifier in its place, in tuples of `protocol`; `None` when there is neither.
pub(super) fn port_setter(protocol: u8) -> Option<fn(&mut Tuple, u16)> {
    match protocol {
        ip_protocol::ICMP | ip_protocol::ICMPV6 => Some(|tuple, identifier| {
            tuple.source_port = identifier;
            tuple.destination_port = identifier;
        }),
        _ if has_ports(protocol) => Some(|tuple, port| tuple.source_port = port),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
