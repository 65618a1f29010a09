//! An edge and three nodes, joined by cables that can fail.

use std::vec::Vec;

use core::time::Duration;

use flow::wire::MacAddress;
use flow::{Instant, NodeId, PortId};

use super::*;
use crate::failure_detector::Config;
use crate::forwarding::{PathFrameKind, PathHeader, PathId};

const EDGE: u8 = 9;
const NODES: u8 = 3;

fn mac(port: u8) -> MacAddress {
    MacAddress([2, 0, 0, 0, 0, port])
}

struct World {
    now: Instant,
    edge: NodeLinks,
    nodes: Vec<EdgeSessions>,
    is_severed: Vec<bool>,
    updates: Vec<(u64, NodeUpdate)>,
    edge_frames: usize,
}

impl World {
    fn new() -> Self {
        let nodes: Vec<_> = (0..NODES).map(|n| (NodeId(n), PortId(n + 1), mac(n))).collect();
        Self {
            now: Instant::from_millis(1000),
            edge: NodeLinks::new(EDGE, &nodes, Config::default(), 5).expect("it is sound"),
            nodes: (0..NODES).map(|n| EdgeSessions::new(2, Config::default(), n.into())).collect(),
            is_severed: std::vec![false; NODES.into()],
            updates: Vec::new(),
            edge_frames: 0,
        }
    }

    /// Lets time pass by the millisecond.
    fn run(&mut self, millis: u64) {
        for _ in 0..millis {
            self.now = self.now + Duration::from_millis(1);
            self.exchange();
        }
    }

    fn exchange(&mut self) {
        let (now, mut frame) = (self.now, Vec::new());
        self.edge.handle_timeout(now);
        while let Some(port) = self.edge.poll_transmit(now, &mut frame) {
            let node = usize::from(port.0 - 1);
            if !self.is_severed[node] {
                let (header, datagram) = PathHeader::read(&frame).expect("it is whole");
                self.edge_frames += 1;
                assert_eq!((header.from, header.to), (EDGE, port.0 - 1));
                self.nodes[node].handle(now, PortId(7), header.from, datagram).expect("it is taken");
            }
        }
        for n in 0..NODES {
            let node = &mut self.nodes[usize::from(n)];
            node.handle_timeout(now);
            let mut datagram = Vec::new();
            while let Some((_, to)) = node.poll_transmit(now, &mut datagram) {
                let header = PathHeader { kind: PathFrameKind::ToEdge, from: n, to, path: PathId::OF_EDGES };
                header.write(mac(100 + n), &datagram, &mut frame).expect("it fits");
                if !self.is_severed[usize::from(n)] {
                    assert_eq!(self.edge.handle_frame(now, PortId(n + 1), &frame), Ok(true));
                }
            }
        }
        while let Some(update) = self.edge.poll_update() {
            let is_heartbeat = matches!(update, NodeUpdate::HeartbeatsLost { count: 0..=1, .. });
            if !is_heartbeat {
                self.updates.push((now.as_nanos() / 1_000_000, update));
            }
        }
    }

    fn set(&mut self, node: u8, forwards: bool, serves: u64) {
        self.nodes[usize::from(node)].set_state(NodeState { forwards, serves });
    }

    fn take(&mut self) -> Vec<NodeUpdate> {
        core::mem::take(&mut self.updates).into_iter().map(|(_, update)| update).collect()
    }
}

/// All nodes forward.
fn settled() -> World {
    let mut world = World::new();
    (0..NODES).for_each(|node| world.set(node, true, 0));
    world.run(500);
    let updates = world.take();
    for n in 0..NODES {
        assert!(updates.contains(&NodeUpdate::Forwards(NodeId(n))), "{updates:?}");
        assert!(updates.contains(&NodeUpdate::LinkAddress { node: NodeId(n), address: mac(100 + n) }));
    }
    world
}

#[test]
fn a_state_is_read_as_it_was_written() {
    for state in [NodeState::default(), NodeState { forwards: true, serves: 1 << 63 | 5 }] {
        let mut bytes = Vec::new();
        state.encode(&mut bytes);
        bytes.push(77);
        assert_eq!(NodeState::decode(&bytes), Some((state, &[77][..])));
        assert_eq!(NodeState::decode(&bytes[..NODE_STATE_BYTES - 1]), None);
    }
    assert!(NodeState { forwards: true, serves: 4 }.serves(NodeId(2)));
    assert!(!NodeState { forwards: true, serves: u64::MAX }.serves(NodeId(64)));
}

