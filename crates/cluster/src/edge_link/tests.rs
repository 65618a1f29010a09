//! An edge and three nodes, joined by cables that can fail.

use std::vec::Vec;

use core::time::Duration;

use flow::wire::MacAddress;
use flow::wire::ethernet::EthernetView;
use flow::{Instant, NodeId, PortId};

use alloc::sync::Arc;

use replication::secure::{Credentials, PreSharedKey, Rotation, Security, Seed};

use super::*;
use crate::failure_detector::{Config, Session};
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

/// What one end makes channels from; all ends have the same key.
fn security(end: u8) -> LinkSecurity {
    let credentials = Credentials::new(std::vec![PreSharedKey::new([7; 32])], None).expect("one key");
    let security = Security {
        credentials: Arc::new(credentials),
        rotation: Rotation::default(),
        seed: Seed::new([end; 32]),
        unix_time: Duration::from_secs(1_800_000_000),
    };
    LinkSecurity::new(Instant::from_millis(1000), &security).expect("there is a key")
}

fn sessions(node: u8, security: Option<LinkSecurity>, accepts_plain: bool) -> EdgeSessions {
    let detector = Config::default();
    EdgeSessions::new(node, EdgeConfig { edges_max: 2, detector, seed: node.into(), security, accepts_plain })
}

const fn at(edge: u8, link_address: MacAddress) -> EdgeAddress {
    EdgeAddress { port: PortId(7), edge, link_address }
}

