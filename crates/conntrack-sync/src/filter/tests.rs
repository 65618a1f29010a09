//! Rules, individually and in combination.

use core::net::IpAddr;

use flow::netfilter::{Discriminator, Entry, ProtocolInfo, TcpInfo, TcpState, Tuple};
use flow::{HashKey, NodeId};
use proptest::prelude::*;

use super::*;
use crate::mirror::Mirror;

fn entry(source: IpAddr, protocol: u8) -> Entry {
    let destination = if source.is_ipv4() { [192, 0, 2, 1].into() } else { IpAddr::from([0x20; 16]) };
    let discriminator = Discriminator::Ports { source: 1, destination: 2 };
    let original = Tuple { source, destination, protocol, discriminator };
    Entry::new(original, original.inverse())
}

fn filter(rule: IgnoreRule) -> SyncFilter {
    SyncFilter::new(&[rule], TcpStates::ALL, NonTcpStart::FirstPacket)
}

#[test]
fn a_rule_matches_if_all_its_conditions_do() {
    let rule = IgnoreRule {
        addresses: alloc::vec![([10, 1, 0, 0].into(), 16)],
        protocol: Some(17),
        zone: Some(3),
        ..IgnoreRule::default()
    };
    let filter = filter(rule);
    let in_zone = |zone, entry| Entry { zone, ..entry };
    assert!(filter.ignores(&in_zone(3, entry([10, 1, 255, 9].into(), 17))));
    assert!(!filter.ignores(&in_zone(3, entry([10, 2, 0, 9].into(), 17))));
    assert!(!filter.ignores(&in_zone(3, entry([10, 1, 0, 9].into(), 6))));
    assert!(!filter.ignores(&in_zone(4, entry([10, 1, 0, 9].into(), 17))));
}

#[test]
fn both_end_points_match_but_translated_addresses_do_not() {
    let addresses = alloc::vec![([192, 0, 2, 0].into(), 24), ([0x20; 16].into(), 128)];
    let filter = filter(IgnoreRule { addresses, ..IgnoreRule::default() });
    assert!(filter.ignores(&entry([10, 0, 0, 1].into(), 6)), "the server");
    assert!(filter.ignores(&entry([192, 0, 2, 9].into(), 6)), "the client");
    assert!(filter.ignores(&entry([0xfd; 16].into(), 6)), "and over IPv6");
    let plain = entry([10, 0, 0, 1].into(), 6);
    let elsewhere = |address: [u8; 4]| Tuple { destination: address.into(), ..plain.original };
    let behind = Tuple { source: [198, 51, 100, 1].into(), ..plain.reply };
    assert!(
        !filter.ignores(&Entry::new(plain.original, behind)),
        "a published address, which is translated to a server"
    );
    let original = elsewhere([198, 51, 100, 1]);
    let shared = Tuple { destination: [192, 0, 2, 7].into(), ..original.inverse() };
    assert!(!filter.ignores(&Entry::new(original, shared)), "a shared address, to which the client is translated");
    let published = Tuple { source: [192, 0, 2, 7].into(), ..original.inverse() };
    assert!(filter.ignores(&Entry::new(original, published)), "the server behind a published address");
}

#[test]
fn states_and_marks_match_by_their_current_value() {
    let rule = IgnoreRule {
        tcp_states: Some(TcpStates::of(&[TcpState::TimeWait])),
        mark: Some((1, 0xf)),
        ..IgnoreRule::default()
    };
    let filter = filter(rule);
    let mut table = Mirror::new(HashKey([0, 0]), 1);
    let mut entry = entry([10, 0, 0, 1].into(), 6);
    assert!(!filter.ignores(&entry), "not for good");
    let (_, record) = table.insert(&entry, NodeId(0)).unwrap();
    let cases = [(TcpState::TimeWait, 0x31, false), (TcpState::TimeWait, 2, true), (TcpState::Established, 1, true)];
    for (state, mark, is_replicated) in cases {
        entry.mark = Some(mark);
        entry.protocol_info = Some(ProtocolInfo::Tcp(TcpInfo { state, sides: None }));
        record.merge(&entry);
        assert_eq!(filter.is_worth_replicating(record), is_replicated, "{state:?} {mark}");
    }
}

proptest! {
    #[test]
    fn network_search_equals_sequential_comparison(
        networks in proptest::collection::vec((any::<[u8; 4]>(), 0..=32_u8), 1..40), address in any::<[u8; 4]>(),
        near in any::<prop::sample::Index>(), offset in -2..3_i32,
    ) {
        let addresses: Vec<_> = networks.iter().map(|(address, bits)| (IpAddr::from(*address), *bits)).collect();
        let compiled = Compiled::new(&IgnoreRule { addresses, ..IgnoreRule::default() });
        let near = u32::from_be_bytes(networks[near.index(networks.len())].0).wrapping_add_signed(offset);
        for address in [u32::from_be_bytes(address), near] {
            let expected = networks.iter().any(|(network, bits)| {
                let differing = address ^ u32::from_be_bytes(*network);
                differing.checked_shr(32 - u32::from(*bits)).unwrap_or(0) == 0
            });
            prop_assert_eq!(is_within(&compiled.v4, address), expected);
        }
    }
}
