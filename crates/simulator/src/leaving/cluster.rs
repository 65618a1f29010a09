//! The nodes, the edges that distribute packets to them, a client inside and a server outside.
//!
//! Datagrams between nodes arrive in the step in which they are sent, or are lost. An edge sends packets to a node while that one forwards, and
//! to one that has died until its death is noticed.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use cluster::node::{Node, Transmit};
use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::{self, Parsed, build, ethernet, ip_protocol, tcp_flags};
use flow::{Affinity, Disposition, Ecmp, Frame, Instant, NodeId, NodeSet, PacketBatch, PortId, Tuple};

use super::config::{Shape, side};
use crate::random::Random;
use crate::topology::{HostConfig, OUTSIDE_FIRST, Side, host_config, node_mac};

const STEP: Duration = Duration::from_millis(10);
/// An edge notices after this time that a node is dead.
const EDGE_DETECTS_WITHIN: Duration = Duration::from_millis(100);
/// A host sends a segment so many times, at this interval.
const ATTEMPTS_MAX: u32 = 8;
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(250);
/// The buffer of a frame has this room behind it.
const ROOM_BYTES: usize = 128;

/// An edge.
struct Edge {
    ecmp: Ecmp,
    /// The node that a connection's packets go to, by the ports of those that enter.
    learned: BTreeMap<(u16, u16), NodeId>,
}

/// A connection, as its packets enter on either side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) original: Tuple,
    pub(super) reply: Tuple,
}

/// The whole of it.
pub(super) struct Cluster {
    pub(super) now: Instant,
    pub(super) shape: Shape,
    random: Random,
    nodes: Vec<Option<Node>>,
    /// The nodes that are peers of each other.
    members: NodeSet,
    starts: u64,
    /// When a node that is not there ended.
    ended_at: Vec<Instant>,
    /// Until then a node's datagrams reach no other, as the others have its former address.
    unreachable_until: Vec<Instant>,
    edges: [Edge; 2],
    /// What has reached the hosts since they last sent.
    received: VecDeque<(PortId, Tuple)>,
}

impl Cluster {
    /// All nodes start at once.
    pub(super) fn new(shape: Shape, random: Random) -> Self {
        let edge = || Edge { ecmp: Ecmp::new(shape.all()), learned: BTreeMap::new() };
        let nodes = usize::from(shape.nodes);
        let mut cluster = Self {
            now: Instant::from_millis(1000),
            shape,
            random,
            nodes: (0..nodes).map(|_| None).collect(),
            members: shape.all(),
            starts: 0,
            ended_at: vec![Instant::ZERO; nodes],
            unreachable_until: vec![Instant::ZERO; nodes],
            edges: [edge(), edge()],
            received: VecDeque::new(),
        };
        shape.all().iter().for_each(|node| cluster.start(node, Duration::ZERO));
        cluster
    }

    pub(super) fn node(&self, node: NodeId) -> Option<&Node> {
        self.nodes.get(usize::from(node.0))?.as_ref()
    }

    pub(super) fn node_mut(&mut self, node: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(usize::from(node.0))?.as_mut()
    }

    /// The members that run.
    pub(super) fn running(&self) -> NodeSet {
        self.members.iter().filter(|node| self.node(*node).is_some()).collect()
    }

    /// A node that is no member runs, and edges send it packets. No member replicates to it.
    pub(super) fn has_forwarding_outsider(&self) -> bool {
        let outsiders = self.shape.all().without(self.members);
        outsiders.iter().filter_map(|node| self.node(node)).any(|node| node.roles().forwards_any())
    }

    /// A node starts, and knows nothing. For some time the others may have its former address.
    pub(super) fn start(&mut self, id: NodeId, unreachable_for: Duration) {
        self.starts += 1;
        let members = self.members.union([id].into_iter().collect());
        let node = Node::new(self.shape.node_config(id, members, self.starts), self.now).expect("it is sound");
        let node = if self.shape.has_state_service {
            node.with_state_service(self.shape.state_service(), self.starts as u32).expect("it is sound")
        } else {
            node
        };
        self.nodes[usize::from(id.0)] = Some(node);
        self.unreachable_until[usize::from(id.0)] = self.now + unreachable_for;
    }

    /// A node ends from one moment on.
    pub(super) fn end(&mut self, id: NodeId) {
        self.nodes[usize::from(id.0)] = None;
        self.ended_at[usize::from(id.0)] = self.now;
    }

