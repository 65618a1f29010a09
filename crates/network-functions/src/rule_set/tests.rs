//! The compiled set against a matcher that reads the conditions one by one.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use flow::{IpFamily, PortId, Tuple};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::address::{Prefix, from_tuple_bytes, tuple_bytes};
use crate::port_range::PortRange;

/// What the documentation of [`Conditions`] says, word for word.
fn meets(conditions: &Conditions, key: &RuleKey) -> bool {
    let tuple = &key.tuple;
    let family = tuple.family();
    let source = from_tuple_bytes(tuple.source, family);
    let destination = from_tuple_bytes(tuple.destination, family);
    let ported = |ranges: &[PortRange], port: u16| {
        ranges.is_empty() || has_ports(tuple.protocol) && ranges.iter().any(|range| range.contains(port))
    };
    let icmp = |wanted: &IcmpMatch| {
        key.icmp.is_some_and(|(kind, code)| kind == wanted.kind && [None, Some(code)].contains(&wanted.code))
    };
    [None, Some(family)].contains(&conditions.family)
        && (conditions.sources.is_empty() || conditions.sources.iter().any(|prefix| prefix.contains(source)))
        && (conditions.destinations.is_empty() || conditions.destinations.iter().any(|p| p.contains(destination)))
        && (conditions.protocols.is_empty() || conditions.protocols.contains(&tuple.protocol))
        && ported(&conditions.source_ports, tuple.source_port)
        && ported(&conditions.destination_ports, tuple.destination_port)
        && (conditions.icmp.is_empty() || conditions.icmp.iter().any(icmp))
        && (conditions.ingress.is_empty() || conditions.ingress.contains(&key.ingress))
}

fn family() -> impl Strategy<Value = IpFamily> {
    select(&[IpFamily::V4, IpFamily::V6][..])
}

/// Addresses that differ in few bits, so that prefixes often hold them.
fn address(family: IpFamily) -> impl Strategy<Value = IpAddr> {
    (0u8..4, 0u8..4).prop_map(move |(high, low)| match family {
        IpFamily::V4 => IpAddr::from([10, high << 6, 0, low]),
        IpFamily::V6 => IpAddr::from([0x2001, 0xdb8, u16::from(high) << 14, 0, 0, 0, 0, u16::from(low)]),
    })
}

fn prefix() -> impl Strategy<Value = Prefix> {
    let lengths = |family| match family {
        IpFamily::V4 => select(&[0u8, 8, 9, 10, 31, 32][..]),
        IpFamily::V6 => select(&[0u8, 32, 33, 34, 127, 128][..]),
    };
    family().prop_flat_map(move |family| (address(family), lengths(family))).prop_map(|(address, length_bits)| {
        match Prefix::new(address, length_bits) {
            Err(crate::address::PrefixError::HostBits { network, .. }) => Prefix::new(network, length_bits),
            other => other,
        }
        .expect("lengths suit the family")
    })
}

fn port_range() -> impl Strategy<Value = PortRange> {
    (0u16..8, 0u16..4).prop_map(|(first, more)| PortRange::new(first, first + more).expect("in order"))
}

fn conditions() -> impl Strategy<Value = Conditions> {
    let protocols = select(vec![vec![], vec![TCP], vec![UDP], vec![TCP, UDP], vec![ICMP], vec![ICMPV6], vec![47]]);
    let lists = (prop::collection::vec(prefix(), 0..3), prop::collection::vec(prefix(), 0..3));
    let ports = (prop::collection::vec(port_range(), 0..3), prop::collection::vec(port_range(), 0..3));
    let icmp = prop::collection::vec((0u8..2, prop::option::of(0u8..2)), 0..3);
    let ingress = prop::collection::vec((0u8..3).prop_map(PortId), 0..2);
    (prop::option::of(family()), protocols, lists, ports, icmp, ingress)
        .prop_map(|(family, protocols, lists, ports, icmp, ingress)| {
            let ported = !protocols.is_empty() && protocols.iter().all(|&protocol| has_ports(protocol));
            let pinging = matches!(protocols[..], [ICMP] | [ICMPV6]);
            let (source_ports, destination_ports) = if ported { ports } else { Default::default() };
            let icmp = if pinging { icmp } else { Vec::new() };
            let icmp = icmp.into_iter().map(|(kind, code)| IcmpMatch { kind, code }).collect();
            let (sources, destinations) = lists;
            Conditions { family, sources, destinations, protocols, source_ports, destination_ports, icmp, ingress }
        })
        .prop_filter("some packets can meet them", |conditions| conditions.validate().is_ok())
}

