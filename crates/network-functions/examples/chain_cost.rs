//! The cost of firewall, NAT, load balancer and an idle FTP helper for a packet and a new connection, in nanoseconds: `cargo run
//! --release -p network-functions --example chain_cost`
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Instant as Clock;

use flow::conntrack::ProtocolState;
use flow::wire::{Headers, Packet, TcpSegment, Transport, ip_protocol};
use flow::{Connection, Direction, DropReason, Frame, HashKey, Instant, NodeId, PortId, Tuple};
use network_functions::address::tuple_bytes;
use network_functions::chain::{Chain, ChainBuilder, Runtime};
use network_functions::expectation::{EXPECTATION_TIMEOUT_DEFAULT, Expectations};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::ftp::{CONTROL_PORT, Ftp, FtpConfig};
use network_functions::function::{HandshakeExchange, TupleUse, Verdict};
use network_functions::inspect::assembly::Assemblies;
use network_functions::load_balancer::{
    Affinity, BackendConfig, LoadBalancer, Mode, OnFailure, Scheduler, ServiceConfig, Services,
};
use network_functions::log::Log;
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourcePorts, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;

const CONNECTIONS: u16 = 256;
const ROUNDS: u32 = 10_000;
const RULES: u16 = 50;

/// A helper without control connections.
fn ftp() -> Ftp {
    Ftp::new(FtpConfig {
        control_ports: vec![PortRange::single(CONTROL_PORT)],
        loose: false,
        privileged_ports: false,
        timeout: EXPECTATION_TIMEOUT_DEFAULT,
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: HashKey([3, 4]),
    })
    .expect("there are ports")
}

struct NothingUsed;

impl TupleUse for NothingUsed {
    fn is_used(&self, _tuple: &Tuple) -> bool {
        false
    }
}

/// A firewall of [`RULES`] rules of which the last one matches.
fn firewall() -> Firewall {
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
    let config = FirewallConfig { rules: (0..RULES).map(rule).collect(), ..FirewallConfig::default() };
    Firewall::new(config).expect("the rules make sense")
}

fn nat() -> Nat {
    Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![SourceRule {
            conditions: Conditions { sources: vec!["10.0.0.0/8".parse().expect("a prefix")], ..Conditions::default() },
            action: SourceAction::Translate(vec!["192.0.2.1".parse().expect("an address")]),
        }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: HashKey([1, 2]),
    })
    .expect("the rules make sense")
}

/// A load balancer of which the server is a service with a hundred backends.
fn load_balancer() -> LoadBalancer {
    let backend = |number: u8| BackendConfig { address: [10, 200, 0, number].into(), port: None, weight: 1 };
    let service = ServiceConfig {
        name: "web".to_owned(),
        address: [198, 51, 100, 1].into(),
        protocol: ip_protocol::TCP,
        ports: vec![PortRange::single(443)],
        scheduler: Scheduler::Maglev,
        affinity: Affinity::Connection,
        mode: Mode::Nat,
        on_failure: OnFailure::Keep,
        slow_start: None,
        quic: None,
        backends: (0..100).map(backend).collect(),
    };
    let services = Services::new(&[service], &Services::default()).expect("the service makes sense");
    let ports = SourcePorts::new(SOURCE_PORTS_DEFAULT, NodeId(0), NonZeroU8::MIN, HashKey([5, 6]));
    LoadBalancer::new(Arc::new(services), ports.expect("there are ports"))
}

fn connection(port: u16) -> Connection {
    let tuple = Tuple {
        source: tuple_bytes([10, 0, 0, 1].into()),
        destination: tuple_bytes([198, 51, 100, 1].into()),
        source_port: 20_000 + port,
        destination_port: 443,
        protocol: ip_protocol::TCP,
        version: 4,
        discriminator: 0,
    };
    Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE)
}

fn headers(tuple: Tuple) -> Headers {
    Headers {
        tuple,
        transport: Transport::Tcp(TcpSegment::default()),
        l3_offset: 14,
        l4_offset: 34,
        payload_offset: 54,
        l3_bytes: 40,
        ttl: 64,
        is_fragment: false,
    }
}

