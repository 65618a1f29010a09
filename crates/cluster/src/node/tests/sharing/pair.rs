//! Two nodes that forward at once, with a link between them that delays and loses.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::{build, ethernet, ip_protocol, tcp_flags};
use flow::{Connection, Disposition, DropReason, Frame, Instant, NodeId, PacketBatch, PortId, Tuple};
use replication::SessionConfig;

use super::super::below::Program;
use super::super::cluster::{
    CLIENT, CLIENT_MAC, INSIDE, OUTSIDE, Options, ROOM_BYTES, Received, SERVER, SERVER_MAC, SHARED_OUTSIDE, STEP,
    node_config, port_mac, segment, syn, syn_ack,
};
use crate::group::{GroupId, GroupSet};
use crate::node::{Node, NodeConfig, PeerConfig, Transmit};
use crate::pipeline::SharingCounters;

pub(super) const A: u8 = 0;
pub(super) const B: u8 = 1;
const CONNECTIONS_MAX: u32 = 4096;

/// A datagram on the link between the nodes.
struct Datagram {
    to: u8,
    bytes: Vec<u8>,
}

pub(super) struct Pair {
    pub(super) now: Instant,
    nodes: [Option<Node>; 2],
    /// What forwards packets below the nodes, if something does.
    programs: [Option<Program>; 2],
    options: Options,
    /// Of replication datagrams, one way.
    pub(super) delay: Duration,
    pub(super) loss_percent: u64,
    /// Replication datagrams wait at their senders' while set.
    pub(super) is_link_held: bool,
    random: u64,
    in_flight: BTreeMap<(Instant, u64), Datagram>,
    datagrams: u64,
    at_client: VecDeque<Vec<u8>>,
    at_server: VecDeque<Vec<u8>>,
}

/// Each node is to hold a group of its own.
fn config(id: u8, options: Options) -> NodeConfig {
    let config = node_config(id, Options { connections_max: CONNECTIONS_MAX, has_groups: true, ..options });
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    let peers = config.peers.into_iter().map(|peer| PeerConfig { session: Some(session), ..peer }).collect();
    NodeConfig { peers, ..config }
}

impl Pair {
    /// Both nodes forward and are synchronised.
    pub(super) fn start(options: Options) -> Self {
        let now = Instant::from_millis(1);
        let mut pair = Self {
            now,
            nodes: [A, B].map(|id| Node::new(config(id, options), now).ok()),
            programs: [None, None],
            options,
            delay: Duration::ZERO,
            loss_percent: 0,
            is_link_held: false,
            random: 1,
            in_flight: BTreeMap::new(),
            datagrams: 0,
            at_client: VecDeque::new(),
            at_server: VecDeque::new(),
        };
        pair.run_until("both nodes to be ready", |pair| {
            let is_ready = |node: &Node| node.status(pair.now).peers[0].could_take_over();
            pair.have_each_their_own() && pair.nodes.iter().flatten().all(is_ready)
        });
        pair
    }

    /// As [`Pair::start`], with a program below each node that forwards packets of established connections.
    pub(super) fn start_with_fast_path(options: Options) -> Self {
        let mut pair = Self::start(options);
        [A, B].into_iter().for_each(|id| pair.set_fast_path(id));
        pair
    }

    fn set_fast_path(&mut self, id: u8) {
        let (now, program) = (self.now, Program::default());
        let node = self.node_mut(id);
        node.set_fast_path(now, std::boxed::Box::new(program.clone()));
        node.beat_fast_path(now);
        self.programs[usize::from(id)] = Some(program);
    }

    pub(super) const fn has_fast_path(&self) -> bool {
        self.programs[0].is_some()
    }

    /// The program below a node.
    pub(super) fn program(&self, id: u8) -> &Program {
        self.programs[usize::from(id)].as_ref().expect("there is one")
    }

    /// Each node holds its group, and so forwards whatever comes to it: the test decides which way packets come.
    pub(super) fn have_each_their_own(&self) -> bool {
        let group = |id: u8| GroupSet::EMPTY.with(GroupId::at(id.into()));
        [A, B].into_iter().all(|id| self.node(id).roles().held() == group(id))
    }

    /// The node holds the addresses of both groups.
    pub(super) fn holds_all(&self, id: u8) -> bool {
        [0, 1].into_iter().all(|group| self.node(id).roles().held().contains(GroupId::at(group)))
    }

