//! A forwarder between two links, fed with frames as its node would feed it.

mod conflicts;
mod errors;
mod groups;
mod harness;
mod probing;

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use std::vec;
use std::vec::Vec;

use flow::wire::arp::{ArpOperation, ArpView};
use flow::wire::build::{self, Envelope};
use flow::wire::ethernet::{EthernetView, ether_type};
use flow::wire::icmpv6::{NeighbourMessage, advertisement_flags};
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{Headers, MacAddress, Packet, Parsed, Transport, icmp, icmpv6, ip_protocol, parse};
use flow::{Checksum, Disposition, DropReason, Frame, Instant, PortId, Segmentation, SegmentationKind, Tuple};
use proptest::prelude::*;

use super::*;
use crate::group::GroupSet;
use harness::*;

#[test]
fn a_packet_to_a_known_gateway_leaves_at_once_with_new_link_addresses_and_one_hop_less() {
    let mut bench = Bench::settled();
    for frame in [to_server(), to_server6()] {
        let fed = bench.feed(INSIDE, frame);
        assert_eq!(fed.disposition, Disposition::Transmit(OUTSIDE));
        assert_eq!(link(&fed.bytes), (OUTSIDE_MAC, GATEWAY_MAC));
        assert_eq!(headers(&fed.bytes).ttl, 63);
    }
    assert_eq!(bench.drain(), []);
}

#[test]
fn a_packet_to_an_unknown_neighbour_waits_for_the_answer_and_keeps_its_offloads() {
    let mut bench = Bench::settled();
    let tuple = Tuple::v4(ip_protocol::UDP, (SERVER, 53), (Ipv4Addr::new(10, 0, 0, 77), 4000));
    let envelope = Envelope { source: GATEWAY_MAC, destination: OUTSIDE_MAC, ..Envelope::default() };
    let checksum = Checksum::Partial { start: 34, offset: 6 };
    let segmentation = Segmentation { kind: SegmentationKind::Udp, size_bytes: 4, ..Segmentation::default() };
    let fed = bench.feed_with(OUTSIDE, envelope.udp(&tuple, b"answered"), |frame| {
        (frame.checksum, frame.segmentation) = (checksum, segmentation);
    });
    assert_eq!(fed.disposition, Disposition::Consumed);
    let asked = bench.drain();
    let request = arp(&asked[0].1);
    assert_eq!((request.operation(), request.sender_ip()), (ArpOperation::Request, INSIDE_SHARED));
    assert_eq!(request.target_ip(), Ipv4Addr::new(10, 0, 0, 77));
    let mac = MacAddress([2, 7, 7, 7, 7, 7]);
    bench.feed(INSIDE, arp_reply(mac, Ipv4Addr::new(10, 0, 0, 77), (INSIDE_MAC, INSIDE_SHARED)));
    let sent = bench.drain();
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].0, OutFrame { port: INSIDE, checksum, segmentation });
    assert_eq!(link(&sent[0].1), (INSIDE_MAC, mac));
    assert_eq!(
        bench.forwarder.neighbour(INSIDE, Ipv4Addr::new(10, 0, 0, 77).into()).unwrap().0,
        NeighbourState::Reachable
    );
}

/// A datagram from the inside host to an outside one, of these many bytes of payload.
fn to_outside_host(destination: Ipv4Addr, source_port: u16, payload_bytes: usize) -> Vec<u8> {
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    envelope.udp(&Tuple::v4(ip_protocol::UDP, (HOST, source_port), (destination, 53)), &vec![7; payload_bytes])
}

