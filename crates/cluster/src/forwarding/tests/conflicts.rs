//! Other hosts with this node's addresses: probes before they are taken, defence while they are held.

use super::*;
use crate::group::{GroupId, GroupSet};

const FOREIGN_MAC: MacAddress = MacAddress([2, 9, 9, 9, 9, 9]);
/// Lower than the forwarder's own link addresses.
const LOW_MAC: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 0]);
/// Higher than those.
const HIGH_MAC: MacAddress = MacAddress([2, 0xaa, 0, 0, 0, 9]);

fn claim(bench: &mut Bench) {
    bench.feed(INSIDE, build::gratuitous_arp(ArpOperation::Reply, FOREIGN_MAC, INSIDE_SHARED));
}

/// Times in milliseconds at which the address was announced by ARP requests.
fn announced_ms(sent: &[(u64, OutFrame, Vec<u8>)], address: Ipv4Addr) -> Vec<u64> {
    let is_arp = |bytes: &[u8]| EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::ARP;
    let announces = |bytes: &[u8]| {
        let arp = arp(bytes);
        arp.is_gratuitous() && arp.operation() == ArpOperation::Request && arp.sender_ip() == address
    };
    let found = sent.iter().filter(|(.., bytes)| is_arp(bytes) && announces(bytes));
    found.map(|(at_ms, ..)| *at_ms).collect()
}

/// A forwarder that has announced its addresses after its take-over, and is quiet.
fn quiet() -> Bench {
    let mut bench = Bench::settled();
    bench.forwarder.set_announce_refresh(bench.now, None);
    bench.run_ms(10_000);
    bench
}

#[test]
fn a_claim_is_answered_at_once_and_twice_after_the_claimant_falls_silent() {
    let mut bench = quiet();
    claim(&mut bench);
    let conflict = AddressConflict { port: INSIDE, address: INSIDE_SHARED.into(), mac: FOREIGN_MAC };
    assert_eq!(bench.forwarder.poll_conflict(), Some(conflict));
    let sent = bench.run_ms(10_000);
    assert_eq!(announced_ms(&sent, INSIDE_SHARED), [0, 1000, 3000]);
    assert_eq!(announced_ms(&sent, OUTSIDE_SHARED), [0; 0], "nobody claims the other address");
    assert_eq!(bench.forwarder.poll_conflict(), None);
    let counters = bench.forwarder.counters();
    assert_eq!((counters.address_conflicts, counters.defences), (1, 3));
}

#[test]
fn a_flood_of_claims_is_answered_once_a_second_and_reported_once() {
    let mut bench = quiet();
    let mut sent = Vec::new();
    for step in 0..50_u64 {
        claim(&mut bench);
        sent.extend(bench.run_ms(100).into_iter().map(|(ms, out, bytes)| (100 * step + ms, out, bytes)));
    }
    let announced = announced_ms(&sent, INSIDE_SHARED);
    assert_eq!(announced, [0, 1000, 2000, 3000, 4000]);
    assert!(bench.forwarder.poll_conflict().is_some());
    assert_eq!(bench.forwarder.poll_conflict(), None);
    // The last claim was received 100 ms ago, the last defence was 900 ms ago.
    let after = announced_ms(&bench.run_ms(10_000), INSIDE_SHARED);
    assert_eq!(after.len(), 3, "one that was held back, and two after the last claim: {after:?}");
}

#[test]
fn two_forwarders_that_hold_the_same_address_announce_it_once_a_second_each() {
    let mut benches = [quiet(), quiet()];
    benches[1].forwarder.ports[0].mac = FOREIGN_MAC;
    let mut announced = [0, 0];
    claim(&mut benches[0]);
    for _ in 0..10_000 {
        for from in [0, 1] {
            for (_, out, bytes) in benches[from].run_ms(1) {
                if out.port == INSIDE {
                    announced[from] += 1;
                    benches[1 - from].feed(INSIDE, bytes);
                }
            }
        }
    }
    // Ten seconds, two forms of the announcement.
    assert!(announced.iter().all(|count| (10..=24).contains(count)), "{announced:?}");
}

#[test]
fn an_address_that_is_being_handed_over_is_not_defended() {
    let mut bench = quiet();
    bench.forwarder.set_leaving(GroupSet::ALL);
    claim(&mut bench);
    assert_eq!(announced_ms(&bench.run_ms(5000), INSIDE_SHARED), [0; 0]);
    bench.forwarder.set_leaving(GroupSet::EMPTY);
    claim(&mut bench);
    bench.forwarder.set_held(bench.now, GroupSet::EMPTY);
    assert_eq!(announced_ms(&bench.run_ms(5000), INSIDE_SHARED), [0; 0], "it is another node's now");
}

#[test]
fn an_ipv6_address_is_defended_by_advertisements() {
    let mut bench = quiet();
    bench.feed(INSIDE, build::unsolicited_neighbour_advertisement(FOREIGN_MAC, INSIDE6, true));
    let sent = bench.run_ms(500);
    assert_eq!(sent.len(), 1);
    let message = neighbour_message(&sent[0].2);
    assert!(message.is_advertisement && message.target == INSIDE6 && message.link_address == Some(INSIDE_MAC));
}

#[test]
fn held_addresses_are_announced_periodically() {
    let mut bench = quiet();
    bench.forwarder.set_announce_refresh(bench.now, Some(Duration::from_secs(60)));
    let announced = announced_ms(&bench.run_ms(300_000), INSIDE_SHARED);
    assert!((4..=5).contains(&announced.len()), "{announced:?}");
    let gaps: Vec<u64> = announced.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (54_000..=66_000).contains(gap)), "{gaps:?}");
    bench.forwarder.set_held(bench.now, GroupSet::EMPTY);
    assert_eq!(announced_ms(&bench.run_ms(100_000), INSIDE_SHARED), [0; 0]);
}

