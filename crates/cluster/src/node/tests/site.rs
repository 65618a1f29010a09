//! Two nodes of several workers each, between a client and a server, and nothing but vectors between all of them.

use std::collections::VecDeque;
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::{Parsed, build, ethernet, ip_protocol, parse, tcp_flags};
use flow::{Disposition, DropReason, Frame, Instant, NodeId, PacketBatch, PortId, Steering, Tuple, WorkerId};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{DestinationRule, Nat, NatConfig, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;

use super::cluster::{
    CLIENT, CLIENT_MAC, INSIDE, OUTSIDE, Options, ROOM_BYTES, Received, SERVER, SERVER_MAC, SHARED_OUTSIDE, STEP,
    node_config, port_mac, segment, syn, syn_ack,
};
use crate::node::{Node, NodeConfig, NodeEvent, Transmit, WorkerMessage};
use crate::pipeline::Place;

/// The port under which the server reaches the client's service from outside, and the client's own.
pub(super) const FORWARDED: (u16, u16) = (443, 8443);

/// Everything may pass; inside sources are translated, and one outside port is forwarded to the client.
fn chain(node: u8) -> Chain {
    let accept = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: std::vec![accept], ..FirewallConfig::default() }).unwrap();
    let from_inside = Conditions { ingress: std::vec![INSIDE], ..Conditions::default() };
    let forwarded = Conditions {
        destinations: std::vec![core::net::IpAddr::from(SHARED_OUTSIDE).into()],
        protocols: std::vec![ip_protocol::TCP],
        destination_ports: std::vec![PortRange::single(FORWARDED.0)],
        ..Conditions::default()
    };
    let nat = Nat::new(NatConfig {
        destination_rules: std::vec![DestinationRule {
            conditions: forwarded,
            address: CLIENT.into(),
            port: Some(FORWARDED.1),
        }],
        source_rules: std::vec![SourceRule {
            conditions: from_inside,
            action: SourceAction::Translate(std::vec![SHARED_OUTSIDE.into()]),
        }],
        ports: PortRange::new(1024, 65_535).unwrap(),
        node: NodeId(node),
        nodes: 2.try_into().unwrap(),
        key: flow::HashKey([7, node.into()]),
    })
    .unwrap();
    ChainBuilder::new().push(firewall).push(nat).build().unwrap()
}

/// The whole of it. Whatever is sent arrives within the step in which it is sent, but for messages that are held.
pub(super) struct Site {
    pub(super) now: Instant,
    /// The workers of each node; none of a dead one.
    pub(super) nodes: [Vec<Node>; 2],
    /// The worker that every frame arrives at, whatever it belongs to; `None`: the right one.
    pub(super) arrives_at: Option<WorkerId>,
    /// The node that hosts send their packets to, where several are active.
    pub(super) via: Option<u8>,
    /// Messages between workers are kept back while set.
    pub(super) are_messages_held: bool,
    /// Replication datagrams are thrown away while set.
    pub(super) is_replication_down: bool,
    messages: VecDeque<(u8, WorkerId, WorkerId, WorkerMessage)>,
    at_client: VecDeque<Vec<u8>>,
    at_server: VecDeque<Vec<u8>>,
    /// Frames that any worker sent of its own: ARP, mostly.
    pub(super) announcements: usize,
}

impl Site {
    /// Both nodes run with the given numbers of workers; node 0 becomes active.
    pub(super) fn start(workers: [u8; 2], options: Options) -> Self {
        Self::start_with(workers, options, |id, _| chain(id))
    }

    /// As [`Site::start`], with these functions.
    pub(super) fn start_with(workers: [u8; 2], options: Options, chain: fn(u8, Options) -> Chain) -> Self {
        let now = Instant::from_millis(1);
        let node = |id: u8| {
            let steering = Steering::new(workers[usize::from(id)]).unwrap();
            let worker = |worker: u8| {
                let config = node_config(id, options);
                let config = NodeConfig {
                    chain: chain(id, options),
                    seed: config.seed + 100 * u64::from(worker),
                    hash_key: flow::HashKey([id.into(), worker.into()]),
                    ..config
                };
                let mut node = Node::new_worker(config, Place { worker: WorkerId(worker), steering }, now).unwrap();
                node.set_lazy(now, options.lazy).unwrap();
                node
            };
            (0..steering.workers()).map(worker).collect()
        };
        Self {
            now,
            nodes: [node(0), node(1)],
            arrives_at: None,
            via: None,
            are_messages_held: false,
            is_replication_down: false,
            messages: VecDeque::new(),
            at_client: VecDeque::new(),
            at_server: VecDeque::new(),
            announcements: 0,
        }
    }

