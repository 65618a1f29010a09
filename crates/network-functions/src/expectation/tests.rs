//! The guarantees of the table of expectations.

use alloc::vec::Vec;
use core::num::NonZeroU8;

use flow::{DropReason, HashKey, NodeId};
use proptest::prelude::*;

use super::*;
use crate::chain::ChainBuilder;
use crate::firewall::{Firewall, FirewallConfig, Related};
use crate::nat::{Nat, NatConfig, SOURCE_PORTS_DEFAULT};
use crate::testing::{Gateway, OUTSIDE, tcp, udp};

const FUNCTION: u16 = 3;

fn master(port: u16) -> Tuple {
    Tuple { source_port: port, ..tcp("10.0.0.1:1", "198.51.100.1:21") }
}

fn expectation(port: u16) -> Expectation {
    let tuple = Tuple { source_port: ANY_PORT, destination_port: port, ..tcp("198.51.100.1:1", "192.0.2.1:1") };
    Expectation {
        tuple,
        outgoing: Tuple { source_port: ANY_PORT, ..tcp("198.51.100.1:1", "10.0.0.1:5000") },
        function: FUNCTION,
        expires_at: Instant::from_millis(1000),
        is_permanent: false,
    }
}

fn first_packet(source: &str, port: u16) -> Tuple {
    Tuple { destination_port: port, ..tcp(source, "192.0.2.1:1") }
}

#[test]
fn an_expected_connection_may_come_from_any_port_but_not_from_another_address() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    expectations.expect(now, &master(4000), expectation(5000)).unwrap();
    assert!(expectations.find(now, &first_packet("198.51.100.1:20", 5000)).is_some());
    assert!(expectations.find(now, &first_packet("198.51.100.1:33000", 5000)).is_some());
    assert!(expectations.find(now, &first_packet("198.51.100.2:20", 5000)).is_none());
    assert!(expectations.find(now, &first_packet("198.51.100.1:20", 5001)).is_none());
    assert!(expectations.find(now, &udp("198.51.100.1:20", "192.0.2.1:5000")).is_none());
}

#[test]
fn wildcards_and_ports_are_respected() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    let mut from_anywhere = expectation(5000);
    from_anywhere.tuple.source = ANY_ADDRESS;
    from_anywhere.tuple.source_port = 20;
    expectations.expect(now, &master(4000), from_anywhere).unwrap();
    assert!(expectations.find(now, &first_packet("203.0.113.9:20", 5000)).is_some());
    assert!(expectations.find(now, &first_packet("203.0.113.9:21", 5000)).is_none());
}

#[test]
fn an_expectation_is_removed_by_its_connection_unless_permanent() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    let packet = first_packet("198.51.100.1:20", 5000);
    expectations.expect(now, &master(4000), expectation(5000)).unwrap();
    assert_eq!(expectations.fulfil(now, &packet), Some(Fulfilled { master: master(4000), is_used_up: true }));
    assert_eq!(expectations.fulfil(now, &packet), None);
    assert!(!expectations.has(&master(4000)));

    expectations.expect(now, &master(4000), Expectation { is_permanent: true, ..expectation(5000) }).unwrap();
    for _ in 0..2 {
        assert_eq!(expectations.fulfil(now, &packet), Some(Fulfilled { master: master(4000), is_used_up: false }));
    }
}

#[test]
fn an_expectation_ends_on_timeout_and_with_its_master() {
    let (mut expectations, packet) = (Expectations::default(), first_packet("198.51.100.1:20", 5000));
    expectations.expect(Instant::ZERO, &master(4000), expectation(5000)).unwrap();
    assert!(expectations.find(Instant::from_millis(999), &packet).is_some());
    assert!(expectations.find(Instant::from_millis(1000), &packet).is_none());
    assert_eq!(expectations.fulfil(Instant::from_millis(1000), &packet), None);
    expectations.forget(&master(4001));
    assert!(expectations.has(&master(4000)));
    expectations.forget(&master(4000));
    assert!(expectations.is_empty());
}

#[test]
fn an_expectation_of_another_master_is_not_replaced() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    expectations.expect(now, &master(4000), expectation(5000)).unwrap();
    assert_eq!(expectations.expect(now, &master(4001), expectation(5000)), Err(Refusal::Clash));
    expectations.expect(now, &master(4000), expectation(5000)).unwrap();
    assert_eq!(expectations.len(), 1);
    let later = Instant::from_millis(1000);
    let renewed = Expectation { expires_at: Instant::from_millis(2000), ..expectation(5000) };
    expectations.expect(later, &master(4001), renewed).expect("the other has expired");
}

#[test]
fn a_master_over_its_limit_loses_its_oldest_expectation() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    for port in 5000..5006 {
        expectations.expect(now, &master(4000), expectation(port)).unwrap();
    }
    let ports: Vec<u16> = expectations.of(&master(4000)).map(|expected| expected.tuple.destination_port).collect();
    assert_eq!(ports, [5002, 5003, 5004, 5005]);
    expectations.forget_function(&master(4000), FUNCTION + 1);
    assert_eq!(expectations.len(), EXPECTATIONS_PER_MASTER_MAX);
    expectations.forget_function(&master(4000), FUNCTION);
    assert!(expectations.is_empty());
}