#[test]
fn probes_claim_nothing_and_are_answered_by_the_active_node_alone() {
    let mut starting = Bench::standby();
    starting.forwarder.ports[0].mac = FOREIGN_MAC;
    starting.drain();
    starting.forwarder.probe_addresses(GroupSet::ALL);
    let probes: Vec<Vec<u8>> =
        starting.drain().into_iter().filter(|(out, _)| out.port == INSIDE).map(|(_, it)| it).collect();
    assert_eq!(probes.len(), 2, "one for each kind of address");
    let request = arp(&probes[0]);
    assert_eq!((request.sender_ip(), request.target_ip()), (Ipv4Addr::UNSPECIFIED, INSIDE_SHARED));
    assert_eq!(neighbour_message(&probes[1]).link_address, None);

    let mut standby = Bench::standby();
    standby.drain();
    let mut active = quiet();
    for probe in probes {
        standby.feed(INSIDE, probe.clone());
        assert_eq!(standby.drain(), [], "a standby holds nothing");
        active.feed(INSIDE, probe);
        let answers = active.drain();
        assert_eq!(answers.len(), 1);
        starting.feed(INSIDE, answers[0].1.clone());
        let address_report = starting.forwarder.poll_address_report().expect("the address is in use");
        assert_eq!(
            (address_report.kind, address_report.mac, address_report.port),
            (AddressReportKind::InUse, INSIDE_MAC, INSIDE)
        );
    }
    assert_eq!(active.forwarder.counters().address_conflicts, 0, "a probe is no claim");
}

#[test]
fn of_two_that_probe_the_lower_link_address_goes_first() {
    for (mac, kind) in [(LOW_MAC, AddressReportKind::ProbedFirst), (HIGH_MAC, AddressReportKind::ProbedSecond)] {
        let mut bench = Bench::standby();
        bench.forwarder.probe_addresses(GroupSet::ALL);
        bench.feed(INSIDE, build::arp_request(mac, Ipv4Addr::UNSPECIFIED, INSIDE_SHARED));
        let address_report = bench.forwarder.poll_address_report().unwrap();
        assert_eq!((address_report.kind, address_report.mac), (kind, mac));
        // The lowest address alone decides: it is on one link.
        bench.feed(OUTSIDE, build::arp_request(mac, Ipv4Addr::UNSPECIFIED, OUTSIDE_SHARED));
        assert_eq!(bench.forwarder.poll_address_report(), None);
    }
}

proptest! {
    /// Whatever claims come, an address is announced at most once a second, and the last word is this node's.
    #[test]
    fn defences_are_bounded_and_come_after_the_last_claim(gaps_ms in proptest::collection::vec(1_u64..3000, 1..40)) {
        let mut bench = quiet();
        let (mut at_ms, mut announced) = (0, Vec::new());
        for gap_ms in gaps_ms {
            claim(&mut bench);
            let sent = bench.run_ms(gap_ms);
            announced.extend(announced_ms(&sent, INSIDE_SHARED).into_iter().map(|ms| ms + at_ms));
            at_ms += gap_ms;
        }
        let after = announced_ms(&bench.run_ms(5000), INSIDE_SHARED);
        announced.extend(after.into_iter().map(|ms| ms + at_ms));
        prop_assert!(announced.windows(2).all(|pair| pair[1] - pair[0] >= 1000), "{announced:?}");
        prop_assert!(*announced.last().unwrap() + 3000 >= at_ms, "{announced:?}");
    }
}

/// A peer claims the address before this node has found it silent.
#[test]
fn claims_are_accepted_for_the_groups_for_which_this_node_yields() {
    let mut bench = quiet();
    bench.forwarder.set_announce_refresh(bench.now, Some(Duration::from_secs(1)));
    claim(&mut bench);
    let others = GroupSet::ALL.without(GroupSet::EMPTY.with(GroupId::FIRST));
    bench.forwarder.set_yields(bench.now, others, Duration::from_millis(2500));
    assert_eq!(announced_ms(&bench.run_ms(10), INSIDE_SHARED), [0], "it yields for other groups");
    bench.forwarder.set_yields(bench.now, GroupSet::ALL, Duration::from_millis(2500));
    assert_eq!(announced_ms(&bench.run_ms(2400), INSIDE_SHARED), [0; 0], "neither contested nor refreshed");
    let after = announced_ms(&bench.run_ms(2000), INSIDE_SHARED);
    assert!(!after.is_empty(), "the claims have ceased");
    claim(&mut bench);
    bench.forwarder.set_yields(bench.now, GroupSet::EMPTY, Duration::from_millis(2500));
    claim(&mut bench);
    assert_eq!(announced_ms(&bench.run_ms(10), INSIDE_SHARED), [0], "every claim is contested again");
}

/// What is being announced is no longer, when a peer claims it.
#[test]
fn an_announcement_ends_when_this_node_yields() {
    let mut bench = Bench::settled();
    bench.forwarder.set_announce_refresh(bench.now, None);
    bench.forwarder.announce(bench.now, GroupSet::ALL);
    assert!(announced_ms(&bench.run_ms(300), INSIDE_SHARED).len() > 1);
    bench.forwarder.set_yields(bench.now, GroupSet::ALL, Duration::from_millis(2500));
    claim(&mut bench);
    assert_eq!(announced_ms(&bench.run_ms(5000), INSIDE_SHARED), [0; 0]);
}
