//! What a packet costs on its whole way through pipeline and forwarder, and a connection that begins and is refused:
//! `cargo run --release -p cluster --example packet_cost`.
//!
//! Nanoseconds depend on the machine and on who else uses it, instructions on neither:
//!
//! ```text
//! valgrind --tool=callgrind --collect-atstart=no --toggle-collect='*measured_packets*' target/release/examples/packet_cost
//! ```
//!
//! counts those of [`PACKETS`] packets of established connections, with `*measured_new_connections*` those of [`NEW_CONNECTIONS`]
//! connections: a SYN, and the RST that refuses it.
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::Instant as Clock;

use cluster::forwarding::{Admission, Config, Forwarder, PlannedLink, Port, Prefix, ReversePath, Route};
use cluster::pipeline::{Edge, Pipeline, ReplicaExpiry};
use flow::conntrack::{Tracker, TrackerConfig};
use flow::wire::build::{self, Envelope};
use flow::wire::{MacAddress, Packet, Parsed, ip_protocol, parse, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Direction, Disposition, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;

const CONNECTIONS: u32 = 4096;
const PACKETS: u32 = 1 << 17;
const NEW_CONNECTIONS: u32 = 1 << 14;
const RULES: u16 = 50;
const MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
/// The node's addresses on its two ports, and the gateways behind which clients and servers are.
const OWN: [Ipv4Addr; 2] = [Ipv4Addr::new(172, 16, 0, 1), Ipv4Addr::new(192, 0, 2, 1)];
const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(172, 16, 0, 254), Ipv4Addr::new(192, 0, 2, 254)];
const KEY: HashKey = HashKey([1, 2]);

/// The forwarder, as the node shows it to its pipeline.
struct TestPorts(Forwarder);

impl Edge for TestPorts {
    fn handle_arp(&mut self, now: Instant, frame: &mut Frame<'_>, offset: u16) -> Disposition {
        self.0.handle_arp(now, frame, offset)
    }

    fn admit(&mut self, now: Instant, packet: &Packet<'_, '_>) -> Admission {
        self.0.admit(now, packet)
    }

    fn handle_local(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        self.0.handle_local(now, packet)
    }

    fn forward(&mut self, now: Instant, packet: &mut Packet<'_, '_>) -> Disposition {
        self.0.forward(now, packet)
    }

    fn plan_revision(&self) -> Option<u32> {
        self.0.plan_revision()
    }

    fn planned_hop(&self, outgoing: &Tuple) -> Option<u16> {
        self.0.planned_hop(outgoing.destination_ip())
    }

    #[inline(always)]
    fn planned_link(&mut self, now: Instant, hop: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        self.0.planned_link(now, hop, packet)
    }
}

fn test_ports(now: Instant) -> TestPorts {
    let port = |number: usize| Port {
        mac: MAC[number],
        mtu_bytes: 1500,
        own: vec![],
        shared: vec![Prefix::new(OWN[number].into(), 24).into()],
        mss_clamp: None,
        reverse_path: ReversePath::default(),
        router_advertisements: None,
    };
    let route = |destination, number: u8| Route {
        destination,
        gateway: GATEWAYS[usize::from(number)].into(),
        port: PortId(number),
    };
    let routes = vec![
        route(Prefix::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 0)), 8), 0),
        route(Prefix::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), 1),
    ];
    let config = Config { ports: vec![port(0), port(1)], routes, direct_return: vec![], seed: 1 };
    let mut forwarder = Forwarder::new(config).expect("the configuration is right");
    forwarder.set_held(now, cluster::GroupSet::ALL);
    for (port, (gateway, own)) in GATEWAYS.into_iter().zip(OWN).enumerate() {
        let mut bytes = build::arp_request(MacAddress([2, 1, 1, 1, 1, 1]), gateway, own);
        let length_bytes = bytes.len();
        let frame = Frame::new(&mut bytes, 0, length_bytes, PortId(port as u8)).expect("it fits");
        forwarder.handle_arp(now, &frame, 14);
    }
    TestPorts(forwarder)
}

fn chain() -> Chain {
    let rule = |number: u16| Rule {
        name: format!("rule {number}"),
        conditions: Conditions {
            protocols: vec![ip_protocol::TCP],
            destinations: vec!["198.51.100.0/24".parse().expect("a prefix")],
            destination_ports: vec![PortRange::single(443 + RULES - 1 - number)],
            ..Conditions::default()
        },
        action: Action::Accept,
        log: false,
    };
    let firewall = FirewallConfig { rules: (0..RULES).map(rule).collect(), ..FirewallConfig::default() };
    let conditions = Conditions { sources: vec!["10.0.0.0/8".parse().expect("a prefix")], ..Conditions::default() };
    let nat = NatConfig {
        destination_rules: vec![],
        source_rules: vec![SourceRule { conditions, action: SourceAction::Translate(vec![OWN[1].into()]) }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: KEY,
    };
    let firewall = Firewall::new(firewall).expect("the rules make sense");
    ChainBuilder::new().push(firewall).push(Nat::new(nat).expect("the rules make sense")).build().expect("they fit")
}

/// A connection as its end points know it.
struct Flow {
    /// The tuple that packets of each direction come in with.
    incoming: [Tuple; 2],
    next: [u32; 2],
}

impl Flow {
    fn new(number: u32) -> Self {
        let client = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + number / 16);
        let server = Ipv4Addr::from_bits(Ipv4Addr::new(198, 51, 100, 0).to_bits() + number % 251);
        let port = (32_768 + number.wrapping_mul(2_654_435_761) % 28_232) as u16;
        let tuple = Tuple::v4(ip_protocol::TCP, (client, port), (server, 443));
        Self { incoming: [tuple, tuple.inverse()], next: [number, !number] }
    }

    fn frame(&mut self, direction: Direction, flags: u8) -> Vec<u8> {
        let (own, other) = (direction.index(), direction.reverse().index());
        let payload: &[u8] = if flags & tcp_flags::PSH != 0 { &[0x5a; 10] } else { &[] };
        let segment = build::Tcp {
            flags,
            sequence: self.next[own],
            acknowledgement: if flags & tcp_flags::ACK != 0 { self.next[other] } else { 0 },
            ..build::Tcp::default()
        };
        let is_syn = u32::from(flags & tcp_flags::SYN != 0);
        self.next[own] = self.next[own].wrapping_add(payload.len() as u32 + is_syn);
        let envelope = Envelope { destination: MAC[own], ..Envelope::default() };
        let mut frame = envelope.tcp(&self.incoming[own], segment, payload);
        frame.resize(frame.len().max(64), 0);
        frame
    }
}

