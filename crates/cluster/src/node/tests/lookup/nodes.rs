//! Several nodes that forward at once, each with the connections that began there, and a state service to find the others'.

use std::boxed::Box;
use std::collections::VecDeque;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{build, ethernet, ip_protocol, tcp_flags};
use flow::{
    Affinity, Connection, Disposition, DropReason, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple,
};
use replication::SessionConfig;
use state_service::message::is_state_service;

use super::super::below::Program;
use super::super::cluster::{
    CLIENT, CLIENT_MAC, INSIDE, OUTSIDE, Options, ROOM_BYTES, Received, SERVER, SERVER_MAC, SHARED_OUTSIDE, STEP,
    node_config, port_mac, security, segment, syn, syn_ack,
};
use crate::failure_detector;
use crate::group::{GroupId, GroupSet};
use crate::node::{BackupsConfig, Node, NodeConfig, PeerConfig, Transmit};
use crate::pipeline::{LookupLimits, StateServiceConfig, StateServiceStatus};
use crate::{forwarding, role};

pub(super) const CONNECTIONS_MAX: u32 = 4096;

/// What these tests vary.
#[derive(Clone, Copy)]
pub(super) struct Setting {
    pub(super) nodes: u8,
    pub(super) options: Options,
    pub(super) limits: LookupLimits,
    /// Nodes of a release without state service.
    pub(super) without_service: &'static [u8],
    /// Nodes whose connections are replicated to each other; the others replicate nothing.
    pub(super) replicating: &'static [u8],
    pub(super) is_encrypted: bool,
    /// Backups of each connection, instead of the above.
    pub(super) backups: Option<usize>,
}

impl Default for Setting {
    fn default() -> Self {
        Self {
            nodes: 3,
            options: Options::default(),
            limits: LookupLimits::default(),
            without_service: &[],
            replicating: &[],
            is_encrypted: false,
            backups: None,
        }
    }
}

/// All nodes, with a client inside and a server outside. Everything arrives within the step in which it is sent.
pub(super) struct Nodes {
    pub(super) now: Instant,
    setting: Setting,
    nodes: Vec<Option<Node>>,
    programs: Vec<Option<Program>>,
    /// Of a hundred messages of the state service so many are lost.
    pub(super) loss_percent: u64,
    random: u64,
    /// Messages of the state service: their receivers.
    pub(super) messages: Vec<u8>,
    at_client: VecDeque<Vec<u8>>,
    at_server: VecDeque<Vec<u8>>,
}

fn config(id: u8, setting: &Setting, now: Instant) -> NodeConfig {
    let options =
        Options { connections_max: CONNECTIONS_MAX, has_groups: true, nodes: setting.nodes, ..setting.options };
    let mut config = node_config(id, options);
    let group = |number: u8| role::GroupConfig {
        identity: number.into(),
        priority: if number == id { 200 } else { 100 },
        preempt: true,
    };
    config.role.groups = (0..setting.nodes).map(group).collect();
    for (port, network) in config.forwarding.ports.iter_mut().zip([[10, 1, 0], [198, 51, 100]]) {
        let [a, b, c] = network;
        port.shared.extend((2..setting.nodes).map(|number| forwarding::Shared {
            prefix: forwarding::Prefix::new(std::net::Ipv4Addr::new(a, b, c, 1 + number).into(), 24),
            group: GroupId::at(number.into()),
        }));
    }
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    let are_replicating = |peer: &u8| setting.replicating.contains(peer) && setting.replicating.contains(&id);
    let replicates = |peer: &u8| setting.backups.is_some() || are_replicating(peer);
    config.backups = setting.backups.map(|count| BackupsConfig {
        count,
        edge_nodes: (0..setting.nodes).map(NodeId).collect(),
        edge_hash_key: HashKey([5, 6]),
        edge_affinity: Affinity::Tuple,
    });
    let peer = |peer: u8| PeerConfig {
        id: NodeId(peer),
        detector: failure_detector::Config::default(),
        session: replicates(&peer).then_some(session),
    };
    config.peers = (0..setting.nodes).filter(|peer| *peer != id).map(peer).collect();
    config.security = setting.is_encrypted.then(|| security(1, id, now));
    config.seed += now.as_nanos() << 8;
    config
}

impl Nodes {
    /// All nodes forward and know each other's indexes.
    pub(super) fn start(setting: Setting) -> Self {
        let now = Instant::from_millis(1);
        let mut nodes = Self {
            now,
            setting,
            nodes: (0..setting.nodes).map(|_| None).collect(),
            programs: (0..setting.nodes).map(|_| None).collect(),
            loss_percent: 0,
            random: 1,
            messages: Vec::new(),
            at_client: VecDeque::new(),
            at_server: VecDeque::new(),
        };
        (0..setting.nodes).for_each(|id| nodes.restart(id));
        nodes.until_ready();
        nodes
    }