#[test]
fn only_so_many_packets_wait_for_a_neighbour_and_their_senders_learn_when_it_does_not_answer() {
    let mut bench = Bench::settled();
    let absent = Ipv4Addr::new(192, 0, 2, 66);
    let frame = to_outside_host(absent, 4000, 8);
    for _ in 0..QUEUED_PACKETS_PER_NEIGHBOUR_MAX {
        assert_eq!(bench.feed(INSIDE, frame.clone()).disposition, Disposition::Consumed);
    }
    let fed = bench.feed(INSIDE, frame);
    assert_eq!(fed.disposition, Disposition::Drop(DropReason::NeighbourQueueFull));
    assert_eq!(bench.forwarder.counters().waiting_packets, QUEUED_PACKETS_PER_NEIGHBOUR_MAX as u64);
    let sent = bench.run_ms(4000);
    let asked_ms: Vec<_> = sent.iter().filter(|(_, out, _)| out.port == OUTSIDE).map(|(ms, ..)| *ms).collect();
    assert_eq!(asked_ms, [0, 100, 300, 700, 1500]);
    let errors: Vec<_> = sent.iter().filter(|(_, out, _)| out.port == INSIDE).collect();
    let counters = bench.forwarder.counters();
    assert!(errors.len() >= ERROR_BURST_MAX as usize);
    assert_eq!(errors.len() as u64 + counters.errors_limited, QUEUED_PACKETS_PER_NEIGHBOUR_MAX as u64);
    for (at_ms, _, bytes) in errors {
        assert_eq!(*at_ms, 3100);
        let Transport::IcmpError(error) = headers(bytes).transport else { panic!("not an error") };
        assert_eq!((error.kind, error.code), (icmp::kind::DESTINATION_UNREACHABLE, icmp::unreachable_code::HOST));
        assert_eq!(error.inner.destination_ip(), IpAddr::V4(absent));
    }
    assert_eq!(counters.unresolved_packets, QUEUED_PACKETS_PER_NEIGHBOUR_MAX as u64);
    assert_eq!((counters.waiting_packets, bench.forwarder.queued_packets()), (0, 0));
}

#[test]
fn the_first_packets_of_many_connections_leave_in_order_when_the_next_hop_answers() {
    let mut bench = Bench::settled();
    let late = Ipv4Addr::new(192, 0, 2, 67);
    let ports = 4000..4000 + QUEUED_PACKETS_PER_NEIGHBOUR_MAX as u16;
    for port in ports.clone() {
        assert_eq!(bench.feed(INSIDE, to_outside_host(late, port, 8)).disposition, Disposition::Consumed);
    }
    bench.drain();
    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, late, (OUTSIDE_MAC, OUTSIDE_SHARED)));
    let sent: Vec<_> = bench.drain().iter().map(|(_, bytes)| headers(bytes).tuple.source_port).collect();
    assert_eq!(sent, ports.collect::<Vec<_>>());
}

#[test]
fn what_waits_for_neighbours_is_bounded_in_bytes_of_each_and_of_all() {
    let mut bench = Bench::settled();
    let frame_bytes = to_outside_host(SERVER, 1, 1400).len();
    let mut waiting = 0;
    for host in 100..110u8 {
        let taken = (0..QUEUED_PACKETS_PER_NEIGHBOUR_MAX)
            .take_while(|_| {
                let fed = bench.feed(INSIDE, to_outside_host(Ipv4Addr::new(192, 0, 2, host), 1, 1400));
                fed.disposition == Disposition::Consumed
            })
            .count();
        assert!(taken * frame_bytes <= QUEUED_PER_NEIGHBOUR_MAX_BYTES);
        waiting += taken;
    }
    assert!(waiting * frame_bytes <= QUEUED_MAX_BYTES && (waiting + 1) * frame_bytes > QUEUED_MAX_BYTES);
    bench.run_ms(4000);
    assert_eq!(bench.forwarder.queued_packets(), 0);
    let repeated = bench.feed(INSIDE, to_outside_host(Ipv4Addr::new(192, 0, 2, 100), 1, 1400));
    assert_eq!(repeated.disposition, Disposition::Consumed, "there is room again");
}

#[test]
fn a_node_that_stands_by_is_silent_about_shared_addresses_but_learns_who_asks() {
    let mut bench = Bench::standby();
    bench.drain();
    bench.feed(INSIDE, build::arp_request(HOST_MAC, HOST, INSIDE_SHARED));
    bench.feed(INSIDE, build::neighbour_solicitation(HOST_MAC, HOST6, INSIDE6));
    let echo = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() }.echo(
        &Tuple::echo(HOST.into(), INSIDE_SHARED.into(), 1),
        build::Echo::default(),
        b"ping",
    );
    assert_eq!(bench.feed(INSIDE, echo).disposition, Disposition::Drop(DropReason::NotActive));
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Drop(DropReason::NotActive));
    assert_eq!(bench.drain(), []);
    for address in [IpAddr::V4(HOST), IpAddr::V6(HOST6)] {
        assert_eq!(bench.forwarder.neighbour(INSIDE, address), Some((NeighbourState::Stale, HOST_MAC)));
    }
    bench.forwarder.announce(bench.now, GroupSet::ALL);
    assert_eq!(bench.drain(), [], "there is nothing to announce while standing by");
}

