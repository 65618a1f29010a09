//! A service with direct return: packets reach the backend in a tunnel, its answers pass elsewhere, and the connection outlives its node.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use std::vec::Vec;

use flow::wire::build::{self, IcmpHeader};
use flow::wire::{Encapsulation, Headers, Parsed, TcpSegment, Transport, icmp, ip_protocol, parse, tcp_flags};
use flow::{
    Checksum, Disposition, DropReason, Frame, PacketBatch, PortId, Segmentation, SegmentationKind, Tuple, conntrack,
};
use network_functions::load_balancer::{Affinity, BackendConfig, Mode, OnFailure, Scheduler, ServiceConfig, Services};
use network_functions::port_range::PortRange;

use super::below::Program;
use super::cluster::{
    CLIENT, CLIENT_MAC, Cluster, INSIDE, Options, Received, SERVER, SHARED_INSIDE, SHARED_OUTSIDE, port_mac, segment,
    syn,
};
use super::large_packets::{datagram, piece};
use super::{ACK, FIN_ACK};
use crate::pipeline::{GatewayReason, PacketPath};

const PORT: u16 = 40_000;
const GUE: Encapsulation = Encapsulation::Gue { port: 6080 };

fn service(protocol: u8, encapsulation: Encapsulation, backend: Ipv4Addr) -> ServiceConfig {
    ServiceConfig {
        name: if protocol == ip_protocol::TCP { "web".into() } else { "names".into() },
        address: SHARED_INSIDE.into(),
        protocol,
        ports: std::vec![PortRange::single(80)],
        scheduler: Scheduler::default(),
        affinity: Affinity::default(),
        mode: Mode::DirectReturn(encapsulation),
        on_failure: OnFailure::default(),
        slow_start: None,
        quic: None,
        backends: std::vec![BackendConfig { address: backend.into(), port: None, weight: 1 }],
    }
}

/// A service of TCP and one of UDP at the shared address inside, on each node with this backend.
fn services(encapsulation: Encapsulation, backends: [Ipv4Addr; 2]) -> &'static [Arc<Services>; 2] {
    let services = backends.map(|backend| {
        let configs = [ip_protocol::TCP, ip_protocol::UDP].map(|protocol| service(protocol, encapsulation, backend));
        Arc::new(Services::new(&configs, &Services::default()).unwrap())
    });
    Box::leak(Box::new(services))
}

fn start(encapsulation: Encapsulation) -> Cluster {
    let services = Some(services(encapsulation, [SERVER; 2]));
    Cluster::start(Options { services, is_translated: false, ..Options::default() })
}

fn tuple(protocol: u8) -> Tuple {
    Tuple::v4(protocol, (CLIENT, PORT), (SHARED_INSIDE, 80))
}

fn sends(cluster: &mut Cluster, segment: build::Tcp<'_>, payload: &[u8]) {
    cluster.client_sends_frame(|envelope| envelope.tcp(&tuple(ip_protocol::TCP), segment, payload));
}

/// The outer packet that reached the backend, and the packet inside, whose checksums are right.
fn received(cluster: &mut Cluster) -> Option<(Received, Headers)> {
    let outer = cluster.server_receives()?;
    let tuple = outer.tuple;
    assert_eq!((tuple.source_ip(), tuple.destination_ip()), (SHARED_OUTSIDE.into(), IpAddr::from(SERVER)));
    let is_udp = tuple.protocol == ip_protocol::UDP;
    assert!(is_udp && tuple.destination_port == 6080 || tuple.protocol == ip_protocol::IPIP, "{tuple:?}");
    assert_eq!(outer.headers.ttl, 64);
    let at = usize::from(if is_udp { outer.headers.payload_offset } else { outer.headers.l4_offset });
    let mut inner = [&outer.bytes[..14], &outer.bytes[at..outer.headers.l3_end()]].concat();
    let length_bytes = inner.len();
    let Ok(Parsed::Ip(headers)) = parse(&Frame::new(&mut inner, 0, length_bytes, PortId(0)).unwrap()) else {
        panic!("a sound packet inside")
    };
    Some((outer, headers))
}

fn segment_of(headers: &Headers) -> TcpSegment {
    let Transport::Tcp(segment) = headers.transport else { panic!("a segment") };
    segment
}

fn connect(cluster: &mut Cluster) {
    sends(cluster, syn(), b"");
    received(cluster).expect("the SYN passes");
    sends(cluster, segment(ACK, 1001, 5001), b"");
    received(cluster).expect("the ACK passes");
    cluster.run(Duration::from_millis(5));
}

fn take_over(cluster: &mut Cluster) {
    cluster.kill(0);
    cluster.run_until("node 1 to take over", |cluster| cluster.node(1).holds_addresses());
}

