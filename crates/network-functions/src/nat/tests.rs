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

#[test]
fn inside_hosts_get_the_shared_address_and_keep_their_port_while_it_is_free() {
    let mut gateway = gateway(config());
    let first = tcp("10.0.0.1:5000", "198.51.100.1:443");
    assert_translated(&mut gateway, INSIDE, first, tcp("192.0.2.1:5000", "198.51.100.1:443"));
    assert_eq!(gateway.counter("nat.ports_preserved"), 1);

    // Another host with the same port, to the same server: another port.
    let second = gateway.begin(INSIDE, tcp("10.0.0.2:5000", "198.51.100.1:443")).unwrap().outgoing;
    assert_eq!(source_of(&second), source_of(&tcp("192.0.2.1:1", "192.0.2.1:1")));
    assert_ne!(second.source_port, 5000);
    // And to another server: the port is free there.
    let third = tcp("10.0.0.2:5000", "198.51.100.2:443");
    assert_translated(&mut gateway, INSIDE, third, tcp("192.0.2.1:5000", "198.51.100.2:443"));
    assert_eq!(gateway.counter("nat.source_rule_0_connections"), 3);
    assert_eq!(gateway.counter("nat.ports_preserved"), 2);
}

#[test]
fn ipv6_and_udp_are_translated_alike() {
    let mut gateway = gateway(config());
    let six = tcp("[fd00::1]:5000", "[2001:db8:1::1]:443");
    assert_translated(&mut gateway, INSIDE, six, tcp("[2001:db8::1]:5000", "[2001:db8:1::1]:443"));
    let datagram = udp("10.0.0.1:5000", "198.51.100.1:53");
    assert_translated(&mut gateway, INSIDE, datagram, udp("192.0.2.1:5000", "198.51.100.1:53"));
}

#[test]
fn pings_are_distinguished_by_their_identifier() {
    let mut gateway = gateway(config());
    assert_translated(
        &mut gateway,
        INSIDE,
        echo("10.0.0.1", "198.51.100.1", 5000),
        echo("192.0.2.1", "198.51.100.1", 5000),
    );
    let mut second = gateway.begin(INSIDE, echo("10.0.0.2", "198.51.100.1", 5000)).unwrap();
    let identifier = second.outgoing.source_port;
    assert_ne!(identifier, 5000);
    assert_eq!(second.outgoing, echo("192.0.2.1", "198.51.100.1", identifier));
    assert_eq!(gateway.answer(&mut second), echo("10.0.0.2", "198.51.100.1", 5000).inverse());
    let six = echo("fd00::1", "2001:db8:1::1", 6000);
    assert_translated(&mut gateway, INSIDE, six, echo("2001:db8::1", "2001:db8:1::1", 6000));
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
    assert_translated(&mut gateway, INSIDE, tuple, tcp("192.0.2.1:5000", "10.0.0.80:8080"));
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
fn a_node_does_not_take_a_port_of_another_node_even_to_preserve_it() {
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
    // TCP 8443 and UDP 7000-7010 of the shared address are forwarded, the first to one client alone.
    let mut narrow = forward("192.0.2.1", TCP, PortRange::single(8443), "10.0.0.80", Some(443));
    narrow.conditions.sources = vec!["203.0.113.9/32".parse().unwrap()];
    narrow.conditions.ingress = vec![OUTSIDE];
    let mut rules = config().destination_rules;
    rules.push(narrow);
    let mut gateway = gateway(NatConfig { destination_rules: rules, nodes: NonZeroU8::MIN, ..config() });
    for shadowed in [tcp("10.0.0.1:8443", "198.51.100.1:443"), udp("10.0.0.1:7003", "198.51.100.1:53")] {
        let outgoing = gateway.begin(INSIDE, shadowed).unwrap().outgoing;
        assert_ne!(outgoing.source_port, shadowed.source_port);
        assert_eq!(source_of(&outgoing), source_of(&tcp("192.0.2.1:1", "192.0.2.1:1")));
    }
    // The other protocol's port is not forwarded.
    let other = gateway.begin(INSIDE, udp("10.0.0.1:8443", "198.51.100.1:53")).unwrap().outgoing;
    assert_eq!(other.source_port, 8443);
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
    assert_translated(&mut gateway, INSIDE, first, sctp("192.0.2.1:2905", "198.51.100.1:2905"));
    let mut second = gateway.begin(INSIDE, sctp("10.0.0.2:2905", "198.51.100.1:2905")).unwrap();
    assert_ne!(second.outgoing.source_port, 2905);
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
