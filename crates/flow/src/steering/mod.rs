//! Assigns packets to a node's workers.
//!
//! Both directions of a connection reach one worker without coordination: the worker is computed from values that
//! swapping source and destination does not change.
//!
//! ```text
//!   TCP, UDP             addresses and ports
//!   ICMP query, reply    addresses and identifier
//!   ICMP error           the packet that it quotes
//!   fragment             addresses, as only the first fragment has the ports
//!   other protocols      addresses
//!   ARP, neighbour discovery, multicast listener reports    worker 0
//! ```
//!
//! [`Steering`] handles parsed packets. [`program`] is the same function as classic BPF; the kernel runs it before it
//! passes a frame to a worker's socket. The program reads fewer headers than the parser: a frame beyond its abilities
//! reaches an arbitrary worker, which hands it to the right one.
//!
//! The function has no key: all nodes of a cluster must compute the same worker, as a replica lies with the worker that
//! its packets will reach. A host that chooses its ports can therefore choose the worker, as with receive-side scaling
//! in hardware.

mod program;
#[cfg(test)]
mod tests;

use crate::key::unmapped;
use crate::wire::{Headers, Transport, ip_protocol};
use crate::{IpFamily, Tuple};

pub use program::{Instruction, program};

/// The most workers that a node can have.
pub const WORKERS_MAX: u8 = 32;
/// The version of the function: nodes with different versions would look for a replica at different workers.
pub const STEERING_VERSION: u8 = 1;

/// The factor that spreads the ports over the word (2^32 divided by the golden ratio, made odd).
const PORT_FACTOR: u32 = 0x9e37_79b1;
/// The finaliser of MurmurHash3 (Appleby, public domain): every bit of the input changes half of the output's.
const MIX_FACTORS: [u32; 2] = [0x85eb_ca6b, 0xc2b2_ae35];
const MIX_SHIFTS: [u32; 3] = [16, 13, 16];

/// One of a node's workers, from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct WorkerId(pub u8);

impl WorkerId {
    /// The lead worker, which alone exchanges neighbour messages and monitors peers.
    pub const LEAD: Self = Self(0);

    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// The distribution of packets over a number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    workers: u8,
}

impl Steering {
    /// All packets reach one worker.
    pub const ALONE: Self = Self { workers: 1 };

    /// Steering to `workers` workers; `None` unless there are 1 to [`WORKERS_MAX`].
    #[must_use]
    pub const fn new(workers: u8) -> Option<Self> {
        if workers >= 1 && workers <= WORKERS_MAX { Some(Self { workers }) } else { None }
    }

    /// The number of workers.
    #[must_use]
    pub const fn workers(self) -> u8 {
        self.workers
    }

    /// The worker that a packet belongs to.
    #[must_use]
    #[inline]
    pub fn worker_of(self, headers: &Headers) -> WorkerId {
        match &headers.transport {
            _ if self.workers == 1 => WorkerId::LEAD,
            _ if is_link_local_control(headers) => WorkerId::LEAD,
            _ if headers.is_fragment => self.place(addresses(&headers.tuple), 0),
            Transport::IcmpError(error) => self.worker_of_tuple(&error.inner),
            _ => self.worker_of_tuple(&headers.tuple),
        }
    }

    /// The worker for packets with this tuple or its inverse.
    #[must_use]
    #[inline]
    pub fn worker_of_tuple(self, tuple: &Tuple) -> WorkerId {
        self.place(addresses(tuple), ports(tuple))
    }

    #[inline]
    fn place(self, addresses: u32, ports: u16) -> WorkerId {
        let mixed = mix(addresses.wrapping_add(u32::from(ports).wrapping_mul(PORT_FACTOR)));
        WorkerId((mixed % u32::from(self.workers)) as u8)
    }
}

/// Messages that concern one link and never cross a router: neighbour discovery, multicast listener reports (RFC 4861,
/// RFC 3810).
#[must_use]
pub const fn is_link_local_control(headers: &Headers) -> bool {
    matches!(headers.transport, Transport::IcmpOther(130..=137 | 143, _)) && headers.tuple.version == 6
}

/// Both addresses in one word, invariant under swapping.
#[inline]
fn addresses(tuple: &Tuple) -> u32 {
    let word =
        |bytes: &[u8; 16], at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match tuple.family() {
        IpFamily::V4 => u32::from_be_bytes(unmapped(&tuple.source)) ^ u32::from_be_bytes(unmapped(&tuple.destination)),
        IpFamily::V6 => {
            (0..16).step_by(4).fold(0, |folded, at| folded ^ word(&tuple.source, at) ^ word(&tuple.destination, at))
        }
    }
}

/// Both ports in one word, invariant under swapping. A query's identifier is in both, and must not cancel out.
#[inline]
const fn ports(tuple: &Tuple) -> u16 {
    match tuple.protocol {
        ip_protocol::ICMP | ip_protocol::ICMPV6 => tuple.source_port,
        _ => tuple.source_port ^ tuple.destination_port,
    }
}

#[inline]
const fn mix(mut word: u32) -> u32 {
    word ^= word >> MIX_SHIFTS[0];
    word = word.wrapping_mul(MIX_FACTORS[0]);
    word ^= word >> MIX_SHIFTS[1];
    word = word.wrapping_mul(MIX_FACTORS[1]);
    word ^ word >> MIX_SHIFTS[2]
}