#[test]
fn a_dead_node_is_lost_within_the_detection_time_and_the_survivors_report_that_they_serve() {
    let mut world = settled();
    let at = world.now;
    world.is_severed[1] = true;
    world.run(150);
    let (lost_at_ms, _) = *world.updates.iter().find(|(_, update)| *update == NodeUpdate::Stopped(NodeId(1))).unwrap();
    let after_ms = lost_at_ms - at.as_nanos() / 1_000_000;
    assert!((90..=112).contains(&after_ms), "{after_ms} ms");
    let counts: Vec<u32> = world
        .take()
        .into_iter()
        .filter_map(|update| match update {
            NodeUpdate::HeartbeatsLost { node: NodeId(1), count } => Some(count),
            _ => None,
        })
        .collect();
    assert_eq!(counts.first(), Some(&2));
    assert!(counts.is_sorted(), "{counts:?}");

    // The state leaves at once, not with the next heartbeat.
    world.set(0, true, 1 << 1);
    world.exchange();
    assert_eq!(world.take(), [NodeUpdate::Serves(NodeId(0))]);
    world.set(2, true, 1 << 1);
    world.exchange();
    assert_eq!(world.take(), [NodeUpdate::Serves(NodeId(2))]);
    world.run(100);
    assert_eq!(world.take(), [], "it is reported once");

    // A second one dies. Each survivor reports again, but not before it serves both.
    world.is_severed[2] = true;
    world.run(150);
    world.take();
    world.set(0, true, 1 << 1 | 1 << 2);
    world.exchange();
    assert_eq!(world.take(), [NodeUpdate::Serves(NodeId(0))]);

    world.is_severed[1] = false;
    world.run(400);
    assert!(world.take().contains(&NodeUpdate::Forwards(NodeId(1))));
}

#[test]
fn nodes_learn_at_once_which_nodes_an_edge_has_left() {
    let mut world = settled();
    assert_eq!(world.nodes[0].stopped(), 0);
    world.set(2, false, 0);
    // Its state arrives; the edge reports it in the next round.
    world.exchange();
    let before = world.edge_frames;
    world.exchange();
    assert!(world.edge_frames >= before + 2, "a frame to each node");
    assert_eq!([0, 1, 2].map(|node: usize| world.nodes[node].stopped()), [4; 3]);
    world.set(2, true, 0);
    world.run(2);
    assert_eq!(world.nodes[0].stopped(), 0);
    // An edge that is gone is not waited for.
    world.is_severed = std::vec![true; NODES.into()];
    world.run(1000);
    assert_eq!((world.nodes[0].up(), world.nodes[0].stopped()), (0, u64::MAX));
}

#[test]
fn a_node_that_hands_over_stops_at_once() {
    let mut world = settled();
    world.set(0, false, 0);
    world.set(1, true, 1);
    world.exchange();
    assert_eq!(world.take(), [NodeUpdate::Stopped(NodeId(0)), NodeUpdate::Serves(NodeId(1))]);
    world.run(200);
    assert_eq!(world.take(), [], "it is alive");
}

#[test]
fn frames_of_others_change_nothing() {
    let mut world = settled();
    let (now, mut frame, mut datagram) = (world.now, Vec::new(), Vec::new());
    NodeState { forwards: false, serves: 7 }.encode(&mut datagram);
    let write = |kind, from, to, frame: &mut Vec<u8>| {
        PathHeader { kind, from, to, path: PathId::OF_EDGES }.write(mac(1), &datagram, frame).expect("it fits");
    };
    write(PathFrameKind::ToEdge, 0, EDGE + 1, &mut frame);
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Err(LinkError::OtherReceiver));
    write(PathFrameKind::ToEdge, 1, EDGE, &mut frame);
    let other = LinkError::OtherNode { expected: NodeId(0), from: NodeId(1) };
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Err(other));
    write(PathFrameKind::Replication, 0, 1, &mut frame);
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Ok(false), "between nodes");
    *frame.last_mut().unwrap() ^= 1;
    assert!(matches!(world.edge.handle_frame(now, PortId(1), &frame), Err(LinkError::Frame(_))));
    world.exchange();
    assert_eq!(world.take(), []);
}

#[test]
fn edges_are_limited_and_forgotten() {
    let mut world = settled();
    let mut packet = Vec::new();
    let mut stranger = crate::failure_detector::Session::new(Config::default(), 3, 4);
    assert!(stranger.poll_transmit(world.now, &mut packet));
    let now = world.now;
    let node = &mut world.nodes[0];
    assert_eq!(node.up(), 1);
    let mut datagram = Vec::new();
    EdgeState::default().encode(&mut datagram);
    datagram.extend_from_slice(&packet);
    node.handle(now, PortId(7), 200, &datagram).expect("there is room for two");
    // The one that never came up is replaced; the one that is up is not.
    node.handle(now, PortId(7), 201, &datagram).expect("in the place of the other");
    assert_eq!(node.handle(now, PortId(7), 201, &datagram[..7]), Err(EdgeError::Truncated));
    assert_eq!((node.up(), node.sessions_len()), (1, 2));
    world.is_severed = std::vec![true; NODES.into()];
    world.run(70_000);
    assert!(world.nodes[0].is_empty(), "silent for a minute");
    assert!(world.nodes[0].poll_timeout().is_none());
}
