//! Scenarios and properties of NAT.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::num::NonZeroU8;
use std::collections::{HashMap, HashSet};

use flow::wire::ip_protocol::{ICMP, TCP, UDP};
use flow::{Connection, IpFamily, NodeId};
use proptest::prelude::*;

use flow::HashKey;

use super::*;
use crate::address::{family, from_tuple_bytes};
use crate::rule_set::{ConditionError, RuleSetError};
use crate::testing::{Gateway, INSIDE, OUTSIDE, echo, portless, sctp, tcp, udp, with_packet};

const KEY: HashKey = HashKey([0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3210]);
const GRE: u8 = 47;

fn range(first: u16, last: u16) -> PortRange {
    PortRange::new(first, last).expect("in order")
}

fn from(prefix: &str) -> Conditions {
    Conditions { sources: vec![prefix.parse().expect(prefix)], ..Conditions::default() }
}

fn source(conditions: Conditions, pool: &[&str]) -> SourceRule {
    let addresses = pool.iter().map(|address| address.parse().expect(address)).collect();
    SourceRule { conditions, action: SourceAction::Translate(addresses) }
}

fn forward(address: &str, protocol: u8, ports: PortRange, to: &str, port: Option<u16>) -> DestinationRule {
    let conditions = Conditions {
        destinations: vec![address.parse::<IpAddr>().expect(address).into()],
        protocols: vec![protocol],
        destination_ports: vec![ports],
        ..Conditions::default()
    };
    DestinationRule { conditions, address: to.parse().expect(to), port }
}

/// The inside is 10.0.0.0/8 and fd00::/8, seen outside as 192.0.2.1 and 2001:db8::1; the web server and a range of UDP
/// ports are forwarded. Node 0 of 2.
fn config() -> NatConfig {
    NatConfig {
        destination_rules: vec![
            forward("192.0.2.1", TCP, PortRange::single(80), "10.0.0.80", Some(8080)),
            forward("2001:db8::1", TCP, PortRange::single(443), "fd00::80", None),
            forward("192.0.2.1", UDP, range(7000, 7010), "10.0.0.7", Some(9000)),
        ],
        source_rules: vec![source(from("10.0.0.0/8"), &["192.0.2.1"]), source(from("fd00::/8"), &["2001:db8::1"])],
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::new(2).unwrap(),
        key: KEY,
    }
}

fn gateway(config: NatConfig) -> Gateway {
    Gateway::with(Nat::new(config).unwrap_or_else(|error| panic!("{error}")))
}

fn source_of(tuple: &Tuple) -> IpAddr {
    from_tuple_bytes(tuple.source, tuple.family())
}

/// Asserts that the connection leaves as `outgoing`, and that its reply returns to the original source.
fn assert_translated(gateway: &mut Gateway, ingress: flow::PortId, tuple: Tuple, outgoing: Tuple) {
    let mut begun = gateway.begin(ingress, tuple).unwrap();
    assert_eq!(begun.outgoing, outgoing);
    assert_eq!(begun.connection.reply, outgoing.inverse());
    assert_eq!(gateway.answer(&mut begun), tuple.inverse());
}

/// Asserts that the connection leaves from `address` and a port of this node, and that its reply returns. The port.
fn assert_source_translated(gateway: &mut Gateway, tuple: Tuple, address: &str) -> u16 {
    let mut begun = gateway.begin(INSIDE, tuple).unwrap();
    let outgoing = begun.outgoing;
    assert_eq!(source_of(&outgoing), address.parse::<IpAddr>().unwrap());
    assert!(SOURCE_PORTS_DEFAULT.slice(NodeId(0), NonZeroU8::new(2).unwrap()).unwrap().contains(outgoing.source_port));
    assert_eq!((outgoing.destination, begun.connection.reply), (tuple.destination, outgoing.inverse()));
    assert_eq!(gateway.answer(&mut begun), tuple.inverse());
    outgoing.source_port
}

#[test]
fn inside_hosts_get_the_shared_address_and_different_ports() {
    let mut gateway = gateway(config());
    let first = assert_source_translated(&mut gateway, tcp("10.0.0.1:5000", "198.51.100.1:443"), "192.0.2.1");
    // Another host with the same port, to the same server: another port.
    let second = assert_source_translated(&mut gateway, tcp("10.0.0.2:5000", "198.51.100.1:443"), "192.0.2.1");
    assert_ne!(first, second);
    // And to another server: the end point's own.
    let third = assert_source_translated(&mut gateway, tcp("10.0.0.2:5000", "198.51.100.2:443"), "192.0.2.1");
    assert_eq!(second, third);
    assert_eq!(gateway.counter("nat.source_rule_0_connections"), 3);
}

