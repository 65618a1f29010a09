//! Several nodes between two edges that distribute the packets of a client and of a server to them.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use std::vec::Vec;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::{build, ethernet, ip_protocol, tcp_flags};
use flow::{Affinity, Disposition, Ecmp, Frame, HashKey, Instant, NodeId, NodeSet, PacketBatch, PortId, Tuple};
use network_functions::chain::ChainBuilder;
use network_functions::nat::{Nat, NatConfig, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use replication::{SessionConfig, deferral};

use super::super::cluster::{
    CLIENT, CLIENT_MAC, INSIDE, OUTSIDE, Options, ROOM_BYTES, Received, SERVER, SERVER_MAC, SHARED_OUTSIDE, firewall,
    node_config, port_mac, rules, segment, syn, syn_ack,
};
use crate::group::GroupId;
use crate::node::{BackupsConfig, BackupsShape, Node, NodeConfig, PeerConfig, Reconfiguration, Reevaluation, Transmit};
use crate::pipeline::{SharingConfig, WAIT_FOR_PEER_DEFAULT};
use crate::{failure_detector, forwarding, role};

const STEP: Duration = Duration::from_millis(2);
const CONNECTIONS_MAX: u32 = 2048;

/// What the tests vary.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) nodes: u8,
    /// The nodes that are peers of each other.
    pub(super) members: NodeSet,
    /// The nodes that the edges distribute packets to.
    pub(super) edge_nodes: NodeSet,
    /// Backups of a connection; `None`: all peers.
    pub(super) count: Option<usize>,
    /// The client appears under the shared address outside, so that the edges have different hashes.
    pub(super) is_translated: bool,
    pub(super) affinity: Affinity,
    pub(super) hold_first_reply: Duration,
    /// Deferral of connections, of which both directions then come to one node.
    pub(super) lazy: Option<deferral::Config>,
    /// The edges' hash key comes from it.
    pub(super) seed: u64,
    /// The nodes' hash key of the edges comes from it.
    pub(super) seed_of_nodes: u64,
}

impl Setup {
    pub(super) fn new(nodes: u8, count: usize) -> Self {
        let numbers: NodeSet = (0..nodes).map(NodeId).collect();
        Self {
            nodes,
            members: numbers,
            edge_nodes: numbers,
            count: Some(count),
            is_translated: false,
            affinity: Affinity::Learned,
            hold_first_reply: Duration::ZERO,
            lazy: None,
            seed: 1,
            seed_of_nodes: 1,
        }
    }

    fn hash_key(seed: u64) -> HashKey {
        HashKey([seed, 77])
    }
}

/// An edge: which node it sends packets to.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) ecmp: Ecmp,
    setup: Setup,
    /// By the ports of the packets that enter.
    learned: BTreeMap<(u16, u16), NodeId>,
}

impl Side {
    fn new(setup: Setup) -> Self {
        Self { ecmp: Ecmp::new(setup.edge_nodes), setup, learned: BTreeMap::new() }
    }

    /// The node for a packet that enters the cluster here.
    pub(super) fn select(&self, entering: &Tuple) -> u8 {
        let learned = self.learned.get(&(entering.source_port, entering.destination_port)).copied();
        let learned = learned.filter(|node| self.ecmp.alive().contains(*node));
        let hash = self.setup.affinity.hash(&Setup::hash_key(self.setup.seed), entering);
        learned.or_else(|| self.ecmp.select(hash)).expect("a node is alive").0
    }

    /// A packet has left the cluster here.
    fn learn(&mut self, leaving: &Tuple, from: u8) {
        let ports = (leaving.destination_port, leaving.source_port);
        let alive = self.ecmp.alive();
        let is_known = self.learned.get(&ports).is_some_and(|node| alive.contains(*node));
        if self.setup.affinity == Affinity::Learned && !is_known {
            self.learned.insert(ports, NodeId(from));
        }
    }
}

/// A connection, as its packets enter the cluster on either side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) original: Tuple,
    pub(super) reply: Tuple,
}

/// The whole of it. Datagrams arrive at once; packets of hosts leave a node after its datagrams.
pub(super) struct Many {
    pub(super) now: Instant,
    pub(super) setup: Setup,
    pub(super) nodes: Vec<Option<Node>>,
    pub(super) inside: Side,
    pub(super) outside: Side,
    /// Nodes between which, in this direction, replication datagrams are lost.
    pub(super) lossy: Vec<(u8, u8)>,
    received: VecDeque<(PortId, Received)>,
}

