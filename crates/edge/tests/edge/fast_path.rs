//! Flows that are forwarded below the edge: when they are, when they are not any more, and that it makes no difference to their packets.

use std::collections::HashMap;
use std::time::Duration;

use edge::{CachePolicy, Capacity, Edge, EdgeConfig, FastPathOrder, NodeForwarding, RateControlConfig, SettledFlow};
use flow::fast_path::Activity;
use flow::serial::later;
use flow::wire::build;
use flow::wire::{self, Headers, MacAddress, Parsed, Transport, ip_protocol};
use flow::{Disposition, Frame, Instant, NodeId, PacketBatch, PortId, Tuple};
use proptest::prelude::*;

use crate::harness::*;

/// The near host.
const HOST: MacAddress = MacAddress([2, 0, 0, 0, 2, 1]);
/// Flows below at most.
const FLOWS_MAX: u32 = 6;

/// What the kernel's program does, as far as an edge can see it.
#[derive(Default)]
struct Kernel {
    flows: HashMap<u32, (SettledFlow, Activity)>,
    nodes: HashMap<NodeId, MacAddress>,
    forwarded: u32,
}

impl Kernel {
    /// Carries out the orders of an edge.
    fn obey(&mut self, now: Instant, edge: &mut Edge) {
        while let Some(order) = edge.poll_fast_path() {
            match order {
                FastPathOrder::Install { place, flow } => {
                    let activity = Activity {
                        last_packet_ns: now.as_nanos(),
                        packets: [0; 2],
                        bytes: [0; 2],
                        windows: flow.windows,
                    };
                    let known = self.flows.values().any(|(other, _)| other.entering == flow.entering);
                    assert!(!known && self.flows.insert(place, (flow, activity)).is_none(), "it is installed twice");
                    assert!(self.flows.len() <= FLOWS_MAX as usize);
                }
                FastPathOrder::Remove { place } => {
                    let (_, activity) = self.flows.remove(&place).expect("it is installed");
                    edge.note_removed(now, place, Some(&activity));
                }
                FastPathOrder::Raise { place, windows } => {
                    let (_, activity) = self.flows.get_mut(&place).expect("it is installed");
                    for (known, new) in
                        activity.windows.as_mut().expect("it is TCP").sides.iter_mut().zip(windows.sides)
                    {
                        known.end = later(known.end, new.end);
                        known.end_max = later(known.end_max, new.end_max);
                        known.acknowledged_max = later(known.acknowledged_max, new.acknowledged_max);
                    }
                }
                FastPathOrder::SetNode { node, forwarding } => {
                    match forwarding {
                        NodeForwarding::Stopped => self.nodes.remove(&node),
                        NodeForwarding::Started { link_address } => {
                            self.nodes.insert(node, link_address.expect("the nodes have link addresses"))
                        }
                    };
                }
            }
        }
    }

    /// What was seen of the flow in a place since the last call.
    fn take(&mut self, place: u32) -> Option<Activity> {
        let (_, activity) = self.flows.get_mut(&place)?;
        let taken = *activity;
        (activity.packets, activity.bytes) = ([0; 2], [0; 2]);
        Some(taken)
    }

    fn sweep(&mut self, now: Instant, edge: &mut Edge) {
        let places: Vec<u32> = self.flows.keys().copied().collect();
        for place in places {
            if let Some(activity) = self.take(place) {
                edge.note_activity(now, place, &activity);
            }
        }
        self.obey(now, edge);
    }

    /// Forwards a frame, if it knows its flow; returns the port.
    fn forward(&mut self, now: Instant, ingress: PortId, bytes: &mut [u8]) -> Option<PortId> {
        let headers = headers(bytes)?;
        let is_entering = ingress == NETWORK;
        let entering = if is_entering { headers.tuple } else { headers.tuple.inverse() };
        let (flow, activity) = self.flows.values_mut().find(|(flow, _)| flow.entering == entering)?;
        let node_address = self.nodes.get(&flow.node)?;
        if !is_entering && (port(flow.node) != ingress || bytes[..6] != flow.near_address.0) {
            return None;
        }
        let direction = usize::from(!is_entering);
        if let Transport::Tcp(segment) = headers.transport {
            let windows = activity.windows.as_mut()?;
            if segment.flags & (SYN | FIN | RST | ACK) != ACK || segment.window == 0 {
                return None;
            }
            let window = u32::from(segment.window) << windows.sides[direction].window_scale;
            let [own, other] = [direction, 1 - direction];
            windows.sides[own].end = later(windows.sides[own].end, segment.end());
            windows.sides[own].acknowledged_max = later(windows.sides[own].acknowledged_max, segment.acknowledgement);
            let edge = segment.acknowledgement.wrapping_add(window);
            windows.sides[other].end_max = later(windows.sides[other].end_max, edge);
        }
        activity.packets[direction] += 1;
        activity.bytes[direction] += bytes.len() as u64 - 14;
        activity.last_packet_ns = now.as_nanos();
        self.forwarded += 1;
        if !is_entering {
            return Some(NETWORK);
        }
        bytes[..6].copy_from_slice(&node_address.0);
        Some(port(flow.node))
    }
}