/// Every node has all ports, as where one forwards at a time.
fn undivided() -> NatConfig {
    NatConfig { nodes: NonZeroU8::MIN, ..config() }
}

#[test]
fn a_connection_that_all_nodes_have_lost_gets_the_same_port_from_any_of_them() {
    let tuples: Vec<Tuple> =
        (0..100).map(|port| tcp(&format!("10.0.0.{}:{}", port % 7, 40_000 + port), "198.51.100.1:443")).collect();
    let mut before = gateway(undivided());
    let known: HashMap<Tuple, Tuple> =
        tuples.iter().map(|tuple| (*tuple, before.begin(INSIDE, *tuple).unwrap().outgoing)).collect();
    // Another process, in which the connections are picked up in another order.
    let mut after = gateway(undivided());
    let moved = tuples.iter().rev().filter(|tuple| after.begin(INSIDE, **tuple).unwrap().outgoing != known[tuple]);
    assert_eq!(moved.count(), 0);
    // Outsiders, who do not have the key, cannot compute them.
    let mut other = gateway(NatConfig { key: HashKey([1, 2]), ..undivided() });
    let same = tuples.iter().filter(|tuple| other.begin(INSIDE, **tuple).unwrap().outgoing == known[tuple]);
    assert!(same.count() < 5);
}

#[test]
fn ipv6_and_udp_are_translated_alike() {
    let mut gateway = gateway(config());
    assert_source_translated(&mut gateway, tcp("[fd00::1]:5000", "[2001:db8:1::1]:443"), "2001:db8::1");
    assert_source_translated(&mut gateway, udp("10.0.0.1:5000", "198.51.100.1:53"), "192.0.2.1");
}

#[test]
fn pings_are_distinguished_by_their_identifier() {
    let mut gateway = gateway(config());
    let identifiers = ["10.0.0.1", "10.0.0.2"].map(|host| {
        let mut begun = gateway.begin(INSIDE, echo(host, "198.51.100.1", 5000)).unwrap();
        let identifier = begun.outgoing.source_port;
        assert_eq!(begun.outgoing, echo("192.0.2.1", "198.51.100.1", identifier));
        assert_eq!(gateway.answer(&mut begun), echo(host, "198.51.100.1", 5000).inverse());
        identifier
    });
    assert_ne!(identifiers[0], identifiers[1]);
    let six = gateway.begin(INSIDE, echo("fd00::1", "2001:db8:1::1", 6000)).unwrap().outgoing;
    assert_eq!(six, echo("2001:db8::1", "2001:db8:1::1", six.source_port));
}

#[test]
fn protocols_without_ports_are_translated_once_for_each_outside_host() {
    let mut gateway = gateway(config());
    let first = portless(GRE, "10.0.0.1", "198.51.100.1");
    assert_translated(&mut gateway, INSIDE, first, portless(GRE, "192.0.2.1", "198.51.100.1"));
    let second = gateway.begin(INSIDE, portless(GRE, "10.0.0.2", "198.51.100.1"));
    assert_eq!(second.map(|begun| begun.outgoing), Err(DropReason::TupleInUse));
    assert_eq!(gateway.counter("nat.tuples_in_use"), 1);
}

#[test]
fn forwarded_ports_reach_the_server_and_its_replies_come_from_the_public_address() {
    let mut gateway = gateway(config());
    for (tuple, outgoing) in [
        (tcp("198.51.100.1:5000", "192.0.2.1:80"), tcp("198.51.100.1:5000", "10.0.0.80:8080")),
        (tcp("[2001:db8:1::1]:5000", "[2001:db8::1]:443"), tcp("[2001:db8:1::1]:5000", "[fd00::80]:443")),
        (udp("198.51.100.1:5000", "192.0.2.1:7000"), udp("198.51.100.1:5000", "10.0.0.7:9000")),
        (udp("198.51.100.1:5000", "192.0.2.1:7010"), udp("198.51.100.1:5000", "10.0.0.7:9010")),
        // Neighbouring ports and other protocols are not forwarded.
        (udp("198.51.100.1:5000", "192.0.2.1:7011"), udp("198.51.100.1:5000", "192.0.2.1:7011")),
        (udp("198.51.100.1:5000", "192.0.2.1:80"), udp("198.51.100.1:5000", "192.0.2.1:80")),
    ] {
        assert_translated(&mut gateway, OUTSIDE, tuple, outgoing);
    }
    assert_eq!(gateway.counter("nat.destination_rule_2_connections"), 2);
}

