//! The compiled set against a sequential matcher of the conditions.

use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::wire::ip_protocol::{ICMP, ICMPV6, TCP, UDP};
use flow::{IpFamily, PortId, Tuple};
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::address::{Prefix, bounds, from_tuple_bytes, tuple_bytes};
use crate::class::Class;
use crate::port_range::PortRange;

/// The documented semantics of [`Conditions`], literally.
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
        && (conditions.sources.is_empty() || conditions.sources.iter().any(|prefix| prefix.contains(&source)))
        && (conditions.destinations.is_empty() || conditions.destinations.iter().any(|p| p.contains(&destination)))
        && (conditions.protocols.is_empty() || conditions.protocols.contains(&tuple.protocol))
        && ported(&conditions.source_ports, tuple.source_port)
        && ported(&conditions.destination_ports, tuple.destination_port)
        && (conditions.icmp.is_empty() || conditions.icmp.iter().any(icmp))
        && (conditions.ingress.is_empty() || conditions.ingress.contains(&key.ingress))
        && (conditions.classes.is_empty() || conditions.classes.contains(&key.class))
}

fn family() -> impl Strategy<Value = IpFamily> {
    select(&[IpFamily::V4, IpFamily::V6][..])
}

/// Addresses that differ in few bits, so that prefixes often contain them.
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
    family()
        .prop_flat_map(move |family| (address(family), lengths(family)))
        .prop_map(|(address, length_bits)| Prefix::new(address, length_bits).expect("lengths suit the family").trunc())
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
    let classes = prop::collection::vec(class(), 0..2);
    (prop::option::of(family()), protocols, lists, ports, icmp, ingress, classes)
        .prop_map(|(family, protocols, lists, ports, icmp, ingress, classes)| {
            let ported = !protocols.is_empty() && protocols.iter().all(|&protocol| has_ports(protocol));
            let pinging = matches!(protocols[..], [ICMP] | [ICMPV6]);
            let (source_ports, destination_ports) = if ported { ports } else { Default::default() };
            let icmp = if pinging { icmp } else { Vec::new() };
            let icmp = icmp.into_iter().map(|(kind, code)| IcmpMatch { kind, code }).collect();
            let (sources, destinations) = lists;
            Conditions {
                family,
                sources,
                destinations,
                protocols,
                source_ports,
                destination_ports,
                icmp,
                ingress,
                classes,
            }
        })
        .prop_filter("some packets can meet them", |conditions| conditions.validate().is_ok())
}

fn class() -> impl Strategy<Value = Class> {
    select(&[Class::Unknown, Class::Video, Class::Network][..])
}

fn key() -> impl Strategy<Value = RuleKey> {
    let ends = family().prop_flat_map(|family| (address(family), address(family)));
    let icmp = (0u8..2, 0u8..2);
    (ends, select(&[TCP, UDP, ICMP, ICMPV6, 47][..]), 0u16..12, 0u16..12, icmp, 0u8..3, class()).prop_map(
        |((source, destination), protocol, source_port, destination_port, icmp, ingress, class)| RuleKey {
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
            class,
        },
    )
}