#[test]
fn a_node_that_stands_by_resolves_gateways_without_claiming_a_shared_address() {
    let mut bench = Bench::standby();
    let asked = bench.drain();
    assert_eq!(asked.len(), 2);
    for (_, bytes) in &asked {
        if EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::ARP {
            assert_eq!((arp(bytes).sender_ip(), arp(bytes).target_ip()), (Ipv4Addr::UNSPECIFIED, GATEWAY));
        } else {
            assert!(matches!(headers(bytes).tuple.source_ip(), IpAddr::V6(ip) if ip.is_unicast_link_local()));
        }
    }
    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, Ipv4Addr::UNSPECIFIED)));
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Transmit(OUTSIDE), "nothing waits");
}

#[test]
fn an_active_node_answers_arp_solicitations_and_echo_for_its_addresses() {
    let mut bench = Bench::settled();
    bench.feed(INSIDE, build::arp_request(HOST_MAC, HOST, INSIDE_SHARED));
    bench.feed(INSIDE, build::neighbour_solicitation(HOST_MAC, HOST6, INSIDE6));
    bench.feed(INSIDE, build::neighbour_solicitation(HOST_MAC, Ipv6Addr::UNSPECIFIED, INSIDE6));
    let sent = bench.drain();
    assert_eq!(sent.len(), 3);
    let reply = arp(&sent[0].1);
    assert_eq!(
        (reply.operation(), reply.sender_mac(), reply.sender_ip()),
        (ArpOperation::Reply, INSIDE_MAC, INSIDE_SHARED)
    );
    assert_eq!(link(&sent[0].1), (INSIDE_MAC, HOST_MAC));
    let advertisement = neighbour_message(&sent[1].1);
    assert!(advertisement.flags & advertisement_flags::SOLICITED != 0);
    assert_eq!((advertisement.target, advertisement.link_address), (INSIDE6, Some(INSIDE_MAC)));
    assert!(headers(&sent[2].1).tuple.destination_ip().is_multicast(), "who has no address yet is answered via all");
    assert_eq!(neighbour_message(&sent[2].1).flags & advertisement_flags::SOLICITED, 0);
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ttl: 3, ..Envelope::default() };
    for (from, to) in [(IpAddr::V4(HOST), IpAddr::V4(INSIDE_SHARED)), (IpAddr::V6(HOST6), IpAddr::V6(INSIDE6))] {
        let fed = bench.feed(INSIDE, envelope.echo(&Tuple::echo(from, to, 77), build::Echo::default(), b"ping!"));
        assert_eq!(fed.disposition, Disposition::Transmit(INSIDE));
        assert_eq!(link(&fed.bytes), (INSIDE_MAC, HOST_MAC));
        let answer = headers(&fed.bytes);
        assert!(
            matches!(answer.transport, Transport::IcmpQuery(query) if query.is_reply),
            "its checksums are right too"
        );
        assert_eq!((answer.tuple.source_ip(), answer.tuple.destination_ip(), answer.ttl), (to, from, 64));
    }
}

#[test]
fn neighbour_discovery_that_a_router_has_passed_on_is_not_believed() {
    let mut bench = Bench::settled();
    let mut solicitation = build::neighbour_solicitation(HOST_MAC, HOST6, INSIDE6);
    solicitation[14 + 7] = 254;
    assert_eq!(bench.feed(INSIDE, solicitation).disposition, Disposition::Drop(DropReason::Malformed));
    let mut claim = build::unsolicited_neighbour_advertisement(MacAddress([2, 9, 9, 9, 9, 9]), GATEWAY6, true);
    claim[14 + 7] = 254;
    assert_eq!(bench.feed(OUTSIDE, claim).disposition, Disposition::Drop(DropReason::Malformed));
    assert_eq!(bench.drain(), []);
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, GATEWAY6.into()).map(|(_, mac)| mac), Some(GATEWAY_MAC));
}