#[test]
fn an_ambiguous_forwarded_connection_is_refused() {
    let mut gateway = gateway(config());
    let direct = tcp("198.51.100.1:5000", "10.0.0.80:8080");
    assert_translated(&mut gateway, OUTSIDE, direct, direct);
    let forwarded = gateway.begin(OUTSIDE, tcp("198.51.100.1:5000", "192.0.2.1:80"));
    assert_eq!(forwarded.map(|begun| begun.outgoing), Err(DropReason::TupleInUse));
}

#[test]
fn an_inside_host_reaches_an_inside_server_by_its_public_address() {
    // Both translations apply: the server must see the gateway, or its replies would bypass it (hairpinning).
    let mut gateway = gateway(config());
    let tuple = tcp("10.0.0.1:5000", "192.0.2.1:80");
    let outgoing = gateway.begin(INSIDE, tuple).unwrap().outgoing;
    assert_eq!(outgoing, tcp(&format!("192.0.2.1:{}", outgoing.source_port), "10.0.0.80:8080"));
    assert_eq!(gateway.counter("nat.source_rule_0_connections"), 1);
    assert_eq!(gateway.counter("nat.destination_rule_0_connections"), 1);
}

#[test]
fn exempt_connections_and_those_without_a_rule_are_untranslated() {
    let office = Conditions { destinations: vec!["10.9.0.0/16".parse().unwrap()], ..Conditions::default() };
    let mut config = config();
    config.source_rules.insert(0, SourceRule { conditions: office, action: SourceAction::Exempt });
    let mut gateway = gateway(config);
    for tuple in [tcp("10.0.0.1:5000", "10.9.0.1:443"), tcp("172.16.0.1:5000", "198.51.100.1:443")] {
        assert_translated(&mut gateway, INSIDE, tuple, tuple);
    }
    assert_eq!(gateway.counter("nat.source_rule_0_connections"), 0);
}

#[test]
fn when_the_ports_towards_a_server_run_out_connections_are_refused_until_one_ends() {
    let mut gateway = gateway(NatConfig { ports: range(2000, 2007), ..config() });
    let tuple = |port: u16| tcp(&format!("10.0.0.1:{port}"), "198.51.100.1:443");
    let taken: Vec<Connection> =
        (1..=4).map(|port| gateway.begin(INSIDE, tuple(port)).expect("a port is free").connection).collect();
    let ports: HashSet<u16> = taken.iter().map(|connection| connection.reply.destination_port).collect();
    assert_eq!(ports, HashSet::from([2000, 2001, 2002, 2003]), "the half of node 0 of 2");

    let refused = gateway.begin(INSIDE, tuple(5)).map(|begun| begun.outgoing);
    assert_eq!(refused, Err(DropReason::NatPortsExhausted));
    assert_eq!(gateway.counter("nat.ports_exhausted"), 1);
    let other_server = gateway.begin(INSIDE, tcp("10.0.0.1:5", "198.51.100.2:443"));
    assert!(other_server.is_ok(), "the ports are used up towards one server only");

    gateway.tuples.0.remove(&taken[2].reply);
    let retried = gateway.begin(INSIDE, tuple(5)).expect("a port has become free");
    assert_eq!(retried.outgoing.source_port, taken[2].reply.destination_port);
}

#[test]
fn a_node_does_not_take_a_port_of_another_node() {
    let mut gateway = gateway(NatConfig { ports: range(2000, 2999), ..config() });
    let begun = gateway.begin(INSIDE, tcp("10.0.0.1:2700", "198.51.100.1:443")).unwrap();
    assert!(range(2000, 2499).contains(begun.outgoing.source_port), "{:?}", begun.outgoing);
}

