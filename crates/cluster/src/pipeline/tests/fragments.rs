//! Packets in pieces: what leaves is what would have left, had they come whole.

use flow::wire::Fragment;
use proptest::prelude::*;

use super::*;

fn udp(is_ipv6: bool, port: u16, bytes: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..bytes).map(|at| (at * 31 + usize::from(port)) as u8).collect();
    build::udp(&udp_tuple(is_ipv6, port), &payload)
}

fn udp_tuple(is_ipv6: bool, port: u16) -> Tuple {
    if is_ipv6 {
        Tuple::v6(ip_protocol::UDP, (CLIENT6, port), (SERVER6, 53))
    } else {
        Tuple::v4(ip_protocol::UDP, (CLIENT, port), (SERVER, 53))
    }
}

/// Puts fragments together as their receiver does, and checks the transport checksum of the whole.
fn put_together(pieces: &[Vec<u8>]) -> Vec<u8> {
    let mut parts: Vec<(u16, bool, Vec<u8>, Tuple)> = pieces
        .iter()
        .map(|bytes| {
            let mut headers = headers(bytes);
            let mut copy = bytes.clone();
            let length_bytes = copy.len();
            let mut frame = Frame::new(&mut copy, 0, length_bytes, INSIDE).unwrap();
            let fragment = Fragment::of(&Packet { frame: &mut frame, headers: &mut headers }).unwrap();
            let data = bytes[usize::from(headers.l4_offset)..headers.l3_end()].to_vec();
            (fragment.start, fragment.more, data, headers.tuple)
        })
        .collect();
    parts.sort_by_key(|(start, ..)| *start);
    let mut transport = Vec::new();
    for (start, _, data, _) in &parts {
        assert_eq!(usize::from(*start), transport.len(), "no gap and no overlap");
        transport.extend_from_slice(data);
    }
    assert!(!parts.last().unwrap().1, "the last one is there");
    let whole = Envelope::default().raw(&parts[0].3, &transport);
    headers(&whole);
    whole
}

#[test]
fn a_large_datagram_is_translated_in_pieces_as_it_would_be_whole() {
    for is_ipv6 in [false, true] {
        let whole = udp(is_ipv6, 4000, 5000);
        let mut plain = Bench::new(true, 16, Limits::default());
        let expected = plain.feed_one(INSIDE, whole.clone()).unwrap();
        let mut bench = Bench::new(true, 16, Limits::default());
        let sent = bench.feed(INSIDE, fragments_of(&whole, 77, 1480));
        assert_eq!(sent.len(), 4);
        let arrived = put_together(&sent);
        assert_eq!(headers(&arrived).tuple, headers(&expected).tuple);
        assert_eq!(
            &arrived[usize::from(headers(&arrived).l4_offset)..],
            &expected[usize::from(headers(&expected).l4_offset)..]
        );
        let answer = build::udp(&headers(&arrived).tuple.inverse(), &[5; 3000]);
        let back = bench.feed(OUTSIDE, fragments_of(&answer, 5, 1480));
        assert_eq!(headers(&put_together(&back)).tuple, udp_tuple(is_ipv6, 4000).inverse());
        assert!(bench.pipeline.fragments().is_empty());
        let (_, connection) = bench.pipeline.table().iter().next().unwrap();
        assert_eq!(connection.packets, [4, 3]);
    }
}

#[test]
fn a_datagram_without_a_checksum_is_translated_without_one() {
    let mut whole = udp(false, 4000, 3000);
    let at = usize::from(headers(&whole).l4_offset) + 6;
    whole[at..at + 2].copy_from_slice(&[0, 0]);
    let mut bench = Bench::new(true, 16, Limits::default());
    let arrived = put_together(&bench.feed(INSIDE, fragments_of(&whole, 77, 1480)));
    assert_eq!(&arrived[usize::from(headers(&arrived).l4_offset) + 6..][..2], &[0, 0]);
}

#[test]
fn a_segment_in_pieces_is_acknowledged_as_a_whole() {
    let mut bench = Bench::new(false, 16, Limits::default());
    bench.connect(CLIENT, 4000);
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let segment = |sequence, acknowledgement| build::Tcp {
        flags: tcp_flags::ACK,
        sequence,
        acknowledgement,
        timestamps: Some((1, 2)),
        ..build::Tcp::default()
    };
    let mut pieces = fragments_of(&build::tcp(&tuple, segment(1006, 5001), &[1; 4000]), 9, 1480);
    pieces.reverse();
    assert_eq!(bench.feed(INSIDE, pieces).len(), 3);
    let answer = build::tcp(&tuple.inverse(), segment(5001, 5006), b"");
    assert!(bench.feed_one(OUTSIDE, answer).is_some(), "all of it was sent, so that all may be acknowledged");
    let beyond = build::tcp(&tuple.inverse(), segment(5001, 5007), b"");
    assert!(bench.feed_one(OUTSIDE, beyond).is_none(), "but no byte more");
    assert_eq!(bench.dropped(DropReason::OutOfWindow), 1);
}