fn headers(bytes: &mut [u8]) -> Option<Headers> {
    let length_bytes = bytes.len();
    let frame = Frame::new(bytes, 0, length_bytes, NETWORK)?;
    match wire::parse(&frame) {
        Ok(Parsed::Ip(headers)) => Some(headers),
        _ => None,
    }
}

/// An edge with a fast path.
struct Fast {
    edge: Edge,
    kernel: Kernel,
    now: Instant,
}

impl Fast {
    fn new(change: impl FnOnce(&mut EdgeConfig)) -> Self {
        let mut config = config();
        config.recovery.iter_mut().for_each(|recovery| recovery.policy = CachePolicy::SynOnly);
        change(&mut config);
        let mut edge = Edge::new(config).expect("the configuration is valid");
        edge.begin_fast_path(FLOWS_MAX);
        let mut fast = Self { edge, kernel: Kernel::default(), now: ms(1000) };
        fast.obey();
        fast
    }

    fn obey(&mut self) {
        self.kernel.obey(self.now, &mut self.edge);
    }

    /// A frame arrives; returns the port that it leaves by.
    fn arrive(&mut self, ingress: PortId, bytes: &mut [u8]) -> Disposition {
        if let Some(port) = self.kernel.forward(self.now, ingress, bytes) {
            return Disposition::Transmit(port);
        }
        let length_bytes = bytes.len();
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(bytes, 0, length_bytes, ingress).expect("it fits"));
        let kernel = &mut self.kernel;
        self.edge.handle_packets_beside(self.now, &mut batch, &mut |place| kernel.take(place));
        let disposition = batch[0].disposition;
        self.obey();
        disposition
    }

    /// Packets of a UDP flow pass in both directions until it is below; returns its node.
    fn settle(&mut self, tuple: &Tuple) -> NodeId {
        let node = self.enter(build::udp(tuple, b"query"));
        for _ in 0..9 {
            self.leave(node, build::udp(&tuple.inverse(), b"answer"));
        }
        assert!(self.is_below(tuple));
        node
    }

    fn is_below(&self, tuple: &Tuple) -> bool {
        self.kernel.flows.values().any(|(flow, _)| flow.entering == *tuple)
    }

    fn enter(&mut self, mut bytes: Vec<u8>) -> NodeId {
        match self.arrive(NETWORK, &mut bytes) {
            Disposition::Transmit(PortId(port)) if port > 0 => NodeId(port - 1),
            other => panic!("the frame did not enter: {other:?}"),
        }
    }

    fn leave(&mut self, node: NodeId, bytes: Vec<u8>) {
        let mut bytes = for_host(bytes);
        assert_eq!(self.arrive(port(node), &mut bytes), Disposition::Transmit(NETWORK));
    }

    /// The handshake, and segments of both ends until the flow would be below.
    fn open(&mut self, connection: &Connection) -> NodeId {
        let node = self.enter(connection.near(SYN, 0, 0, b""));
        self.leave(node, connection.far(SYN | ACK, 0, 1, u16::MAX));
        for _ in 0..4 {
            self.enter(connection.near(ACK, 1, 1, b""));
            self.leave(node, connection.far(ACK, 1, 1, u16::MAX));
        }
        node
    }

    fn forwards(&mut self, bytes: Vec<u8>) -> bool {
        let before = self.kernel.forwarded;
        self.enter(bytes);
        self.kernel.forwarded > before
    }
}

/// The frame, addressed to the near host.
fn for_host(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[..6].copy_from_slice(&HOST.0);
    bytes
}