#[test]
fn an_end_point_has_one_address_and_port_towards_all_peers() {
    let mut config = config();
    config.source_rules = vec![source(from("10.0.0.0/8"), &["192.0.2.1", "192.0.2.2", "192.0.2.3"])];
    let mut gateway = gateway(config);
    let seen: HashSet<(IpAddr, u16)> = (1..=9)
        .map(|server| {
            let tuple = udp("10.0.0.1:999", &format!("198.51.100.{server}:53"));
            let outgoing = gateway.begin(INSIDE, tuple).unwrap().outgoing;
            (source_of(&outgoing), outgoing.source_port)
        })
        .collect();
    assert_eq!(seen.len(), 1, "{seen:?}");
}

#[test]
fn another_node_continues_translation_without_the_original_rules() {
    let mut first = gateway(config());
    let tuple = tcp("10.0.0.1:5000", "198.51.100.1:443");
    let begun = first.begin(INSIDE, tuple).unwrap();
    let mut attributes = Vec::new();
    first.chain.encode_states(&begun.connection, &mut attributes);

    let empty = NatConfig { source_rules: Vec::new(), destination_rules: Vec::new(), node: NodeId(1), ..config() };
    let mut second = gateway(empty);
    let mut connection = begun.connection;
    second.chain.decode_states(&mut connection, &attributes).unwrap();
    assert_eq!(connection.functions, begun.connection.functions);
    let (_, outgoing) = second.pass(&mut connection, INSIDE, Direction::Original);
    let (_, answer) = second.pass(&mut connection, OUTSIDE, Direction::Reply);
    assert_eq!((outgoing, answer), (begun.outgoing, tuple.inverse()));
}

#[test]
fn an_icmp_error_of_a_translated_connection_is_never_partly_translated() {
    let mut gateway = gateway(config());
    let mut begun = gateway.begin(INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:443")).unwrap();
    let inner = begun.connection.original;
    let verdict = with_packet(&portless(ICMP, "198.51.100.9", "192.0.2.1"), OUTSIDE, Direction::Reply, |packet| {
        packet.headers.transport = Transport::IcmpError(flow::wire::IcmpError {
            kind: 3,
            code: 1,
            inner,
            inner_l3_offset: 42,
            inner_l4_offset: 62,
        });
        gateway.process(&mut begun.connection, packet, Direction::Reply).verdict
    });
    assert_eq!(verdict, Verdict::Drop(DropReason::NatUntranslatable));
}

#[test]
fn invalid_configurations_are_refused() {
    let error = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        Nat::new(config).map(|nat| nat.ports()).unwrap_err()
    };
    let any = Conditions::default;
    assert_eq!(error(&|config| config.source_rules[0] = source(any(), &[])), NatError::EmptyPool(0));
    let mixed = ["192.0.2.1", "2001:db8::1"];
    assert_eq!(error(&|config| config.source_rules[1] = source(any(), &mixed)), NatError::MixedPool(1));
    let large = vec!["192.0.2.1"; POOL_ADDRESSES_MAX + 1];
    assert_eq!(error(&|config| config.source_rules[0] = source(any(), &large)), NatError::PoolTooLarge(0));
    assert_eq!(error(&|config| config.destination_rules[2].port = Some(65530)), NatError::PortOverflow(2));
    assert_eq!(
        error(&|config| config.destination_rules[0].conditions.destination_ports.clear()),
        NatError::PortWithoutRange(0)
    );
    let no_family = |index| RuleSetError::Rule { index, error: ConditionError::NoCommonFamily };
    assert_eq!(
        error(&|config| config.source_rules[1] = source(from("10.0.0.0/8"), &["2001:db8::1"])),
        NatError::Conditions { kind: RuleKind::Source, error: no_family(1) }
    );
    assert_eq!(
        error(&|config| config.destination_rules[0].conditions.family = Some(IpFamily::V6)),
        NatError::Conditions { kind: RuleKind::Destination, error: no_family(0) }
    );
    let nodes = NonZeroU8::new(2).unwrap();
    assert_eq!(
        error(&|config| config.node = NodeId(2)),
        NatError::NoPorts { ports: SOURCE_PORTS_DEFAULT, node: NodeId(2), nodes }
    );
    let one = PortRange::single(4000);
    assert_eq!(error(&|config| config.ports = one), NatError::NoPorts { ports: one, node: NodeId(0), nodes });
}

