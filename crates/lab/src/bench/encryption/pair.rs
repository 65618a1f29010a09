//! Two nodes of this process that replicate over sockets of this machine.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use cluster::node::{Node, NodeConfig, PeerConfig, Transmit};
use cluster::pipeline::Limits;
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::TrackerConfig;
use flow::wire::build::{self, Envelope};
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::rule_set::Conditions;
use packet_io::clock;
use packet_io::udp::{TTL_MAX, UdpOptions, UdpSocket};
use packet_io::usage::thread_cpu_time;
use replication::SessionConfig;
use replication::representation::{Selection, Start};
use replication::secure::{Credentials, PreSharedKey, Rotation, Security, Seed};

use crate::bench::BenchError;

const MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const HOST_MAC: MacAddress = MacAddress([2, 9, 9, 9, 9, 9]);
const SHARED: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 255, 255, 1), Ipv4Addr::new(198, 255, 255, 1)];
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 10), 443);
/// Clients' ports: these and the following.
const PORT_FIRST: u32 = 10_000;
const PORTS: u32 = 1000;
/// How long the nodes may take until they are synchronised.
const READY_WITHIN: Duration = Duration::from_secs(10);

/// The cost of replicating a round's connections.
pub(super) struct Cost {
    /// Processor time of both nodes.
    pub(super) spent: Duration,
    pub(super) messages: u64,
    /// Datagrams of the sending node.
    pub(super) datagrams: u64,
}

struct End {
    node: Node,
    replication: UdpSocket,
    detection: UdpSocket,
}

impl End {
    fn address_of(socket: &UdpSocket) -> Result<SocketAddr, BenchError> {
        Ok(socket.local_address()?)
    }
}

/// The sending and the receiving node.
pub(super) struct Pair {
    ends: [End; 2],
    /// Of each end: where it is reached for replication and failure detection.
    addresses: [[SocketAddr; 2]; 2],
    buffer: Vec<u8>,
    datagram: Vec<u8>,
    begun: u32,
}

impl Pair {
    /// Starts both nodes; they are synchronised, and the first one is active.
    pub(super) fn start(connections_max: u32, is_encrypted: bool) -> Result<Self, BenchError> {
        let now = clock::now();
        let end = |id: u8| -> Result<End, BenchError> {
            let any = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
            let mut node = Node::new(node_config(id, connections_max, is_encrypted), now)
                .map_err(|_| BenchError::NotSynchronised)?;
            // Each SYN is a message.
            node.set_start(now, Start::FirstPacket);
            let replication = UdpSocket::bind(any, &UdpOptions::default())?;
            let detection = UdpSocket::bind(any, &UdpOptions { ttl: Some(TTL_MAX), ..UdpOptions::default() })?;
            Ok(End { node, replication, detection })
        };
        let ends = [end(0)?, end(1)?];
        let both = |end: &End| -> Result<[SocketAddr; 2], BenchError> {
            Ok([End::address_of(&end.replication)?, End::address_of(&end.detection)?])
        };
        let addresses = [both(&ends[0])?, both(&ends[1])?];
        let mut pair = Self { ends, addresses, buffer: Vec::new(), datagram: vec![0; 65_536], begun: 0 };
        pair.wait_until_ready(now + READY_WITHIN)?;
        pair.teach_neighbour();
        Ok(pair)
    }

