//! Replicas whose tuples meet.

use flow::Direction;
use flow::conntrack::ProtocolState;

use super::*;

fn replica(original: Tuple, owner: NodeId) -> Connection {
    Connection::new(original, owner, ProtocolState::default(), Instant::from_millis(90_000))
}

#[test]
fn a_stale_replica_with_the_tuples_of_a_new_connection_in_the_other_direction_is_replaced() {
    // IKE, NTP, SIP: both ends use the protocol's port.
    for port in [500, 123, 5060] {
        for (node, peer) in [(NodeId(0), NodeId(1)), (NodeId(1), NodeId(0))] {
            let chain = ChainBuilder::new().build().unwrap();
            let mut pipeline = Pipeline::new(node, 64, HashKey([1, 2]), Tracker::new(TrackerConfig::default()), chain);
            let now = Instant::from_millis(1000);
            let there = Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, port));
            for original in [there, there.inverse()] {
                assert_eq!(pipeline.replicas().apply(now, peer, replica(original, peer)), Applied::Taken, "{original}");
                assert_eq!(pipeline.table().len(), 1);
                let found = pipeline.lookup(&original).map(|(_, direction)| direction);
                assert_eq!(found, Some(Direction::Original), "port {port}, node {node:?}");
            }
        }
    }
}

#[test]
fn a_connection_of_this_node_in_the_other_direction_is_not_replaced_by_a_replica() {
    let mut bench = Bench::new(false, 64, Limits::default());
    let there = Tuple::v4(ip_protocol::UDP, (CLIENT, 500), (SERVER, 500));
    bench.feed_one(INSIDE, build::udp(&there, b"?")).expect("it begins");
    let back = replica(there.inverse(), NodeId(1));
    assert_eq!(bench.pipeline.replicas().apply(bench.now, NodeId(1), back), Applied::Conflict);
    assert_eq!(bench.pipeline.lookup(&there).map(|(_, direction)| direction), Some(Direction::Original));
}