impl World {
    fn new(is_secured: bool) -> Self {
        let nodes: Vec<_> = (0..NODES).map(|n| (NodeId(n), PortId(n + 1), mac(n))).collect();
        Self {
            now: Instant::from_millis(1000),
            edge: {
                let security = is_secured.then(|| security(EDGE));
                let now = Instant::from_millis(1000);
                NodeLinks::new(EDGE, &nodes, Config::default(), 5, (now, security)).expect("it is sound")
            },
            nodes: (0..NODES).map(|n| sessions(n, is_secured.then(|| security(n)), false)).collect(),
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
                let from = at(header.from, EthernetView::new_checked(&frame).expect("it is whole").source());
                // A channel that begins anew finds sealed datagrams of the former one.
                let _ = self.nodes[node].handle(now, from, datagram);
            }
        }
        for n in 0..NODES {
            let node = &mut self.nodes[usize::from(n)];
            node.handle_timeout(now);
            let mut datagram = Vec::new();
            while let Some(EdgeAddress { edge: to, .. }) = node.poll_transmit(now, &mut datagram) {
                let header = PathHeader { kind: PathFrameKind::ToEdge, from: n, to, path: PathId::OF_EDGES };
                header.write(mac(100 + n), &datagram, &mut frame).expect("it fits");
                if !self.is_severed[usize::from(n)] {
                    let taken = self.edge.handle_frame(now, PortId(n + 1), &frame);
                    assert!(taken == Ok(true) || taken.as_ref().is_err_and(LinkError::is_routine), "{taken:?}");
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

/// All nodes forward; in plain text, and then with keys.
fn both_settled() -> [World; 2] {
    [false, true].map(settled)
}

fn settled(is_secured: bool) -> World {
    let mut world = World::new(is_secured);
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
    both_settled().into_iter().for_each(check_death);
}

fn check_death(mut world: World) {
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
    both_settled().into_iter().for_each(check_left_nodes);
}

fn check_left_nodes(mut world: World) {
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
    both_settled().into_iter().for_each(check_hand_over);
}

fn check_hand_over(mut world: World) {
    world.set(0, false, 0);
    world.set(1, true, 1);
    world.exchange();
    assert_eq!(world.take(), [NodeUpdate::Stopped(NodeId(0)), NodeUpdate::Serves(NodeId(1))]);
    world.run(200);
    assert_eq!(world.take(), [], "it is alive");
}

#[test]
fn frames_of_others_change_nothing() {
    let mut world = settled(false);
    let (now, mut frame, mut datagram) = (world.now, Vec::new(), Vec::new());
    NodeState { forwards: false, serves: 7 }.encode(&mut datagram);
    let write = |kind, from, to, frame: &mut Vec<u8>| {
        PathHeader { kind, from, to, path: PathId::OF_EDGES }.write(mac(100), &datagram, frame).expect("it fits");
    };
    write(PathFrameKind::ToEdge, 0, EDGE + 1, &mut frame);
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Err(LinkError::OtherReceiver));
    write(PathFrameKind::ToEdge, 1, EDGE, &mut frame);
    let other = LinkError::OtherNode { expected: NodeId(0), from: NodeId(1) };
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Err(other));
    write(PathFrameKind::FromEdge, EDGE, 1, &mut frame);
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Err(LinkError::FromEdge), "no edge is behind a node");
    write(PathFrameKind::Replication, 0, 1, &mut frame);
    assert_eq!(world.edge.handle_frame(now, PortId(1), &frame), Ok(false), "between nodes");
    write(PathFrameKind::ToEdge, 0, EDGE, &mut frame);
    *frame.last_mut().unwrap() ^= 1;
    assert!(matches!(world.edge.handle_frame(now, PortId(1), &frame), Err(LinkError::Frame(_))));
    world.exchange();
    assert_eq!(world.take(), []);
}

#[test]
fn no_frame_is_taken_from_a_port_that_leads_to_no_node() {
    for mut world in both_settled() {
        let (mut frame, mut datagram) = (Vec::new(), Vec::new());
        NodeState { forwards: false, serves: 0 }.encode(&mut datagram);
        let kinds = [PathFrameKind::ToEdge, PathFrameKind::FromEdge, PathFrameKind::Detection];
        for kind in kinds.into_iter().chain([PathFrameKind::Replication, PathFrameKind::OfWorker]) {
            let header = PathHeader { kind, from: 0, to: EDGE, path: PathId::OF_EDGES };
            header.write(mac(100), &datagram, &mut frame).expect("it fits");
            let refused = world.edge.handle_frame(world.now, PortId(0), &frame);
            assert_eq!(refused, Err(LinkError::FromHost));
            assert_eq!(refused.map_err(|error| error.reason()), Err(flow::DropReason::ControlFromHost));
        }
        world.exchange();
        assert_eq!(world.take(), []);
    }
}

/// A packet of failure detection that a stranger makes: it names no session.
fn forged_packet() -> Vec<u8> {
    let mut packet = Vec::new();
    let mut stranger = Session::new(Config::default(), 3, 4);
    assert!(stranger.poll_transmit(Instant::ZERO, &mut packet));
    packet
}

/// What a stranger reports in the name of an edge.
fn forged_report() -> Vec<u8> {
    let mut datagram = Vec::new();
    EdgeState { stopped: 7 }.encode(&mut datagram);
    datagram.extend_from_slice(&forged_packet());
    datagram
}

#[test]
fn a_flood_in_the_name_of_an_edge_changes_nothing_at_a_node() {
    for (mut world, is_secured) in both_settled().into_iter().zip([false, true]) {
        let before = [0, 1, 2].map(|node: usize| world.nodes[node].stopped());
        for millisecond in 0..1000_u64 {
            world.run(1);
            // From the link address of the edge in every second frame, as far as a stranger can: by what it cannot know it is refused.
            let source = if millisecond % 2 == 0 { mac(0) } else { mac(66) };
            let refused = world.nodes[0].handle(world.now, at(EDGE, source), &forged_report()).unwrap_err();
            assert_eq!(refused.reason(), flow::DropReason::ControlUnauthenticated, "{refused}");
            let expected = match (is_secured, source == mac(0)) {
                (true, _) => EdgeError::NotAuthenticated,
                (false, true) => EdgeError::Bfd(BfdError::OtherSender(3)),
                (false, false) => EdgeError::OtherLinkAddress,
            };
            assert_eq!(refused, expected);
        }
        assert_eq!([0, 1, 2].map(|node: usize| world.nodes[node].stopped()), before);
        assert_eq!([0, 1, 2].map(|node: usize| world.nodes[node].up()), [1; 3]);
        assert_eq!(world.take(), [], "no node stopped, and none was lost");
    }
}

#[test]
fn a_flood_in_the_name_of_a_node_changes_nothing_at_an_edge() {
    for (mut world, is_secured) in both_settled().into_iter().zip([false, true]) {
        let mut frame = Vec::new();
        for millisecond in 0..1000_u64 {
            world.run(1);
            let mut datagram = Vec::new();
            NodeState { forwards: false, serves: 7 }.encode(&mut datagram);
            datagram.extend_from_slice(&forged_packet());
            let source = if millisecond % 2 == 0 { mac(100) } else { mac(66) };
            let header = PathHeader { kind: PathFrameKind::ToEdge, from: 0, to: EDGE, path: PathId::OF_EDGES };
            header.write(source, &datagram, &mut frame).expect("it fits");
            let expected = match (is_secured, source == mac(100)) {
                (true, _) => LinkError::NotAlike,
                (false, true) => LinkError::Bfd(BfdError::OtherSender(3)),
                (false, false) => LinkError::OtherLinkAddress,
            };
            assert_eq!(world.edge.handle_frame(world.now, PortId(1), &frame), Err(expected));
        }
        assert_eq!(world.take(), []);
    }
}

#[test]
fn sealed_frames_are_taken_once_and_only_under_the_key() {
    let mut world = settled(true);
    let mut frame = Vec::new();
    let mut captured = None;
    while captured.is_none() {
        world.run(1);
        // A copy of what the next exchange would send; the edge sends it a second time.
        world.edge.handle_timeout(world.now);
        if world.edge.poll_transmit(world.now, &mut frame) == Some(PortId(1)) {
            captured = Some(frame.clone());
        }
    }
    let captured = captured.expect("the edge sends");
    let (_, datagram) = PathHeader::read(&captured).expect("it is whole");
    let node = &mut world.nodes[0];
    assert_eq!(node.handle(world.now, at(EDGE, mac(0)), datagram), Ok(()));
    let replayed = node.handle(world.now, at(EDGE, mac(0)), datagram);
    assert_eq!(replayed, Err(EdgeError::Channel(ChannelError::Replayed)));
    let mut changed = datagram.to_vec();
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(node.handle(world.now, at(EDGE, mac(0)), &changed), Err(EdgeError::Channel(_))));
    // A stranger's handshake takes no place.
    let before = node.sessions_len();
    assert!(matches!(node.handle(world.now, at(99, mac(66)), &changed), Err(EdgeError::Channel(_))));
    assert_eq!(node.sessions_len(), before);
}