#[test]
fn a_new_active_node_announces_at_once_and_repeatedly_in_every_form() {
    let mut bench = Bench::settled();
    bench.forwarder.announce(bench.now, GroupSet::ALL);
    let sent = bench.run_ms(5000);
    let at_ms = |is_it: &dyn Fn(&[u8]) -> bool| -> Vec<u64> {
        sent.iter().filter(|(_, _, bytes)| is_it(bytes)).map(|(ms, ..)| *ms).collect()
    };
    let rounds = [0, 50, 200, 1000, 3000];
    for address in [INSIDE_SHARED, OUTSIDE_SHARED] {
        for operation in [ArpOperation::Request, ArpOperation::Reply] {
            let is_it = |bytes: &[u8]| {
                EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::ARP
                    && arp(bytes).is_gratuitous()
                    && (arp(bytes).operation(), arp(bytes).sender_ip()) == (operation, address)
            };
            assert_eq!(at_ms(&is_it), rounds, "{address} {operation:?}");
        }
    }
    for address in [INSIDE6, OUTSIDE6] {
        let is_it = |bytes: &[u8]| {
            EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::IPV6
                && neighbour_message(bytes).is_advertisement
                && neighbour_message(bytes).target == address
                && neighbour_message(bytes).flags & advertisement_flags::OVERRIDE != 0
        };
        assert_eq!(at_ms(&is_it), rounds, "{address}");
    }
    assert_eq!(bench.forwarder.counters().announcements, 30);
}

#[test]
fn giving_up_the_role_ends_announcements_and_drops_what_waits() {
    let mut bench = Bench::active();
    bench.forwarder.announce(bench.now, GroupSet::ALL);
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Consumed);
    bench.forwarder.set_held(bench.now, GroupSet::EMPTY);
    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, OUTSIDE_SHARED)));
    let sent = bench.run_ms(4000);
    let is_gratuitous = |bytes: &[u8]| {
        EthernetView::new_checked(bytes).unwrap().ether_type() == ether_type::ARP && arp(bytes).is_gratuitous()
    };
    assert!(!sent.iter().any(|(_, _, bytes)| is_gratuitous(bytes)));
    assert_eq!(bench.forwarder.counters().abandoned_packets, 1);
}

#[test]
fn senders_receive_errors_about_exceeded_time_missing_routes_and_packet_size() {
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    let last_hop = Envelope { ttl: 1, ..envelope };
    let v4 = Tuple::v4(ip_protocol::UDP, (HOST, 1), (SERVER, 2));
    let v6 = Tuple::v6(ip_protocol::UDP, (HOST6, 1), (SERVER6, 2));
    let big = [7; 1600];
    let cases = [
        (last_hop.udp(&v4, b""), DropReason::TtlExceeded, (icmp::kind::TIME_EXCEEDED, 0, 0)),
        (last_hop.udp(&v6, b""), DropReason::TtlExceeded, (icmpv6::kind::TIME_EXCEEDED, 0, 0)),
        (envelope.udp(&v4, &big), DropReason::PacketTooBig, (icmp::kind::DESTINATION_UNREACHABLE, 4, 1500)),
        (envelope.udp(&v6, &big), DropReason::PacketTooBig, (icmpv6::kind::PACKET_TOO_BIG, 0, 1500)),
    ];
    for (frame, reason, (kind, code, parameter)) in cases {
        let mut bench = Bench::settled();
        assert_eq!(bench.feed(INSIDE, frame).disposition, Disposition::Drop(reason));
        let sent = bench.drain();
        assert_eq!(sent.len(), 1);
        assert_eq!((sent[0].0.port, link(&sent[0].1)), (INSIDE, (INSIDE_MAC, HOST_MAC)));
        let Transport::IcmpError(error) = headers(&sent[0].1).transport else { panic!("not an error") };
        assert_eq!((error.kind, error.code), (kind, code));
        let at = usize::from(headers(&sent[0].1).l4_offset) + 4;
        assert_eq!(u32::from_be_bytes(sent[0].1[at..at + 4].try_into().unwrap()), parameter);
    }
    let mut without_routes = config();
    without_routes.routes.clear();
    let mut bench = Bench { now: Instant::ZERO, forwarder: Forwarder::new(without_routes).unwrap() };
    bench.forwarder.set_held(bench.now, GroupSet::ALL);
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Drop(DropReason::NoRoute));
    assert_eq!(bench.drain().len(), 1);
}

