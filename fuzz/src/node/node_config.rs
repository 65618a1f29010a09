//! The node: its inside is 10.1.0.0/24 and fd00::/64, its outside 198.51.100.0/24 and 2001:db8::/64.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU8;
use std::time::Duration;

use cluster::node::{NodeConfig, PeerConfig};
use cluster::pipeline::{Limits, SharingConfig};
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::TrackerConfig;
use flow::wire::MacAddress;
use flow::{HashKey, IpFamily, NodeId, PortId};
use network_functions::chain::ChainBuilder;
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use network_functions::rule_set::Conditions;
use replication::SessionConfig;
use replication::representation::Selection;

/// Few, so that the table is full now and then.
pub(super) const CONNECTIONS_MAX: u32 = 8;
pub(super) const PORTS: u8 = 2;
pub(super) const SHARED_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 1, 0, 1);
pub(super) const SHARED_OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);
const SHARED_INSIDE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1);
const SHARED_OUTSIDE_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

pub(super) const fn port_mac(port: u8) -> MacAddress {
    MacAddress([2, 0, 0, 1, 0, port])
}

pub(super) fn node_config() -> NodeConfig {
    let port = |number: u8, v4: Ipv4Addr, v6: Ipv6Addr| forwarding::Port {
        mac: port_mac(number),
        mtu_bytes: 1500,
        own: Vec::new(),
        shared: [(IpAddr::V4(v4), 24), (IpAddr::V6(v6), 64)]
            .map(|(ip, bits)| forwarding::Prefix::new(ip, bits).into())
            .into(),
        mss_clamp: Some(forwarding::MssClamp::Mtu),
        // What one port refuses gets further on the other.
        reverse_path: if number == 0 { forwarding::ReversePath::Strict } else { forwarding::ReversePath::Off },
        router_advertisements: None,
    };
    let session = SessionConfig { connections_max: CONNECTIONS_MAX, ..SessionConfig::default() };
    NodeConfig {
        node: NodeId(0),
        connections_max: CONNECTIONS_MAX,
        limits: Limits::default(),
        hash_key: HashKey([1, 2]),
        seed: 3,
        tracker: TrackerConfig { loose: true, ..TrackerConfig::default() },
        chain: ChainBuilder::new().push(firewall()).push(nat()).build().expect("the two go together"),
        forwarding: forwarding::Config {
            ports: vec![port(0, SHARED_INSIDE, SHARED_INSIDE_V6), port(1, SHARED_OUTSIDE, SHARED_OUTSIDE_V6)],
            routes: Vec::new(),
            direct_return: Vec::new(),
            seed: 4,
        },
        role: role::Config { priority: 100, startup_hold: Duration::ZERO, ..role::Config::new(NodeId(0), Vec::new()) },
        selection: Selection::default(),
        hold_first_reply: Duration::from_millis(20),
        sharing: Some(SharingConfig::default()),
        compact: None,
        backups: None,
        peers: vec![PeerConfig {
            id: NodeId(1),
            detector: failure_detector::Config::default(),
            session: Some(session),
        }],
        security: None,
    }
}

fn from_inside() -> Conditions {
    Conditions { ingress: vec![PortId(0)], ..Conditions::default() }
}

fn firewall() -> Firewall {
    let rule = Rule { name: "out".into(), conditions: from_inside(), action: Action::Accept, log: false };
    Firewall::new(FirewallConfig { rules: vec![rule], ..FirewallConfig::default() }).expect("the rule is sound")
}

fn nat() -> Nat {
    let rule = |family: IpFamily, address: IpAddr| SourceRule {
        conditions: Conditions { family: Some(family), ..from_inside() },
        action: SourceAction::Translate(vec![address]),
    };
    Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![rule(IpFamily::V4, SHARED_OUTSIDE.into()), rule(IpFamily::V6, SHARED_OUTSIDE_V6.into())],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::new(2).expect("two is not zero"),
        key: HashKey([5, 6]),
    })
    .expect("the rules are sound")
}