fn chain(id: u8, setup: Setup) -> ChainBuilder {
    let sources = std::vec!["10.1.0.0/24".parse().unwrap()];
    let rule = SourceRule {
        conditions: Conditions { sources, ..Conditions::default() },
        action: SourceAction::Translate(std::vec![SHARED_OUTSIDE.into()]),
    };
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: std::vec![rule],
        ports: PortRange::new(1024, 65_535).unwrap(),
        node: NodeId(id),
        nodes: setup.nodes.try_into().unwrap(),
        key: HashKey([7, id.into()]),
    });
    let builder = ChainBuilder::new().push(firewall(rules(None)));
    if setup.is_translated { builder.push(nat.unwrap()) } else { builder }
}

/// Each node is to hold a group of its own.
pub(super) fn config(id: u8, setup: Setup) -> NodeConfig {
    let base = node_config(id.min(1), Options { connections_max: CONNECTIONS_MAX, ..Options::default() });
    let groups = (0..setup.nodes).map(|group| role::GroupConfig {
        identity: group.into(),
        priority: if group == id { 200 } else { 100 + (id + group) % setup.nodes },
        preempt: true,
    });
    let port = |port: PortId, network: [u8; 3]| {
        let shared = |group: u8| forwarding::Shared {
            prefix: forwarding::Prefix::new([network[0], network[1], network[2], 1 + group].into(), 24),
            group: GroupId(group),
        };
        let shared = (0..setup.nodes).map(shared).collect();
        forwarding::Port {
            mac: port_mac(id, port),
            mtu_bytes: 1500,
            own: Vec::new(),
            shared,
            mss_clamp: None,
            reverse_path: forwarding::ReversePath::default(),
            router_advertisements: None,
        }
    };
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    let peers = setup.members.iter().filter(|peer| *peer != NodeId(id)).map(|peer| PeerConfig {
        id: peer,
        detector: failure_detector::Config::default(),
        session: Some(session),
    });
    NodeConfig {
        node: NodeId(id),
        hash_key: HashKey([1, id.into()]),
        seed: 1000 + u64::from(id),
        chain: chain(id, setup).build().unwrap(),
        forwarding: forwarding::Config {
            ports: std::vec![port(INSIDE, [10, 1, 0]), port(OUTSIDE, [198, 51, 100])],
            ..base.forwarding
        },
        role: role::Config { groups: groups.collect(), ..role::Config::new(NodeId(id), Vec::new()) },
        hold_first_reply: setup.hold_first_reply,
        sharing: Some(SharingConfig { is_symmetric: setup.lazy.is_some(), ..SharingConfig::default() }),
        backups: setup.count.map(|count| BackupsConfig {
            count,
            edge_nodes: setup.edge_nodes,
            edge_hash_key: Setup::hash_key(setup.seed_of_nodes),
            edge_affinity: setup.affinity,
        }),
        peers: peers.collect(),
        ..base
    }
}

/// A node that has just started.
fn started(id: u8, setup: Setup, now: Instant) -> Node {
    let mut node = Node::new(config(id, setup), now).unwrap();
    node.set_lazy(now, setup.lazy).unwrap();
    node
}

/// What of a node's configuration can change while it works.
pub(super) fn reconfiguration(id: u8, setup: Setup, node: &Node, now: Instant) -> Reconfiguration {
    let config = config(id, setup);
    let backups = config.backups.map(|backups| BackupsShape { count: backups.count, edge_nodes: backups.edge_nodes });
    Reconfiguration {
        tracker: config.tracker,
        chain: chain(id, setup).build_within(node.pipeline().chain().layout()).unwrap(),
        reevaluation: Reevaluation::AsBefore,
        translates_otherwise: false,
        forwarding: config.forwarding,
        role: config.role,
        selection: config.selection,
        hold_first_reply: config.hold_first_reply,
        wait_for_peer: WAIT_FOR_PEER_DEFAULT,
        peers: config.peers,
        backups,
        security: None,
        seed: now.as_nanos(),
    }
}

/// Running the nodes.
impl Many {
    /// All nodes forward, and are synchronised.
    pub(super) fn start(setup: Setup) -> Self {
        Self::start_without(setup, NodeSet::EMPTY)
    }

    /// As [`Many::start`], but for some nodes that have never been there.
    pub(super) fn start_without(setup: Setup, absent: NodeSet) -> Self {
        let now = Instant::from_millis(1);
        let node = |id| (!absent.contains(NodeId(id))).then(|| started(id, setup, now));
        let mut many = Self {
            now,
            setup,
            nodes: (0..setup.nodes).map(node).collect(),
            inside: Side::new(setup),
            outside: Side::new(setup),
            lossy: Vec::new(),
            received: VecDeque::new(),
        };
        for node in absent.iter() {
            many.inside.ecmp.set_alive(node, false);
            many.outside.ecmp.set_alive(node, false);
        }
        many.run_until_ready();
        many
    }

