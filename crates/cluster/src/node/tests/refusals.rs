//! ICMP errors about packets that could not be sent on: always about the packet as its sender sent it.

use std::net::Ipv4Addr;
use std::time::Duration;

use flow::wire::{Transport, build, icmp, ip_protocol};
use flow::{DropReason, Tuple};

use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, SHARED_INSIDE, SHARED_OUTSIDE};
use super::syn_proxy::{Client, always};

/// Type, code and quoted tuple of an error.
fn error(received: Option<Received>) -> (u8, u8, Tuple) {
    let received = received.expect("the sender receives an error");
    let Transport::IcmpError(error) = received.headers.transport else { panic!("an error") };
    (error.kind, error.code, error.inner)
}

#[test]
fn a_missing_route_is_reported_to_the_client_about_its_own_packet() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (Ipv4Addr::new(203, 0, 113, 9), 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&out, b"question"));
    let error = error(cluster.client_receives());
    assert_eq!(error, (icmp::kind::DESTINATION_UNREACHABLE, icmp::unreachable_code::NETWORK, out));
    assert_eq!((cluster.dropped(0, DropReason::NoRoute), cluster.connections(0)), (1, 0));
}

#[test]
fn a_neighbour_that_does_not_answer_is_reported_to_the_client_about_its_own_packet() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (Ipv4Addr::new(198, 51, 100, 77), 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&out, b"question"));
    assert!(cluster.client_receives().is_none(), "it is asked first");
    cluster.run(Duration::from_secs(4));
    let error = error(cluster.client_receives());
    assert_eq!(error, (icmp::kind::DESTINATION_UNREACHABLE, icmp::unreachable_code::HOST, out));
}

#[test]
fn an_answer_whose_time_to_live_ends_here_is_refused_under_the_address_that_it_was_sent_to() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&out, b"question"));
    let back = cluster.server_receives().expect("the question passes").tuple.inverse();
    cluster.server_sends_frame(|envelope| build::Envelope { ttl: 1, ..envelope }.udp(&back, b"answer"));
    assert!(cluster.client_receives().is_none());
    let received = cluster.server_receives();
    assert_eq!(received.as_ref().map(|error| error.tuple.source_ip()), Some(SHARED_OUTSIDE.into()));
    assert_eq!(error(received), (icmp::kind::TIME_EXCEEDED, 0, back));
    assert_eq!(cluster.dropped(0, DropReason::TtlExceeded), 1);
}

#[test]
fn a_question_whose_time_to_live_ends_here_begins_nothing() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    cluster.client_sends_frame(|envelope| build::Envelope { ttl: 1, ..envelope }.udp(&out, b"question"));
    let received = cluster.client_receives();
    assert_eq!(received.as_ref().map(|error| error.tuple.source_ip()), Some(SHARED_INSIDE.into()));
    assert_eq!(error(received), (icmp::kind::TIME_EXCEEDED, 0, out));
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn the_node_itself_is_reached_with_the_last_hop_left() {
    let mut cluster = Cluster::start(Options::default());
    let ping = Tuple::echo(CLIENT.into(), SHARED_INSIDE.into(), 7);
    cluster.client_sends_frame(|envelope| {
        build::Envelope { ttl: 1, ..envelope }.echo(&ping, build::Echo::default(), b"anybody?")
    });
    let answer = cluster.client_receives().expect("a router replies whatever hop limit is left");
    assert!(matches!(answer.headers.transport, Transport::IcmpQuery(query) if query.is_reply));
    assert_eq!(answer.headers.ttl, 64, "with a time to live of its own");
}

/// What an error quotes may be as short as eight bytes of the transport header, and of any protocol.
#[test]
fn errors_from_outside_are_translated_whatever_they_quote() {
    for protocol in [ip_protocol::UDP, ip_protocol::TCP, ip_protocol::ICMP] {
        for is_cut_short in [false, true] {
            let mut cluster = Cluster::start(Options::default());
            let out = match protocol {
                ip_protocol::ICMP => Tuple::echo(CLIENT.into(), SERVER.into(), 4000),
                _ => Tuple::v4(protocol, (CLIENT, 4000), (SERVER, 53)),
            };
            cluster.client_sends_frame(|envelope| match protocol {
                ip_protocol::UDP => envelope.udp(&out, b"question"),
                ip_protocol::TCP => envelope.tcp(&out, super::syn(), b""),
                _ => envelope.echo(&out, build::Echo::default(), b"question"),
            });
            let seen = cluster.server_receives().expect("the packet passes");
            let quoted = if is_cut_short { &seen.bytes[14..14 + 28] } else { &seen.bytes[14..] };
            let header = build::IcmpHeader { kind: 11, code: 0, parameter: 0 };
            let router = Ipv4Addr::new(198, 51, 100, 200);
            cluster.server_sends_frame(|envelope| envelope.icmp_error(router.into(), header, quoted).unwrap());
            let error = cluster.client_receives().expect("its sums are right, or it would not have been read");
            assert_eq!(error.tuple.source_ip(), router);
            let Transport::IcmpError(about) = error.headers.transport else { panic!("an error") };
            assert_eq!(about.inner, out);
            if !is_cut_short {
                // The quoted packet is as the client sent it, but for the hop: its own checksums show it.
                let mut packet = error.bytes[..14].to_vec();
                packet.extend_from_slice(&error.bytes[usize::from(about.inner_l3_offset)..]);
                assert_eq!(Received::new(packet).tuple, out);
            }
        }
    }
}

