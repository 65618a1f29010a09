//! Packets in pieces, and packets that are too large for a link.

use std::time::Duration;
use std::vec::Vec;

use flow::wire::ipv4::Ipv4View;
use flow::wire::ipv6::FragmentHeader;
use flow::wire::{Transport, build, icmp, ip_protocol, tcp_flags};
use flow::{DropReason, Tuple};

use super::cluster::{CLIENT, Cluster, Options, Received, SERVER, SHARED_OUTSIDE};
use crate::forwarding::MssClamp;

const PIECE_BYTES: usize = 1480;

/// The transport part of a datagram, its checksum right.
pub(super) fn datagram(tuple: &Tuple, payload_bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload_bytes).map(|at| (at * 13) as u8).collect();
    build::udp(tuple, &payload)[34..].to_vec()
}

/// The nth piece of what is cut.
pub(super) fn piece(envelope: build::Envelope<'_>, tuple: &Tuple, transport: &[u8], nth: usize) -> Vec<u8> {
    let at = nth * PIECE_BYTES;
    let end = transport.len().min(at + PIECE_BYTES);
    let fragment = FragmentHeader { offset_bytes: at as u32, more: end < transport.len(), identification: 77 };
    build::Envelope { fragment: Some(fragment), ..envelope }.raw(tuple, &transport[at..end])
}

/// What arrived in pieces, put together: its tuple and its transport part. The checksum is right.
pub(super) fn put_together(pieces: impl Iterator<Item = Received>) -> Tuple {
    let mut pieces: Vec<(u32, Tuple, Vec<u8>)> = pieces
        .map(|piece| {
            let ip = Ipv4View::new_checked(&piece.bytes[14..]).unwrap();
            assert!(ip.total_length() <= 1500);
            (ip.fragment_offset_bytes(), piece.tuple, ip.payload().to_vec())
        })
        .collect();
    pieces.sort_by_key(|(offset, ..)| *offset);
    let transport: Vec<u8> = pieces.iter().flat_map(|(.., data)| data.iter().copied()).collect();
    let tuple = pieces[0].1;
    let whole = build::Envelope::default().raw(&tuple, &transport);
    assert_eq!(Received::new(whole).tuple, tuple, "a datagram with a right checksum");
    tuple
}

#[test]
fn a_datagram_in_pieces_passes_translated_in_whatever_order_its_pieces_come() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    let question = datagram(&out, 4000);
    for nth in [2, 0, 1] {
        cluster.client_sends_frame(|envelope| piece(envelope, &out, &question, nth));
    }
    let seen = put_together(core::iter::from_fn(|| cluster.server_receives()));
    assert_eq!((seen.source_ip(), seen.destination_addr()), (SHARED_OUTSIDE.into(), (SERVER, 53).into()));
    let back = seen.inverse();
    let answer = datagram(&back, 4000);
    for nth in [1, 2, 0] {
        cluster.server_sends_frame(|envelope| piece(envelope, &back, &answer, nth));
    }
    let got = put_together(core::iter::from_fn(|| cluster.client_receives()));
    assert_eq!(got, out.inverse());
}

#[test]
fn pieces_of_a_first_reply_wait_with_it_until_the_backup_knows_the_connection() {
    let hold_first_reply = Duration::from_secs(1);
    let mut cluster = Cluster::start(Options { hold_first_reply, ..Options::default() });
    cluster.is_replication_down = true;
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&out, b"question"));
    let back = cluster.server_receives().expect("the question passes at once").tuple.inverse();
    let answer = datagram(&back, 4000);
    for nth in 0..3 {
        cluster.server_sends_frame(|envelope| piece(envelope, &back, &answer, nth));
    }
    assert!(cluster.client_receives().is_none(), "the backup knows nothing yet");
    cluster.is_replication_down = false;
    cluster.run_until("the backup to know", |cluster| cluster.connections(1) == 1);
    cluster.run(Duration::from_millis(2));
    assert_eq!(put_together(core::iter::from_fn(|| cluster.client_receives())), out.inverse());
}

