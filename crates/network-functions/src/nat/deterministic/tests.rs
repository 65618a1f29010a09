//! Properties of computed mappings, and an operator's calculations with them.

use std::collections::HashSet;
use std::string::{String, ToString};

use flow::wire::ip_protocol::TCP;
use proptest::prelude::*;

use super::*;
use crate::nat::SOURCE_PORTS_DEFAULT;
use crate::testing::{echo, portless, tcp, udp};

const GRE: u8 = 47;
const SECRET: Algorithm = Algorithm::Keyed(MappingKey([7, 11]));

fn mapping(
    sources: &[&str],
    addresses: &[&str],
    algorithm: Algorithm,
    block_ports: Option<u16>,
) -> Result<Computed, MappingError> {
    let prefixes: Vec<Prefix> = sources.iter().map(|text| text.parse().expect(text)).collect();
    let pool: Vec<IpAddr> = addresses.iter().map(|text| text.parse().expect(text)).collect();
    let family = crate::address::family(pool[0]);
    let pool = pool.into_iter().map(tuple_bytes).collect();
    Computed::new(&prefixes, pool, family, SOURCE_PORTS_DEFAULT, Mapping { algorithm, block_ports })
}

fn office(algorithm: Algorithm) -> Computed {
    mapping(&["10.0.0.0/25", "10.0.1.0/26"], &["192.0.2.1", "192.0.2.2"], algorithm, None).unwrap()
}

fn originals(mapping: &Computed, outgoing: &Tuple) -> Vec<Tuple> {
    let mut incoming = Vec::new();
    mapping.invert(outgoing, &mut incoming);
    incoming
}

#[test]
fn hosts_have_their_blocks_in_order_and_match_manual_calculation() {
    // 192 hosts on 2 addresses: 96 each, 64512 / 96 = 672 ports.
    let mapping = office(Algorithm::Sequential);
    assert_eq!((mapping.block_ports, mapping.blocks_per_address), (672, 96));
    let leaves = |source: &str| mapping.translate(&tcp(source, "198.51.100.1:443")).unwrap();
    // 40000 mod 672 = 352. Host 0 has the ports from 1024 on, host 1 those from 1024 + 672 on, host 96 is on the next address.
    assert_eq!(leaves("10.0.0.0:40000"), tcp("192.0.2.1:1376", "198.51.100.1:443"));
    assert_eq!(leaves("10.0.0.1:40000"), tcp("192.0.2.1:2048", "198.51.100.1:443"));
    assert_eq!(leaves("10.0.0.96:40000"), tcp("192.0.2.2:1376", "198.51.100.1:443"));
    // The second prefix continues where the first one ends: its first host is number 128.
    assert_eq!(leaves("10.0.1.0:40000"), tcp("192.0.2.2:22880", "198.51.100.1:443"));
    assert_eq!(mapping.translate(&tcp("10.0.2.1:40000", "198.51.100.1:443")), None, "no host of the rule");
    let text = mapping.describe();
    assert!(text.contains("192 in all, in blocks of") && text.contains("672 ports of 1024-65535"), "{text}");
}

#[test]
fn an_identifier_is_translated_as_a_port_and_other_protocols_get_an_address_only() {
    let mapping = office(SECRET);
    let ping = echo("10.0.0.9", "198.51.100.1", 77);
    let outgoing = mapping.translate(&ping).unwrap();
    assert_eq!(outgoing.source_port, outgoing.destination_port, "both hold the identifier");
    assert!(originals(&mapping, &outgoing).contains(&ping));
    let tunnel = portless(GRE, "10.0.0.9", "198.51.100.1");
    let outgoing = mapping.translate(&tunnel).unwrap();
    let hosts = originals(&mapping, &outgoing);
    assert!(hosts.contains(&tunnel) && hosts.len() <= 96, "any host of the address: {}", hosts.len());
}

#[test]
fn consecutive_ports_of_a_host_never_collide_within_its_block() {
    for algorithm in [Algorithm::Sequential, SECRET] {
        let mapping = office(algorithm);
        let ports: HashSet<u16> = (40_000..40_672)
            .map(|port| {
                mapping.translate(&udp(&std::format!("10.0.0.7:{port}"), "198.51.100.1:53")).unwrap().source_port
            })
            .collect();
        assert_eq!(ports.len(), 672);
    }
}