fn state(cluster: &Cluster, id: u8) -> Option<&'static str> {
    let (_, connection) = cluster.node(id).pipeline().table().iter().next()?;
    Some(conntrack::state_name(connection.original.protocol, &connection.protocol))
}

#[test]
fn packets_reach_the_backend_in_a_tunnel_and_outlive_the_node() {
    for (encapsulation, overhead) in [(Encapsulation::IpIp, 20), (GUE, 28)] {
        let mut cluster = start(encapsulation);
        connect(&mut cluster);
        assert_eq!((state(&cluster, 0), state(&cluster, 1)), (Some("ESTABLISHED"), Some("ESTABLISHED")));
        sends(&mut cluster, segment(ACK, 1001, 5001), b"question");
        let (outer, inner) = received(&mut cluster).expect("the question passes");
        assert_eq!(inner.tuple, tuple(ip_protocol::TCP), "nothing is translated");
        assert_eq!((inner.ttl, inner.l3_bytes + overhead), (63, outer.headers.l3_bytes));
        let source_port = outer.tuple.source_port;

        take_over(&mut cluster);
        // Far beyond what the replica has seen of the connection.
        sends(&mut cluster, segment(ACK, 1_000_009, 2_000_007), b"more");
        let (outer, inner) = received(&mut cluster).expect("it continues");
        assert_eq!(segment_of(&inner).sequence, 1_000_009);
        assert_eq!(outer.tuple.source_port, source_port, "the flow stays on its path");
        sends(&mut cluster, segment(FIN_ACK, 1_000_013, 2_000_007), b"");
        received(&mut cluster).expect("the FIN passes");
        assert_eq!(state(&cluster, 1), Some("FIN_WAIT"));
    }
}

#[test]
fn a_client_that_resets_ends_the_connection_on_both_nodes() {
    let mut cluster = start(GUE);
    connect(&mut cluster);
    sends(&mut cluster, segment(tcp_flags::RST, 1001, 0), b"");
    received(&mut cluster).expect("the reset passes");
    cluster.run(Duration::from_millis(5));
    assert_eq!((state(&cluster, 0), state(&cluster, 1)), (Some("CLOSE"), Some("CLOSE")));
    cluster.run(Duration::from_secs(12));
    assert_eq!((cluster.connections(0), cluster.connections(1)), (0, 0));
}

#[test]
fn a_packet_that_does_not_fit_the_tunnel_is_refused_with_the_mtu_that_is_left() {
    let mut cluster = start(GUE);
    connect(&mut cluster);
    sends(&mut cluster, segment(ACK, 1001, 5001), &[1; 1460]);
    assert!(received(&mut cluster).is_none());
    assert_eq!(cluster.dropped(0, DropReason::PacketTooBig), 1);
    let error = cluster.client_receives().expect("an error");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an ICMP error") };
    assert_eq!((about.kind, about.code), (3, icmp::unreachable_code::FRAGMENTATION_NEEDED));
    assert_eq!(about.inner, tuple(ip_protocol::TCP));
    let at = usize::from(error.headers.l4_offset);
    assert_eq!(error.bytes[at + 6..at + 8], 1472u16.to_be_bytes());
    sends(&mut cluster, segment(ACK, 1001, 5001), &[1; 1432]);
    assert_eq!(received(&mut cluster).expect("it fits").0.headers.l3_bytes, 1500);
}

#[test]
fn a_frame_that_stands_for_several_segments_leaves_as_these_in_order() {
    let mut cluster = start(Encapsulation::IpIp);
    connect(&mut cluster);
    let payload: Vec<u8> = (0..5000).map(|at| (at * 7) as u8).collect();
    let destination = port_mac(0, INSIDE);
    let envelope = build::Envelope { source: CLIENT_MAC, destination, ..build::Envelope::default() };
    let mut large = envelope.tcp(&tuple(ip_protocol::TCP), segment(ACK | tcp_flags::PSH, 1001, 5001), &payload);
    let mut small = envelope.tcp(&tuple(ip_protocol::TCP), segment(ACK, 6001, 5001), b"behind");
    let now = cluster.now;
    {
        let length_bytes = large.len();
        let mut frame = Frame::new(&mut large, 0, length_bytes, INSIDE).unwrap();
        frame.checksum = Checksum::Valid;
        frame.segmentation =
            Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1400, header_bytes: 54, ecn: false };
        let length_bytes = small.len();
        small.resize(length_bytes + 100, 0);
        let second = Frame::new(&mut small, 0, length_bytes, INSIDE).unwrap();
        let mut batch: PacketBatch<'_> = [frame, second].into_iter().collect();
        cluster.node_mut(0).handle_packets(now, &mut batch);
        assert_eq!(batch.iter().map(|frame| frame.disposition).collect::<Vec<_>>(), [Disposition::Consumed; 2]);
    }
    cluster.deliver();
    let mut sequences = Vec::new();
    let mut joined = Vec::new();
    while let Some((outer, inner)) = received(&mut cluster) {
        sequences.push(segment_of(&inner).sequence);
        joined.extend_from_slice(&outer.bytes[usize::from(inner.payload_offset) + 20..]);
    }
    assert_eq!(sequences, [1001, 2401, 3801, 5201, 6001], "what is behind stays behind");
    assert_eq!(joined, [&payload[..], b"behind"].concat());
}