    pub(super) fn started() -> Self {
        Self::start(Setting::default())
    }

    fn has_service(&self, id: u8) -> bool {
        !self.setting.without_service.contains(&id)
    }

    /// The node starts, and knows nothing.
    pub(super) fn restart(&mut self, id: u8) {
        let mut node = Node::new(config(id, &self.setting, self.now), self.now).unwrap();
        if self.has_service(id) {
            let service = StateServiceConfig { key: [3, 4], limits: self.setting.limits };
            node = node.with_state_service(service, (self.now.as_nanos() >> 4) as u32 + 1).unwrap();
        }
        node.set_lazy(self.now, self.setting.options.lazy).unwrap();
        self.nodes[usize::from(id)] = Some(node);
    }

    pub(super) fn kill(&mut self, id: u8) {
        self.nodes[usize::from(id)] = None;
    }

    pub(super) fn set_fast_path(&mut self, id: u8) {
        let (now, program) = (self.now, Program::default());
        let node = self.node_mut(id);
        node.set_fast_path(now, Box::new(program.clone()));
        node.beat_fast_path(now);
        self.programs[usize::from(id)] = Some(program);
    }

    pub(super) fn program(&self, id: u8) -> &Program {
        self.programs[usize::from(id)].as_ref().expect("there is one")
    }

    fn living(&self) -> impl Iterator<Item = (u8, &Node)> {
        (0..).zip(&self.nodes).filter_map(|(id, node)| Some((id, node.as_ref()?)))
    }

    /// Runs until each living node holds its group, and knows the indexes of all that have one.
    pub(super) fn until_ready(&mut self) {
        let limit = self.now + Duration::from_secs(20);
        loop {
            let with_service = self.living().filter(|(id, _)| self.has_service(*id)).count() as u32;
            let is_ready = self.living().all(|(id, node)| {
                let holds = GroupSet::EMPTY.with(GroupId::at(id.into())).without(node.roles().held()).is_empty();
                let status = node.pipeline().state_service_status();
                let knows = status.is_none_or(|status| status.indexes == with_service - 1);
                holds && (knows || !self.setting.limits.broadcast)
            });
            if is_ready {
                return;
            }
            assert!(self.now < limit, "waited too long for all nodes to be ready");
            self.step();
        }
    }

    pub(super) fn node(&self, id: u8) -> &Node {
        self.nodes[usize::from(id)].as_ref().expect("the node lives")
    }

    pub(super) fn node_mut(&mut self, id: u8) -> &mut Node {
        self.nodes[usize::from(id)].as_mut().expect("the node lives")
    }

