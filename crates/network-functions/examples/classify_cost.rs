//! The cost of finding a connection's rule among few and among many, and of compiling the rules: `cargo run --release
//! -p network-functions --example classify_cost`
#![expect(clippy::disallowed_methods, reason = "a measurement reads the clock")]

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Instant as Clock;

use flow::wire::ip_protocol;
use flow::{PortId, Tuple};
use network_functions::address::{Prefix, bounds};
use network_functions::class::Class;
use network_functions::port_range::PortRange;
use network_functions::rule_set::{Conditions, RuleKey, RuleSet};

const KEYS: u32 = 1024;
const ROUNDS: u32 = 2000;

/// Typical firewall rules: a client network, a server network, a service.
fn rule(number: u32) -> Conditions {
    let scattered = number.wrapping_mul(2_654_435_761);
    let network = |first: Ipv4Addr, bits: u32, length_bits: u8| {
        let address = first.to_bits() + (bits << (32 - length_bits));
        Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(address)), length_bits).expect("a length of IPv4")
    };
    Conditions {
        sources: if number.is_multiple_of(3) {
            vec![]
        } else {
            vec![network(Ipv4Addr::new(10, 0, 0, 0), scattered >> 20, 20)]
        },
        destinations: vec![network(Ipv4Addr::new(198, 18, 0, 0), scattered >> 23 & 0x1ff, 24)],
        protocols: vec![ip_protocol::TCP],
        destination_ports: vec![PortRange::single(1 + (scattered % 60_000) as u16)],
        ..Conditions::default()
    }
}

/// A connection that matches the rule.
fn key(rule: &Conditions, number: u32) -> RuleKey {
    let address =
        |prefixes: &[Prefix]| prefixes.first().map_or(number, |prefix| bounds(prefix)[0] as u32 + number % 256);
    let source = (address(&rule.sources).into(), 40_000);
    let destination = (address(&rule.destinations).into(), rule.destination_ports[0].first());
    RuleKey {
        tuple: Tuple::v4(ip_protocol::TCP, source, destination),
        icmp: None,
        ingress: PortId(0),
        class: Class::Unknown,
    }
}

/// Apart from the rest, so that instructions can be counted.
#[inline(never)]
fn classify_all(set: &RuleSet, keys: &[RuleKey]) -> usize {
    keys.iter().filter(|key| set.classify(black_box(key)).is_some()).count()
}

fn main() {
    for count in [50, 1000, 10_000] {
        let rules: Vec<_> = (0..count).map(rule).collect();
        let began = Clock::now();
        let set = RuleSet::compile(rules.iter()).expect("the rules make sense");
        let compiled_ms = began.elapsed().as_secs_f64() * 1000.0;
        let keys: Vec<_> = (0..KEYS).map(|number| key(&rules[(number * 7919 % count) as usize], number)).collect();
        let best_nanos = (0..ROUNDS)
            .map(|_| {
                let began = Clock::now();
                assert_eq!(classify_all(&set, &keys), keys.len());
                began.elapsed().as_nanos()
            })
            .min();
        println!(
            "{count:>6} rules: {:5.1} ns a connection, {compiled_ms:6.1} ms to compile, {} KiB",
            best_nanos.unwrap_or(0) as f64 / f64::from(KEYS),
            set.memory_bytes() / 1024
        );
    }
}