#[test]
fn a_client_for_which_nat_has_no_port_left_receives_an_error_at_once() {
    // One port for each node.
    let mut cluster = Cluster::start(Options { nat_port_last: 1025, ..Options::default() });
    let of_client = |port| Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&of_client(4000), b"question"));
    assert!(cluster.server_receives().is_some());
    cluster.client_sends_frame(|envelope| envelope.udp(&of_client(4001), b"question"));
    let expected = (icmp::kind::DESTINATION_UNREACHABLE, icmp::unreachable_code::ADMINISTRATIVELY_PROHIBITED);
    let received = error(cluster.client_receives());
    assert_eq!(received, (expected.0, expected.1, of_client(4001)), "RFC 5508, REQ-8");
    assert_eq!(cluster.dropped(0, DropReason::NatPortsExhausted), 1);
    // No more than the network should bear.
    (0..200).for_each(|port| cluster.client_sends_frame(|envelope| envelope.udp(&of_client(5000 + port), b"question")));
    assert!(core::iter::from_fn(|| cluster.client_receives()).count() < 60);
    assert!(cluster.node(0).status(cluster.now).forwarding.errors_limited > 100);
}

#[test]
fn a_client_that_the_syn_proxy_has_accepted_is_reset_if_nat_has_no_port_left() {
    let mut cluster = Cluster::start(Options { nat_port_last: 1025, ..always() });
    let _ = Client::connects(&mut cluster, 40_000);
    let second = Client::sends_syn(&mut cluster, 40_001);
    second.acknowledges(&mut cluster);
    let reset = cluster.client_receives().expect("it takes the connection for open, and no error would end it");
    let Transport::Tcp(segment) = reset.headers.transport else { panic!("a segment") };
    assert_eq!(segment.flags & flow::wire::tcp_flags::RST, flow::wire::tcp_flags::RST);
    assert!(cluster.server_receives().is_none());
}

/// The answer of the node to a ping of the client, with its type of service.
fn ping(cluster: &mut Cluster, address: Ipv4Addr, traffic_class: u8) -> Option<(Tuple, u8)> {
    let ping = Tuple::echo(CLIENT.into(), address.into(), 7);
    cluster.client_sends_frame(|envelope| {
        build::Envelope { traffic_class, ..envelope }.echo(&ping, build::Echo::default(), b"anybody?")
    });
    let answer = cluster.client_receives()?;
    assert!(matches!(answer.headers.transport, Transport::IcmpQuery(query) if query.is_reply));
    Some((answer.tuple, answer.bytes[15]))
}

#[test]
fn the_shared_addresses_answer_pings_from_every_port_with_the_service_that_they_came_with() {
    let mut cluster = Cluster::start(Options::default());
    for (address, traffic_class) in [(SHARED_INSIDE, 0), (SHARED_INSIDE, 0x28), (SHARED_OUTSIDE, 0xb8)] {
        let (tuple, class) = ping(&mut cluster, address, traffic_class).expect("it answers");
        assert_eq!((tuple.source_ip(), class), (address.into(), traffic_class));
    }
    assert_eq!(cluster.connections(0), 0, "a ping to the node begins no connection");
}

#[test]
fn a_ping_from_another_port_is_under_the_rules() {
    // Nothing may come from outside.
    let mut cluster = Cluster::start(Options::default());
    let ping = Tuple::echo(SERVER.into(), SHARED_INSIDE.into(), 7);
    cluster.server_sends_frame(|envelope| envelope.echo(&ping, build::Echo::default(), b"anybody?"));
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(0, DropReason::FirewallDenied), 1);
}