#[test]
fn a_datagram_in_pieces_reaches_one_backend_in_pieces() {
    let mut cluster = start(GUE);
    let out = tuple(ip_protocol::UDP);
    let question = datagram(&out, 4000);
    for nth in [0, 2, 1] {
        cluster.client_sends_frame(|envelope| piece(envelope, &out, &question, nth));
    }
    let mut bytes = 0;
    let mut pieces = 0;
    while let Some((outer, inner)) = received(&mut cluster) {
        assert!(outer.headers.l3_bytes <= 1500 && inner.is_fragment);
        bytes += inner.l3_bytes - 20;
        pieces += 1;
    }
    assert_eq!((bytes, pieces), (4008, 5), "pieces of 1480 bytes do not fit, and are cut once more");
    cluster.run(Duration::from_millis(5));
    assert_eq!((state(&cluster, 0), cluster.connections(1)), (Some("REPLIED"), 1), "no reply is waited for");
}

#[test]
fn errors_about_the_backends_answers_reach_it_in_the_tunnel() {
    let mut cluster = start(GUE);
    connect(&mut cluster);
    let answer = build::tcp(&tuple(ip_protocol::TCP).inverse(), segment(ACK, 5001, 1001), b"answer");
    let header = IcmpHeader { kind: 3, code: icmp::unreachable_code::FRAGMENTATION_NEEDED, parameter: 1300 };
    cluster.client_sends_frame(|envelope| envelope.icmp_error(CLIENT.into(), header, &answer[14..]).unwrap());
    let (_, inner) = received(&mut cluster).expect("the error passes");
    let Transport::IcmpError(about) = inner.transport else { panic!("an error stays one") };
    assert_eq!(about.inner, tuple(ip_protocol::TCP).inverse());
}

#[test]
fn a_connection_that_another_function_translates_is_refused() {
    let services = Some(services(GUE, [SERVER; 2]));
    let mut cluster = Cluster::start(Options { services, is_translated: true, ..Options::default() });
    sends(&mut cluster, syn(), b"");
    assert!(cluster.server_receives().is_none());
    assert_eq!((cluster.dropped(0, DropReason::TunnelTranslated), cluster.connections(0)), (1, 0));
}

#[test]
fn a_node_that_does_not_know_the_backend_drops_its_packets_and_names_the_reason() {
    let services = Some(services(GUE, [SERVER, Ipv4Addr::new(198, 51, 100, 99)]));
    let mut cluster = Cluster::start(Options { services, is_translated: false, ..Options::default() });
    connect(&mut cluster);
    take_over(&mut cluster);
    sends(&mut cluster, segment(ACK, 1001, 5001), b"question");
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.dropped(1, DropReason::TunnelUnknown), 1);
}

#[test]
fn a_backend_that_no_address_of_its_family_leads_to_is_named() {
    // Nothing routes to the address: the client learns it.
    let services = Some(services(GUE, [Ipv4Addr::new(203, 0, 113, 1); 2]));
    let mut cluster = Cluster::start(Options { services, is_translated: false, ..Options::default() });
    sends(&mut cluster, syn(), b"");
    assert_eq!((cluster.dropped(0, DropReason::NoRoute), cluster.connections(0)), (1, 0));
    assert!(matches!(cluster.client_receives().expect("an error").headers.transport, Transport::IcmpError(_)));
}

#[test]
fn the_kernel_leaves_the_connection_to_the_gateway() {
    let mut cluster = start(GUE);
    let program = Program::default();
    let now = cluster.now;
    cluster.node_mut(0).set_fast_path(now, Box::new(program.clone()));
    cluster.node_mut(0).beat_fast_path(now);
    connect(&mut cluster);
    for _ in 0..30 {
        sends(&mut cluster, segment(ACK, 1001, 5001), b"");
    }
    cluster.run(Duration::from_millis(5));
    let path = cluster.node(0).packet_path(cluster.now, &tuple(ip_protocol::TCP));
    assert_eq!(path, Some(PacketPath::Gateway(GatewayReason::Tunnel)));
    assert!(program.below().installed.is_empty());
}
