//! Who sent what is in a cache.

use std::collections::VecDeque;
use std::net::IpAddr;

use flow::Instant;
use redundancy::limits::GRANULE_BYTES;
use serde::{Deserialize, Serialize};

use crate::redundancy_study::packet::Packet;

/// What a packet and the one that its bytes were found in have in common (seed, section 2.4 and figure 2.6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Origin {
    /// Addresses and ports.
    IntraFlow,
    /// Both addresses.
    InterFlow,
    /// The source's address.
    InterDestination,
    /// The destination's address.
    InterSource,
    /// Neither address.
    InterNode,
}

impl Origin {
    /// All of them.
    pub(crate) const ALL: [Self; 5] =
        [Self::IntraFlow, Self::InterFlow, Self::InterDestination, Self::InterSource, Self::InterNode];

    /// Its name in result.
    #[must_use]
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::IntraFlow => "intra_flow",
            Self::InterFlow => "inter_flow",
            Self::InterDestination => "inter_destination",
            Self::InterSource => "inter_source",
            Self::InterNode => "inter_node",
        }
    }
}

/// Who sent a block of the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner {
    number: u64,
    pub(super) at: Instant,
    source: IpAddr,
    destination: IpAddr,
    pub(super) source_port: u16,
    destination_port: u16,
    ip_protocol_is_tcp: bool,
}

impl Owner {
    pub(super) const fn of(number: u64, packet: &Packet) -> Self {
        let Packet { at, source, destination, source_port, destination_port, tcp, .. } = *packet;
        Self { number, at, source, destination, source_port, destination_port, ip_protocol_is_tcp: tcp.is_some() }
    }

    /// Where its block begins in the cache, counted in bytes from the encoder's first.
    pub(super) const fn position(&self) -> u64 {
        self.number * GRANULE_BYTES as u64
    }

    /// Where bytes of this come from that were found in `other`.
    pub(super) fn origin_from(&self, other: &Self) -> Origin {
        let is_same_flow = self.source_port == other.source_port
            && self.destination_port == other.destination_port
            && self.ip_protocol_is_tcp == other.ip_protocol_is_tcp;
        match (self.source == other.source, self.destination == other.destination) {
            (true, true) if is_same_flow => Origin::IntraFlow,
            (true, true) => Origin::InterFlow,
            (true, false) => Origin::InterDestination,
            (false, true) => Origin::InterSource,
            (false, false) => Origin::InterNode,
        }
    }
}

/// The owners of all that is in a cache, in the order of their blocks. A block has a granule at least, so there are no more of
/// them than granules.
#[derive(Debug)]
pub(super) struct Owners {
    granules: u64,
    blocks: VecDeque<Owner>,
}

impl Owners {
    pub(super) const fn new(cache_bytes: u64) -> Self {
        Self { granules: cache_bytes / GRANULE_BYTES as u64, blocks: VecDeque::new() }
    }

    pub(super) fn push(&mut self, owner: Owner) {
        while self.blocks.front().is_some_and(|oldest| oldest.number + self.granules <= owner.number) {
            self.blocks.pop_front();
        }
        self.blocks.push_back(owner);
    }

    /// Whose block a position lies in.
    pub(super) fn owner_of(&self, position: u64) -> Option<&Owner> {
        let after = self.blocks.partition_point(|owner| owner.position() <= position);
        self.blocks.get(after.checked_sub(1)?)
    }
}
