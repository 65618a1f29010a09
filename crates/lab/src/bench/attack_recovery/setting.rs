//! The gateway that is attacked, its connections and the filter that names them.

use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU8;
use std::time::Duration;

use filters::Insertion;
use flow::connection::flags;
use flow::conntrack::{ProtocolState, TcpState};
use flow::wire::ip_protocol;
use flow::{Connection, HashKey, Instant, NodeId, PortId, Tuple};
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{Mapping, Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use replication::compact::{CellState, CompactConfig, CompactReceiver, CompactSender, ReceiverLimits, Representation};

use crate::bench::BenchError;

/// This node, and the one that is gone.
pub(super) const NODES: [NodeId; 2] = [NodeId(0), NodeId(1)];
pub(super) const INSIDE: PortId = PortId(0);
pub(super) const OUTSIDE: PortId = PortId(1);
/// The secret of the hash: any will do, as the flood does not aim at it.
pub(super) const HASH_KEY: HashKey = HashKey([0x5851_f42d_4c95_7f2d, 0x1405_7b7e_f767_814f]);

/// Rules of the firewall; the last one lets connections begin.
const FIREWALL_RULES: u16 = 50;
/// Inside addresses, each with a block of ports.
const HOSTS_PREFIX: &str = "10.0.0.0/20";
const HOSTS: u32 = 1 << 12;
/// The smallest blocks that there are: an outside port stands for 512 inside ones.
pub(super) const BLOCK_PORTS: u16 = 128;
/// Outside addresses: 504 blocks each.
const OUTSIDE_FIRST: u32 = 0xc000_0201;
const OUTSIDE_ADDRESSES: u32 = 9;
const SERVER: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
const SERVER_PORT: u16 = 443;
const CLIENT_PORT_FIRST: u32 = 32_768;
/// Where servers of bogus replies are.
const BOGUS_FIRST: u32 = 0xcb00_0000;
/// The exchange of a filter takes so long at most.
const EXCHANGE_STEPS_MAX: u32 = 100_000;
const EXCHANGE_STEP: Duration = Duration::from_millis(1);

/// The connection with this number, as its client sees it. No two of a host have one outside port, up to 128 of each.
pub(super) fn original(number: u32) -> Tuple {
    let host = Ipv4Addr::from_bits(0x0a00_0000 + number % HOSTS);
    let port = (CLIENT_PORT_FIRST + number / HOSTS) as u16;
    Tuple::v4(ip_protocol::TCP, (host, port), (SERVER, SERVER_PORT))
}

/// A reply of no connection, from a server of its own, to one of the outside ports.
pub(super) fn bogus(number: u32) -> Tuple {
    let server = Ipv4Addr::from_bits(BOGUS_FIRST + number % (1 << 24));
    let outside = Ipv4Addr::from_bits(OUTSIDE_FIRST + number % (OUTSIDE_ADDRESSES - 1));
    let ports = SOURCE_PORTS_DEFAULT.count();
    let port = SOURCE_PORTS_DEFAULT.first() + (number.wrapping_mul(2_654_435_761) % ports) as u16;
    Tuple::v4(ip_protocol::TCP, (server, SERVER_PORT), (outside, port))
}

/// A firewall and, behind it, source NAT that is computed.
pub(super) fn chain() -> Chain {
    let rule = |number: u16| Rule {
        name: format!("rule {number}"),
        conditions: Conditions {
            protocols: vec![ip_protocol::TCP, ip_protocol::UDP],
            destination_ports: vec![PortRange::single(SERVER_PORT + FIREWALL_RULES - 1 - number)],
            sources: vec![HOSTS_PREFIX.parse().expect("a prefix")],
            ..Conditions::default()
        },
        action: Action::Accept,
        log: false,
    };
    let firewall = FirewallConfig { rules: (0..FIREWALL_RULES).map(rule).collect(), ..FirewallConfig::default() };
    let outside: Vec<IpAddr> =
        (0..OUTSIDE_ADDRESSES).map(|number| Ipv4Addr::from_bits(OUTSIDE_FIRST + number).into()).collect();
    let mapping = Mapping { block_ports: Some(BLOCK_PORTS), ..Mapping::default() };
    let conditions = Conditions { sources: vec![HOSTS_PREFIX.parse().expect("a prefix")], ..Conditions::default() };
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: vec![SourceRule { conditions, action: SourceAction::Compute(outside, mapping) }],
        ports: SOURCE_PORTS_DEFAULT,
        node: NODES[0],
        nodes: const { NonZeroU8::new(2).unwrap() },
        key: HASH_KEY,
    });
    let firewall = Firewall::new(firewall).expect("the rules make sense");
    ChainBuilder::new().push(firewall).push(nat.expect("the rules make sense")).build().expect("the two go together")
}

/// The filter of the node that is gone, with `connections` connections, as it was received.
pub(super) fn filter(now: Instant, connections: u32) -> Result<CompactReceiver, BenchError> {
    let representation = Representation::MultiLevel(Insertion::FirstAvailable);
    let config = CompactConfig::new(representation, u64::from(connections), [5, 6]);
    let mut sender = CompactSender::new(config, &[NODES[0]]).map_err(|_| BenchError::NotSynchronised)?;
    let state = ProtocolState { state: TcpState::Established as u8, ..ProtocolState::default() };
    for number in 0..connections {
        let mut connection = Connection::new(original(number), NODES[1], state, now);
        connection.flags = flags::REPLIED | flags::ASSURED;
        sender.insert(&connection.original, CellState::of(&connection));
    }
    let mut receiver = CompactReceiver::new(ReceiverLimits::default(), 7);
    let (mut at, mut datagram) = (now, Vec::new());
    for _ in 0..EXCHANGE_STEPS_MAX {
        if receiver.is_complete() && receiver.entries() == u64::from(connections) {
            return Ok(receiver);
        }
        at = at + EXCHANGE_STEP;
        sender.handle_timeout(at);
        while sender.poll_transmit(at, NODES[0], &mut datagram) {
            receiver.handle_datagram(at, &datagram).map_err(|_| BenchError::NotSynchronised)?;
        }
        while receiver.poll_transmit(at, &mut datagram) {
            sender.handle_datagram(at, NODES[0], &datagram).map_err(|_| BenchError::NotSynchronised)?;
        }
    }
    Err(BenchError::NotSynchronised)
}