#[test]
fn a_full_table_refuses_until_some_expire() {
    let (mut expectations, now) = (Expectations::default(), Instant::ZERO);
    for port in 0..EXPECTATIONS_MAX as u16 {
        expectations.expect(now, &master(port), expectation(10_000 + port)).unwrap();
    }
    assert_eq!(expectations.expect(now, &master(60_000), expectation(5000)), Err(Refusal::Full));
    let later = Expectation { expires_at: Instant::from_millis(5000), ..expectation(5000) };
    expectations.expect(Instant::from_millis(1000), &master(60_000), later).unwrap();
    assert_eq!(expectations.len(), 1);
}

proptest! {
    #[test]
    fn expectations_are_replicated_to_another_node(
        ports in prop::collection::btree_set(1u16.., 0..5), is_ipv6: bool, is_permanent: bool, any_source: bool,
    ) {
        let now = Instant::from_millis(7);
        let mut expectations = Expectations::default();
        let master = master(4000);
        for port in ports {
            let mut expected = Expectation { is_permanent, ..expectation(port) };
            if is_ipv6 {
                expected.tuple = Tuple { destination_port: port, ..tcp("[2001:db8::1]:20", "[2001:db8::2]:1") };
                expected.outgoing = tcp("[2001:db8::1]:20", "[fd00::1]:5000");
            }
            if any_source {
                (expected.tuple.source, expected.outgoing.source) = (ANY_ADDRESS, ANY_ADDRESS);
            }
            expectations.expect(now, &master, expected).unwrap();
        }
        let mut attributes = Vec::new();
        expectations.encode(now, &master, &mut attributes);
        let mut elsewhere = Expectations::default();
        elsewhere.replace(now, &master, &decode(now, &attributes).unwrap());
        let replicated: Vec<_> = elsewhere.of(&master).copied().collect();
        prop_assert_eq!(replicated, expectations.of(&master).copied().collect::<Vec<_>>());
        elsewhere.replace(now, &master, &[]);
        prop_assert!(elsewhere.is_empty());
    }

    #[test]
    fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let read = decode(Instant::ZERO, &bytes);
        prop_assert!(read.is_err() || read.is_ok_and(|expected| expected.len() <= EXPECTATIONS_PER_MASTER_MAX));
    }
}

/// A firewall and NAT without rules: only expected connections pass or are translated.
fn closed_gateway(related: Related) -> Gateway {
    let firewall = Firewall::new(FirewallConfig { related, ..FirewallConfig::default() }).unwrap();
    let nat = Nat::new(NatConfig {
        destination_rules: Vec::new(),
        source_rules: Vec::new(),
        ports: SOURCE_PORTS_DEFAULT,
        node: NodeId(0),
        nodes: NonZeroU8::MIN,
        key: HashKey([3, 4]),
    });
    Gateway::of(ChainBuilder::new().push(firewall).push(nat.unwrap()).build().unwrap())
}

#[test]
fn an_expected_connection_passes_the_firewall_and_is_translated_as_announced() {
    let mut gateway = closed_gateway(Related::Accept);
    gateway.expectations.expect(Instant::ZERO, &master(4000), expectation(5000)).unwrap();
    let incoming = first_packet("198.51.100.1:20", 5000);
    let mut begun = gateway.begin(OUTSIDE, incoming).expect("it is expected");
    assert_eq!(begun.outgoing, tcp("198.51.100.1:20", "10.0.0.1:5000"));
    assert_eq!(gateway.answer(&mut begun), incoming.inverse());
    assert_eq!(gateway.counter("firewall.related_hits"), 1);
    assert_eq!(gateway.begin(OUTSIDE, first_packet("198.51.100.1:20", 5001)).err(), Some(DropReason::FirewallDenied));
}

#[test]
fn the_operator_may_apply_the_rules_to_expected_connections() {
    let mut gateway = closed_gateway(Related::Rules);
    gateway.expectations.expect(Instant::ZERO, &master(4000), expectation(5000)).unwrap();
    assert_eq!(gateway.begin(OUTSIDE, first_packet("198.51.100.1:20", 5000)).err(), Some(DropReason::FirewallDenied));
}

#[test]
fn an_expected_connection_gets_another_source_port_when_its_own_is_in_use() {
    let mut gateway = closed_gateway(Related::Accept);
    let mut translated = expectation(5000);
    translated.outgoing.source = tcp("203.0.113.7:1", "203.0.113.7:1").source;
    gateway.expectations.expect(Instant::ZERO, &master(4000), translated).unwrap();
    gateway.tuples.0.insert(tcp("10.0.0.1:5000", "203.0.113.7:20"));
    let outgoing = gateway.begin(OUTSIDE, first_packet("198.51.100.1:20", 5000)).unwrap().outgoing;
    assert_eq!(outgoing, Tuple { source_port: outgoing.source_port, ..tcp("203.0.113.7:1", "10.0.0.1:5000") });
    assert!(outgoing.source_port >= 1024);
}