/// Connections from few inside end points to few outside ones, so that they compete for ports.
fn connection() -> impl Strategy<Value = Tuple> {
    (0u8..3, 1u8..5, 2000u16..2016, 1u8..3).prop_map(|(kind, inside, port, server)| {
        let (four, server_four) = (format!("10.0.0.{inside}"), format!("198.51.100.{server}"));
        match kind {
            0 => tcp(&format!("{four}:{port}"), &format!("{server_four}:443")),
            1 => tcp(&format!("[fd00::{inside}]:{port}"), &format!("[2001:db8:1::{server}]:443")),
            _ => echo(&four, &server_four, port),
        }
    })
}

proptest! {
    #[test]
    fn a_chain_that_only_translates_does_without_calls_what_it_does_with_them(
        tuple in connection(),
        is_udp: bool,
        is_reply: bool,
        is_fragment: bool,
    ) {
        let tuple = if is_udp && tuple.protocol == TCP { Tuple { protocol: UDP, ..tuple } } else { tuple };
        let direction = if is_reply { Direction::Reply } else { Direction::Original };
        let outcome = |is_called: bool| {
            let mut gateway = gateway(config());
            let mut begun = gateway.begin(INSIDE, tuple).expect("a rule translates it");
            let arriving = *begun.connection.tuple(direction);
            with_packet(&arriving, INSIDE, direction, |packet| {
                packet.headers.is_fragment = is_fragment;
                let processed = if is_called {
                    gateway.process_by_calls(&mut begun.connection, packet, direction)
                } else {
                    gateway.process(&mut begun.connection, packet, direction)
                };
                let counters = (gateway.counters.values().to_vec(), gateway.counters.functions().to_vec());
                (processed, packet.headers.tuple, packet.frame.bytes().to_vec(), counters)
            })
        };
        prop_assert_eq!(outcome(false), outcome(true));
    }

    #[test]
    fn nodes_without_coordination_never_choose_the_same_mapping(
        connections in prop::collection::hash_set(connection(), 1..60),
        nodes in 1u8..5,
    ) {
        let nodes = NonZeroU8::new(nodes).unwrap();
        let ports = range(2000, 2031);
        let mut gateways: Vec<Gateway> = (0..nodes.get())
            .map(|node| gateway(NatConfig { ports, nodes, node: NodeId(node), ..config() }))
            .collect();
        let mut replies: HashMap<Tuple, Tuple> = HashMap::new();
        for (index, tuple) in connections.into_iter().enumerate() {
            let node = index % usize::from(nodes.get());
            let own = ports.slice(NodeId(u8::try_from(node).unwrap()), nodes).unwrap();
            match gateways[node].begin(INSIDE, tuple) {
                Ok(mut begun) => {
                    let outgoing = begun.outgoing;
                    prop_assert!(own.contains(outgoing.source_port), "{:?} of {:?}", outgoing, own);
                    prop_assert_eq!(outgoing.destination, tuple.destination);
                    prop_assert_eq!(family(source_of(&outgoing)), tuple.family());
                    prop_assert_eq!(replies.insert(begun.connection.reply, tuple), None);
                    prop_assert_eq!(gateways[node].answer(&mut begun), tuple.inverse());
                }
                Err(reason) => prop_assert_eq!(reason, DropReason::NatPortsExhausted),
            }
        }
    }

    #[test]
    fn encoded_states_decode_to_the_same_states(source_rule_number: u16, destination_rule_number: u16) {
        let state = NatState { source_rule_number, destination_rule_number };
        let mut encoded = Vec::new();
        state.encode(&mut encoded);
        prop_assert_eq!(NatState::decode(&encoded), Ok(state));
    }

    #[test]
    fn decoding_never_panics(bytes: Vec<u8>) {
        let _ = NatState::decode(&bytes);
    }
}

