//! Frames between a node and an edge, handed to an edge.

use cluster::edge_link::{NODE_STATE_BYTES, NodeLinks, NodeState};
use cluster::failure_detector::Config;
use cluster::forwarding::{PATH_ETHER_TYPE, PATH_MAC};
use flow::wire::MacAddress;
use flow::wire::sctp::crc32c_of;
use flow::{Instant, NodeId, PortId};

/// The edge's number.
const EDGE: u8 = 9;

/// Frames, each led by a byte with its length, a millisecond apart.
pub fn run(data: &[u8]) {
    if let Some((state, rest)) = NodeState::decode(data) {
        let mut written = Vec::new();
        state.encode(&mut written);
        assert_eq!(NodeState::decode(&written), Some((state, &[][..])), "what was written can be read");
        assert_eq!(rest.len() + NODE_STATE_BYTES, data.len());
    }
    let nodes = [0, 1].map(|node| (NodeId(node), PortId(node + 1), MacAddress([2, 0, 0, 0, 0, node])));
    let Ok(mut links) = NodeLinks::new(EDGE, &nodes, Config::default(), 5, (Instant::ZERO, None)) else {
        panic!("it is sound")
    };
    let (mut millis, mut rest, mut sent) = (1, data, Vec::new());
    while let Some((length, after)) = rest.split_first() {
        let (frame, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        millis += 1;
        let now = Instant::from_millis(millis);
        let port = 1 + length % 2;
        let _ = links.handle_frame(now, PortId(port), frame);
        let _ = links.handle_frame(now, PortId(port), &completed(frame, port - 1));
        links.handle_timeout(now);
        let mut updates = 0;
        while links.poll_update().is_some() {
            updates += 1;
        }
        assert!(updates <= 16, "a frame and a millisecond make few updates: {updates}");
        while links.poll_transmit(now, &mut sent).is_some() {}
        assert!(links.poll_timeout().is_none_or(|at| at > now), "all that was due has been done");
    }
}

/// The frame of a node to the edge with these flags, states and packets, whatever its header was: without its checksum it would go
/// no further.
fn completed(bytes: &[u8], node: u8) -> Vec<u8> {
    let datagram = bytes.get(..bytes.len().min(usize::from(u8::MAX))).unwrap_or_default();
    let mut frame = [&PATH_MAC.0[..], &[2, 0, 0, 0, 1, node], &PATH_ETHER_TYPE.to_be_bytes()].concat();
    let header = [*b"MS", [1, 3], [node, EDGE], [0, datagram.len() as u8], [0; 2], [0; 2]].concat();
    let parts = [crc32c_of(&header), crc32c_of(datagram)].map(u32::to_be_bytes);
    frame.extend_from_slice(&header);
    frame.extend_from_slice(&crc32c_of(parts.as_flattened()).to_be_bytes());
    frame.extend_from_slice(datagram);
    frame
}