fn udp(client_port: u16) -> Tuple {
    Tuple { protocol: ip_protocol::UDP, ..tcp_tuple(client_port) }
}

fn set_policy(config: &mut EdgeConfig, policy: CachePolicy) {
    config.recovery.iter_mut().for_each(|recovery| recovery.policy = policy);
}

#[test]
fn a_flow_is_below_after_ten_packets_of_both_directions() {
    let mut fast = Fast::new(|_| ());
    let tuple = udp(1);
    for _ in 0..20 {
        fast.enter(build::udp(&tuple, b"query"));
    }
    assert!(!fast.is_below(&tuple), "no packet has left");
    let node = fast.enter(build::udp(&tuple, b"query"));
    fast.leave(node, build::udp(&tuple.inverse(), b"answer"));
    assert!(fast.is_below(&tuple));
    assert!(fast.forwards(build::udp(&tuple, b"query")));
    fast.kernel.sweep(fast.now, &mut fast.edge);
    let status = fast.edge.status();
    assert_eq!((status.counters.entered, status.counters.left), (22, 1), "both count");
    let below = status.fast_path.expect("there is a fast path");
    assert_eq!((below.installed, below.packets), (1, 1));
}

#[test]
fn tcp_is_below_with_policies_that_do_not_need_its_segments() {
    let policies = [
        (None, true),
        (Some(CachePolicy::SynOnly), true),
        (Some(CachePolicy::FromSecondLostHeartbeat), true),
        (Some(CachePolicy::Always), false),
        (Some(CachePolicy::HeavyHitters { connections_max: 4 }), false),
    ];
    for (policy, is_below) in policies {
        let mut fast = Fast::new(|config| match policy {
            Some(policy) => set_policy(config, policy),
            None => config.recovery = None,
        });
        let connection = Connection::new(1);
        fast.open(&connection);
        assert_eq!(fast.is_below(&connection.tuple), is_below, "{policy:?}");
        fast.settle(&udp(2));
    }
}

#[test]
fn a_segment_that_ends_a_connection_removes_it_and_finds_its_numbers_risen() {
    for flags in [FIN | ACK, RST | ACK] {
        let mut fast = Fast::new(|_| ());
        let connection = Connection::new(1);
        let node = fast.open(&connection);
        // More data than the window that the edge has seen itself.
        for step in 0..300 {
            assert!(fast.forwards(connection.near(ACK, 1 + step * 1000, 1, &[0; 1000])));
            fast.leave(node, connection.far(ACK, 1, 1001 + step * 1000, u16::MAX));
        }
        fast.enter(connection.near(flags, 300_001, 1, b""));
        assert!(!fast.is_below(&connection.tuple));
        if flags == FIN | ACK {
            fast.leave(node, connection.far(flags, 1, 300_002, u16::MAX));
            fast.enter(connection.near(ACK, 300_002, 2, b""));
        }
        fast.now = fast.now + Duration::from_secs(11);
        fast.edge.handle_timeout(fast.now);
        assert_eq!(fast.edge.status().connections, 0, "the edge has seen that it is closed");
    }
}

#[test]
fn a_failed_node_stops_at_once_and_its_flows_leave_as_they_move() {
    let mut fast = Fast::new(|_| ());
    let tuples: Vec<Tuple> = (0..6).map(udp).collect();
    let nodes: Vec<NodeId> = tuples.iter().map(|tuple| fast.settle(tuple)).collect();
    let failed = nodes[0];
    fast.edge.set_node_alive(fast.now, failed, false);
    fast.obey();
    for (tuple, node) in tuples.iter().zip(&nodes) {
        assert_eq!(fast.forwards(build::udp(tuple, b"query")), *node != failed);
        assert_eq!(fast.is_below(tuple), *node != failed);
    }
    // A moved flow settles once more, at its new node.
    assert_ne!(fast.settle(&tuples[0]), failed);
}

#[test]
fn a_flow_without_a_packet_meanwhile_goes_on_when_its_node_returns() {
    let mut fast = Fast::new(|_| ());
    let node = fast.settle(&udp(1));
    fast.edge.switched_over(fast.now, node);
    fast.obey();
    assert!(fast.kernel.nodes.len() == 2 && fast.is_below(&udp(1)));
    fast.edge.set_node_alive(fast.now, node, true);
    fast.obey();
    assert!(fast.forwards(build::udp(&udp(1), b"query")));
}