#[test]
fn forwarded_ports_are_not_chosen_by_source_nat() {
    // Of eleven ports of the shared address, ten are forwarded for UDP, and one more to one client alone for TCP.
    let ports = range(7000, 7010);
    let mut narrow = forward("192.0.2.1", TCP, PortRange::single(7003), "10.0.0.80", Some(443));
    narrow.conditions.sources = vec!["203.0.113.9/32".parse().unwrap()];
    narrow.conditions.ingress = vec![OUTSIDE];
    let wide = forward("192.0.2.1", UDP, range(7001, 7010), "10.0.0.7", Some(9000));
    let rules = vec![narrow, wide];
    let mut gateway = gateway(NatConfig { destination_rules: rules, ports, ..undivided() });
    for host in 1..=40 {
        let of_host =
            |tuple: fn(&str, &str) -> Tuple| tuple(&format!("10.0.0.{host}:7003"), &format!("198.51.100.{host}:53"));
        assert_ne!(gateway.begin(INSIDE, of_host(tcp)).unwrap().outgoing.source_port, 7003);
        assert_eq!(gateway.begin(INSIDE, of_host(udp)).unwrap().outgoing.source_port, 7000);
    }
}

#[test]
fn source_nat_fails_where_all_ports_are_forwarded() {
    let ports = range(6000, 6100);
    let all = forward("192.0.2.1", TCP, ports, "10.0.0.80", None);
    let config = NatConfig { destination_rules: vec![all], ports, nodes: NonZeroU8::MIN, ..config() };
    let mut gateway = gateway(config);
    let refused = gateway.begin(INSIDE, tcp("10.0.0.1:6001", "198.51.100.1:443"));
    assert_eq!(refused.err(), Some(DropReason::NatPortsExhausted));
}

#[test]
fn sctp_associations_of_two_hosts_with_one_port_are_distinguished() {
    let mut gateway = gateway(config());
    let first = sctp("10.0.0.1:2905", "198.51.100.1:2905");
    let first = assert_source_translated(&mut gateway, first, "192.0.2.1");
    let mut second = gateway.begin(INSIDE, sctp("10.0.0.2:2905", "198.51.100.1:2905")).unwrap();
    assert_ne!(second.outgoing.source_port, first);
    assert_eq!(gateway.answer(&mut second), sctp("10.0.0.2:2905", "198.51.100.1:2905").inverse());
}

#[test]
fn a_fragment_of_an_sctp_packet_passes_only_with_unchanged_ports() {
    for (translated, passes) in [("192.0.2.1:2905", true), ("192.0.2.1:4000", false)] {
        let original = sctp("10.0.0.1:2905", "198.51.100.1:2905");
        with_packet(&original, INSIDE, Direction::Original, |packet| {
            packet.headers.is_fragment = true;
            let outgoing = sctp(translated, "198.51.100.1:2905");
            assert_eq!(may_be_renumbered(packet, &outgoing), passes);
        });
    }
}

/// Whether the connection may continue under `config`.
fn continues_under(config: NatConfig, begun: &crate::testing::Begun) -> bool {
    gateway(config).chain.may_continue(&begun.connection).is_ok()
}

#[test]
fn flows_of_datagrams_end_when_a_reload_replaces_their_translation_and_tcp_goes_on() {
    let mut before = gateway(config());
    let mut begin = |ingress, tuple| before.begin(ingress, tuple).unwrap();
    let outwards = begin(INSIDE, udp("10.0.0.1:5000", "198.51.100.1:53"));
    let ping = begin(INSIDE, echo("10.0.0.1", "198.51.100.1", 7));
    let gre = begin(INSIDE, portless(GRE, "10.0.0.1", "198.51.100.1"));
    let inwards = begin(OUTSIDE, udp("198.51.100.1:5000", "192.0.2.1:7001"));
    let untranslated = begin(INSIDE, udp("172.16.0.1:5000", "198.51.100.1:53"));
    let connection = begin(INSIDE, tcp("10.0.0.1:5000", "198.51.100.1:443"));
    let association = begin(INSIDE, sctp("10.0.0.1:5000", "198.51.100.1:443"));
    let all = [&outwards, &ping, &gre, &inwards, &untranslated, &connection, &association];
    let ended_under = |change: &dyn Fn(&mut NatConfig)| {
        let mut config = config();
        change(&mut config);
        all.map(|begun| !continues_under(config.clone(), begun))
    };
    assert_eq!(ended_under(&|_| {}), [false; 7]);
    let larger = source(from("10.0.0.0/8"), &["192.0.2.9", "192.0.2.1"]);
    assert_eq!(ended_under(&|config| config.source_rules[0] = larger.clone()), [false; 7], "the address stays");
    let replaced = source(from("10.0.0.0/8"), &["192.0.2.9"]);
    let of_source = [true, true, true, false, false, false, false];
    assert_eq!(ended_under(&|config| config.source_rules[0] = replaced.clone()), of_source);
    assert_eq!(ended_under(&|config| config.source_rules.clear()), of_source);
    let exempt = SourceRule { conditions: from("10.0.0.0/8"), action: SourceAction::Exempt };
    assert_eq!(ended_under(&|config| config.source_rules.insert(0, exempt.clone())), of_source);
    let wider = source(from("172.16.0.0/12"), &["192.0.2.1"]);
    let of_new = [false, false, false, false, true, false, false];
    assert_eq!(ended_under(&|config| config.source_rules.push(wider.clone())), of_new, "it is translated from now on");
    let of_destination = [false, false, false, true, false, false, false];
    assert_eq!(ended_under(&|config| config.destination_rules.clear()), of_destination);
    let moved = forward("192.0.2.1", UDP, range(7000, 7010), "10.0.0.8", Some(9000));
    assert_eq!(ended_under(&|config| config.destination_rules[2] = moved.clone()), of_destination);
    let shifted = forward("192.0.2.1", UDP, range(7000, 7010), "10.0.0.7", Some(9100));
    assert_eq!(ended_under(&|config| config.destination_rules[2] = shifted.clone()), of_destination);
    let fewer = |config: &mut NatConfig| config.ports = range(60_000, 60_100);
    assert_eq!(ended_under(&fewer), [true, true, false, false, false, false, false]);
}

