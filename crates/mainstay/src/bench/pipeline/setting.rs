//! The gateway that is measured, and the connections that go through it.

use std::net::Ipv4Addr;
use std::num::NonZeroU8;

use flow::conntrack::{Tracker, TrackerConfig};
use flow::wire::ip_protocol;
use flow::{HashKey, NodeId, Tuple};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;

/// This node, and the one that it tells its connections.
pub(super) const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];

/// The secret of the hash: any will do, as nobody attacks.
pub(super) const HASH_KEY: HashKey = HashKey([0x5851_f42d_4c95_7f2d, 0x1405_7b7e_f767_814f]);

/// Rules of the firewall; the last one is the one that lets connections in.
const FIREWALL_RULES: u16 = 50;
const OUTSIDE_ADDRESSES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(192, 0, 2, 1),
    Ipv4Addr::new(192, 0, 2, 2),
    Ipv4Addr::new(192, 0, 2, 3),
    Ipv4Addr::new(192, 0, 2, 4),
];
const SERVER_PORT: u16 = 443;
/// Servers, more than a client has connections: so no two of a client's connections are alike.
const SERVERS: u32 = 251;
const CONNECTIONS_PER_CLIENT: u32 = 32;
/// The ports that Linux clients choose from: these and the following.
const CLIENT_PORT_FIRST: u32 = 32_768;
const CLIENT_PORTS: u32 = 28_232;

/// The connection with number `number`, as its client sees it.
pub(super) fn original(number: u32) -> Tuple {
    let client = Ipv4Addr::from_bits(0x0a00_0001 + number / CONNECTIONS_PER_CLIENT);
    let server = Ipv4Addr::from_bits(0xc633_6400 + number % SERVERS);
    let port = CLIENT_PORT_FIRST + number.wrapping_mul(2_654_435_761) % CLIENT_PORTS;
    Tuple::v4(ip_protocol::TCP, (client, port as u16), (server, SERVER_PORT))
}

pub(super) fn tracker() -> Tracker {
    Tracker::new(TrackerConfig::default())
}

/// The firewall, and NAT behind it.
pub(super) fn chain() -> Chain {
    ChainBuilder::new().push(firewall()).push(nat()).build().expect("the two go together")
}

fn firewall() -> Firewall {
    let rule = |number: u16| Rule {
        name: format!("rule {number}"),
        conditions: Conditions {
            protocols: vec![ip_protocol::TCP],
            destinations: vec!["198.51.100.0/24".parse().expect("a prefix")],
            destination_ports: vec![PortRange::single(SERVER_PORT + FIREWALL_RULES - 1 - number)],
            ..Conditions::default()
        },
        action: Action::Accept,
        log: false,
    };
    let config = FirewallConfig { rules: (0..FIREWALL_RULES).map(rule).collect(), ..FirewallConfig::default() };
    Firewall::new(config).expect("the rules make sense")
}

fn nat() -> Nat {
    let conditions = Conditions { sources: vec!["10.0.0.0/8".parse().expect("a prefix")], ..Conditions::default() };
    let action = SourceAction::Translate(OUTSIDE_ADDRESSES.map(Into::into).to_vec());
    Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![SourceRule { conditions, action }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NODES[0],
        nodes: NonZeroU8::MIN,
        key: HASH_KEY,
    })
    .expect("the rules make sense")
}