    /// Every node holds its group and is synchronised with all others that live, and every edge sends packets to it.
    pub(super) fn run_until_ready(&mut self) {
        self.run_until("all nodes to hold their groups", |many| {
            many.living().all(|id| many.holds_own(id) && many.node(id).status(many.now).synchronised)
        });
        for id in self.living().collect::<Vec<_>>() {
            self.inside.ecmp.set_alive(NodeId(id), true);
            self.outside.ecmp.set_alive(NodeId(id), true);
        }
        // Sets settle within two sweeps.
        self.run(Duration::from_secs(3));
    }

    pub(super) fn node(&self, id: u8) -> &Node {
        self.nodes[usize::from(id)].as_ref().expect("the node lives")
    }

    pub(super) fn living(&self) -> impl Iterator<Item = u8> {
        (0..self.setup.nodes).filter(|id| self.nodes[usize::from(*id)].is_some())
    }

    pub(super) fn kill(&mut self, id: u8) {
        self.nodes[usize::from(id)] = None;
        self.take_out(id);
    }

    /// The node ends in good order, as by `SIGTERM`: how long that took.
    pub(super) fn stop(&mut self, id: u8) -> Duration {
        let began = self.now;
        self.nodes[usize::from(id)].as_mut().expect("it lives").leave(began);
        self.run_until("the node to have left", |many| {
            // Edges send it packets until it forwards none.
            many.node(id).has_left()
        });
        self.kill(id);
        self.now.saturating_since(began)
    }

    /// The edges send no packets to the node.
    pub(super) fn take_out(&mut self, id: u8) {
        self.inside.ecmp.set_alive(NodeId(id), false);
        self.outside.ecmp.set_alive(NodeId(id), false);
    }

    /// The node has these peers from now on, whatever the other nodes have.
    pub(super) fn set_members_of(&mut self, id: u8, members: NodeSet) {
        let (now, setup) = (self.now, Setup { members, ..self.setup });
        let node = self.nodes[usize::from(id)].as_mut().expect("it lives");
        let new = reconfiguration(id, setup, node, now);
        node.reload(now, new).expect("it can be taken");
    }

    /// The node starts again and knows nothing. Edges send it packets once it holds its group: see [`Many::run_until_ready`].
    pub(super) fn restart(&mut self, id: u8) {
        let config = NodeConfig { seed: self.now.as_nanos(), ..config(id, self.setup) };
        self.nodes[usize::from(id)] = Some(Node::new(config, self.now).unwrap());
    }

    /// Nodes that live reload, and the edges have other nodes. What the edges have learned stays.
    pub(super) fn change(&mut self, setup: Setup) {
        self.setup = setup;
        for side in [&mut self.inside, &mut self.outside] {
            let alive = side.ecmp.alive();
            (side.ecmp, side.setup) = (Ecmp::new(setup.edge_nodes), setup);
            for node in setup.edge_nodes.without(alive).iter() {
                side.ecmp.set_alive(node, false);
            }
        }
        let now = self.now;
        for (id, node) in (0..).zip(&mut self.nodes) {
            let Some(node) = node else { continue };
            let new = reconfiguration(id, setup, node, now);
            node.reload(now, new).expect("it can be taken");
        }
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

    fn deliver(&mut self) {
        let mut buffer = Vec::new();
        loop {
            let mut is_quiet = true;
            for id in 0..self.setup.nodes {
                while let Some(node) = &mut self.nodes[usize::from(id)]
                    && let Some(transmit) = node.poll_transmit(self.now, &mut buffer)
                {
                    is_quiet = false;
                    self.carry(id, transmit, &buffer);
                }
            }
            if is_quiet {
                return;
            }
        }
    }

    fn carry(&mut self, from: u8, transmit: Transmit, bytes: &[u8]) {
        let now = self.now;
        match transmit {
            Transmit::Port { port, .. } => self.carry_frame(from, port, bytes),
            // What a node sent to the one before it that was started anew is refused.
            Transmit::Detection(to) => {
                let peer = self.nodes[usize::from(to.0)].as_mut();
                peer.into_iter().for_each(|peer| drop(peer.handle_detection(now, NodeId(from), bytes, 255)));
            }
            Transmit::Replication(to) if self.lossy.contains(&(from, to.0)) && !role::is_heartbeat(bytes) => {}
            Transmit::Replication(to) => {
                let Some(peer) = &mut self.nodes[usize::from(to.0)] else { return };
                // As above.
                drop(peer.handle_replication(now, NodeId(from), bytes));
                peer.handle_timeout(now);
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
                self.hand_to(from, port, answer);
            }
        } else if view.destination() == host_mac {
            let received = Received::new(bytes.to_vec());
            let side = if port == INSIDE { &mut self.inside } else { &mut self.outside };
            side.learn(&received.tuple, from);
            self.received.push_back((port, received));
        }
    }

    fn hand_to(&mut self, id: u8, port: PortId, mut bytes: Vec<u8>) {
        let length_bytes = bytes.len();
        bytes.resize(length_bytes + ROOM_BYTES, 0);
        let Some(node) = &mut self.nodes[usize::from(id)] else { return };
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(&mut bytes, 0, length_bytes, port).unwrap());
        node.handle_packets(self.now, &mut batch);
        let sent = match batch[0].disposition {
            Disposition::Transmit(egress) => Some((egress, batch[0].bytes().to_vec())),
            _ => None,
        };
        self.deliver();
        if let Some((egress, bytes)) = sent {
            self.carry_frame(id, egress, &bytes);
        }
        self.deliver();
    }
}

