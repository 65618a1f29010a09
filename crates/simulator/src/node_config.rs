//! The configuration of the simulated nodes for a scenario: cluster, rules, failure detection.

use std::net::IpAddr;
use std::num::NonZeroU8;
use std::sync::Arc;
use std::time::Duration;

use cluster::node::{CompactNodeConfig, NodeConfig, PeerConfig, WhichPrecise};
use cluster::pipeline::RecoveryConfig;
use cluster::{failure_detector, forwarding, role};
use flow::conntrack::{Timeouts, TrackerConfig};
use flow::random::mix;
use flow::wire::ip_protocol;
use flow::{HashKey, NodeId};
use network_functions::address::Prefix;
use network_functions::chain::{Chain, ChainBuilder};
use network_functions::firewall::{Action, Firewall, FirewallConfig, Rule};
use network_functions::nat::{
    DestinationRule, Mapping, Nat, NatConfig, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule,
};
use network_functions::port_range::PortRange;
use network_functions::rule_set::Conditions;
use replication::SessionConfig;
use replication::compact::{CompactConfig, Representation};
use replication::secure::{Credentials, PRE_SHARED_KEY_BYTES, PreSharedKey, Rotation, Security, Seed};

use crate::scenario::{Family, FaultSet, Scenario};
use crate::topology::{
    FORWARDED_PORT, NODES, PREFIX_V4_BITS, PREFIX_V6_BITS, SERVICE_PORT, Side, host_config, node_mac,
};

/// The maximum number of connections of a node with default capacity.
pub(crate) const CONNECTIONS_MAX: u32 = 1024;
/// The timeout of requests and replies.
const EXCHANGE_TIMEOUT: Duration = Duration::from_secs(10);
/// The inside hosts with computed translation: so few that each has thousands of ports.
const COMPUTED_PREFIX_BITS: u8 = 28;

/// Two of three seeds use failure detection over the links of the ports as well, the others over the replication link
/// alone, unless that link fails.
pub(crate) fn has_service_paths(scenario: &Scenario) -> bool {
    scenario.families().contains(&Family::ReplicationLink) || !mix(scenario.seed ^ 0x9a7).is_multiple_of(3)
}

/// The configuration of a node. `incarnation` counts its starts, so that secrets differ from start to start; `unix_time` is the time since 1970
/// by its wall clock.
pub(crate) fn node_config(
    scenario: &Scenario,
    node: usize,
    incarnation: u32,
    unix_time: Duration,
    session: Option<SessionConfig>,
    connections_max: u32,
) -> NodeConfig {
    let secret = mix(scenario.seed ^ (node as u64) << 32 ^ u64::from(incarnation) << 40);
    let key = HashKey([secret, mix(secret)]);
    let id = NodeId(node as u8);
    let peer = NodeId(1 - node as u8);
    NodeConfig {
        node: id,
        connections_max,
        limits: cluster::pipeline::Limits::default(),
        hash_key: key,
        seed: mix(secret ^ 1),
        tracker: tracker(),
        chain: chain(id, key, scenario.representation.is_some()),
        forwarding: forwarding(node, secret),
        role: role::Config::new(id, Vec::new()),
        selection: scenario.selection,
        hold_first_reply: scenario.hold_first_reply,
        sharing: None,
        compact: scenario.representation.map(|representation| compact(representation, secret)),
        backups: None,
        peers: vec![PeerConfig { id: peer, detector: failure_detector::Config::default(), session }],
        security: is_secured(scenario).then(|| security(scenario, secret, unix_time)),
    }
}

/// Whether updates go over the service paths while the replication link is down.
pub(crate) fn carries_updates_over_service_paths(scenario: &Scenario) -> bool {
    has_service_paths(scenario) && is_secured(scenario)
}

/// Every other seed's nodes use encryption, with the default faults only: faults that affect heartbeats alone must
/// recognise them. Where the replication link alone fails they always do: only then are updates sent over service paths.
pub(crate) fn is_secured(scenario: &Scenario) -> bool {
    let families = scenario.families();
    let is_usual = |family| {
        FaultSet::DEFAULT.contains(family)
            || matches!(family, Family::ReplicationLink | Family::WallClock | Family::LeaveReturn)
    };
    if !families.iter().copied().all(is_usual) {
        return false;
    }
    families.contains(&Family::ReplicationLink) || mix(scenario.seed ^ 0x5ec).is_multiple_of(2)
}