#[test]
fn pieces_whose_first_one_never_comes_are_given_up() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    let question = datagram(&out, 4000);
    cluster.client_sends_frame(|envelope| piece(envelope, &out, &question, 1));
    cluster.run(Duration::from_secs(6));
    assert_eq!(cluster.dropped(0, DropReason::FragmentTimeout), 1);
    assert!(cluster.server_receives().is_none());
    assert_eq!(cluster.connections(0), 0);
}

#[test]
fn a_datagram_too_large_for_the_way_out_is_fragmented_if_it_allows_that() {
    let mut cluster = Cluster::start(Options::default());
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    let question = datagram(&out, 3000);
    let may_be_fragmented = Some(FragmentHeader { offset_bytes: 0, more: false, identification: 9 });
    cluster.client_sends_frame(|envelope| {
        build::Envelope { fragment: may_be_fragmented, ..envelope }.raw(&out, &question)
    });
    let pieces: Vec<Received> = core::iter::from_fn(|| cluster.server_receives()).collect();
    assert_eq!(pieces.len(), 3);
    assert_eq!(put_together(pieces.into_iter()).source_ip(), SHARED_OUTSIDE);
    assert_eq!(cluster.node(0).status(cluster.now).forwarding.packets_fragmented, 1);
}

#[test]
fn a_datagram_that_must_not_be_fragmented_is_refused_by_an_error_about_the_packet_as_sent() {
    let mut cluster = Cluster::start(Options { outside_mtu_bytes: 1300, ..Options::default() });
    let out = Tuple::v4(ip_protocol::UDP, (CLIENT, 4000), (SERVER, 53));
    cluster.client_sends_frame(|envelope| envelope.udp(&out, &[0; 1400]));
    assert!(cluster.server_receives().is_none());
    let error = cluster.client_receives().expect("the client receives an error");
    let Transport::IcmpError(about) = error.headers.transport else { panic!("an error") };
    assert_eq!((about.kind, about.code), (icmp::kind::DESTINATION_UNREACHABLE, 4));
    assert_eq!(about.inner, out, "the packet that it sent, not the translated one");
    let message = usize::from(error.headers.l4_offset);
    assert_eq!(error.bytes[message + 6..message + 8], 1300u16.to_be_bytes());
    assert_eq!(cluster.dropped(0, DropReason::PacketTooBig), 1);
}

#[test]
fn segments_are_clamped_to_what_the_port_takes_in_both_directions_and_never_raised() {
    let clamp = Some(MssClamp::Mtu);
    let mut cluster = Cluster::start(Options { outside_mtu_bytes: 1400, mss_clamp: clamp, ..Options::default() });
    let with_mss = |flags, sequence, acknowledgement, bytes| build::Tcp {
        flags,
        sequence,
        acknowledgement,
        maximum_segment_bytes: Some(bytes),
        ..build::Tcp::default()
    };
    let mss = |received: &Received| match received.headers.transport {
        Transport::Tcp(segment) => segment.maximum_segment_bytes.unwrap(),
        _ => panic!("a segment"),
    };
    for (port, asked, clamped) in [(40_000, 1460, 1360), (40_001, 1360, 1360), (40_002, 536, 536)] {
        cluster.client_sends(port, with_mss(tcp_flags::SYN, 1000, 0, asked), b"");
        let syn = cluster.server_receives().expect("the SYN passes, its checksum right");
        assert_eq!(mss(&syn), clamped);
        let syn_ack = with_mss(tcp_flags::SYN | tcp_flags::ACK, 5000, 1001, asked);
        cluster.server_sends(syn.tuple.source_port, syn_ack, b"");
        assert_eq!(mss(&cluster.client_receives().expect("the SYN/ACK passes")), clamped);
    }
}
