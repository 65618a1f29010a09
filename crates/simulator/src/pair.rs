//! Two nodes in memory, for trying a network function: one is active, and can be killed.
//!
//! ```text
//!   client 10.1.0.10 ── inside ┐             ┌ outside ── server 198.51.100.10
//!                              ├─ node 0 ────┤
//!                              └─ node 1 ────┘
//! ```
//!
//! The nodes are those of the daemon. Frames and datagrams arrive at once, and nothing is lost. A simulated clock advances by a
//! millisecond for each step.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::time::Duration;

use cluster::node::{ConfigError, Node, NodeConfig, NodeError, PeerConfig, Transmit};
use cluster::pipeline::Limits;
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::TrackerConfig;
use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::build::{self, Envelope};
use flow::wire::{MacAddress, ethernet, ip_protocol};
use flow::{Direction, Disposition, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::Chain;
use replication::SessionConfig;
use replication::representation::Selection;

const STEP: Duration = Duration::from_millis(1);
/// Steps after a packet, in which its changes are replicated.
const STEPS_PER_PACKET: usize = 5;
/// Simulated time within which the nodes must reach a state.
const PATIENCE: Duration = Duration::from_secs(20);
const PREFIX_BITS: u8 = 24;
const CONNECTIONS_MAX: u32 = 1024;
/// The server's port.
const SERVICE: u16 = 9000;

/// A host, and the nodes' port on its link.
struct Host {
    port: PortId,
    address: Ipv4Addr,
    /// The nodes' shared address on its link.
    gateway: Ipv4Addr,
    mac: MacAddress,
}

const CLIENT: Host = Host {
    port: PortId(0),
    address: Ipv4Addr::new(10, 1, 0, 10),
    gateway: Ipv4Addr::new(10, 1, 0, 1),
    mac: MacAddress([2, 0, 0, 0, 0, 0xc]),
};
const SERVER: Host = Host {
    port: PortId(1),
    address: Ipv4Addr::new(198, 51, 100, 10),
    gateway: Ipv4Addr::new(198, 51, 100, 1),
    mac: MacAddress([2, 0, 0, 0, 0, 0x5]),
};

/// Why nodes do not run.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// The configuration of a node is refused.
    #[error("node {0} cannot be made: {1}")]
    Node(usize, ConfigError),
    /// A node refused what its peer sent.
    #[error("node {0} refused a datagram of its peer: {1}")]
    Peer(usize, NodeError),
    /// The nodes did not get where they should.
    #[error("the nodes did not reach this state in {PATIENCE:?}: {0}")]
    Stuck(&'static str),
}

/// Two nodes, a client and a server.
pub struct Pair {
    now: Instant,
    nodes: [Option<Node>; 2],
    /// Frames that hosts received and that are not answers to neighbour requests.
    received: VecDeque<(PortId, Vec<u8>)>,
    /// Frames of hosts and nodes to the hosts' links.
    waiting: VecDeque<(PortId, Vec<u8>)>,
}

impl Pair {
    /// Starts two nodes with these chains, which have the same functions. Returns when one is active and the other has its connections.
    ///
    /// # Errors
    /// [`PairError`].
    pub fn start(chains: [Chain; 2]) -> Result<Self, PairError> {
        let now = Instant::from_millis(1);
        let mut number = 0;
        let nodes = chains.map(|chain| {
            let node = Node::new(config(number, chain), now).map_err(|error| PairError::Node(number.into(), error));
            number += 1;
            node
        });
        let [first, second] = nodes;
        let nodes = [Some(first?), Some(second?)];
        let mut pair = Self { now, nodes, received: VecDeque::new(), waiting: VecDeque::new() };
        pair.run_until("one is active, and the other has its connections", |pair| {
            let is_settled = |node: &Node| {
                let session = node.status(pair.now).peers[0].session;
                session.is_some_and(|session| session.is_synchronised() && session.in_flight == 0)
            };
            pair.active().is_some() && pair.nodes.iter().flatten().all(is_settled)
        })?;
        Ok(pair)
    }

    /// The number of the active node.
    #[must_use]
    pub fn active(&self) -> Option<usize> {
        self.nodes.iter().position(|node| node.as_ref().is_some_and(Node::holds_addresses))
    }

    /// Sends a datagram of the connection of the client's `port`, with this payload: from the client ([`Direction::Original`]) or to it.
    /// True if it arrives.
    ///
    /// # Errors
    /// A node refuses what its peer sends.
    pub fn send(&mut self, port: u16, direction: Direction, payload: &[u8]) -> Result<bool, PairError> {
        let (from, to) = if direction == Direction::Original { (CLIENT, SERVER) } else { (SERVER, CLIENT) };
        let of_host = |host: &Host| (host.address, if host.port == CLIENT.port { port } else { SERVICE });
        let tuple = Tuple::v4(ip_protocol::UDP, of_host(&from), of_host(&to));
        let destination = self.active().map_or(MacAddress([0xff; 6]), |node| node_mac(node as u8, from.port));
        let frame = Envelope { source: from.mac, destination, ..Envelope::default() }.udp(&tuple, payload);
        self.received.clear();
        self.waiting.push_back((from.port, frame));
        for _ in 0..STEPS_PER_PACKET {
            self.step()?;
        }
        Ok(self.received.iter().any(|(port, frame)| *port == to.port && frame.ends_with(payload)))
    }

    /// Kills the active node, and runs its peer until that is active.
    ///
    /// # Errors
    /// The other node does not become active.
    pub fn kill_active(&mut self) -> Result<(), PairError> {
        if let Some(active) = self.active() {
            self.nodes[active] = None;
        }
        self.run_until("the other node is active", |pair| pair.active().is_some())
    }

    fn run_until(&mut self, what: &'static str, condition: impl Fn(&Self) -> bool) -> Result<(), PairError> {
        let until = self.now + PATIENCE;
        while !condition(self) {
            if self.now >= until {
                return Err(PairError::Stuck(what));
            }
            self.step()?;
        }
        Ok(())
    }

    fn step(&mut self) -> Result<(), PairError> {
        self.now = self.now + STEP;
        self.nodes.iter_mut().flatten().for_each(|node| node.handle_timeout(self.now));
        let mut buffer = Vec::new();
        loop {
            let mut is_quiet = true;
            for from in 0..2 {
                while let Some(transmit) =
                    self.nodes[from].as_mut().and_then(|node| node.poll_transmit(self.now, &mut buffer))
                {
                    is_quiet = false;
                    self.carry(from, transmit, &buffer)?;
                }
            }
            while let Some((port, frame)) = self.waiting.pop_front() {
                is_quiet = false;
                self.deliver(port, &frame);
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    /// What a node sends reaches its peer, or the link of a port.
    fn carry(&mut self, from: usize, transmit: Transmit, bytes: &[u8]) -> Result<(), PairError> {
        let (now, sender, to) = (self.now, NodeId(from as u8), 1 - from);
        if let Transmit::Port { port, .. } = transmit {
            self.waiting.push_back((port, bytes.to_vec()));
            return Ok(());
        }
        let Some(peer) = &mut self.nodes[to] else { return Ok(()) };
        let result = match transmit {
            Transmit::Detection(_) => peer.handle_detection(now, sender, bytes, 255),
            _ => peer.handle_replication(now, sender, bytes),
        };
        peer.handle_timeout(now);
        result.map_err(|error| PairError::Peer(to, error))
    }

    /// A frame on a link reaches the host and all nodes that it is for.
    fn deliver(&mut self, port: PortId, bytes: &[u8]) {
        let host = if port == CLIENT.port { &CLIENT } else { &SERVER };
        let Ok(view) = ethernet::EthernetView::new_checked(bytes) else { return };
        let is_arp = view.ether_type() == ethernet::ether_type::ARP;
        if is_arp && let Some(answer) = host.answer(bytes) {
            self.waiting.push_back((port, answer));
        } else if !is_arp && view.destination() == host.mac {
            self.received.push_back((port, bytes.to_vec()));
        }
        for number in 0..2 {
            let Some(node) = self.nodes[number].as_mut() else { continue };
            let own = node_mac(number as u8, port);
            if view.source() == own || !(view.destination() == own || view.destination().is_group()) {
                continue;
            }
            let (mut bytes, mut batch) = (bytes.to_vec(), PacketBatch::new());
            let length_bytes = bytes.len();
            batch.extend(Frame::new(&mut bytes, 0, length_bytes, port));
            node.handle_packets(self.now, &mut batch);
            for frame in &batch {
                if let Disposition::Transmit(egress) = frame.disposition {
                    self.waiting.push_back((egress, frame.bytes().to_vec()));
                }
            }
        }
    }
}

impl Host {
    /// The answer to a neighbour request for the host.
    fn answer(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let arp = ArpView::new_checked(bytes.get(14..)?).ok()?;
        let is_for_host = arp.operation() == ArpOperation::Request && arp.target_ip() == self.address;
        is_for_host.then(|| build::arp_reply(self.mac, self.address, (arp.sender_mac(), arp.sender_ip())))
    }
}

const fn node_mac(node: u8, port: PortId) -> MacAddress {
    MacAddress([2, 0, 0, 1, node, port.0])
}

fn config(number: u8, chain: Chain) -> NodeConfig {
    let port = |host: &Host| forwarding::Port {
        mac: node_mac(number, host.port),
        mtu_bytes: 1500,
        own: Vec::new(),
        shared: vec![forwarding::Prefix::new(host.gateway.into(), PREFIX_BITS).into()],
        mss_clamp: None,
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    let id = NodeId(number);
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    NodeConfig {
        node: id,
        connections_max: CONNECTIONS_MAX,
        limits: Limits::default(),
        hash_key: HashKey([1, number.into()]),
        seed: 1000 + u64::from(number),
        tracker: TrackerConfig::default(),
        chain,
        forwarding: forwarding::Config {
            ports: vec![port(&CLIENT), port(&SERVER)],
            routes: Vec::new(),
            direct_return: Vec::new(),
            seed: 3,
        },
        role: role::Config { priority: 200 - number, ..role::Config::new(id, Vec::new()) },
        selection: Selection::default(),
        hold_first_reply: Duration::ZERO,
        sharing: None,
        compact: None,
        backups: None,
        peers: vec![PeerConfig {
            id: NodeId(1 - number),
            detector: failure_detector::Config::default(),
            session: Some(session),
        }],
        security: None,
    }
}

#[cfg(test)]
mod tests {
    use network_functions::chain::ChainBuilder;

    use super::*;

    #[test]
    fn a_connection_goes_on_at_the_other_node() {
        let chain = || ChainBuilder::new().build().unwrap();
        let mut pair = Pair::start([chain(), chain()]).unwrap();
        let first = pair.active().unwrap();
        assert!(pair.send(4000, Direction::Original, b"there").unwrap());
        assert!(pair.send(4000, Direction::Reply, b"and back").unwrap());
        pair.kill_active().unwrap();
        assert_eq!(pair.active(), Some(1 - first));
        assert!(pair.send(4000, Direction::Reply, b"still").unwrap());
        pair.kill_active().unwrap_err();
        assert!(!pair.send(4000, Direction::Original, b"no node is left").unwrap());
    }
}