    /// The other nodes reload: this one is a peer of theirs, or not.
    pub(super) fn set_member(&mut self, id: NodeId, is_member: bool) {
        let one: NodeSet = [id].into_iter().collect();
        self.members = if is_member { self.members.union(one) } else { self.members.without(one) };
        let (now, shape, members) = (self.now, self.shape, self.members);
        for (other, node) in (0..).map(NodeId).zip(&mut self.nodes) {
            let Some(node) = node.as_mut().filter(|_| other != id) else { continue };
            let new = shape.reconfiguration(other, node, members, now);
            node.reload(now, new).expect("only peers come and go");
        }
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// Runs until the condition holds; false: it does not within this time.
    pub(super) fn run_until(&mut self, within: Duration, mut condition: impl FnMut(&Self) -> bool) -> bool {
        let until = self.now + within;
        while self.now < until {
            if condition(self) {
                return true;
            }
            self.step();
        }
        false
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.nodes.iter_mut().flatten().for_each(|node| node.handle_timeout(now));
        self.deliver();
        for id in self.shape.all().iter() {
            let noticed_at = self.ended_at[usize::from(id.0)] + EDGE_DETECTS_WITHIN;
            let forwards = self.node(id).map(|node| node.roles().forwards_any());
            let is_alive = forwards.unwrap_or(self.edges[0].ecmp.alive().contains(id) && now < noticed_at);
            for edge in &mut self.edges {
                edge.ecmp.set_alive(id, is_alive);
            }
        }
    }

    fn deliver(&mut self) {
        let mut buffer = Vec::new();
        let mut is_quiet = false;
        while !is_quiet {
            is_quiet = true;
            for id in self.shape.all().iter() {
                let now = self.now;
                while let Some(transmit) = self.node_mut(id).and_then(|node| node.poll_transmit(now, &mut buffer)) {
                    is_quiet = false;
                    self.carry(id, transmit, &buffer);
                }
                // Nobody reads them here.
                while self.node_mut(id).is_some_and(|node| node.poll_event().is_some()) {}
            }
        }
    }

    fn carry(&mut self, from: NodeId, transmit: Transmit, bytes: &[u8]) {
        let now = self.now;
        let (to, is_detection) = match transmit {
            Transmit::Port { port, .. } => return self.carry_frame(from, port, bytes),
            Transmit::Detection(to) => (to, true),
            Transmit::Replication(to) => (to, false),
        };
        let is_unreachable = [from, to].iter().any(|node| now < self.unreachable_until[usize::from(node.0)]);
        if is_unreachable || self.random.chance(self.shape.loss_per_mille) {
            return;
        }
        // A datagram to one that is no peer, or to the run before, is refused.
        let Some(node) = self.node_mut(to) else { return };
        if is_detection {
            let _ = node.handle_detection(now, from, bytes, 255);
        } else {
            let _ = node.handle_replication(now, from, bytes);
        }
    }

    /// A frame reaches the host on the port's link, which answers ARP.
    fn carry_frame(&mut self, from: NodeId, port: PortId, bytes: &[u8]) {
        let host = host_of(port);
        let Ok(view) = ethernet::EthernetView::new_checked(bytes) else { return };
        if view.ether_type() == ethernet::ether_type::ARP {
            let Ok(arp) = ArpView::new_checked(&bytes[ethernet::ETHERNET_HEADER_BYTES..]) else { return };
            if arp.operation() == ArpOperation::Request && arp.target_ip() == host.v4 {
                let answer = build::arp_reply(host.mac, host.v4, (arp.sender_mac(), arp.sender_ip()));
                self.hand_to(from, port, answer);
            }
        } else if view.destination() == host.mac
            && let Some(tuple) = tuple_of(bytes)
        {
            self.edges[side(port)].learn(&tuple, from);
            self.received.push_back((port, tuple));
        }
    }

    fn hand_to(&mut self, id: NodeId, port: PortId, mut bytes: Vec<u8>) {
        let (now, length_bytes) = (self.now, bytes.len());
        bytes.resize(length_bytes + ROOM_BYTES, 0);
        let Some(node) = self.node_mut(id) else { return };
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(&mut bytes, 0, length_bytes, port).expect("it has room"));
        node.handle_packets(now, &mut batch);
        let sent = match batch[0].disposition {
            Disposition::Transmit(egress) => Some((egress, batch[0].bytes().to_vec())),
            _ => None,
        };
        // What replicates a packet's effect leaves before the packet.
        self.deliver();
        if let Some((egress, bytes)) = sent {
            self.carry_frame(id, egress, &bytes);
        }
        self.deliver();
    }
}