#[test]
fn a_node_is_stopped_from_its_second_lost_heartbeat_where_the_policy_begins_there() {
    for (policy, is_stopped) in [(CachePolicy::FromSecondLostHeartbeat, true), (CachePolicy::SynOnly, false)] {
        let mut fast = Fast::new(|config| set_policy(config, policy));
        let connection = Connection::new(1);
        let node = fast.open(&connection);
        let segment = |number: u32| connection.near(ACK, 1 + number * 100, 1, &[0; 100]);
        for (count, forwards) in [(1, true), (2, !is_stopped), (3, !is_stopped)] {
            fast.edge.note_heartbeats_lost(fast.now, node, count);
            fast.obey();
            assert_eq!(fast.forwards(segment(count)), forwards, "{policy:?}, {count}");
        }
        assert_eq!(fast.edge.status().segments_held.0, u32::from(is_stopped));
        fast.edge.note_heartbeats_lost(fast.now, node, 0);
        fast.obey();
        assert_eq!(fast.is_below(&connection.tuple), !is_stopped, "a flow with a held segment is not below");
        fast.leave(node, connection.far(ACK, 1, 401, u16::MAX));
        assert!(fast.is_below(&connection.tuple), "nothing is held for it any more");
    }
}

#[test]
fn nothing_is_below_while_rates_are_controlled_or_the_network_is_down() {
    let capacity = Capacity::Configured(1_000_000);
    let mut fast = Fast::new(|config| config.rate_control = Some(RateControlConfig::new(capacity)));
    let tuples: Vec<Tuple> = (0..6).map(udp).collect();
    let nodes: Vec<NodeId> = tuples.iter().map(|tuple| fast.settle(tuple)).collect();
    fast.edge.set_network_up(false);
    fast.obey();
    assert!(fast.kernel.nodes.is_empty());
    fast.edge.set_network_up(true);
    fast.obey();
    assert_eq!(fast.kernel.nodes.len(), 3);
    fast.edge.set_node_alive(fast.now, nodes[0], false);
    fast.obey();
    assert!(fast.kernel.nodes.is_empty(), "windows of the survivors are clamped");
    fast.edge.set_node_alive(fast.now, nodes[0], true);
    for _ in 0..20 {
        fast.now = fast.now + Duration::from_millis(100);
        fast.edge.handle_timeout(fast.now);
    }
    fast.obey();
    assert_eq!(fast.kernel.nodes.len(), 3, "nothing was clamped for an interval");
}

#[test]
fn frames_to_another_link_address_reach_the_edge_and_remove_the_flow() {
    let mut fast = Fast::new(|_| ());
    let node = fast.settle(&udp(1));
    let mut moved = build::udp(&udp(1).inverse(), b"answer");
    moved[..6].copy_from_slice(&[2, 0, 0, 0, 2, 2]);
    assert_eq!(fast.arrive(port(node), &mut moved), Disposition::Transmit(NETWORK));
    assert!(!fast.is_below(&udp(1)), "the host has another address");
    let other = NodeId((node.0 + 1) % NODES);
    let mut between = build::udp(&udp(1).inverse(), b"answer");
    between[..6].copy_from_slice(&node_address(other).0);
    assert_eq!(fast.arrive(port(node), &mut between), Disposition::Transmit(port(other)));
}

#[test]
fn packets_below_keep_a_connection_from_expiring() {
    let mut fast = Fast::new(|_| ());
    fast.settle(&udp(1));
    for _ in 0..20 {
        fast.now = fast.now + Duration::from_secs(60);
        assert!(fast.forwards(build::udp(&udp(1), b"query")));
        fast.kernel.sweep(fast.now, &mut fast.edge);
        fast.edge.handle_timeout(fast.now);
    }
    assert_eq!(fast.edge.status().connections, 1);
    fast.now = fast.now + Duration::from_secs(601);
    fast.edge.handle_timeout(fast.now);
    fast.obey();
    assert!(fast.edge.status().connections == 0 && fast.kernel.flows.is_empty());
}

