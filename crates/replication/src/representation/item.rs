//! A connection as one number: what a node and its peer must agree on.

use flow::{Connection, Tuple};

use crate::session::Item;

/// The parts of a replicated connection on which its owner and the node with the replica must agree, hashed under `key`: both
/// tuples and the version, which names what was sent. The rest of a record is not among it. Time, counters and windows are each
/// node's own. The state of a replica moves on without a message where several nodes get a connection's packets. A release that
/// does not know a function leaves its state out.
#[must_use]
pub fn item(key: u64, connection: &Connection) -> Item {
    let name = hash_tuple(key, &connection.original);
    let version = u64::from(connection.version).wrapping_mul(FACTORS[1]);
    let check = mix(hash_tuple(!key, &connection.reply), name ^ version);
    Item::new(name as u32, (check >> 32) as u32)
}

/// Odd numbers with as many ones as zeros (digits of pi and of e).
pub(super) const FACTORS: [u64; 2] = [0x2437_6a88_85a3_08d3 | 1, 0xadf8_5458_a2bb_4a9b];

/// The two halves of the product: each bit of either number comes to bear on all of the result.
#[inline]
pub(super) fn mix(one: u64, other: u64) -> u64 {
    let product = u128::from(one) * u128::from(other);
    product as u64 ^ (product >> 64) as u64
}

/// Not SipHash, which costs three times as much: who cannot see the key, which is new with every session, cannot choose
/// tuples that collide, and two that do would show with the next session.
#[inline]
fn hash_tuple(key: u64, tuple: &Tuple) -> u64 {
    let halves = |address: &[u8; 16]| {
        let whole = u128::from_be_bytes(*address);
        [(whole >> 64) as u64, whole as u64]
    };
    let ([source, source_low], [destination, destination_low]) = (halves(&tuple.source), halves(&tuple.destination));
    let addresses = mix(source ^ key ^ FACTORS[0], source_low ^ key.rotate_left(32))
        ^ mix(destination ^ key.rotate_left(16) ^ FACTORS[1], destination_low ^ key.rotate_left(48));
    let ports = u64::from(tuple.source_port) << 48 | u64::from(tuple.destination_port) << 32;
    let kind = u64::from(tuple.protocol) << 24 | u64::from(tuple.version) << 16 | u64::from(tuple.discriminator);
    mix(addresses ^ FACTORS[1], ports ^ kind ^ key ^ FACTORS[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::connection::flags;
    use flow::conntrack::ProtocolState;
    use flow::{Instant, NodeId};
    use std::collections::BTreeSet;
    use std::vec::Vec;

    fn connection(port: u16) -> Connection {
        let tuple = Tuple::v4(6, ([10, 0, 0, 1].into(), port), ([192, 0, 2, 1].into(), 443));
        let protocol = ProtocolState { state: 3, ..ProtocolState::default() };
        Connection::new(tuple, NodeId(0), protocol, Instant::from_millis(5))
    }

    #[test]
    fn whatever_must_agree_changes_the_item_and_nothing_else_does() {
        let replicated = connection(1);
        let other = |change: fn(&mut Connection)| {
            let mut connection = connection(1);
            change(&mut connection);
            item(7, &connection)
        };
        let equal: [fn(&mut Connection); 5] = [
            |connection| connection.expires_at_nanos += 1,
            |connection| connection.packets[0] += 1,
            |connection| connection.flags |= flags::REPLICA | flags::RESYNCED,
            |connection| connection.protocol.peers[0].end += 1,
            |connection| connection.protocol.state = 4,
        ];
        let different: [fn(&mut Connection); 3] = [
            |connection| connection.version ^= 1 << 31,
            |connection| connection.reply.destination_port ^= 1,
            |connection| connection.original.source[15] ^= 1,
        ];
        equal.iter().for_each(|change| assert_eq!(other(*change), item(7, &replicated)));
        different.iter().for_each(|change| assert_ne!(other(*change), item(7, &replicated)));
    }

    #[test]
    fn a_connection_keeps_its_bucket_whatever_becomes_of_it() {
        let (replicated, mut later) = (connection(1), connection(1));
        later.version += 9;
        later.reply.destination_port = 5;
        assert_eq!(item(7, &replicated).bucket(1024), item(7, &later).bucket(1024));
    }

    #[test]
    fn neighbouring_connections_spread_over_the_buckets() {
        let items: Vec<Item> = (0..4096).map(|port| item(99, &connection(port))).collect();
        let mut sizes = [0; 64];
        items.iter().for_each(|item| sizes[usize::from(item.bucket(64))] += 1);
        assert!(sizes.iter().all(|size| (20..120).contains(size)), "64 each at the mean: {sizes:?}");
        assert_eq!(items.iter().collect::<BTreeSet<_>>().len(), 4096);
        assert_ne!(item(98, &connection(0)), items[0], "another key, another item");
    }
}