#[test]
fn keyed_mappings_do_not_reveal_neighbours() {
    let (plain, keyed) = (office(Algorithm::Sequential), office(SECRET));
    let other = office(Algorithm::Keyed(MappingKey([8, 11])));
    let moved =
        |one: &Computed, two: &Computed| (0..192).filter(|&host| one.block_of(host) != two.block_of(host)).count();
    assert!(moved(&plain, &keyed) > 170 && moved(&keyed, &other) > 170);
    assert_eq!(std::format!("{SECRET:?}"), "Keyed(MappingKey(secret))");
}

#[test]
fn impossible_mappings_are_refused_with_a_remedy() {
    let error = |sources: &[&str], block_ports| -> String {
        mapping(sources, &["192.0.2.1"], Algorithm::Sequential, block_ports).unwrap_err().to_string()
    };
    assert!(error(&[], None).contains("list their prefixes"));
    assert!(error(&["10.0.0.0/24"], Some(64)).contains("write 128 or more"));
    let many = error(&["10.0.0.0/16"], None);
    assert!(many.contains("the sources are 65536 addresses") && many.contains("504 blocks of 128 ports"), "{many}");
    assert!(error(&["10.0.0.0/24"], Some(4096)).contains("15 blocks"));
    assert!(mapping(&["10.0.0.0/24"], &["192.0.2.1"], SECRET, None).is_ok(), "a network behind one address");
    let six = mapping(&["fd00::/8"], &["2001:db8::1"], SECRET, None).unwrap_err();
    assert!(matches!(six, MappingError::TooFewBlocks { .. }), "{six}");
    assert!(mapping(&["fd00::/121"], &["2001:db8::1"], SECRET, None).is_ok());
}

#[test]
fn prefixes_within_prefixes_count_once() {
    let mapping = mapping(&["10.0.0.64/26", "10.0.0.0/25", "10.0.0.7/32"], &["192.0.2.1"], SECRET, None).unwrap();
    assert_eq!(mapping.hosts.iter().map(|hosts| hosts.count).sum::<u32>(), 128);
}

proptest! {
    #[test]
    fn every_tuple_is_recovered_from_its_translation(
        host in 0u32..192, port: u16, server_port: u16, keyed: bool, secret: [u64; 2],
        block_ports in prop::option::of(256u16..=672),
    ) {
        let algorithm = if keyed { Algorithm::Keyed(MappingKey(secret)) } else { Algorithm::Sequential };
        let mapping =
            mapping(&["10.0.0.0/25", "10.0.1.0/26"], &["192.0.2.1", "192.0.2.2"], algorithm, block_ports).unwrap();
        let source = mapping.address_of(host).unwrap();
        prop_assert_eq!(mapping.number_of(&source), Some(host));
        let tuple = Tuple { source, source_port: port, ..tcp("10.0.0.1:1", &std::format!("198.51.100.1:{server_port}")) };
        prop_assert_eq!(tuple.protocol, TCP);
        let outgoing = mapping.translate(&tuple).unwrap();
        prop_assert!(SOURCE_PORTS_DEFAULT.contains(outgoing.source_port));
        let candidates = originals(&mapping, &outgoing);
        prop_assert!(candidates.contains(&tuple));
        prop_assert!(candidates.len() <= ORIGINALS_MAX);
        for candidate in &candidates {
            // All are of one host, which is the one to be found.
            prop_assert_eq!(candidate.source, source);
            prop_assert_eq!(mapping.translate(candidate), Some(outgoing));
        }
    }

    #[test]
    fn no_two_hosts_share_a_port(secret: [u64; 2], addresses in 1usize..4) {
        let pool = ["192.0.2.1", "192.0.2.2", "192.0.2.3"];
        let algorithm = Algorithm::Keyed(MappingKey(secret));
        let mapping = mapping(&["10.0.0.0/25", "10.0.1.0/26"], &pool[..addresses], algorithm, None).unwrap();
        let blocks: HashSet<([u8; 16], u16)> =
            (0..192).map(|host| mapping.block_of(host)).map(|block| (block.address, block.first)).collect();
        prop_assert_eq!(blocks.len(), 192);
        for (address, first) in blocks {
            prop_assert!(u32::from(first) + u32::from(mapping.block_ports) <= 65_536);
            prop_assert!(mapping.addresses().contains(&address));
        }
    }
}