/// The nodes share a key; random values differ from start to start.
fn security(scenario: &Scenario, secret: u64, unix_time: Duration) -> Security {
    let mut key = [0; PRE_SHARED_KEY_BYTES];
    key[..8].copy_from_slice(&scenario.seed.to_be_bytes());
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&secret.to_be_bytes());
    let credentials =
        Credentials::new(vec![PreSharedKey::new(key)], None).expect("one key is neither none nor too many");
    Security {
        credentials: Arc::new(credentials),
        // Several key exchanges in a run.
        rotation: Rotation { interval: Duration::from_secs(2), ..Rotation::default() },
        seed: Seed::new(seed),
        unix_time,
    }
}

/// Short timeouts, so that connections also expire in a run, but longer than idle times in use.
fn tracker() -> TrackerConfig {
    let timeouts = Timeouts {
        // As with the 120 seconds of a real node, it outlasts any cut of a link: end points retransmit their last
        // segments.
        tcp_time_wait: Duration::from_secs(10),
        tcp_close: Duration::from_secs(1),
        udp: EXCHANGE_TIMEOUT,
        udp_stream: EXCHANGE_TIMEOUT,
        icmp: EXCHANGE_TIMEOUT,
        ..Timeouts::default()
    };
    TrackerConfig { timeouts, ..TrackerConfig::default() }
}

/// A filter with as much room as the table, with symbol replacement or without.
fn compact(representation: Representation, secret: u64) -> CompactNodeConfig {
    CompactNodeConfig {
        config: CompactConfig::new(representation, CONNECTIONS_MAX.into(), [mix(secret ^ 2), mix(secret ^ 3)]),
        precise: WhichPrecise::None,
        recovery: RecoveryConfig::default(),
    }
}

/// Translation is computed where another node must restore it.
fn chain(node: NodeId, key: HashKey, computes: bool) -> Chain {
    let accept = |name: &str, conditions| Rule { name: name.into(), conditions, action: Action::Accept, log: false };
    let forwarded = Conditions {
        // Listed, so that a first reply leads back to it.
        destinations: vec![IpAddr::from(Side::Outside.v4(1)).into()],
        protocols: vec![ip_protocol::TCP, ip_protocol::UDP],
        destination_ports: vec![PortRange::single(FORWARDED_PORT)],
        ingress: vec![Side::Outside.port()],
        ..Conditions::default()
    };
    let from_inside = Conditions { ingress: vec![Side::Inside.port()], ..Conditions::default() };
    let outside = vec![Side::Outside.v4(1).into()];
    let (action, bits) = if computes {
        (SourceAction::Compute(outside, Mapping::default()), COMPUTED_PREFIX_BITS)
    } else {
        (SourceAction::Translate(outside), PREFIX_V4_BITS)
    };
    // The rules of NAT name addresses, as the daemon's do: the ingress of a connection is unknown when a reply comes
    // first.
    let sources = vec![Prefix::new(Side::Inside.v4(0).into(), bits).expect("a length of IPv4")];
    let to_forwarded = Conditions { ingress: Vec::new(), ..forwarded.clone() };
    let firewall = FirewallConfig {
        rules: vec![accept("outwards", from_inside), accept("forwarded", forwarded)],
        ..FirewallConfig::default()
    };
    let nat = NatConfig {
        destination_rules: vec![DestinationRule {
            conditions: to_forwarded,
            address: host_config(0).v4.into(),
            port: Some(SERVICE_PORT),
        }],
        source_rules: vec![SourceRule { conditions: Conditions { sources, ..Conditions::default() }, action }],
        ports: SOURCE_PORTS_DEFAULT,
        node,
        nodes: const { NonZeroU8::new(NODES as u8).unwrap() },
        key,
    };
    let firewall = Firewall::new(firewall).expect("the rules are few and sound");
    let nat = Nat::new(nat).expect("the rules are few and sound");
    ChainBuilder::new().push(firewall).push(nat).build().expect("the two functions go together")
}

fn forwarding(node: usize, seed: u64) -> forwarding::Config {
    let port = |side: Side| {
        let own = [IpAddr::V4(side.v4(2 + node as u8)), IpAddr::V6(side.v6(2 + node as u16))];
        forwarding::Port {
            mac: node_mac(node, side),
            mtu_bytes: 1500,
            own: own.map(prefix).into(),
            shared: side.shared().map(|address| prefix(address).into()).into(),
            mss_clamp: None,
            reverse_path: forwarding::ReversePath::default(),
            router_advertisements: None,
        }
    };
    forwarding::Config {
        ports: vec![port(Side::Inside), port(Side::Outside)],
        routes: Vec::new(),
        direct_return: Vec::new(),
        seed,
    }
}

const fn prefix(address: IpAddr) -> forwarding::Prefix {
    let length_bits = if address.is_ipv4() { PREFIX_V4_BITS } else { PREFIX_V6_BITS };
    forwarding::Prefix::new(address, length_bits)
}