    pub(super) fn started() -> Self {
        Self::start(Options::default())
    }

    pub(super) fn node(&self, id: u8) -> &Node {
        self.nodes[usize::from(id)].as_ref().expect("the node lives")
    }

    pub(super) fn node_mut(&mut self, id: u8) -> &mut Node {
        self.nodes[usize::from(id)].as_mut().expect("the node lives")
    }

    /// The nodes that run.
    pub(super) fn living(&self) -> impl Iterator<Item = u8> {
        [A, B].into_iter().filter(|id| self.nodes[usize::from(*id)].is_some())
    }

    pub(super) fn kill(&mut self, id: u8) {
        self.nodes[usize::from(id)] = None;
    }

    /// The node starts again and knows nothing.
    pub(super) fn restart(&mut self, id: u8) {
        let config = NodeConfig { seed: self.now.as_nanos(), ..config(id, self.options) };
        self.nodes[usize::from(id)] = Node::new(config, self.now).ok();
        if self.programs[usize::from(id)].is_some() {
            self.set_fast_path(id);
        }
    }

    /// What is lost from here on is others' than with another seed.
    pub(super) const fn seed(&mut self, seed: u64) {
        self.random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    /// In steps too long for the failure detector, so that neither node takes the time for a failure.
    pub(super) fn run_long(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.run(Duration::from_millis(500).min(until.saturating_since(self.now)));
        }
    }