struct Gateway {
    pipeline: Pipeline,
    test_ports: TestPorts,
    now: Instant,
}

impl Gateway {
    /// Hands over frames, all of which must be sent on; returns how many nanoseconds it took.
    fn handle(&mut self, frames: &mut [(Vec<u8>, PortId)], how: fn(&mut Self, &mut PacketBatch<'_>)) -> f64 {
        let mut spent_nanos = 0.0;
        for frames in frames.chunks_mut(BATCH_FRAMES_MAX) {
            self.now = self.now + std::time::Duration::from_micros(10);
            let mut batch: PacketBatch<'_> = frames
                .iter_mut()
                .map(|(bytes, port)| {
                    let length_bytes = bytes.len();
                    Frame::new(bytes, 0, length_bytes, *port).expect("the frame is its buffer")
                })
                .collect();
            let began = Clock::now();
            how(self, &mut batch);
            spent_nanos += began.elapsed().as_nanos() as f64;
            for frame in &batch {
                assert!(matches!(frame.disposition, Disposition::Transmit(_)), "{:?}", frame.disposition);
            }
        }
        spent_nanos
    }

    fn pass(&mut self, batch: &mut PacketBatch<'_>) {
        self.pipeline.handle_packets(self.now, batch, &mut self.test_ports);
        self.pipeline.expire(self.now, 1, |_| ReplicaExpiry::Recheck(std::time::Duration::ZERO));
        let changes = self.pipeline.take_changes();
        self.pipeline.return_changes(changes);
    }

    /// A packet of each flow.
    fn each(
        &mut self,
        flows: &mut [Flow],
        direction: Direction,
        flags: u8,
        how: fn(&mut Self, &mut PacketBatch<'_>),
    ) -> f64 {
        let port = PortId(direction.index() as u8);
        let mut frames: Vec<_> = flows.iter_mut().map(|flow| (flow.frame(direction, flags), port)).collect();
        let spent_nanos = self.handle(&mut frames, how);
        if flags == tcp_flags::SYN {
            for ((bytes, _), flow) in frames.iter_mut().zip(flows) {
                let length_bytes = bytes.len();
                let frame = Frame::new(bytes, 0, length_bytes, port).expect("the frame is its buffer");
                let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("what passed is right") };
                flow.incoming[1] = headers.tuple.inverse();
            }
        }
        spent_nanos
    }
}

// Two functions that differ, or the compiler makes them one.
#[inline(never)]
fn measured_packets(gateway: &mut Gateway, batch: &mut PacketBatch<'_>) {
    gateway.pass(batch);
    black_box("packets");
}

#[inline(never)]
fn measured_new_connections(gateway: &mut Gateway, batch: &mut PacketBatch<'_>) {
    gateway.pass(batch);
    black_box("new connections");
}

fn main() {
    let now = Instant::from_millis(1000);
    let tracker = Tracker::new(TrackerConfig::default());
    let pipeline = Pipeline::new(NodeId(0), CONNECTIONS + NEW_CONNECTIONS, KEY, tracker, chain());
    let mut gateway = Gateway { pipeline, test_ports: test_ports(now), now };
    let mut flows: Vec<_> = (0..CONNECTIONS).map(Flow::new).collect();
    gateway.each(&mut flows, Direction::Original, tcp_flags::SYN, Gateway::pass);
    gateway.each(&mut flows, Direction::Reply, tcp_flags::SYN | tcp_flags::ACK, Gateway::pass);
    gateway.each(&mut flows, Direction::Original, tcp_flags::ACK, Gateway::pass);
    let mut spent_nanos = 0.0;
    for round in 0..PACKETS / CONNECTIONS {
        let direction = if round % 2 == 0 { Direction::Original } else { Direction::Reply };
        spent_nanos += gateway.each(&mut flows, direction, tcp_flags::ACK | tcp_flags::PSH, measured_packets);
    }
    println!("a packet: {:.1} ns", spent_nanos / f64::from(PACKETS));

    let mut opened: Vec<_> = (CONNECTIONS..CONNECTIONS + NEW_CONNECTIONS).map(Flow::new).collect();
    let mut spent_nanos = gateway.each(&mut opened, Direction::Original, tcp_flags::SYN, measured_new_connections);
    let refusal = tcp_flags::RST | tcp_flags::ACK;
    spent_nanos += gateway.each(&mut opened, Direction::Reply, refusal, measured_new_connections);
    assert_eq!(gateway.pipeline.table().len(), CONNECTIONS, "the others are refused");
    println!("a connection that is refused: {:.1} ns", spent_nanos / f64::from(NEW_CONNECTIONS));
}