#[test]
fn pieces_of_what_no_connection_may_begin_with_are_dropped_for_that() {
    let mut bench = Bench::new(false, 16, Limits::default());
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let stray = build::tcp(&tuple, build::Tcp { flags: tcp_flags::ACK, ..build::Tcp::default() }, &[0; 4000]);
    assert!(bench.feed(INSIDE, fragments_of(&stray, 9, 1480)).is_empty());
    assert_eq!(bench.dropped(DropReason::NoConnection), 3);
    assert!(bench.pipeline.table().is_empty());
}

#[test]
fn a_transport_header_in_two_pieces_is_not_believed() {
    let mut bench = Bench::new(false, 16, Limits::default());
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let syn = build::tcp(&tuple, build::Tcp { flags: tcp_flags::SYN, ..build::Tcp::default() }, &[0; 64]);
    assert!(bench.feed(INSIDE, fragments_of(&syn, 9, 16)).is_empty());
    assert_eq!(bench.dropped(DropReason::TinyFragment), 1);
    bench.now = bench.now + Duration::from_secs(10);
    bench.pipeline.expire(bench.now, 10, |_| ReplicaExpiry::Recheck(Duration::ZERO));
    assert_eq!(bench.dropped(DropReason::FragmentTimeout), 5, "the others waited for what did not come");
}

#[test]
fn neighbour_discovery_must_not_be_fragmented() {
    let mut bench = Bench::new(false, 16, Limits::default());
    let solicitation = build::neighbour_solicitation(flow::wire::MacAddress([2, 0, 0, 0, 0, 9]), CLIENT6, SERVER6);
    let mut pieces = fragments_of(&solicitation, 7, 24);
    assert_eq!(pieces.len(), 2);
    pieces.reverse();
    assert!(bench.feed(INSIDE, pieces).is_empty());
    assert_eq!(bench.dropped(DropReason::Fragment), 2, "RFC 6980: neither the first nor what waited for it");
}

#[test]
fn a_flood_of_pieces_without_first_ones_leaves_established_connections_alone() {
    let mut bench = Bench::new(false, 64, Limits::default());
    bench.connect(CLIENT, 4000);
    let limits = Limits::default().fragments;
    for identification in 0..40_000u32 {
        let fragment = Some(FragmentHeader { offset_bytes: 1480, more: true, identification: identification % 65_536 });
        let source = Ipv4Addr::from_bits(Ipv4Addr::new(100, 64, 0, 0).to_bits() + identification % 4096);
        let tuple = Tuple::v4(ip_protocol::UDP, (source, 0), (SERVER, 0));
        bench.feed_one(OUTSIDE, Envelope { fragment, ..Envelope::default() }.raw(&tuple, &[0; 64]));
    }
    let fragments = bench.pipeline.fragments();
    assert!(fragments.len() <= limits.datagrams_max as usize && fragments.held_bytes() <= limits.held_bytes_max);
    assert!(bench.dropped(DropReason::FragmentTableFull) > 20_000);
    // Connections, and datagrams in pieces that come while the flood goes on.
    let tuple = Tuple::v4(ip_protocol::TCP, (CLIENT, 4000), (SERVER, 80));
    let data = build::Tcp { flags: tcp_flags::ACK, sequence: 1006, acknowledgement: 5001, ..build::Tcp::default() };
    assert!(bench.feed_one(INSIDE, build::tcp(&tuple, data, b"still here")).is_some());
    assert_eq!(bench.feed(INSIDE, fragments_of(&udp(false, 4001, 3000), 7, 1480)).len(), 3);
}

/// Pieces of several packets, and the order in which they come.
fn shuffled_packets() -> impl Strategy<Value = (Vec<Vec<u8>>, Vec<usize>)> {
    let packet = (any::<bool>(), 1usize..9000, 8usize..2000);
    prop::collection::vec(packet, 1..6).prop_flat_map(|packets| {
        let pieces: Vec<Vec<u8>> = packets
            .into_iter()
            .enumerate()
            .flat_map(|(index, (is_ipv6, bytes, piece_bytes))| {
                // Few enough that none is too scattered, and at least two, or it would be no fragment.
                let whole = udp(is_ipv6, 4000 + index as u16, bytes.max(40));
                fragments_of(
                    &whole,
                    index as u32,
                    piece_bytes.max(bytes / 30).clamp(8, 1480.max(bytes / 30)).min(bytes.max(40)),
                )
            })
            .collect();
        let order = Just((0..pieces.len()).collect::<Vec<_>>()).prop_shuffle();
        (Just(pieces), order)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn fragments_in_any_order_leave_as_those_in_order_do((pieces, order) in shuffled_packets()) {
        let mut in_order = Bench::new(true, 64, Limits::default()).feed(INSIDE, pieces.clone());
        let shuffled = order.iter().map(|index| pieces[*index].clone()).collect();
        let mut bench = Bench::new(true, 64, Limits::default());
        let mut out_of_order = bench.feed(INSIDE, shuffled);
        prop_assert_eq!(in_order.len(), pieces.len(), "all of them leave");
        in_order.sort();
        out_of_order.sort();
        prop_assert_eq!(in_order, out_of_order);
        prop_assert!(bench.pipeline.fragments().is_empty());
    }
}