#[test]
fn a_node_may_continue_what_another_nodes_part_of_the_ports_was_used_for() {
    let begun = gateway(config()).begin(INSIDE, udp("10.0.0.1:5000", "198.51.100.1:53")).unwrap();
    assert!(continues_under(NatConfig { node: NodeId(1), ..config() }, &begun));
}

/// One outside address and port for each end point, of a node of a pair of which one forwards at a time.
fn endpoints_in(ports: PortRange) -> NatConfig {
    let address: IpAddr = "192.0.2.1".parse().unwrap();
    let mappings = alloc::sync::Arc::new(EndpointMappings::new([address], ports, KEY, None));
    let action = SourceAction::TranslateEndpoints(vec![address], mappings);
    let source_rules = vec![SourceRule { conditions: from("10.0.0.0/8"), action }];
    NatConfig { source_rules, ports, nodes: NonZeroU8::MIN, ..config() }
}

fn server(number: u16, port: u16) -> String {
    format!("198.51.{}.{}:{port}", number / 250, 1 + number % 250)
}

fn end(gateway: &mut Gateway, begun: &crate::testing::Begun) {
    gateway.tuples.0.remove(&begun.connection.original);
    gateway.tuples.0.remove(&begun.connection.reply);
    gateway.chain.note_left(&begun.connection);
}

#[test]
fn an_end_point_with_its_own_mapping_has_one_port_that_no_other_end_point_has() {
    let mut gateway = gateway(endpoints_in(range(2000, 2063)));
    for tuple in [tcp, udp, sctp] {
        let mut owners: HashMap<u16, u16> = HashMap::new();
        for host in 1..=20 {
            let seen: HashSet<u16> = (1..=30)
                .map(|number| tuple(&format!("10.0.0.{host}:5000"), &server(number, 50 + number)))
                .map(|tuple| gateway.begin(INSIDE, tuple).unwrap().outgoing.source_port)
                .collect();
            assert_eq!(seen.len(), 1, "host {host}: {seen:?}");
            assert_eq!(owners.insert(*seen.iter().next().unwrap(), host), None);
        }
    }
    // Nor do two pings of different identifiers.
    let identifier = |gateway: &mut Gateway, of: u16, to: &str| {
        gateway.begin(INSIDE, echo("10.0.0.1", to, of)).unwrap().outgoing.source_port
    };
    let [one, same, other] = [(7, "198.51.100.1"), (7, "198.51.100.2"), (8, "198.51.100.1")]
        .map(|(of, to)| identifier(&mut gateway, of, to));
    assert_eq!(one, same);
    assert_ne!(one, other);
}