#[test]
fn a_node_with_a_key_takes_edges_in_plain_text_only_where_that_is_permitted() {
    let report = forged_report();
    let now = Instant::from_millis(1000);
    let take = |is_secured: bool, accepts_plain: bool| {
        let mut node = sessions(0, is_secured.then(|| security(0)), accepts_plain);
        (node.handle(now, at(EDGE, mac(0)), &report), node.sessions_len())
    };
    assert_eq!(take(true, false), (Err(EdgeError::NotAuthenticated), 0));
    assert_eq!(take(true, true), (Ok(()), 1));
    assert_eq!(take(false, false), (Ok(()), 1));
    // The other way round: an edge with a key, and a node without.
    let mut world = World::new(true);
    world.nodes[0] = sessions(0, None, false);
    world.run(500);
    assert_eq!((world.nodes[0].up(), world.nodes[1].up()), (0, 1));
}

#[test]
fn a_node_that_was_restarted_is_found_under_new_keys() {
    let mut world = settled(true);
    world.nodes[1] = sessions(1, Some(security(41)), false);
    world.set(1, true, 0);
    world.run(100);
    assert!(world.take().contains(&NodeUpdate::Stopped(NodeId(1))));
    world.run(1500);
    assert!(world.take().contains(&NodeUpdate::Forwards(NodeId(1))));
    assert_eq!(world.nodes[1].up(), 1);
}

#[test]
fn edges_are_limited_and_forgotten() {
    let mut world = settled(false);
    let now = world.now;
    let node = &mut world.nodes[0];
    assert_eq!(node.up(), 1);
    let report = forged_report();
    node.handle(now, at(200, mac(9)), &report).expect("there is room for two");
    // The one that never came up is replaced; the one that is up is not.
    node.handle(now, at(201, mac(9)), &report).expect("in the place of the other");
    assert_eq!(node.handle(now, at(201, mac(9)), &report[..7]), Err(EdgeError::Truncated));
    assert_eq!((node.up(), node.sessions_len()), (1, 2));
    world.is_severed = std::vec![true; NODES.into()];
    world.run(70_000);
    assert!(world.nodes[0].is_empty(), "silent for a minute");
    assert!(world.nodes[0].poll_timeout().is_none());
}