#[test]
fn a_flow_that_finds_no_place_or_is_refused_goes_through_the_edge() {
    let mut fast = Fast::new(|_| ());
    (0..6).map(udp).for_each(|tuple| assert!(fast.settle(&tuple).0 < NODES));
    for _ in 0..10 {
        let node = fast.enter(build::udp(&udp(7), b"query"));
        fast.leave(node, build::udp(&udp(7).inverse(), b"answer"));
    }
    assert!(!fast.is_below(&udp(7)));
    assert_eq!(fast.edge.status().fast_path.expect("there is one").full, 2, "it was tried after ten packets each");
    fast.edge.end_fast_path();
    fast.kernel = Kernel::default();
    assert!(!fast.forwards(build::udp(&udp(1), b"query")));
    fast.edge.begin_fast_path(FLOWS_MAX);
    let node = fast.enter(build::udp(&udp(1), b"query"));
    let mut answer = for_host(build::udp(&udp(1).inverse(), b"answer"));
    let mut batch = PacketBatch::new();
    let length_bytes = answer.len();
    batch.push(Frame::new(&mut answer, 0, length_bytes, port(node)).expect("it fits"));
    fast.edge.handle_packets(fast.now, &mut batch);
    let orders: Vec<_> = std::iter::from_fn(|| fast.edge.poll_fast_path()).collect();
    let Some(FastPathOrder::Install { place, .. }) = orders.last() else { panic!("{orders:?}") };
    fast.edge.note_refused(*place);
    assert_eq!(fast.edge.status().fast_path.expect("there is one").installed, 0);
}

/// Something that happens to an edge.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A packet of a flow enters, or leaves from a node: the flow's, or this one.
    Enter {
        flow: u16,
        flags: u8,
    },
    Leave {
        flow: u16,
        flags: u8,
        from: Option<u8>,
        to_node: Option<u8>,
    },
    Alive {
        node: u8,
        is_alive: bool,
    },
    SwitchedOver {
        node: u8,
    },
    Heartbeats {
        node: u8,
        lost: u32,
    },
    LinkAddress {
        node: u8,
        last: u8,
    },
    NetworkUp(bool),
    Sweep,
    Wait {
        ms: u64,
    },
}

