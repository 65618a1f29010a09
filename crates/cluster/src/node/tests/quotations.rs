//! ICMP errors quote packets that functions have rewritten. Who sent the packet receives the quotation as it sent the packet.

use std::vec::Vec;

use flow::Tuple;
use flow::wire::{Transport, build, icmp, ip_protocol};

use super::ACK;
use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, SHARED_OUTSIDE, segment, syn, syn_ack};
use super::syn_proxy::{Client, ISN, SERVER_ISN, always, tuple};

const PORT: u16 = 40_000;
/// The checksum in a TCP header.
const CHECKSUM: core::ops::Range<usize> = 16..18;
/// How much of the transport header and its payload errors quote: the least (RFC 792), the header's fields, all.
const QUOTED_BYTES: [usize; 4] = [8, 12, 20, 1000];

/// Where the transport header begins in frames without tags and options.
const L4: usize = 14 + 20;

fn too_big() -> build::IcmpHeader {
    let code = icmp::unreachable_code::FRAGMENTATION_NEEDED;
    build::IcmpHeader { kind: icmp::kind::DESTINATION_UNREACHABLE, code, parameter: 1000 }
}

/// Checks that an error quotes a frame as it was sent, from its transport header on, but for what is behind `header_bytes` of that.
fn assert_quotes(error: Option<Received>, sent: &[u8], tuple: &Tuple, header_bytes: usize) {
    let error = error.expect("an error arrives, its checksum right");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an error") };
    assert_eq!(about.inner, *tuple);
    let quoted = &error.bytes[usize::from(about.inner_l4_offset)..];
    let compared = quoted.len().min(header_bytes).min(sent.len() - L4);
    for at in (0..compared).filter(|at| !CHECKSUM.contains(at)) {
        assert_eq!(quoted[at], sent[L4 + at], "byte {at} of the transport header");
    }
    if quoted.len() == sent.len() - L4 {
        let mut packet = error.bytes[..14].to_vec();
        packet.extend_from_slice(&error.bytes[usize::from(about.inner_l3_offset)..]);
        assert_eq!(Received::new(packet).tuple, *tuple, "the quoted checksum is right");
    }
}

/// The part of a packet, from its IP header on, that an error quotes.
fn quote(received: &Received, bytes: usize) -> &[u8] {
    &received.bytes[14..received.bytes.len().min(L4 + bytes)]
}

/// What the server sends is refused behind the node, on the client's side.
fn server_is_refused(cluster: &mut Cluster, tuple: &Tuple, tcp: build::Tcp<'_>, header_bytes: usize) {
    let sent = build::tcp(tuple, tcp, b"200 answer\r\n");
    cluster.server_sends_frame(|envelope| envelope.tcp(tuple, tcp, b"200 answer\r\n"));
    let received = cluster.client_receives().expect("the answer passes");
    for bytes in QUOTED_BYTES {
        let quoted = quote(&received, bytes);
        cluster.client_sends_frame(|envelope| envelope.icmp_error(CLIENT.into(), too_big(), quoted).unwrap());
        assert_quotes(cluster.server_receives(), &sent, tuple, header_bytes);
    }
}

/// The same of the client.
fn client_is_refused(cluster: &mut Cluster, tuple: &Tuple, tcp: build::Tcp<'_>, header_bytes: usize) {
    let sent = build::tcp(tuple, tcp, b"NOOP\r\n");
    cluster.client_sends_frame(|envelope| envelope.tcp(tuple, tcp, b"NOOP\r\n"));
    let received = cluster.server_receives().expect("the question passes");
    for bytes in QUOTED_BYTES {
        let quoted = quote(&received, bytes);
        cluster.server_sends_frame(|envelope| envelope.icmp_error(SERVER.into(), too_big(), quoted).unwrap());
        assert_quotes(cluster.client_receives(), &sent, tuple, header_bytes);
    }
}

#[test]
fn errors_about_proxied_segments_have_the_numbers_and_timestamps_of_their_sender() {
    let mut cluster = Cluster::start(always());
    let (client, seen) = Client::connects(&mut cluster, PORT);
    let back = Tuple::v4(ip_protocol::TCP, (SERVER, 80), (SHARED_OUTSIDE, seen));
    let answer = build::Tcp { timestamps: Some((310, 7001)), ..segment(ACK, SERVER_ISN + 1, ISN + 1) };
    server_is_refused(&mut cluster, &back, answer, 60);
    let blocks = [(client.cookie.wrapping_add(4), client.cookie.wrapping_add(9))];
    let question = build::Tcp { sack_blocks: &blocks, ..client.segment(0, 0) };
    client_is_refused(&mut cluster, &tuple(PORT), question, 60);
}

#[test]
fn errors_about_segments_that_the_ftp_helper_has_shifted_have_the_numbers_of_their_sender() {
    let mut cluster = Cluster::start(Options::default());
    let control = Tuple::v4(ip_protocol::TCP, (CLIENT, PORT), (SERVER, 21));
    cluster.client_sends_frame(|envelope| envelope.tcp(&control, syn(), b""));
    let back = cluster.server_receives().expect("the SYN passes").tuple.inverse();
    cluster.server_sends_frame(|envelope| envelope.tcp(&back, syn_ack(), b""));
    cluster.client_receives().expect("the SYN/ACK passes");
    let line = b"PORT 10,1,0,10,19,136\r\n";
    cluster.client_sends_frame(|envelope| envelope.tcp(&control, segment(ACK, 1001, 5001), line));
    let received = cluster.server_receives().expect("the command passes");
    let grown = received.bytes.len() - usize::from(received.headers.payload_offset);
    assert_ne!(grown, line.len(), "the line has another length");
    let (sent, seen) = (1001 + line.len() as u32, 1001 + grown as u32);
    // The line is not acknowledged yet, then it is.
    for acknowledged in [1001, seen] {
        server_is_refused(&mut cluster, &back, segment(ACK, 5001, acknowledged), 20);
        client_is_refused(&mut cluster, &control, segment(ACK, sent, 5001), 20);
    }
}

#[test]
fn errors_of_the_node_itself_about_proxied_segments_have_the_numbers_of_their_sender() {
    let mut cluster = Cluster::start(Options { outside_mtu_bytes: 1000, ..always() });
    let (client, _) = Client::connects(&mut cluster, PORT);
    let payload: Vec<u8> = std::vec![7; 1200];
    let sent = build::tcp(&tuple(PORT), client.segment(0, 0), &payload);
    cluster.client_sends_frame(|envelope| envelope.tcp(&tuple(PORT), client.segment(0, 0), &payload));
    assert!(cluster.server_receives().is_none(), "it does not fit the link");
    let error = cluster.client_receives();
    let traffic_class = error.as_ref().map(|error| error.bytes[15]);
    assert_eq!(traffic_class, Some(0xc0), "internetwork control (RFC 1812 section 4.3.2.5)");
    assert_quotes(error, &sent, &tuple(PORT), 60);
}