/// What hosts do.
impl Cluster {
    /// A host sends a segment until it arrives: the tuple with which it does.
    fn send(&mut self, port: PortId, entering: &Tuple, segment: build::Tcp<'_>) -> Option<Tuple> {
        let source = host_of(port).mac;
        let far = if port == Side::Inside.port() { Side::Outside.port() } else { Side::Inside.port() };
        for _ in 0..ATTEMPTS_MAX {
            self.received.clear();
            let node = self.edges[side(port)].select(&self.shape, entering)?;
            let destination = node_mac(node.0.into(), Side::of_port(port));
            let envelope = build::Envelope { source, destination, ..build::Envelope::default() };
            self.hand_to(node, port, envelope.tcp(entering, segment, b""));
            let arrived = |cluster: &Self| cluster.received.iter().find(|(at, _)| *at == far).map(|(_, tuple)| *tuple);
            if self.run_until(ATTEMPT_INTERVAL, |cluster| arrived(cluster).is_some()) {
                return arrived(self);
            }
        }
        None
    }

    /// The client begins a connection from a port. `None`: it is not established.
    pub(super) fn connect(&mut self, port: u16) -> Option<Flow> {
        let (client, server) = (host_of(Side::Inside.port()), host_of(Side::Outside.port()));
        let original = Tuple::v4(ip_protocol::TCP, (client.v4, port), (server.v4, 80));
        let seen = self.send(Side::Inside.port(), &original, segment(tcp_flags::SYN, 1000, 0))?;
        let flow = Flow { original, reply: seen.inverse() };
        self.send(Side::Outside.port(), &flow.reply, segment(tcp_flags::SYN | tcp_flags::ACK, 5000, 1001))?;
        self.send(Side::Inside.port(), &original, segment(tcp_flags::ACK, 1001, 5001))?;
        Some(flow)
    }

    /// A segment passes in each direction, and both ends see the other as before.
    pub(super) fn exchange(&mut self, flow: &Flow, client_first: bool) -> bool {
        [client_first, !client_first].into_iter().all(|is_client| {
            if is_client {
                let seen = self.send(Side::Inside.port(), &flow.original, segment(tcp_flags::ACK, 1001, 5001));
                seen == Some(flow.reply.inverse())
            } else {
                let seen = self.send(Side::Outside.port(), &flow.reply, segment(tcp_flags::ACK, 5001, 1001));
                seen == Some(flow.original.inverse())
            }
        })
    }

    /// An edge has learned to send packets of the connection to a node that was away, is back, and does not have it.
    pub(super) fn is_learned_elsewhere(&self, flow: &Flow) -> bool {
        let [has_it, _] = self.nodes_with(flow);
        self.edges.iter().zip([&flow.original, &flow.reply]).any(|(edge, entering)| {
            let learned = edge.learned.get(&(entering.source_port, entering.destination_port));
            learned.is_some_and(|node| edge.ecmp.alive().contains(*node) && !has_it.contains(*node))
        })
    }

    /// The nodes of the cluster that have the connection, and those that own it.
    pub(super) fn nodes_with(&self, flow: &Flow) -> [NodeSet; 2] {
        let owner = |node: NodeId| {
            let pipeline = self.node(node)?.pipeline();
            Some(pipeline.connection(pipeline.lookup(&flow.original)?.0)?.owner)
        };
        let has_it = self.running().iter().filter(|node| owner(*node).is_some()).collect();
        [has_it, self.running().iter().filter(|node| owner(*node) == Some(*node)).collect()]
    }
}

impl Edge {
    /// The node for a packet that enters here.
    fn select(&self, shape: &Shape, entering: &Tuple) -> Option<NodeId> {
        let learned = self.learned.get(&(entering.source_port, entering.destination_port)).copied();
        let learned = learned.filter(|node| self.ecmp.alive().contains(*node));
        learned.or_else(|| self.ecmp.select(Affinity::Learned.hash(&shape.edge_key(), entering)))
    }

    /// A packet leaves here.
    fn learn(&mut self, leaving: &Tuple, from: NodeId) {
        let ports = (leaving.destination_port, leaving.source_port);
        let is_known = self.learned.get(&ports).is_some_and(|node| self.ecmp.alive().contains(*node));
        if !is_known {
            self.learned.insert(ports, from);
        }
    }
}

/// The host on the link of a port.
fn host_of(port: PortId) -> HostConfig {
    host_config(if port == Side::Inside.port() { 0 } else { OUTSIDE_FIRST })
}

fn segment(flags: u8, sequence: u32, acknowledgement: u32) -> build::Tcp<'static> {
    build::Tcp { flags, sequence, acknowledgement, ..build::Tcp::default() }
}

fn tuple_of(bytes: &[u8]) -> Option<Tuple> {
    let mut bytes = bytes.to_vec();
    let length_bytes = bytes.len();
    let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(0))?;
    let Ok(Parsed::Ip(headers)) = wire::parse(&frame) else { return None };
    Some(headers.tuple)
}