/// The shortest of [`ROUNDS`] rounds over `count` items, in nanoseconds an item: a round is shorter than a time slice,
/// so the shortest one was undisturbed by other programs.
fn best_nanos(count: usize, mut round: impl FnMut(u32)) -> f64 {
    let nanos = (0..ROUNDS).map(|number| {
        let started = Clock::now();
        round(number);
        started.elapsed().as_nanos()
    });
    nanos.min().unwrap_or(0) as f64 / count as f64
}

/// Begins all connections; nanoseconds for each.
fn begin(chain: &Chain, runtime: &mut Runtime<'_>, frame: &mut Frame<'_>, all: &mut [Connection]) -> f64 {
    best_nanos(all.len(), |_| {
        for connection in all.iter_mut() {
            let packet = Packet { frame, headers: &mut headers(connection.original) };
            connection.reply = connection.original.inverse();
            let begun: Result<(), DropReason> = chain.init(runtime, &NothingUsed, connection, &packet);
            begun.expect("the last rule allows it");
        }
    })
}

/// Passes packets of all connections in both directions; nanoseconds for each.
fn pass(chain: &Chain, runtime: &mut Runtime<'_>, frame: &mut Frame<'_>, all: &mut [Connection]) -> f64 {
    best_nanos(all.len(), |round| {
        let direction = if round % 2 == 0 { Direction::Original } else { Direction::Reply };
        for connection in all.iter_mut() {
            let mut packet = Packet { frame, headers: &mut headers(*connection.tuple(direction)) };
            let processed = chain.process(runtime, connection, &mut packet, direction);
            assert_eq!(black_box(processed.verdict), Verdict::Forward);
        }
    })
}

/// The cost of [`pass`] without a chain: the measurement itself.
fn make_packets(frame: &mut Frame<'_>, all: &[Connection]) -> f64 {
    best_nanos(all.len(), |round| {
        let direction = if round % 2 == 0 { Direction::Original } else { Direction::Reply };
        for connection in all {
            let mut packet = Packet { frame, headers: &mut headers(*connection.tuple(direction)) };
            black_box(&mut packet);
        }
    })
}

fn main() {
    let mut bytes = [0; 54];
    bytes[12] = 8;
    (bytes[14], bytes[23]) = (0x45, ip_protocol::TCP);
    let mut frame = Frame::new(&mut bytes, 0, 54, PortId(0)).expect("the frame is its buffer");
    let chains = [
        ("no function", ChainBuilder::new()),
        ("firewall", ChainBuilder::new().push(firewall())),
        ("firewall and NAT", ChainBuilder::new().push(firewall()).push(nat())),
        ("and FTP", ChainBuilder::new().push(firewall()).push(nat()).push(ftp())),
        ("firewall and load balancer", ChainBuilder::new().push(firewall()).push(load_balancer())),
        ("and NAT", ChainBuilder::new().push(firewall()).push(load_balancer()).push(nat())),
    ];
    let all: Vec<Connection> = (0..CONNECTIONS).map(connection).collect();
    println!("{:>26}: {:5.1} ns a packet", "packets alone", make_packets(&mut frame, &all));
    for (name, chain) in chains {
        let chain = chain.build().expect("the functions go together");
        let (mut counters, mut log, mut expectations) = (chain.new_counters(), Log::default(), Expectations::default());
        let mut assemblies = Assemblies::default();
        let mut runtime = Runtime {
            now: Instant::ZERO,
            node: NodeId(0),
            counters: &mut counters,
            log: &mut log,
            assemblies: &mut assemblies,
            expectations: &mut expectations,
            handshake: HandshakeExchange::NONE,
        };
        let mut all: Vec<Connection> = (0..CONNECTIONS).map(connection).collect();
        let init_nanos = begin(&chain, &mut runtime, &mut frame, &mut all);
        let packet_nanos = pass(&chain, &mut runtime, &mut frame, &mut all);
        println!("{name:>26}: {init_nanos:6.1} ns a connection, {packet_nanos:5.1} ns a packet");
    }
}
