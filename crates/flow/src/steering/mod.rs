//! Which of a node's workers a packet belongs to.
//!
//! The packets of a connection come to one worker, both ways, without anybody being asked: the worker follows from what
//! does not change when source and destination are swapped.
//!
//! ```text
//!   TCP, UDP             addresses and ports
//!   ICMP query, reply    addresses and identifier
//!   ICMP error           what the packet that it quotes belongs to
//!   fragment             addresses, for the ports are in the first fragment alone
//!   other protocols      addresses
//!   ARP, neighbour discovery, multicast listener reports    worker 0
//! ```
//!
//! [`Steering`] says so of packets that were parsed, [`program`] is the same as classic BPF, to be run by the kernel before
//! it gives a frame to a worker's socket. The program reads fewer headers than the parser: a frame that it cannot follow
//! comes to some worker, which hands it over to the right one.
//!
//! The function has no key: both nodes of a cluster must agree on it, as a connection's copy lies with the worker that its
//! packets will come to. Who can choose his own ports can hence choose the worker, as with receive-side scaling in hardware.

mod program;
#[cfg(test)]
mod tests;

use crate::key::unmapped;
use crate::wire::{Headers, Transport, ip_protocol};
use crate::{IpFamily, Tuple};

pub use program::{Instruction, program};

/// The most workers that a node can have.
pub const WORKERS_MAX: u8 = 32;
/// Numbers the function: nodes with different ones would look for a connection's copy at different workers.
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
    /// The worker that leads the others: it alone speaks with neighbours and watches peers.
    pub const LEAD: Self = Self(0);

    /// As an index.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// How packets are spread over a number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Steering {
    workers: u8,
}

impl Steering {
    /// Everything comes to one worker.
    pub const ALONE: Self = Self { workers: 1 };

    /// Steering to `workers` workers; `None` unless there are 1 to [`WORKERS_MAX`].
    #[must_use]
    pub const fn new(workers: u8) -> Option<Self> {
        if workers >= 1 && workers <= WORKERS_MAX { Some(Self { workers }) } else { None }
    }

    /// How many workers there are.
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

    /// The worker that the packets with this tuple belong to, and those with its inverse.
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

/// Both addresses in one word: swapping them changes nothing.
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

/// Both ports in one: swapping them changes nothing. A query's identifier stands in both, and must not cancel itself.
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