#[test]
fn a_mapping_lasts_as_long_as_a_connection_uses_it_and_its_port_is_then_for_others() {
    let mut gateway = gateway(endpoints_in(range(2000, 2001)));
    let begin = |gateway: &mut Gateway, host: u16, number| {
        gateway.begin(INSIDE, udp(&format!("10.0.0.{host}:5000"), &server(number, 53)))
    };
    let first = [1, 2].map(|number| begin(&mut gateway, 1, number).unwrap());
    let second = begin(&mut gateway, 2, 1).unwrap();
    assert_eq!(begin(&mut gateway, 3, 9).err(), Some(DropReason::NatPortsExhausted), "towards any server");
    gateway.now = flow::Instant::from_millis(10_000);
    end(&mut gateway, &first[0]);
    assert_eq!(begin(&mut gateway, 3, 9).err(), Some(DropReason::NatPortsExhausted));
    assert_eq!(begin(&mut gateway, 1, 3).unwrap().outgoing.source_port, first[0].outgoing.source_port);
    end(&mut gateway, &second);
    assert_eq!(begin(&mut gateway, 2, 4).unwrap().outgoing.source_port, second.outgoing.source_port, "it returns");
    let mut without = self::gateway(endpoints_in(range(2000, 2000)));
    let only = begin(&mut without, 1, 1).unwrap();
    without.now = flow::Instant::from_millis(10_000);
    end(&mut without, &only);
    assert_eq!(begin(&mut without, 3, 1).unwrap().outgoing.source_port, 2000);
}

#[test]
fn a_node_that_takes_over_continues_the_mappings_of_the_connections_that_it_has() {
    let ports = range(2000, 2999);
    let mut before = gateway(endpoints_in(ports));
    // Ports that were taken when a mapping began are free later: the order of candidates alone does not give it.
    let begun: Vec<_> = (0..300)
        .map(|port| before.begin(INSIDE, udp(&format!("10.0.0.1:{}", 5000 + port), &server(1, 53))).unwrap())
        .collect();
    // The other node divides the ports, as if another forwarded beside it.
    let mut after = gateway(NatConfig { node: NodeId(1), nodes: NonZeroU8::new(2).unwrap(), ..endpoints_in(ports) });
    for one in begun.iter().rev() {
        let mut attributes = Vec::new();
        before.chain.encode_states(&one.connection, &mut attributes);
        let mut copy = one.connection;
        after.chain.decode_states(&mut copy, &attributes).unwrap();
        after.chain.note_entered(&copy);
    }
    for (port, one) in begun.iter().enumerate() {
        let tuple = udp(&format!("10.0.0.1:{}", 5000 + port), &server(2, 99));
        assert_eq!(after.begin(INSIDE, tuple).unwrap().outgoing.source_port, one.outgoing.source_port);
    }
    let fresh = after.begin(INSIDE, udp("10.0.0.2:5000", &server(2, 99))).unwrap().outgoing.source_port;
    assert!(fresh >= 2500 && begun.iter().all(|one| one.outgoing.source_port != fresh));
}

#[test]
fn mappings_of_addresses_that_stay_continue_across_a_reload() {
    let addresses = |list: &[&str]| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<IpAddr>>();
    let ports = range(2000, 2999);
    let old = EndpointMappings::new(addresses(&["192.0.2.1", "192.0.2.2"]), ports, KEY, None);
    let tuple = udp("10.0.0.1:5000", "198.51.100.1:53");
    let stays = tcp("192.0.2.2:1", "192.0.2.2:1").source;
    let port = old.claim(flow::Instant::ZERO, &tuple, &stays, |_| true).unwrap();
    let new = EndpointMappings::new(addresses(&["192.0.2.2"]), ports, KEY, Some(&old));
    assert_eq!(new.claim(flow::Instant::ZERO, &tuple, &stays, |_| true), Some(port));
    let other = udp("10.0.0.2:5000", "198.51.100.1:53");
    let is_port = |candidate: u16| candidate == port;
    assert_eq!(new.claim(flow::Instant::ZERO, &other, &stays, is_port), None, "it is claimed");
}

#[test]
fn an_address_of_mappings_is_no_other_rules() {
    let mut config = endpoints_in(range(2000, 2999));
    config.source_rules.push(source(from("fd00::/8"), &["2001:db8::1"]));
    assert!(Nat::new(config.clone()).is_ok());
    config.source_rules.push(source(from("172.16.0.0/12"), &["192.0.2.1"]));
    assert_eq!(Nat::new(config).err(), Some(NatError::SharedPool { first: 0, second: 2 }));
}