proptest! {
    #[test]
    fn the_compiled_set_equals_a_sequential_search(
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

/// Matches the keys against `set` and against the rules sequentially. Returns the number of rules matched.
fn check(rules: &[Conditions], set: &RuleSet, keys: impl Iterator<Item = RuleKey>) -> usize {
    let found = keys.map(|key| {
        let expected = rules.iter().position(|rule| meets(rule, &key));
        assert_eq!(set.classify(&key).map(RuleIndex::get), expected, "{key:?}");
        expected
    });
    found.flatten().collect::<std::collections::BTreeSet<_>>().len()
}

/// Pseudorandom numbers that are the same in every run (Marsaglia, "Xorshift RNGs", 2003).
struct Numbers(u32);

impl Numbers {
    fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        self.0 % bound
    }
}

fn tcp_key(source: u32, destination: u32, port: u16) -> RuleKey {
    let tuple = Tuple::v4(TCP, (source.into(), 40_000), (destination.into(), port));
    RuleKey { tuple, icmp: None, ingress: PortId(0), class: Class::Web }
}

fn host(address: u32) -> Prefix {
    IpAddr::V4(address.into()).into()
}

/// A network of 10.0.0.0/8.
fn network(number: u32, length_bits: u8) -> Prefix {
    Prefix::new(IpAddr::V4((0x0a00_0000 + (number << (32 - length_bits))).into()), length_bits)
        .expect("a length of IPv4")
}

proptest! {
    #[test]
    fn rules_in_many_words_and_groups_are_found(
        rules in prop::collection::vec(conditions(), 100..400),
        keys in prop::collection::vec(key(), 1..60),
        bytes_per_rule_max in select(&[0usize, 150, 8192][..]),
    ) {
        let set = RuleSet::compile_within(rules.iter(), bytes_per_rule_max).expect("the rules are valid");
        check(&rules, &set, keys.into_iter());
    }
}

#[test]
fn the_first_matching_of_six_thousand_rules_is_found() {
    let mut numbers = Numbers(1);
    let rules: Vec<_> = (0..6000)
        .map(|_| Conditions {
            sources: vec![network(numbers.below(1 << 8), 16)],
            destinations: vec![network(numbers.below(1 << 12), 20)],
            protocols: vec![TCP],
            destination_ports: vec![PortRange::single(numbers.below(4) as u16)],
            ..Conditions::default()
        })
        .collect();
    let set = RuleSet::compile(rules.iter()).expect("the rules are valid");
    assert_eq!(set.groups(), 1, "plain rules are matched together");
    let keys = (0..2000).map(|number| {
        let rule = &rules[numbers.below(6000) as usize];
        let bits = |prefixes: &[Prefix]| bounds(&prefixes[0])[0] as u32;
        tcp_key(bits(&rule.sources) + number, bits(&rule.destinations) + 1, numbers.below(5) as u16)
    });
    let met = check(&rules, &set, keys);
    assert!(met > 300, "the keys are for many of the rules: {met}");
}

#[test]
fn adversarial_rules_get_more_groups_instead_of_memory() {
    let mut numbers = Numbers(7);
    let mut addresses = |count: u32| (0..count).map(|_| host(0x0a00_0000 + numbers.below(1 << 24))).collect::<Vec<_>>();
    let nested: Vec<_> = (0..3000)
        .rev()
        .map(|rule: u16| Conditions {
            protocols: vec![TCP],
            destination_ports: vec![PortRange::new(rule, u16::MAX - rule).expect("in order")],
            source_ports: vec![PortRange::new(3 * rule, u16::MAX - 2 * rule).expect("in order")],
            ..Conditions::default()
        })
        .collect();
    let scattered: Vec<_> = (0..500)
        .map(|_| Conditions { destinations: addresses(CONDITION_VALUES_MAX as u32), ..Conditions::default() })
        .collect();
    for (rules, groups) in [(nested, 1..=1), (scattered, 2..=8)] {
        let set = RuleSet::compile(rules.iter()).expect("the rules are valid");
        assert!(groups.contains(&set.groups()), "{} groups", set.groups());
        let values: usize = rules.iter().map(Conditions::values).sum();
        let bytes_max = 2 * (rules.len() * 8192 + values * 80);
        assert!(set.memory_bytes() <= bytes_max, "{} bytes, {bytes_max} allowed", set.memory_bytes());
        let destinations =
            rules.iter().flat_map(|rule| &rule.destinations).map(|prefix| bounds(prefix)[0] as u32).step_by(997);
        let keys =
            destinations.map(|address| tcp_key(1, address, 9)).chain((0..300).map(|port| tcp_key(1, 2, port * 211)));
        assert!(check(&rules, &set, keys) > 1, "the keys are for several of the rules");
    }
}

#[test]
fn too_many_values_are_refused_and_the_rule_is_named() {
    let listed: Vec<_> = (0..CONDITION_VALUES_MAX as u32).map(host).collect();
    let rules = vec![Conditions { sources: listed.clone(), destinations: listed, ..Conditions::default() }; 2050];
    let refused = RuleSet::compile(rules.iter()).map(|set| set.len());
    assert_eq!(refused, Err(RuleSetError::TooManyValues { index: RULE_SET_VALUES_MAX / (2 * CONDITION_VALUES_MAX) }));
}

#[test]
fn invalid_conditions_are_refused_and_the_rule_is_named() {
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
