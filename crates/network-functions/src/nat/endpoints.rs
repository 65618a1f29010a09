//! Endpoint-independent mappings (RFC 4787 REQ-1, RFC 5382 REQ-1): which inside end point has an outside address and port, towards all
//! destinations.
//!
//! The mappings follow from the connections in the table, replicas included, so nothing more is replicated: a node that takes over has
//! them. A mapping lasts as long as a connection uses it. Until another end point needs the port, the end point gets it again.
//!
//! One value serves all workers of a node, without a lock. Each outside port has a word:
//!
//! ```text
//!   | hash of the inside end point: 32 bits | second of the claim: 12 | connections: 20 |
//! ```
//!
//! A claim holds a port for a connection that is about to enter the table.

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::sync::atomic::{AtomicU64, Ordering};

use flow::wire::ip_protocol;
use flow::{HashKey, Instant, Tuple};

use super::ports::candidates;
use crate::address::tuple_bytes;
use crate::port_range::PortRange;

/// The maximum number of outside addresses of a node's rules with such mappings. Each takes 2 MiB for 64,512 ports.
pub const ENDPOINT_ADDRESSES_MAX: usize = 32;
/// Candidate ports of an inside end point. With a share `f` of an address's ports in use, a connection is refused with probability `f^64`.
const CANDIDATES_MAX: usize = 64;
/// How long a claim holds a port without a connection, in seconds.
const CLAIM_LASTS_S: u64 = 2;

const COUNT_BITS: u32 = 20;
const COUNT_MAX: u64 = (1 << COUNT_BITS) - 1;
const SECOND_MASK: u64 = (1 << 12) - 1;

/// The word of a port.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn new(tag: u32, second: u64, count: u64) -> Self {
        Self((u64::from(tag) << 32) | ((second & SECOND_MASK) << COUNT_BITS) | count)
    }

    const fn tag(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn count(self) -> u64 {
        self.0 & COUNT_MAX
    }

    const fn second(self) -> u64 {
        (self.0 >> COUNT_BITS) & SECOND_MASK
    }

    /// Whether another end point may have the port in this second.
    const fn is_free(self, second: u64) -> bool {
        let claimed_for = (second & SECOND_MASK).wrapping_sub(self.second()) & SECOND_MASK;
        self.count() == 0 && (self.tag() == 0 || claimed_for >= CLAIM_LASTS_S)
    }
}

/// The ports of an address, for each kind of port.
type AddressPorts = [Vec<AtomicU64>; 4];

/// The mappings of a node: one outside end point for each inside end point.
#[derive(Debug)]
pub struct EndpointMappings {
    ports: PortRange,
    key: HashKey,
    addresses: BTreeMap<[u8; 16], Arc<AddressPorts>>,
}

impl PartialEq for EndpointMappings {
    fn eq(&self, other: &Self) -> bool {
        self.ports == other.ports && self.addresses.keys().eq(other.addresses.keys())
    }
}

impl Eq for EndpointMappings {}

impl EndpointMappings {
    /// Mappings to `ports` of these addresses, of which only the first [`ENDPOINT_ADDRESSES_MAX`] count. Those of addresses that `previous`
    /// has continue, if its ports are the same.
    #[must_use]
    pub fn new(
        addresses: impl IntoIterator<Item = IpAddr>,
        ports: PortRange,
        key: HashKey,
        previous: Option<&Self>,
    ) -> Self {
        let previous = previous.filter(|previous| previous.ports == ports && previous.key.0 == key.0);
        let free = || (0..ports.count()).map(|_| AtomicU64::new(0)).collect();
        let addresses = addresses.into_iter().take(ENDPOINT_ADDRESSES_MAX).map(tuple_bytes).map(|address| {
            let known = previous.and_then(|previous| previous.addresses.get(&address)).map(Arc::clone);
            (address, known.unwrap_or_else(|| Arc::new([free(), free(), free(), free()])))
        });
        Self { ports, key, addresses: addresses.collect() }
    }

