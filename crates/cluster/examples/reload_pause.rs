//! How long packets wait while a node takes another configuration, and while it holds its connections against new rules:
//! `cargo run --release -p cluster --example reload_pause [CONNECTIONS]`.
#![expect(clippy::disallowed_methods, reason = "a measurement needs a clock")]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant as Clock};

use cluster::node::{Node, NodeConfig, Reconfiguration, Reevaluation};
use cluster::pipeline::Limits;
use cluster::{forwarding, role};
use flow::conntrack::TrackerConfig;
use flow::wire::build::{self, Envelope};
use flow::wire::{MacAddress, ip_protocol, tcp_flags};
use flow::{BATCH_FRAMES_MAX, Frame, HashKey, Instant, NodeId, PacketBatch, PortId, Tuple};
use network_functions::chain::{ChainBuilder, ChainLayout};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use replication::representation::Selection;

const RULES: u16 = 100;
const MAC: [MacAddress; 2] = [MacAddress([2, 0, 0, 0, 0, 1]), MacAddress([2, 0, 0, 0, 0, 2])];
const SERVER: (Ipv4Addr, u16) = (Ipv4Addr::new(198, 51, 100, 10), 443);

/// Rules of which the last lets everything in that does not go to one of so many ports.
fn chain(denied_from: u16, layout: ChainLayout) -> network_functions::chain::Chain {
    let deny = |index: u16| Rule {
        name: format!("deny-{index}"),
        conditions: Conditions {
            protocols: vec![ip_protocol::TCP],
            source_ports: vec![PortRange::single(denied_from + index)],
            ..Conditions::default()
        },
        action: Action::Drop,
        log: false,
    };
    let rest = Rule { name: "rest".into(), conditions: Conditions::default(), action: Action::Accept, log: false };
    let rules = (0..RULES).map(deny).chain([rest]).collect();
    let firewall = Firewall::new(FirewallConfig { rules, ..FirewallConfig::default() }).expect("the rules are right");
    ChainBuilder::new().push(firewall).build_within(layout).expect("one function fits")
}

fn forwarding() -> forwarding::Config {
    let port = |mac, address: [u8; 4]| forwarding::Port {
        mac,
        mtu_bytes: 1500,
        own: vec![],
        shared: vec![forwarding::Prefix::new(address.into(), 8).into()],
        mss_clamp: None,
        reverse_path: forwarding::ReversePath::default(),
        router_advertisements: None,
    };
    forwarding::Config {
        ports: vec![port(MAC[0], [10, 255, 255, 1]), port(MAC[1], [198, 255, 255, 1])],
        routes: vec![],
        direct_return: vec![],
        seed: 1,
    }
}

fn role_config() -> role::Config {
    role::Config { startup_hold: Duration::ZERO, ..role::Config::new(NodeId(0), vec![]) }
}

fn begin_connections(node: &mut Node, now: Instant, connections: u32) {
    let envelope = Envelope { destination: MAC[0], ..Envelope::default() };
    let syn = build::Tcp { flags: tcp_flags::SYN, ..build::Tcp::default() };
    let client = |index: u32| {
        let address = Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 2).to_bits() + index / 1000);
        (address, u16::try_from(10_000 + index % 1000).expect("it is below 11000"))
    };
    let mut buffer = Vec::new();
    for first in (0..connections).step_by(BATCH_FRAMES_MAX) {
        let last = connections.min(first + BATCH_FRAMES_MAX as u32);
        let mut frames: Vec<Vec<u8>> = (first..last)
            .map(|index| envelope.tcp(&Tuple::v4(ip_protocol::TCP, client(index), SERVER), syn, b""))
            .collect();
        let mut batch = PacketBatch::new();
        for bytes in &mut frames {
            let length_bytes = bytes.len();
            batch.push(Frame::new(bytes, 0, length_bytes, PortId(0)).expect("it fits"));
        }
        node.handle_packets(now, &mut batch);
        while node.poll_transmit(now, &mut buffer).is_some() {}
    }
}

fn main() {
    let connections = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().expect("a number of connections"));
    let now = Instant::from_millis(1);
    let config = NodeConfig {
        node: NodeId(0),
        connections_max: connections,
        limits: Limits::default(),
        hash_key: HashKey([1, 2]),
        seed: 1,
        tracker: TrackerConfig::default(),
        chain: chain(1, ChainLayout::default()),
        forwarding: forwarding(),
        role: role_config(),
        selection: Selection::default(),
        hold_first_reply: Duration::ZERO,
        sharing: None,
        compact: None,
        backups: None,
        peers: vec![],
        security: None,
    };
    let mut node = Node::new(config, now).expect("the configuration is right");
    node.handle_timeout(now);
    // The server's link address is known, so that the first packets go somewhere.
    let mut reply = build::arp_reply(MacAddress([2, 9, 9, 9, 9, 9]), SERVER.0, (MAC[1], [198, 255, 255, 1].into()));
    let mut request = build::arp_request(MacAddress([2, 9, 9, 9, 9, 9]), SERVER.0, [198, 255, 255, 1].into());
    for bytes in [&mut request, &mut reply] {
        let length_bytes = bytes.len();
        let mut batch = PacketBatch::new();
        batch.push(Frame::new(bytes, 0, length_bytes, PortId(1)).expect("it fits"));
        node.handle_packets(now, &mut batch);
    }
    begin_connections(&mut node, now, connections);
    let held = node.pipeline().table().len();
    println!("{held} connections, {RULES} rules and one");

    for (what, denied_from, reevaluation) in [
        ("reload, connections kept", 1, Reevaluation::Keep),
        ("reload, a tenth of the connections no longer allowed", 10_000, Reevaluation::Reevaluate),
    ] {
        let layout = node.pipeline().chain().layout();
        let new = Reconfiguration {
            tracker: TrackerConfig::default(),
            chain: chain(denied_from, layout),
            reevaluation,
            translates_otherwise: false,
            forwarding: forwarding(),
            role: role_config(),
            selection: Selection::default(),
            hold_first_reply: Duration::ZERO,
            wait_for_peer: Duration::ZERO,
            peers: vec![],
            backups: None,
            security: None,
            seed: 0,
        };
        let begun = Clock::now();
        node.reload(now, new).expect("it can be taken");
        println!("{what}: packets wait for {:?}", begun.elapsed());
        let (mut steps, mut longest, begun) = (0_u32, Duration::ZERO, Clock::now());
        while node.pipeline().is_reevaluating() {
            let step = Clock::now();
            node.handle_timeout(now);
            longest = longest.max(step.elapsed());
            steps += 1;
        }
        if steps > 0 {
            let ended = held - node.pipeline().table().len();
            println!("  {ended} ended in {steps} steps, {:?} in all, {longest:?} the longest", begun.elapsed());
        }
    }
}
