//! The part of a packet that decides its node.

use crate::key::{HashKey, Tuple};

/// Which of two hosts an edge hashes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AddressOf {
    /// The host on this edge's side of the cluster: the source of packets that enter the cluster here.
    NearHost,
    /// The host on the other side.
    FarHost,
}

/// How packets of a connection are kept on one node.
///
/// | network functions of the nodes | inside edge | outside edge |
/// |---|---|---|
/// | any, and above all source NAT | [`Affinity::Learned`] | [`Affinity::Learned`] |
/// | no translation | [`Affinity::Tuple`] | [`Affinity::Tuple`] |
/// | destination NAT or load balancing for clients outside | `Address(FarHost)` | `Address(NearHost)` |
///
/// Source NAT changes both the address and the port that a reply is sent to. No hash of the reply's tuple
/// then selects the node of the original, so only the learned affinity is right at the outside edge.
///
/// The hashed affinities need the same [`HashKey`] and the same nodes at both edges.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Affinity {
    /// A connection stays on the node from which its first packet left the cluster. Until one has left, the hash of the
    /// five-tuple selects the node. A connection that was moved stays where it is when the failed node returns.
    #[default]
    Learned,
    /// The hash of the five-tuple, the same for both directions.
    Tuple,
    /// The hash of one host's address. Fragments follow their connection only with this affinity.
    Address(AddressOf),
}

impl Affinity {
    /// The hash that selects the node of a connection; `entering` is the tuple of its packets that enter the cluster at this
    /// edge. For [`Affinity::Learned`] that of a connection of which nothing is learned.
    #[must_use]
    pub fn hash(self, key: &HashKey, entering: &Tuple) -> u64 {
        let address = match self {
            Self::Learned | Self::Tuple => return key.hash(entering),
            Self::Address(AddressOf::NearHost) => entering.source,
            Self::Address(AddressOf::FarHost) => entering.destination,
        };
        key.hash(&Tuple { source: address, destination: address, ..Self::bare(entering) })
    }

    /// The hash for a fragment, whose ports may be missing: that of its addresses.
    #[must_use]
    pub fn hash_fragment(self, key: &HashKey, entering: &Tuple) -> u64 {
        self.hash(key, &Self::bare(entering))
    }

    /// The tuple without ports, protocol and discriminator.
    const fn bare(tuple: &Tuple) -> Tuple {
        Tuple { source_port: 0, destination_port: 0, protocol: 0, discriminator: 0, ..*tuple }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const KEY: HashKey = HashKey([3, 4]);

    fn tuple(port: u16) -> Tuple {
        Tuple::v4(6, (Ipv4Addr::new(10, 0, 0, 2), port), (Ipv4Addr::new(192, 0, 2, 1), 443))
    }

    #[test]
    fn tuple_affinity_is_the_same_at_both_edges() {
        assert_eq!(Affinity::Tuple.hash(&KEY, &tuple(1)), Affinity::Tuple.hash(&KEY, &tuple(1).inverse()));
        assert_ne!(Affinity::Tuple.hash(&KEY, &tuple(1)), Affinity::Tuple.hash(&KEY, &tuple(2)));
    }

    #[test]
    fn address_affinity_joins_all_connections_of_a_host_at_both_edges() {
        let (near, far) = (Affinity::Address(AddressOf::NearHost), Affinity::Address(AddressOf::FarHost));
        // The client is near at the inside edge, and far at the outside edge, where replies enter.
        assert_eq!(near.hash(&KEY, &tuple(1)), far.hash(&KEY, &tuple(2).inverse()));
        assert_eq!(near.hash(&KEY, &tuple(1)), near.hash_fragment(&KEY, &Tuple { source_port: 0, ..tuple(9) }));
        assert_ne!(near.hash(&KEY, &tuple(1)), near.hash(&KEY, &tuple(1).inverse()));
    }
}