#[test]
fn segments_of_a_large_frame_are_measured_one_by_one() {
    let mut bench = Bench::settled();
    let envelope = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ..Envelope::default() };
    let frame = envelope.tcp(&Tuple::v4(ip_protocol::TCP, (HOST, 1), (SERVER, 2)), build::Tcp::default(), &[0; 20_000]);
    for (size_bytes, expected) in
        [(1460, Disposition::Transmit(OUTSIDE)), (1461, Disposition::Drop(DropReason::PacketTooBig))]
    {
        let fed = bench.feed_with(INSIDE, frame.clone(), |frame| {
            frame.segmentation =
                Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes, ..Segmentation::default() };
            frame.checksum = Checksum::Valid;
        });
        assert_eq!(fed.disposition, expected);
    }
}

#[test]
fn a_packet_that_may_be_fragmented_leaves_in_pieces_with_its_checksum_done_also_when_it_waited() {
    let mut bench = Bench::settled();
    let absent = Ipv4Addr::new(192, 0, 2, 66);
    let may_be_fragmented = Some(FragmentHeader { offset_bytes: 0, more: false, identification: 9 });
    let envelope =
        Envelope { source: HOST_MAC, destination: INSIDE_MAC, fragment: may_be_fragmented, ..Envelope::default() };
    for (to, waits) in [(SERVER, false), (absent, true)] {
        let tuple = Tuple::v4(ip_protocol::UDP, (HOST, 4000), (to, 53));
        let mut whole = envelope.udp(&tuple, &[7; 3000]);
        let expected = whole[34..].to_vec();
        let checksum = build::offload_checksum(&mut whole);
        whole.extend_from_slice(&[0xee; 3]);
        let fed = bench.feed_with(INSIDE, whole, |frame| frame.checksum = checksum);
        assert_eq!(fed.disposition, Disposition::Consumed);
        if waits {
            bench.drain();
            bench.feed(OUTSIDE, arp_reply(MacAddress([2, 7, 7, 7, 7, 7]), absent, (OUTSIDE_MAC, OUTSIDE_SHARED)));
        }
        let sent = bench.drain();
        assert_eq!(sent.len(), 3);
        assert!(sent.iter().all(|(out, bytes)| out.port == OUTSIDE && bytes.len() <= 14 + 1500));
        let data: Vec<u8> = sent.iter().flat_map(|(_, bytes)| bytes[34..].iter().copied()).collect();
        assert_eq!(data, expected, "with the checksum that the hardware was to fill in");
        assert!(sent.iter().all(|(out, bytes)| headers(bytes).ttl == 63 && out.checksum == Checksum::Valid));
    }
    assert_eq!(bench.forwarder.counters().packets_fragmented, 2);
}

#[test]
fn errors_are_never_about_errors_and_never_more_than_their_rate() {
    let mut bench = Bench::settled();
    let last_hop = Envelope { source: HOST_MAC, destination: INSIDE_MAC, ttl: 1, ..Envelope::default() };
    let about = to_server();
    let header = build::IcmpHeader { kind: icmp::kind::DESTINATION_UNREACHABLE, code: 3, parameter: 0 };
    let quoted = Tuple::v4(ip_protocol::UDP, (SERVER, 53), (HOST, 4000));
    let mut error = last_hop.icmp_error(HOST.into(), header, &last_hop.udp(&quoted, b"")[14..]).unwrap();
    assert_eq!(bench.feed(INSIDE, error.clone()).disposition, Disposition::Drop(DropReason::TtlExceeded));
    assert_eq!(bench.drain(), []);
    error.clear();
    let frame = last_hop.udp(&Tuple::v4(ip_protocol::UDP, (HOST, 1), (SERVER, 2)), &about);
    for _ in 0..200 {
        bench.feed(INSIDE, frame.clone());
    }
    assert_eq!(bench.drain().len() as u32, ERROR_BURST_MAX);
    assert_eq!(bench.forwarder.counters().errors_limited, 200 - u64::from(ERROR_BURST_MAX));
}