    fn wait_until_ready(&mut self, deadline: Instant) -> Result<(), BenchError> {
        while clock::now() < deadline {
            self.keep_time();
            self.exchange()?;
            let now = clock::now();
            let is_ready = |end: &End| {
                let status = end.node.status(now);
                status.peers.iter().all(|peer| peer.session.is_some_and(|session| session.is_synchronised()))
            };
            if self.ends.iter().all(is_ready) && self.ends[0].node.holds_addresses() {
                return Ok(());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Err(BenchError::NotSynchronised)
    }

    fn keep_time(&mut self) {
        let now = clock::now();
        for end in &mut self.ends {
            if end.node.poll_timeout().is_some_and(|due| due <= now) {
                end.node.handle_timeout(now);
            }
        }
    }

    /// The server's link address is known, so that the first packets go somewhere.
    fn teach_neighbour(&mut self) {
        let [_, outside] = SHARED;
        let mut frames =
            [build::arp_request(HOST_MAC, SERVER.0, outside), build::arp_reply(HOST_MAC, SERVER.0, (MAC[1], outside))];
        for bytes in &mut frames {
            hand_in(&mut self.ends[0].node, std::slice::from_mut(bytes), PortId(1));
        }
        while self.ends[0].node.poll_frame(clock::now(), &mut self.buffer).is_some() {}
    }

    /// Begins so many connections, `together` of them with each batch of packets, and replicates them to the other
    /// node.
    pub(super) fn replicate(&mut self, connections: u32, together: usize) -> Result<Cost, BenchError> {
        let mut frames: Vec<Vec<u8>> = (self.begun..self.begun + connections).map(syn).collect();
        self.begun += connections;
        let before = self.sent();
        let mut spent = Duration::ZERO;
        for batch in frames.chunks_mut(together) {
            hand_in(&mut self.ends[0].node, batch, PortId(0));
            while self.ends[0].node.poll_frame(clock::now(), &mut self.buffer).is_some() {}
            let began = thread_cpu_time();
            self.exchange()?;
            spent += thread_cpu_time().saturating_sub(began);
            self.keep_time();
        }
        // What was kept back for company, and the last acknowledgements.
        let deadline = clock::now() + READY_WITHIN;
        while self.in_flight() > 0 && clock::now() < deadline {
            let began = thread_cpu_time();
            self.keep_time();
            self.exchange()?;
            spent += thread_cpu_time().saturating_sub(began);
        }
        let there = self.ends[1].node.pipeline().table().len();
        if there != self.begun {
            return Err(BenchError::Connections { there, expected: self.begun });
        }
        let after = self.sent();
        Ok(Cost { spent, messages: after[0] - before[0], datagrams: after[1] - before[1] })
    }

    /// Messages and datagrams that the sending node has sent.
    fn sent(&self) -> [u64; 2] {
        let status = self.ends[0].node.status(clock::now());
        let session = status.peers.first().and_then(|peer| peer.session);
        session.map_or([0, 0], |session| [session.messages_sent, session.datagrams_sent])
    }

    fn in_flight(&self) -> usize {
        let status = self.ends[0].node.status(clock::now());
        let session = status.peers.first().and_then(|peer| peer.session);
        session.map_or(0, |session| usize::from(session.in_flight) + session.queued)
    }

    /// Carries datagrams until neither node has one for the other.
    fn exchange(&mut self) -> Result<(), BenchError> {
        loop {
            let mut is_quiet = true;
            for from in 0..2 {
                let [replication, detection] = self.addresses[1 - from];
                let End { node, replication: own, detection: own_detection } = &mut self.ends[from];
                while let Some(transmit) = node.poll_datagram(clock::now(), &mut self.buffer) {
                    is_quiet = false;
                    match transmit {
                        Transmit::Replication(_) => own.send_to(&self.buffer, replication)?,
                        Transmit::Detection(_) => own_detection.send_to(&self.buffer, detection)?,
                        Transmit::Port { .. } => continue,
                    };
                }
                self.receive(1 - from)?;
            }
            if is_quiet {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, at: usize) -> Result<(), BenchError> {
        let peer = NodeId(1 - at as u8);
        let End { node, replication, detection } = &mut self.ends[at];
        while let Some(received) = replication.receive(&mut self.datagram)? {
            // What the nodes make of it shows in what they know.
            let _ = node.handle_replication(clock::now(), peer, &self.datagram[..received.length_bytes]);
        }
        while let Some(received) = detection.receive(&mut self.datagram)? {
            let packet = &self.datagram[..received.length_bytes];
            let _ = node.handle_detection(clock::now(), peer, packet, received.ttl.unwrap_or(0));
        }
        Ok(())
    }
}

fn hand_in(node: &mut Node, frames: &mut [Vec<u8>], port: PortId) {
    let mut batch = PacketBatch::new();
    for bytes in frames {
        let length_bytes = bytes.len();
        batch.extend(Frame::new(bytes, 0, length_bytes, port));
    }
    node.handle_packets(clock::now(), &mut batch);
}

/// The packet that begins the connection with this number.
fn syn(number: u32) -> Vec<u8> {
    let envelope = Envelope { destination: MAC[0], ..Envelope::default() };
    let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 2).to_bits() + number / PORTS);
    let client = (address, (PORT_FIRST + number % PORTS) as u16);
    let segment = build::Tcp { flags: tcp_flags::SYN, ..build::Tcp::default() };
    envelope.tcp(&Tuple::v4(ip_protocol::TCP, client, SERVER), segment, b"")
}

fn chain() -> Chain {
    let rule = Rule { name: "all".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let firewall = Firewall::new(FirewallConfig { rules: vec![rule], ..FirewallConfig::default() });
    ChainBuilder::new().push(firewall.expect("the rule is right")).build().expect("one function fits")
}

fn node_config(id: u8, connections_max: u32, is_encrypted: bool) -> NodeConfig {
    let port = |index: usize| forwarding::Port {
        mac: MAC[index],
        mtu_bytes: 1500,
        own: vec![],
        shared: vec![forwarding::Prefix::new(SHARED[index].into(), 8).into()],
        mss_clamp: None,
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    let security = || Security {
        credentials: Arc::new(Credentials::new(vec![PreSharedKey::new([7; 32])], None).expect("there is a key")),
        // Not while it is measured: what an exchange costs is measured by itself.
        rotation: Rotation { interval: Duration::from_secs(86_400), datagrams: u64::MAX },
        seed: Seed::new([id + 1; 32]),
        unix_time: Duration::from_secs(1_800_000_000),
    };
    NodeConfig {
        node: NodeId(id),
        connections_max,
        limits: Limits::default(),
        hash_key: HashKey([1, id.into()]),
        seed: 1000 + u64::from(id),
        tracker: TrackerConfig::default(),
        chain: chain(),
        forwarding: forwarding::Config {
            ports: vec![port(0), port(1)],
            routes: vec![],
            direct_return: vec![],
            seed: 1,
        },
        role: role::Config { priority: 200 - id, preempt: true, ..role::Config::new(NodeId(id), vec![]) },
        selection: Selection::default(),
        hold_first_reply: Duration::ZERO,
        peers: vec![PeerConfig {
            id: NodeId(1 - id),
            detector: failure_detector::Config::default(),
            session: Some(SessionConfig { peer_timeout: Duration::from_secs(600), ..SessionConfig::default() }),
        }],
        sharing: None,
        compact: None,
        backups: None,
        security: is_encrypted.then(security),
    }
}