    /// The port of `address` that the source of `outgoing` has towards all destinations, claimed if it had none. `may_take` excludes
    /// ports. `None`: no candidate is free.
    pub(super) fn claim(
        &self,
        now: Instant,
        outgoing: &Tuple,
        address: &[u8; 16],
        may_take: impl Fn(u16) -> bool,
    ) -> Option<u16> {
        let words = self.words(address, outgoing.protocol)?;
        let (hash, second) = (self.hash(outgoing), now.as_nanos() / 1_000_000_000);
        let tag = tag(hash);
        let ports = || candidates(self.ports, hash).take(CANDIDATES_MAX);
        let word = |port: u16| words.get(usize::from(port - self.ports.first()));
        let own = || {
            let known = |port: &u16| word(*port).map_or(Word(0), |word| Word(word.load(Ordering::Relaxed)));
            ports().map(move |port| (port, known(&port))).filter(move |(_, known)| known.tag() == tag)
        };
        let in_use = own().find(|(_, known)| known.count() > 0);
        // Without a connection, it is the former one.
        if let Some((port, _)) = in_use.or_else(|| own().find(|(port, _)| may_take(*port))) {
            // It may have had no connection for a while: others are kept off until this one has entered the table.
            let renew = |known| (Word(known).tag() == tag).then(|| Word::new(tag, second, Word(known).count()).0);
            if word(port)?.fetch_update(Ordering::Relaxed, Ordering::Relaxed, renew).is_ok() {
                return Some(port);
            }
        }
        ports().filter(|port| may_take(*port)).find(|port| {
            let claim = |known| {
                let known = Word(known);
                (known.tag() == tag || known.is_free(second)).then(|| Word::new(tag, second, known.count()).0)
            };
            word(*port).is_some_and(|word| word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim).is_ok())
        })
    }

    /// A connection has entered the table, or left it. Those to other addresses are ignored.
    pub(super) fn count(&self, original: &Tuple, reply: &Tuple, is_entering: bool) {
        let Some(words) = self.words(&reply.destination, original.protocol) else { return };
        let Some(at) = reply.destination_port.checked_sub(self.ports.first()) else { return };
        let Some(word) = words.get(usize::from(at)) else { return };
        let tag = tag(self.hash(original));
        let counted = |known| {
            let known = Word(known);
            let is_own = known.tag() == tag;
            match (is_entering, known.count()) {
                // The second of a claim stays: a port without a connection is free when that is over.
                (true, count) if is_own => Some(Word::new(tag, known.second(), (count + 1).min(COUNT_MAX)).0),
                (true, 0) => Some(Word::new(tag, known.second(), 1).0),
                (false, count) if is_own && count > 0 => Some(Word::new(tag, known.second(), count - 1).0),
                _ => None,
            }
        };
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, counted);
    }

    fn words(&self, address: &[u8; 16], protocol: u8) -> Option<&[AtomicU64]> {
        let kind = match protocol {
            ip_protocol::TCP => 0,
            ip_protocol::UDP => 1,
            ip_protocol::SCTP => 2,
            ip_protocol::ICMP | ip_protocol::ICMPV6 => 3,
            _ => return None,
        };
        self.addresses.get(address).map(|ports| &ports[kind][..])
    }

    /// Of the inside end point.
    fn hash(&self, from_inside: &Tuple) -> u64 {
        self.key.hash(&Tuple { destination: [0; 16], destination_port: 0, discriminator: 0, ..*from_inside })
    }
}

/// What a word knows the end point by; never 0. Two of the few that can have one port are mistaken for each other with a probability of
/// 2^-32; their destinations distinguish their packets even then.
fn tag(hash: u64) -> u32 {
    // The order of the candidates follows from the other bits, too.
    ((hash.rotate_left(17).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as u32).max(1)
}
