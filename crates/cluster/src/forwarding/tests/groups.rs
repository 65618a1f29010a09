//! Two groups of shared addresses on the same ports.

use super::*;
use crate::group::GroupId;

const FIRST: GroupSet = GroupSet::EMPTY.with(GroupId::FIRST);
const SECOND: GroupSet = GroupSet::EMPTY.with(GroupId(1));
const INSIDE_SECOND: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const OUTSIDE_SECOND: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);

/// A forwarder that holds these groups and has nothing left to send.
fn holding(groups: GroupSet) -> Bench {
    let mut config = config();
    for (port, address) in config.ports.iter_mut().zip([INSIDE_SECOND, OUTSIDE_SECOND]) {
        port.shared.push(Shared { prefix: Prefix::new(address.into(), 24), group: GroupId(1) });
    }
    let mut bench = Bench { now: Instant::from_millis(1_000_000), forwarder: Forwarder::new(config).unwrap() };
    bench.forwarder.set_held(bench.now, groups);
    bench.drain();
    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, OUTSIDE_SECOND)));
    bench.drain();
    bench
}

/// The IPv4 addresses that were announced within the time, each once.
fn announced_within_ms(bench: &mut Bench, ms: u64) -> Vec<Ipv4Addr> {
    let sent = bench.run_ms(ms);
    let arps = sent.iter().filter(|(_, _, bytes)| {
        EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::ARP && arp(bytes).is_gratuitous()
    });
    let mut addresses: Vec<Ipv4Addr> = arps.map(|(_, _, bytes)| arp(bytes).sender_ip()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn is_answered(bench: &mut Bench, address: Ipv4Addr) -> bool {
    bench.feed(INSIDE, build::arp_request(HOST_MAC, HOST, address));
    bench.drain().iter().any(|(_, bytes)| {
        let view = EthernetView::new_checked(bytes).unwrap();
        view.ether_type() == ether_type::ARP
            && arp(bytes).operation() == ArpOperation::Reply
            && arp(bytes).sender_ip() == address
    })
}

#[test]
fn a_node_that_holds_one_of_two_groups_forwards_and_replies_for_that_one() {
    let mut bench = holding(SECOND);
    assert!(is_answered(&mut bench, INSIDE_SECOND) && !is_answered(&mut bench, INSIDE_SHARED));
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Transmit(OUTSIDE));
    bench.forwarder.announce(bench.now, GroupSet::ALL);
    assert_eq!(announced_within_ms(&mut bench, 4000), [INSIDE_SECOND, OUTSIDE_SECOND]);
}

#[test]
fn what_comes_for_an_address_of_another_nodes_group_may_be_a_translated_connections_and_is_not_answered_here() {
    let mut bench = holding(SECOND);
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    let ping = |to: Ipv4Addr| envelope.echo(&Tuple::echo(HOST.into(), to.into(), 1), build::Echo::default(), b"ping");
    assert_eq!(bench.feed(INSIDE, ping(INSIDE_SECOND)).disposition, Disposition::Transmit(INSIDE));
    // Admitted, so that its connection can be looked for; there is none.
    assert_eq!(bench.feed(INSIDE, ping(INSIDE_SHARED)).disposition, Disposition::Drop(DropReason::LocalUnhandled));
    bench.forwarder.set_held(bench.now, GroupSet::EMPTY);
    assert_eq!(bench.feed(INSIDE, ping(INSIDE_SHARED)).disposition, Disposition::Drop(DropReason::NotActive));
}

#[test]
fn errors_come_from_an_address_that_the_node_holds() {
    for (groups, expected) in [(FIRST, INSIDE_SHARED), (SECOND, INSIDE_SECOND)] {
        let mut bench = holding(groups);
        let last_hop = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ttl: 1, ..Envelope::default() };
        let dying = last_hop.udp(&Tuple::v4(ip_protocol::UDP, (HOST, 1), (SERVER, 2)), b"");
        assert_eq!(bench.feed(INSIDE, dying).disposition, Disposition::Drop(DropReason::TtlExceeded));
        let sent = bench.drain();
        assert_eq!(headers(&sent[0].1).tuple.source_ip(), IpAddr::V4(expected));
    }
}

#[test]
fn a_group_that_comes_is_announced_and_the_other_is_left_alone() {
    let mut bench = holding(SECOND);
    bench.forwarder.set_held(bench.now, FIRST.or(SECOND));
    bench.forwarder.announce(bench.now, FIRST);
    assert_eq!(announced_within_ms(&mut bench, 4000), [INSIDE_SHARED, OUTSIDE_SHARED]);
    assert!(is_answered(&mut bench, INSIDE_SHARED) && is_answered(&mut bench, INSIDE_SECOND));
}

#[test]
fn a_group_that_goes_is_announced_no_more_and_packets_that_wait_go_on() {
    let mut bench = holding(FIRST.or(SECOND));
    bench.forwarder.announce(bench.now, FIRST.or(SECOND));
    assert_eq!(announced_within_ms(&mut bench, 10).len(), 4);
    let to_host = Envelope { source: GATEWAY_MAC, destination: OUTSIDE_MAC, ..Envelope::default() }
        .udp(&Tuple::v4(ip_protocol::UDP, (SERVER, 53), (HOST, 4000)), b"answer");
    assert_eq!(bench.feed(OUTSIDE, to_host).disposition, Disposition::Consumed, "the host is not known yet");
    bench.forwarder.set_held(bench.now, SECOND);
    bench.feed(INSIDE, arp_reply(HOST_MAC, HOST, (INSIDE_MAC, INSIDE_SECOND)));
    assert!(bench.drain().iter().any(|(out, bytes)| out.port == INSIDE && link(bytes) == (INSIDE_MAC, HOST_MAC)));
    assert_eq!(announced_within_ms(&mut bench, 4000), [INSIDE_SECOND, OUTSIDE_SECOND]);
    assert!(!is_answered(&mut bench, INSIDE_SHARED));
}

#[test]
fn an_address_that_moves_to_a_group_which_the_node_holds_is_announced() {
    let mut bench = holding(SECOND);
    let mut other = config();
    for (port, address) in other.ports.iter_mut().zip([INSIDE_SECOND, OUTSIDE_SECOND]) {
        port.shared.push(Shared { prefix: Prefix::new(address.into(), 24), group: GroupId(1) });
        port.shared[0].group = GroupId(1);
    }
    assert_eq!(bench.forwarder.reconfigure(bench.now, other), Ok(true));
    assert!(announced_within_ms(&mut bench, 4000).contains(&INSIDE_SHARED));
    assert!(is_answered(&mut bench, INSIDE_SHARED));
}