    /// Node 0 is active, and all workers are synchronised.
    pub(super) fn started(workers: u8) -> Self {
        Self::start([workers; 2], Options::default()).ready()
    }

    /// Once node 0 is active, and all workers are synchronised.
    pub(super) fn ready(mut self) -> Self {
        let site = &mut self;
        site.run_until("both nodes to be ready", |site| {
            let is_synchronised = |node: &Node| {
                let peer = &node.status(site.now).peers[0];
                peer.could_take_over() && peer.session.is_some_and(|session| session.is_synchronised())
            };
            site.lead(0).holds_addresses() && site.nodes.iter().flatten().all(is_synchronised)
        });
        self
    }

    pub(super) fn lead(&self, id: u8) -> &Node {
        &self.nodes[usize::from(id)][0]
    }

    pub(super) fn worker(&self, id: u8, worker: WorkerId) -> &Node {
        &self.nodes[usize::from(id)][worker.index()]
    }

    pub(super) fn kill(&mut self, id: u8) {
        self.nodes[usize::from(id)].clear();
    }

    pub(super) fn run(&mut self, time: Duration) {
        let until = self.now + time;
        while self.now < until {
            self.step();
        }
    }

    pub(super) fn run_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) {
        let limit = self.now + Duration::from_secs(20);
        while !condition(self) {
            assert!(self.now < limit, "waited too long for {what}");
            self.step();
        }
    }

    fn step(&mut self) {
        self.now = self.now + STEP;
        let now = self.now;
        self.nodes.iter_mut().flatten().for_each(|node| node.handle_timeout(now));
        self.deliver();
    }

    /// Carries everything until nothing is left to send.
    pub(super) fn deliver(&mut self) {
        let mut buffer = Vec::new();
        loop {
            let mut is_quiet = true;
            for id in 0..2_u8 {
                for at in 0..self.nodes[usize::from(id)].len() {
                    let node = &mut self.nodes[usize::from(id)][at];
                    let from = node.place().worker;
                    while let Some((to, message)) = node.poll_worker_message() {
                        is_quiet = false;
                        self.messages.push_back((id, from, to, message));
                    }
                    while let Some(mut handed) = self.nodes[usize::from(id)][at].poll_handed_over() {
                        is_quiet = false;
                        let to = handed.to;
                        self.handle(id, to, handed.frame(), Node::handle_handed_over);
                    }
                    if let Some(transmit) = self.nodes[usize::from(id)][at].poll_transmit(self.now, &mut buffer) {
                        is_quiet = false;
                        self.carry(id, from, transmit, &buffer);
                    }
                }
            }
            is_quiet &= !self.deliver_messages();
            if is_quiet {
                return;
            }
        }
    }

    fn deliver_messages(&mut self) -> bool {
        let mut delivered = false;
        while !self.are_messages_held
            && let Some((id, from, to, message)) = self.messages.pop_front()
        {
            let now = self.now;
            if let Some(node) = self.nodes[usize::from(id)].get_mut(to.index()) {
                node.handle_worker_message(now, from, message);
                delivered = true;
            }
        }
        delivered
    }

    fn carry(&mut self, from: u8, worker: WorkerId, transmit: Transmit, bytes: &[u8]) {
        let now = self.now;
        // Workers of the same number exchange datagrams; a worker that the peer does not have sends to none.
        let peer = self.nodes[usize::from(1 - from)].get_mut(worker.index());
        match transmit {
            Transmit::Port { port, .. } => self.carry_frame(from, port, bytes),
            Transmit::Detection(_) => {
                assert_eq!(worker, WorkerId::LEAD, "the lead alone watches peers");
                peer.into_iter().for_each(|peer| peer.handle_detection(now, NodeId(from), bytes, 255).unwrap());
            }
            Transmit::Replication(_) if self.is_replication_down => {}
            // Refusals are in the events.
            Transmit::Replication(_) => {
                peer.into_iter().for_each(|peer| drop(peer.handle_replication(now, NodeId(from), bytes)));
            }
        }
    }

    /// A frame reaches the host on the port's link, which answers ARP and keeps what is for itself.
    fn carry_frame(&mut self, from: u8, port: PortId, bytes: &[u8]) {
        let (host_mac, host_ip) = if port == INSIDE { (CLIENT_MAC, CLIENT) } else { (SERVER_MAC, SERVER) };
        let view = ethernet::EthernetView::new_checked(bytes).unwrap();
        if view.ether_type() == ethernet::ether_type::ARP {
            let arp = ArpView::new_checked(&bytes[14..]).unwrap();
            self.announcements += usize::from(arp.is_gratuitous());
            if arp.operation() == ArpOperation::Request && arp.target_ip() == host_ip {
                let answer = build::arp_reply(host_mac, host_ip, (arp.sender_mac(), arp.sender_ip()));
                self.hand_in(from, port, answer);
            }
        } else if view.destination() == host_mac {
            let queue = if port == INSIDE { &mut self.at_client } else { &mut self.at_server };
            queue.push_back(bytes.to_vec());
        }
    }

    fn handle(
        &mut self,
        id: u8,
        worker: WorkerId,
        mut frame: Frame<'_>,
        handle: fn(&mut Node, Instant, &mut PacketBatch<'_>),
    ) {
        let Some(node) = self.nodes[usize::from(id)].get_mut(worker.index()) else { return };
        frame.disposition = Disposition::Undecided;
        let mut batch = PacketBatch::new();
        batch.push(frame);
        handle(node, self.now, &mut batch);
        // Messages leave before frames do.
        while let Some((to, message)) = node.poll_worker_message() {
            self.messages.push_back((id, worker, to, message));
        }
        let sent = match batch[0].disposition {
            Disposition::Transmit(egress) => Some((egress, batch[0].bytes().to_vec())),
            _ => None,
        };
        if let Some((egress, bytes)) = sent {
            self.carry_frame(id, egress, &bytes);
        }
    }

    /// A frame arrives at a node, at the worker that the kernel would give it to unless the test decides otherwise.
    pub(super) fn hand_in(&mut self, id: u8, port: PortId, mut bytes: Vec<u8>) {
        let length_bytes = bytes.len();
        bytes.resize(length_bytes + ROOM_BYTES, 0);
        let frame = Frame::new(&mut bytes, 0, length_bytes, port).unwrap();
        let Some(first) = self.nodes[usize::from(id)].first() else { return };
        let steered_to = match parse(&frame) {
            Ok(Parsed::Ip(headers)) => first.place().steering.worker_of(&headers),
            _ => WorkerId::LEAD,
        };
        let worker = self.arrives_at.unwrap_or(steered_to);
        self.handle(id, worker, frame, Node::handle_packets);
        self.deliver();
    }

    fn active(&self) -> u8 {
        let holds = |id: &u8| self.nodes[usize::from(*id)].first().is_some_and(Node::holds_addresses);
        self.via.or_else(|| (0..2).find(holds)).expect("a node is active")
    }

    /// A segment of the client's, from `port` to `to` at the server.
    pub(super) fn client_sends(&mut self, port: u16, to: u16, segment: build::Tcp<'_>) {
        let id = self.active();
        let envelope =
            build::Envelope { source: CLIENT_MAC, destination: port_mac(id, INSIDE), ..build::Envelope::default() };
        let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, to));
        self.hand_in(id, INSIDE, envelope.tcp(&tuple, segment, b""));
    }

    /// A segment of the server's, from `port` to `to` at the shared address.
    pub(super) fn server_sends(&mut self, port: u16, to: u16, segment: build::Tcp<'_>) {
        let id = self.active();
        let envelope =
            build::Envelope { source: SERVER_MAC, destination: port_mac(id, OUTSIDE), ..build::Envelope::default() };
        let tuple = Tuple::v4(ip_protocol::TCP, (SERVER, port), (SHARED_OUTSIDE, to));
        self.hand_in(id, OUTSIDE, envelope.tcp(&tuple, segment, b""));
    }

    /// A frame of the client's, which `make` makes of the envelope that it goes in.
    pub(super) fn client_sends_frame(&mut self, make: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let id = self.active();
        let destination = port_mac(id, INSIDE);
        self.hand_in(id, INSIDE, make(build::Envelope { source: CLIENT_MAC, destination, ..Default::default() }));
    }

    /// As [`Site::client_sends_frame`], of the server's.
    pub(super) fn server_sends_frame(&mut self, make: impl Fn(build::Envelope<'_>) -> Vec<u8>) {
        let id = self.active();
        let destination = port_mac(id, OUTSIDE);
        self.hand_in(id, OUTSIDE, make(build::Envelope { source: SERVER_MAC, destination, ..Default::default() }));
    }

    pub(super) fn client_receives(&mut self) -> Option<Received> {
        self.at_client.pop_front().map(Received::new)
    }

    pub(super) fn server_receives(&mut self) -> Option<Received> {
        self.at_server.pop_front().map(Received::new)
    }

    /// The client connects from `port`; returns the port that the server sees it under.
    pub(super) fn connect(&mut self, port: u16) -> u16 {
        self.client_sends(port, 80, syn());
        let seen = self.server_receives().expect("the SYN passes").tuple;
        self.server_sends(80, seen.source_port, syn_ack());
        self.client_receives().expect("the SYN/ACK passes");
        self.client_sends(port, 80, segment(tcp_flags::ACK, 1001, 5001));
        self.server_receives().expect("the ACK passes");
        seen.source_port
    }

    /// Segments pass both ways.
    pub(super) fn exchange(&mut self, port: u16, seen_port: u16) {
        self.client_sends(port, 80, segment(tcp_flags::ACK, 1001, 5001));
        assert_eq!(self.server_receives().expect("a segment passes").tuple.source_port, seen_port);
        self.server_sends(80, seen_port, segment(tcp_flags::ACK, 5001, 1001));
        assert_eq!(self.client_receives().expect("its answer passes").tuple.destination_port, port);
    }

    /// The server connects from `port` to the forwarded port.
    pub(super) fn connect_in(&mut self, port: u16) {
        self.server_sends(port, FORWARDED.0, syn());
        assert_eq!(self.client_receives().expect("the SYN passes").tuple.destination_port, FORWARDED.1);
        self.client_sends(FORWARDED.1, port, syn_ack());
        self.server_receives().expect("the SYN/ACK passes");
        self.exchange_in(port);
    }

    /// Segments pass both ways on a connection from outside.
    pub(super) fn exchange_in(&mut self, port: u16) {
        self.server_sends(port, FORWARDED.0, segment(tcp_flags::ACK, 1001, 5001));
        assert_eq!(self.client_receives().expect("a segment passes").tuple.source_port, port);
        self.client_sends(FORWARDED.1, port, segment(tcp_flags::ACK, 5001, 1001));
        assert_eq!(self.server_receives().expect("its answer passes").tuple.source_port, FORWARDED.0);
    }

    pub(super) fn connections(&self, id: u8) -> Vec<u32> {
        self.nodes[usize::from(id)].iter().map(|node| node.pipeline().table().len()).collect()
    }

    pub(super) fn redirects(&self, id: u8) -> usize {
        self.nodes[usize::from(id)].iter().map(|node| node.pipeline().redirects()).sum()
    }

    pub(super) fn handed_over(&self, id: u8) -> u64 {
        self.nodes[usize::from(id)].iter().map(|node| node.pipeline().shard_counters().handed_over).sum()
    }

    pub(super) fn dropped(&self, id: u8, reason: DropReason) -> u64 {
        self.nodes[usize::from(id)].iter().map(|node| node.pipeline().counters().drops[reason as usize]).sum()
    }

    pub(super) fn events(&mut self, id: u8) -> Vec<NodeEvent> {
        let lead = &mut self.nodes[usize::from(id)][0];
        core::iter::from_fn(|| lead.poll_event()).map(|(_, event)| event).collect()
    }
}

/// Ports of outside clients whose replies come to another worker than their connections lie with, and the latter.
pub(super) fn ports_answered_elsewhere(workers: u8) -> impl Iterator<Item = (u16, WorkerId)> {
    let steering = Steering::new(workers).unwrap();
    (20_000..30_000).filter_map(move |port| {
        let original = Tuple::v4(ip_protocol::TCP, (SERVER, port), (SHARED_OUTSIDE, FORWARDED.0));
        let reply = Tuple::v4(ip_protocol::TCP, (CLIENT, FORWARDED.1), (SERVER, port));
        let worker = steering.worker_of_tuple(&original);
        (steering.worker_of_tuple(&reply) != worker).then_some((port, worker))
    })
}