#[test]
fn a_neighbour_that_moved_is_followed_and_claims_on_this_nodes_addresses_are_not() {
    let mut bench = Bench::settled();
    let new_mac = MacAddress([2, 9, 9, 9, 9, 9]);
    bench.feed(OUTSIDE, build::gratuitous_arp(ArpOperation::Request, new_mac, GATEWAY));
    assert_eq!(link(&bench.feed(INSIDE, to_server()).bytes).1, new_mac);
    bench.feed(OUTSIDE, build::gratuitous_arp(ArpOperation::Reply, new_mac, OUTSIDE_SHARED));
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, OUTSIDE_SHARED.into()), None);
    assert_eq!(bench.forwarder.counters().address_conflicts, 1);
    bench.feed(OUTSIDE, build::gratuitous_arp(ArpOperation::Reply, new_mac, Ipv4Addr::new(203, 0, 113, 5)));
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, Ipv4Addr::new(203, 0, 113, 5).into()), None, "not on this link");
}

#[test]
fn a_stale_neighbour_serves_while_it_is_asked_to_confirm() {
    let mut bench = Bench::settled();
    bench.now = bench.now + Duration::from_secs(40);
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Transmit(OUTSIDE));
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, GATEWAY.into()).unwrap().0, NeighbourState::Probe);
    let asked = bench.drain();
    let is_it = |(_, bytes): &&(OutFrame, Vec<u8>)| link(bytes).1 == GATEWAY_MAC;
    assert!(asked.iter().any(|asked| is_it(&asked)), "the last known owner alone is asked");
    bench.feed(OUTSIDE, arp_reply(GATEWAY_MAC, GATEWAY, (OUTSIDE_MAC, OUTSIDE_SHARED)));
    assert_eq!(bench.forwarder.neighbour(OUTSIDE, GATEWAY.into()).unwrap().0, NeighbourState::Reachable);
}

#[test]
fn a_scan_of_the_link_fills_no_table_and_pushes_out_no_gateway() {
    let mut bench = Bench::settled();
    let envelope = Envelope { source: GATEWAY_MAC, destination: OUTSIDE_MAC, ..Envelope::default() };
    for host in 0..20_000u32 {
        let target = Ipv6Addr::from_bits(INSIDE6.to_bits() + 1000 + u128::from(host));
        bench.feed(OUTSIDE, envelope.udp(&Tuple::v6(ip_protocol::UDP, (SERVER6, 1), (target, 2)), b"scan"));
        assert!(bench.forwarder.queued_packets() <= QUEUED_PACKETS_MAX);
        if host.is_multiple_of(100) {
            bench.now = bench.now + Duration::from_millis(10);
            bench.drain();
        }
    }
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Transmit(OUTSIDE));
}

#[test]
fn frames_for_others_and_broadcasts_are_not_forwarded() {
    let mut bench = Bench::settled();
    let tuple = Tuple::v4(ip_protocol::UDP, (HOST, 1), (SERVER, 2));
    let to = |destination| Envelope { source: HOST_MAC, destination, ..Envelope::default() }.udp(&tuple, b"");
    let fed = bench.feed(INSIDE, to(GATEWAY_MAC));
    assert_eq!(fed.disposition, Disposition::Drop(DropReason::OtherHost));
    let fed = bench.feed(INSIDE, to(MacAddress::BROADCAST));
    assert_eq!(fed.disposition, Disposition::Drop(DropReason::LinkBroadcast));
}