fn flags() -> impl Strategy<Value = u8> {
    prop_oneof![20 => Just(ACK), 2 => Just(SYN), 2 => Just(SYN | ACK), 1 => Just(FIN | ACK), 1 => Just(RST | ACK)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (flow, node) = (0..8_u16, 0..NODES);
    let from = prop_oneof![12 => Just(None), 1 => node.clone().prop_map(Some)];
    let to_node = prop_oneof![20 => Just(None), 1 => node.clone().prop_map(Some)];
    let step = prop_oneof![
        40 => (flow.clone(), flags()).prop_map(|(flow, flags)| Step::Enter { flow, flags }),
        40 => (flow, flags(), from, to_node)
            .prop_map(|(flow, flags, from, to_node)| Step::Leave { flow, flags, from, to_node }),
        2 => (node.clone(), prop::bool::weighted(0.6)).prop_map(|(node, is_alive)| Step::Alive { node, is_alive }),
        1 => node.clone().prop_map(|node| Step::SwitchedOver { node }),
        2 => (node.clone(), 0..4_u32).prop_map(|(node, lost)| Step::Heartbeats { node, lost }),
        1 => (node, 0..4_u8).prop_map(|(node, last)| Step::LinkAddress { node, last: 0x10 * (node + 1) + last }),
        1 => prop::bool::weighted(0.7).prop_map(Step::NetworkUp),
        2 => Just(Step::Sweep),
        4 => (0..300_u64).prop_map(|ms| Step::Wait { ms }),
    ];
    prop::collection::vec(step, 0..400)
}

/// An edge with a fast path, and one without, to which the same happens.
struct Pair {
    fast: Fast,
    plain: World,
    /// By flow: the numbers of the near end and of the far end, from their first on.
    numbers: [[u32; 2]; 8],
    last_nodes: [NodeId; 8],
}

impl Pair {
    fn new(policy: CachePolicy) -> Self {
        let (fast, plain) = (Fast::new(|c| set_policy(c, policy)), World::new(|c| set_policy(c, policy)));
        Self { fast, plain, numbers: [[1; 2]; 8], last_nodes: [NodeId(0); 8] }
    }

    /// Both send the frame by the same port, with the same bytes.
    fn arrive(&mut self, ingress: PortId, bytes: Vec<u8>) -> Result<Disposition, TestCaseError> {
        let (mut by_fast, mut by_plain) = (bytes.clone(), bytes);
        let disposition = self.plain.arrive(ingress, &mut by_plain);
        prop_assert_eq!(self.fast.arrive(ingress, &mut by_fast), disposition);
        prop_assert_eq!(by_fast, by_plain);
        Ok(disposition)
    }

    /// A packet of a flow: the even ones are TCP.
    fn packet(&mut self, flow: u16, flags: u8, end: usize) -> Vec<u8> {
        let connection = Connection::new(flow);
        let [near, far] = &mut self.numbers[usize::from(flow)];
        match end {
            _ if flow % 2 == 1 => build::udp(&if end == 0 { udp(flow) } else { udp(flow).inverse() }, b"a datagram"),
            0 if flags == ACK => {
                *near += 100;
                connection.near(flags, *near - 100, *far, &[7; 100])
            }
            0 => connection.near(flags, if flags & SYN != 0 { 0 } else { *near }, *far, b""),
            _ => connection.far(flags, if flags & SYN != 0 { 0 } else { *far }, *near, u16::MAX),
        }
    }

    fn take(&mut self, step: Step) -> Result<(), TestCaseError> {
        let Self { fast: Fast { edge, now, .. }, plain, .. } = self;
        let node_of = |node: u8| NodeId(node);
        match step {
            Step::Enter { flow, flags } => {
                let bytes = self.packet(flow, flags, 0);
                if let Disposition::Transmit(PortId(port)) = self.arrive(NETWORK, bytes)? {
                    self.last_nodes[usize::from(flow)] = NodeId(port - 1);
                }
                return Ok(());
            }
            Step::Leave { flow, flags, from, to_node } => {
                let from = from.map_or(self.last_nodes[usize::from(flow)], NodeId);
                let mut bytes = for_host(self.packet(flow, flags, 1));
                if let Some(to) = to_node {
                    bytes[..6].copy_from_slice(&node_address(NodeId(to)).0);
                }
                return self.arrive(port(from), bytes).map(drop);
            }
            Step::Alive { node, is_alive } => {
                edge.set_node_alive(*now, node_of(node), is_alive);
                plain.edge.set_node_alive(*now, node_of(node), is_alive);
            }
            Step::SwitchedOver { node } => {
                edge.switched_over(*now, node_of(node));
                plain.edge.switched_over(*now, node_of(node));
            }
            Step::Heartbeats { node, lost } => {
                edge.note_heartbeats_lost(*now, node_of(node), lost);
                plain.edge.note_heartbeats_lost(*now, node_of(node), lost);
            }
            Step::LinkAddress { node, last } => {
                let address = MacAddress([2, 0, 0, 0, 1, last]);
                edge.set_link_address(node_of(node), address);
                plain.edge.set_link_address(node_of(node), address);
            }
            Step::NetworkUp(is_up) => edge.set_network_up(is_up),
            Step::Sweep => self.fast.kernel.sweep(self.fast.now, &mut self.fast.edge),
            Step::Wait { ms } => {
                self.fast.kernel.sweep(self.fast.now, &mut self.fast.edge);
                self.fast.now = self.fast.now + Duration::from_millis(ms);
                self.plain.now = self.fast.now;
                self.fast.edge.handle_timeout(self.fast.now);
                self.plain.edge.handle_timeout(self.plain.now);
            }
        }
        self.fast.obey();
        Ok(())
    }
}

proptest! {
    #[test]
    fn an_edge_with_a_fast_path_sends_every_frame_as_one_without(steps in steps(), begins_late in any::<bool>()) {
        let policy = if begins_late { CachePolicy::FromSecondLostHeartbeat } else { CachePolicy::SynOnly };
        let mut pair = Pair::new(policy);
        for step in steps {
            pair.take(step)?;
        }
        pair.fast.kernel.sweep(pair.fast.now, &mut pair.fast.edge);
        let (fast, plain) = (pair.fast.edge.status(), pair.plain.edge.status());
        prop_assert_eq!(fast.counters, plain.counters);
        prop_assert_eq!((fast.connections, fast.flows), (plain.connections, plain.flows));
        let below = fast.fast_path.expect("there is one");
        prop_assert_eq!((below.packets, below.installed as usize),
            (pair.fast.kernel.forwarded.into(), pair.fast.kernel.flows.len()));
    }
}