fn key() -> impl Strategy<Value = RuleKey> {
    let ends = family().prop_flat_map(|family| (address(family), address(family)));
    let icmp = (0u8..2, 0u8..2);
    (ends, select(&[TCP, UDP, ICMP, ICMPV6, 47][..]), 0u16..12, 0u16..12, icmp, 0u8..3).prop_map(
        |((source, destination), protocol, source_port, destination_port, icmp, ingress)| RuleKey {
            tuple: Tuple {
                source: tuple_bytes(source),
                destination: tuple_bytes(destination),
                source_port,
                destination_port,
                protocol,
                version: if source.is_ipv4() { 4 } else { 6 },
                discriminator: 0,
            },
            icmp: matches!(protocol, ICMP | ICMPV6).then_some(icmp),
            ingress: PortId(ingress),
        },
    )
}

proptest! {
    #[test]
    fn the_compiled_set_finds_what_reading_the_rules_one_by_one_finds(
        rules in prop::collection::vec(conditions(), 0..12),
        keys in prop::collection::vec(key(), 1..40),
    ) {
        let set = RuleSet::compile(rules.iter()).expect("the rules are valid");
        for key in keys {
            let expected = rules.iter().position(|rule| meets(rule, &key));
            prop_assert_eq!(set.classify(&key).map(RuleIndex::get), expected, "{:?}", key);
        }
    }
}

#[test]
fn conditions_that_make_no_sense_are_refused_and_the_rule_is_named() {
    let ports = vec![PortRange::single(80)];
    let v4 = || vec!["10.0.0.0/8".parse::<Prefix>().unwrap()];
    let v6 = || vec!["2001:db8::/32".parse::<Prefix>().unwrap()];
    let icmp = vec![IcmpMatch { kind: 8, code: None }];
    let any = Conditions::default;
    for (conditions, error) in [
        (Conditions { destination_ports: ports.clone(), ..any() }, ConditionError::PortsWithoutProtocol),
        (Conditions { source_ports: ports, protocols: vec![TCP, 47], ..any() }, ConditionError::PortsWithoutProtocol),
        (Conditions { icmp: icmp.clone(), ..any() }, ConditionError::IcmpWithoutProtocol),
        (Conditions { icmp, protocols: vec![ICMP, ICMPV6], ..any() }, ConditionError::IcmpWithoutProtocol),
        (Conditions { sources: v4(), destinations: v6(), ..any() }, ConditionError::NoCommonFamily),
        (Conditions { sources: v4(), protocols: vec![ICMPV6], ..any() }, ConditionError::NoCommonFamily),
        (Conditions { sources: v4(), family: Some(IpFamily::V6), ..any() }, ConditionError::NoCommonFamily),
        (
            Conditions { protocols: vec![TCP; CONDITION_VALUES_MAX + 1], ..any() },
            ConditionError::TooManyValues("protocols"),
        ),
    ] {
        let rules = [any(), conditions];
        let refused = RuleSet::compile(rules.iter()).map(|set| set.len());
        assert_eq!(refused, Err(RuleSetError::Rule { index: 1, error }));
    }
    let many = vec![any(); RULES_MAX + 1];
    assert_eq!(RuleSet::compile(many.iter()).map(|set| set.len()), Err(RuleSetError::TooManyRules(RULES_MAX + 1)));
}