/// What hosts do.
impl Many {
    /// A segment enters on the side of `port`. The tuple with which it reaches the other host, if it does.
    fn send(&mut self, port: PortId, entering: &Tuple, segment: build::Tcp<'_>) -> Option<Tuple> {
        let (side, source) = if port == INSIDE { (&self.inside, CLIENT_MAC) } else { (&self.outside, SERVER_MAC) };
        let node = side.select(entering);
        let envelope = build::Envelope { source, destination: port_mac(node, port), ..build::Envelope::default() };
        self.received.clear();
        self.hand_to(node, port, envelope.tcp(entering, segment, b""));
        let far = if port == INSIDE { OUTSIDE } else { INSIDE };
        let mut arrived = self.received.drain(..).filter(|(at, _)| *at == far);
        arrived.next().map(|(_, received)| received.tuple)
    }

    /// The client begins a connection from a port.
    pub(super) fn begin(&mut self, port: u16) -> Flow {
        let original = Tuple::v4(ip_protocol::TCP, (CLIENT, port), (SERVER, 80));
        let seen = self.send(INSIDE, &original, syn()).expect("the SYN passes");
        Flow { original, reply: seen.inverse() }
    }

    /// The server's first answer, if it reaches the client at once.
    pub(super) fn answer(&mut self, flow: &Flow) -> Option<Tuple> {
        self.send(OUTSIDE, &flow.reply, syn_ack())
    }

    pub(super) fn connect(&mut self, port: u16) -> Flow {
        let flow = self.begin(port);
        self.answer(&flow).expect("the SYN/ACK passes");
        assert!(self.client_sends(&flow), "the ACK passes");
        flow
    }

    /// A segment of the client passes.
    pub(super) fn client_sends(&mut self, flow: &Flow) -> bool {
        self.send(INSIDE, &flow.original, segment(tcp_flags::ACK, 1001, 5001)).is_some()
    }

    /// A segment of the server passes.
    pub(super) fn server_sends(&mut self, flow: &Flow) -> bool {
        let seen = self.send(OUTSIDE, &flow.reply, segment(tcp_flags::ACK, 5001, 1001));
        seen == Some(flow.original.inverse())
    }

    /// Segments pass in both directions; the client's first, or the server's.
    pub(super) fn exchange(&mut self, flow: &Flow, client_first: bool) -> bool {
        [client_first, !client_first]
            .into_iter()
            .all(|is_client| if is_client { self.client_sends(flow) } else { self.server_sends(flow) })
    }
}

/// Where connections are.
impl Many {
    /// The nodes that have the connection.
    pub(super) fn nodes_with(&self, flow: &Flow) -> NodeSet {
        let has_it = |id: &u8| self.node(*id).pipeline().lookup(&flow.original).is_some();
        self.living().filter(has_it).map(NodeId).collect()
    }

    /// The nodes that own the connection, as they know it.
    pub(super) fn owners(&self, flow: &Flow) -> NodeSet {
        let owns = |id: &u8| {
            let pipeline = self.node(*id).pipeline();
            let connection = pipeline.lookup(&flow.original).and_then(|(slot, _)| pipeline.connection(slot));
            connection.is_some_and(|connection| connection.owner == NodeId(*id))
        };
        self.living().filter(owns).map(NodeId).collect()
    }

    pub(super) fn fill(&self, id: u8) -> u32 {
        self.node(id).pipeline().table().len()
    }

    /// Numbered replication messages that all nodes have sent, to all peers or to one.
    pub(super) fn messages_sent(&self, to: Option<u8>) -> u64 {
        let peers = self.living().flat_map(|id| self.node(id).status(self.now).peers);
        let meant = peers.filter(|peer| to.is_none_or(|to| peer.id == NodeId(to)));
        meant.filter_map(|peer| peer.session).map(|session| session.messages_sent).sum()
    }

    /// The node holds its own group.
    pub(super) fn holds_own(&self, id: u8) -> bool {
        self.node(id).roles().held().contains(GroupId(id))
    }
}