    pub(super) fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(20);
        while !condition(self) {
            assert!(self.now < limit, "waited too long for {what}");
            self.step();
        }
    }

    pub(super) fn step(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.nodes.iter_mut().flatten().for_each(|node| {
            node.beat_fast_path(now);
            node.handle_timeout(now);
        });
        self.deliver();
    }

    /// Carries everything that nodes have to send and that has arrived, until there is nothing more.
    pub(super) fn deliver(&mut self) {
        let mut buffer = Vec::new();
        loop {
            let mut is_quiet = true;
            for id in [A, B] {
                let now = self.now;
                let Some(node) = &mut self.nodes[usize::from(id)] else { continue };
                let Some(transmit) = node.poll_transmit(now, &mut buffer) else { continue };
                is_quiet = false;
                self.carry(id, transmit, &buffer);
            }
            is_quiet &= !self.deliver_datagram();
            if is_quiet {
                return;
            }
        }
    }

    fn deliver_datagram(&mut self) -> bool {
        let now = self.now;
        let Some(first) = self.in_flight.first_entry().filter(|first| first.key().0 <= now && !self.is_link_held)
        else {
            return false;
        };
        let Datagram { to, bytes } = first.remove();
        if let Some(node) = &mut self.nodes[usize::from(to)] {
            node.handle_replication(now, NodeId(1 - to), &bytes).unwrap();
            node.handle_timeout(now);
        }
        true
    }

    fn is_lost(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < self.loss_percent
    }

    fn carry(&mut self, from: u8, transmit: Transmit, bytes: &[u8]) {
        let (now, to) = (self.now, 1 - from);
        match transmit {
            Transmit::Port { port, .. } => self.carry_frame(from, port, bytes),
            Transmit::Detection(_) => {
                if let Some(peer) = &mut self.nodes[usize::from(to)] {
                    peer.handle_detection(now, NodeId(from), bytes, 255).unwrap();
                }
            }
            Transmit::Replication(_) if self.is_lost() => {}
            Transmit::Replication(_) => {
                self.datagrams += 1;
                self.in_flight.insert((now + self.delay, self.datagrams), Datagram { to, bytes: bytes.to_vec() });
            }
        }
    }

    /// A frame reaches the host on the port's link, which answers ARP and keeps what is for itself.
    fn carry_frame(&mut self, from: u8, port: PortId, bytes: &[u8]) {
        let (host_mac, host_ip) = if port == INSIDE { (CLIENT_MAC, CLIENT) } else { (SERVER_MAC, SERVER) };
        let view = ethernet::EthernetView::new_checked(bytes).unwrap();
        if view.ether_type() == ethernet::ether_type::ARP {
            let arp = ArpView::new_checked(&bytes[14..]).unwrap();
            if arp.operation() == ArpOperation::Request && arp.target_ip() == host_ip {
                let answer = build::arp_reply(host_mac, host_ip, (arp.sender_mac(), arp.sender_ip()));
                self.hand_in(from, port, answer);
            }
        } else if view.destination() == host_mac {
            let queue = if port == INSIDE { &mut self.at_client } else { &mut self.at_server };
            queue.push_back(bytes.to_vec());
        }
    }

    /// A frame comes in at a node.
    pub(super) fn hand_in(&mut self, via: u8, port: PortId, mut bytes: Vec<u8>) {
        let Some(node) = &mut self.nodes[usize::from(via)] else { return };
        let program = self.programs[usize::from(via)].as_ref();
        if let Some((egress, out)) = program.and_then(|program| program.forward(self.now, &bytes, port)) {
            self.carry_frame(via, egress, &out);
            return;
        }
        let length_bytes = bytes.len();
        bytes.resize(length_bytes + ROOM_BYTES, 0);
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(&mut bytes, 0, length_bytes, port).unwrap());
        node.handle_packets(self.now, &mut batch);
        let sent = match batch[0].disposition {
            Disposition::Transmit(egress) => Some((egress, batch[0].bytes().to_vec())),
            _ => None,
        };
        // Updates are sent before the frames leave.
        self.deliver();
        if let Some((egress, bytes)) = sent {
            self.carry_frame(via, egress, &bytes);
        }
    }

    /// What a host on the port's link sends, by way of a node.
    pub(super) fn host_sends(&mut self, via: u8, port: PortId, make: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let source = if port == INSIDE { CLIENT_MAC } else { SERVER_MAC };
        let envelope = build::Envelope { source, destination: port_mac(via, port), ..build::Envelope::default() };
        self.hand_in(via, port, make(envelope));
    }

    pub(super) fn client_sends(&mut self, via: u8, port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
        self.host_sends(via, INSIDE, |envelope| envelope.tcp(&tuple, segment, payload));
    }

    /// To the translated client.
    pub(super) fn server_sends(&mut self, via: u8, to_port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, to_port));
        self.host_sends(via, OUTSIDE, |envelope| envelope.tcp(&tuple, segment, payload));
    }

    pub(super) fn client_receives(&mut self) -> Option<Received> {
        self.at_client.pop_front().map(Received::new)
    }

    pub(super) fn server_receives(&mut self) -> Option<Received> {
        self.at_server.pop_front().map(Received::new)
    }

    /// A handshake whose original direction goes by way of `out`, its reply by way of `back`. Returns the port that the server
    /// sees the client under.
    pub(super) fn connect(&mut self, port: u16, out: u8, back: u8) -> u16 {
        self.client_sends(out, port, syn(), b"");
        let seen = self.server_receives().expect("the SYN passes").tuple.source_port;
        self.server_sends(back, seen, syn_ack(), b"");
        assert_eq!(self.client_receives().expect("the SYN/ACK passes").tuple.destination_port, port);
        self.client_sends(out, port, segment(tcp_flags::ACK, 1001, 5001), b"");
        self.server_receives().expect("the ACK passes");
        seen
    }

    /// The record that a node has of the client's connection from `port`.
    pub(super) fn record(&self, id: u8, port: u16) -> Option<&Connection> {
        self.record_of(id, &Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80)))
    }

    /// The record that a node has of a connection.
    pub(super) fn record_of(&self, id: u8, tuple: &Tuple) -> Option<&Connection> {
        let pipeline = self.node(id).pipeline();
        let (slot, _) = pipeline.lookup(tuple)?;
        pipeline.connection(slot)
    }

    pub(super) fn master(&self, id: u8, port: u16) -> u8 {
        self.record(id, port).expect("the node has the connection").owner.0
    }

    pub(super) fn counters(&self, id: u8) -> SharingCounters {
        self.node(id).pipeline().sharing_counters()
    }

    pub(super) fn dropped(&self, id: u8, reason: DropReason) -> u64 {
        self.node(id).pipeline().counters().drops[reason as usize]
    }

    /// Messages that both nodes have sent about connections.
    pub(super) fn messages(&self) -> u64 {
        let sent = |node: &Node| node.status(self.now).peers[0].session.map_or(0, |session| session.messages_sent);
        self.nodes.iter().flatten().map(sent).sum()
    }
}