    pub(super) fn service(&self, id: u8) -> StateServiceStatus {
        self.node(id).pipeline().state_service_status().expect("it has a state service")
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
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

    /// Carries everything that nodes have to send, until there is nothing more.
    pub(super) fn deliver(&mut self) {
        let mut buffer = Vec::new();
        let mut has_sent = true;
        while has_sent {
            has_sent = false;
            for id in 0..self.setting.nodes {
                let now = self.now;
                let Some(node) = &mut self.nodes[usize::from(id)] else { continue };
                if let Some(transmit) = node.poll_transmit(now, &mut buffer) {
                    has_sent = true;
                    self.carry(id, transmit, &buffer);
                }
            }
        }
    }

    fn is_lost(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % 100 < self.loss_percent
    }

    fn carry(&mut self, from: u8, transmit: Transmit, bytes: &[u8]) {
        let now = self.now;
        match transmit {
            Transmit::Port { port, .. } => self.carry_frame(from, port, bytes),
            Transmit::Detection(to) => {
                if let Some(peer) = &mut self.nodes[usize::from(to.0)] {
                    // A node that has started anew is not known at once.
                    let _ = peer.handle_detection(now, NodeId(from), bytes, 255);
                }
            }
            Transmit::Replication(to) => {
                if is_state_service(bytes) {
                    self.messages.push(to.0);
                    if self.is_lost() {
                        return;
                    }
                }
                if let Some(peer) = &mut self.nodes[usize::from(to.0)] {
                    let result = peer.handle_replication(now, NodeId(from), bytes);
                    assert!(result.is_ok() || self.setting.is_encrypted, "{result:?}");
                    peer.handle_timeout(now);
                }
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
        self.deliver();
        if let Some((egress, bytes)) = sent {
            self.carry_frame(via, egress, &bytes);
        }
    }

    fn host_sends(&mut self, via: u8, port: PortId, make: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let source = if port == INSIDE { CLIENT_MAC } else { SERVER_MAC };
        let envelope = build::Envelope { source, destination: port_mac(via, port), ..build::Envelope::default() };
        self.hand_in(via, port, make(envelope));
    }

    pub(super) fn client_sends(&mut self, via: u8, port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
        self.host_sends(via, INSIDE, |envelope| envelope.tcp(&tuple, segment, payload));
    }

    /// The first fragment of a packet of the client, whose bytes from the transport header on are multiples of 8.
    pub(super) fn client_sends_first_fragment(&mut self, via: u8, tuple: &Tuple, transport: &[u8]) {
        let fragment = Some(FragmentHeader { offset_bytes: 0, more: true, identification: self.now.as_nanos() as u32 });
        self.host_sends(via, INSIDE, |envelope| build::Envelope { fragment, ..envelope }.raw(tuple, transport));
    }

    /// To the translated client.
    pub(super) fn server_sends(&mut self, via: u8, to_port: u16, segment: build::Tcp<'_>, payload: &[u8]) {
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, to_port));
        self.host_sends(via, OUTSIDE, |envelope| envelope.tcp(&tuple, segment, payload));
    }

    pub(super) fn client_sends_udp(&mut self, via: u8, port: u16) {
        let tuple = Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
        self.host_sends(via, INSIDE, |envelope| envelope.udp(&tuple, b"question"));
    }

    pub(super) fn server_sends_udp(&mut self, via: u8, to_port: u16) {
        let tuple = Tuple::v4(ip_protocol::UDP, (SERVER, 53), (SHARED_OUTSIDE, to_port));
        self.host_sends(via, OUTSIDE, |envelope| envelope.udp(&tuple, b"answer"));
    }

    pub(super) fn client_receives(&mut self) -> Option<Received> {
        self.at_client.pop_front().map(Received::new)
    }

    pub(super) fn server_receives(&mut self) -> Option<Received> {
        self.at_server.pop_front().map(Received::new)
    }

    /// The next frame at the server, whatever it is.
    pub(super) fn server_receives_bytes(&mut self) -> Option<Vec<u8>> {
        self.at_server.pop_front()
    }

    /// A handshake by way of one node, whose index is advertised afterwards. Returns the port that the server sees the client under.
    pub(super) fn connect(&mut self, port: u16, via: u8) -> u16 {
        self.client_sends(via, port, syn(), b"");
        let seen = self.server_receives().expect("the SYN passes").tuple.source_port;
        self.server_sends(via, seen, syn_ack(), b"");
        assert_eq!(self.client_receives().expect("the SYN/ACK passes").tuple.destination_port, port);
        self.client_sends(via, port, segment(tcp_flags::ACK, 1001, 5001), b"");
        self.server_receives().expect("the ACK passes");
        self.run(Duration::from_millis(60));
        seen
    }

    /// The client asks by way of one node, under the translation that the connection has. Returns whether that arrives within a time.
    pub(super) fn question_passes(&mut self, via: u8, port: u16, seen: u16) -> bool {
        self.client_sends(via, port, segment(tcp_flags::ACK, 1001, 5001), b"question");
        self.arrives(|nodes| nodes.server_receives().map(|question| question.tuple.source_port), seen)
    }

    /// The server answers by way of one node. Returns whether that arrives within a time.
    pub(super) fn answer_passes(&mut self, via: u8, port: u16, seen: u16) -> bool {
        self.server_sends(via, seen, segment(tcp_flags::ACK, 5001, 1009), b"answer");
        self.arrives(|nodes| nodes.client_receives().map(|answer| answer.tuple.destination_port), port)
    }

    pub(super) fn arrives(&mut self, receive: impl Fn(&mut Self) -> Option<u16>, expected: u16) -> bool {
        for _ in 0..100 {
            if let Some(received) = receive(self) {
                assert_eq!(received, expected, "the translation stays");
                return true;
            }
            self.step();
        }
        false
    }

    /// The record that a node has of the client's TCP connection from `port`.
    pub(super) fn record(&self, id: u8, port: u16) -> Option<&Connection> {
        let pipeline = self.node(id).pipeline();
        let (slot, _) = pipeline.lookup(&Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80)))?;
        pipeline.connection(slot)
    }

    pub(super) fn dropped(&self, id: u8, reason: DropReason) -> u64 {
        self.node(id).pipeline().counters().drops[reason as usize]
    }
}