#[test]
fn other_addresses_and_routes_are_taken_while_packets_pass_and_only_new_addresses_are_announced() {
    let mut bench = Bench::settled();
    let added = Ipv4Addr::new(192, 0, 2, 2);
    let mut other = config();
    other.ports[1].shared.push(Prefix::new(added.into(), 24).into());
    other.routes[0].gateway = Ipv4Addr::new(192, 0, 2, 253).into();
    assert_eq!(bench.forwarder.reconfigure(bench.now, other.clone()), Ok(true));
    let said = bench.run_ms(1);
    let announces = |address: Ipv4Addr| {
        let is_arp = |bytes: &[u8]| bytes[12..14] == [0x08, 0x06];
        said.iter().any(|(_, _, bytes)| {
            is_arp(bytes) && arp(bytes).sender_ip() == address && arp(bytes).target_ip() == address
        })
    };
    assert!(announces(added));
    let gateway_is_asked = said.iter().any(|(_, out, bytes)| {
        out.port == OUTSIDE && bytes[12..14] == [0x08, 0x06] && arp(bytes).target_ip() == Ipv4Addr::new(192, 0, 2, 253)
    });
    assert!(gateway_is_asked, "before the first packet needs it");
    let next_hop = bench.forwarder.route(SERVER.into()).unwrap();
    assert_eq!(next_hop.gateway, Some(Ipv4Addr::new(192, 0, 2, 253).into()));

    // While that is still being announced the address goes again, and with it the rest of the announcement.
    assert_eq!(bench.forwarder.reconfigure(bench.now, config()), Ok(false));
    assert_eq!(
        bench.feed(INSIDE, to_server()).disposition,
        Disposition::Transmit(OUTSIDE),
        "its link address is known"
    );
    let said = bench.run_ms(4000);
    assert!(said.iter().all(|(_, _, bytes)| bytes[12..14] != [0x08, 0x06] || arp(bytes).sender_ip() != added));
    assert!(bench.forwarder.poll_timeout().is_none_or(|due| due > bench.now), "nothing is left to send");
}

#[test]
fn other_ports_are_not_taken_and_change_nothing() {
    let mut bench = Bench::settled();
    let mut replaced = config();
    replaced.ports[1].mac = GATEWAY_MAC;
    replaced.routes.clear();
    assert_eq!(bench.forwarder.reconfigure(bench.now, replaced), Err(ReconfigureError::PortsDiffer));
    let mut unsound = config();
    unsound.ports[0].mtu_bytes = 20;
    assert!(matches!(bench.forwarder.reconfigure(bench.now, unsound), Err(ReconfigureError::Config(_))));
    assert_eq!(bench.feed(INSIDE, to_server()).disposition, Disposition::Transmit(OUTSIDE));
}

#[test]
fn a_configuration_that_cannot_work_is_refused_with_what_to_do() {
    let mut broken = config();
    broken.routes[0].port = PortId(9);
    assert_eq!(Forwarder::new(broken).unwrap_err(), ConfigError::UnknownPort(PortId(9)));
    let mut broken = config();
    broken.routes[0].gateway = SERVER.into();
    let error = Forwarder::new(broken).unwrap_err();
    assert_eq!(error, ConfigError::GatewayNotOnLink { gateway: SERVER.into(), port: OUTSIDE });
    let mut broken = config();
    broken.ports[0].shared[0].prefix.length_bits = 33;
    assert!(matches!(Forwarder::new(broken), Err(ConfigError::PrefixLength(_))));
    let mut broken = config();
    broken.routes[0].gateway = GATEWAY6.into();
    assert!(matches!(Forwarder::new(broken), Err(ConfigError::FamilyMismatch(_))));
    let mut broken = config();
    broken.ports[1].mtu_bytes = 600;
    assert!(matches!(Forwarder::new(broken), Err(ConfigError::MtuTooSmall(600))));
}

proptest! {
    #[test]
    fn arbitrary_frames_never_panic_and_nothing_grows_without_bound(
        frames in proptest::collection::vec((0u8..2, proptest::collection::vec(any::<u8>(), 0..120), 0u8..5), 1..40),
        active in any::<bool>(),
    ) {
        let mut bench = if active { Bench::settled() } else { Bench::standby() };
        for (port, noise, kind) in frames {
            let mut bytes = match kind {
                0 => Vec::new(),
                1 => build::arp_request(HOST_MAC, HOST, INSIDE_SHARED),
                2 => build::neighbour_solicitation(HOST_MAC, HOST6, INSIDE6),
                3 => to_server(),
                _ => to_server6(),
            };
            // The noise overwrites the frame from its end on backwards, so that its beginning stays plausible.
            let start = bytes.len().saturating_sub(noise.len() / 2);
            bytes.truncate(start);
            bytes.extend_from_slice(&noise);
            bench.feed(PortId(port), bytes);
            bench.now = bench.now + Duration::from_millis(50);
            bench.drain();
            prop_assert!(bench.forwarder.queued_packets() <= QUEUED_PACKETS_MAX);
        }
    }
}
