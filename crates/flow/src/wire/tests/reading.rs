//! Built frames are parsed to their content; invalid ones are rejected with a reason.

use super::*;
use crate::QUERY_REPLY;
use crate::wire::ethernet::ether_type;
use crate::wire::ipv6::FragmentHeader;
use crate::wire::{IcmpQuery, TcpSegment, tcp_flags};

proptest! {
    #[test]
    fn a_built_frame_parses_to_its_content(sample in sample()) {
        let frame = sample.build();
        let headers = headers(&frame);
        prop_assert_eq!(headers.tuple, sample.tuple);
        prop_assert_eq!(usize::from(headers.l3_offset), 14 + 4 * sample.vlans.len());
        prop_assert_eq!(headers.l3_end(), frame.len());
        prop_assert_eq!(&frame[usize::from(headers.payload_offset)..], &sample.payload[..]);
        prop_assert_eq!(headers.ttl, 64);
        prop_assert!(!headers.is_fragment);
        let is_right_kind = match headers.transport {
            Transport::Tcp(segment) => {
                sample.tuple.protocol == ip_protocol::TCP && segment.payload_bytes as usize == sample.payload.len()
            }
            Transport::Udp => sample.tuple.protocol == ip_protocol::UDP,
            Transport::IcmpQuery(query) => sample.tuple.discriminator != 0 && query.is_reply == sample.is_reply,
            Transport::Other => sample.tuple.protocol == 47,
            _ => false,
        };
        prop_assert!(is_right_kind, "{:?}", headers);
    }

    #[test]
    fn padding_behind_the_packet_is_not_part_of_it(sample in sample(), padding in 1usize..50) {
        let mut frame = sample.build();
        let whole = headers(&frame);
        frame.resize(frame.len() + padding, 0xee);
        prop_assert_eq!(headers(&frame), whole);
    }

    #[test]
    fn a_request_and_its_reply_have_inverse_tuples(id: u16, is_v4: bool) {
        let (from, to) = if is_v4 { (CLIENT.into(), SERVER.into()) } else { (v6(1).into(), v6(2).into()) };
        let request = Tuple::echo(from, to, id);
        let asked = headers(&build::echo(&request, Echo::default(), b"")).tuple;
        let answered = headers(&build::echo(&request.inverse(), Echo { is_reply: true, sequence: 0 }, b"")).tuple;
        prop_assert_eq!(asked, request);
        prop_assert_eq!(answered, request.inverse());
    }
}

#[test]
fn the_options_of_a_syn_are_read() {
    let syn = Tcp {
        flags: tcp_flags::SYN,
        sequence: 1000,
        window: 29200,
        maximum_segment_bytes: Some(1460),
        window_scale: Some(15),
        sack_permitted: true,
        timestamps: Some((1, 0)),
        ..Tcp::default()
    };
    let Transport::Tcp(segment) = headers(&build::tcp(&tcp4(), syn, b"")).transport else { panic!("no TCP") };
    let expected = TcpSegment {
        sequence: 1000,
        flags: tcp_flags::SYN,
        window: 29200,
        // RFC 7323 section 2.3: a larger shift counts as 14.
        window_scale: Some(14),
        sack_permitted: true,
        maximum_segment_bytes: Some(1460),
        ..TcpSegment::default()
    };
    assert_eq!(segment, expected);
}

#[test]
fn the_highest_sack_edge_counts_round_the_end_of_the_sequence_space() {
    let acknowledgement = u32::MAX - 100;
    let blocks = [(u32::MAX - 50, u32::MAX - 40), (10, 20), (u32::MAX - 20, u32::MAX - 10)];
    let ack = Tcp { flags: tcp_flags::ACK, acknowledgement, sack_blocks: &blocks, ..Tcp::default() };
    let Transport::Tcp(segment) = headers(&build::tcp(&tcp4(), ack, b"")).transport else { panic!("no TCP") };
    assert_eq!(segment.sack_end, 20);

    let ack = Tcp { timestamps: Some((1, 2)), sack_blocks: &[], ..ack };
    let Transport::Tcp(segment) = headers(&build::tcp(&tcp4(), ack, b"")).transport else { panic!("no TCP") };
    assert_eq!(segment.sack_end, acknowledgement, "no blocks: the acknowledgement");
}

#[test]
fn an_icmp_timestamp_query_is_a_separate_connection() {
    let tuple = Tuple::echo(CLIENT.into(), SERVER.into(), 0);
    let header = IcmpHeader { kind: icmp::kind::TIMESTAMP_REPLY, code: 0, parameter: 77 << 16 };
    let headers = headers(&Envelope::default().icmp(&tuple, header, &[0; 12]));
    assert_eq!(headers.transport, Transport::IcmpQuery(IcmpQuery { kind: 14, code: 0, is_reply: true }));
    assert_eq!((headers.tuple.discriminator, headers.tuple.source_port), (13 | QUERY_REPLY, 77));
    assert_eq!(read(&Envelope::default().icmp(&tuple, header, &[0; 11])), Err(DropReason::Malformed));
}

#[test]
fn messages_that_are_neither_query_nor_error_pass_as_such() {
    let redirect = IcmpHeader { kind: icmp::kind::REDIRECT, code: 1, parameter: 0 };
    let tuple = Tuple { discriminator: 0, ..Tuple::echo(CLIENT.into(), SERVER.into(), 0) };
    let headers = headers(&Envelope::default().icmp(&tuple, redirect, &[0; 28]));
    assert_eq!((headers.transport, headers.tuple), (Transport::IcmpOther(5, 1), tuple));
}

#[test]
fn a_udp_datagram_may_come_without_checksum() {
    for (tuple, l4) in [(udp4(), 14 + 20), (udp6(), 14 + 40)] {
        let mut frame = build::udp(&tuple, b"hello");
        frame[l4 + 6..][..2].fill(0);
        assert_eq!(headers(&frame).tuple, tuple);
        frame[l4 + 6] = 1;
        assert_eq!(read(&frame), Err(DropReason::BadTransportChecksum), "one that is there must be right");
    }
}

#[test]
fn addresses_that_no_packet_may_carry_are_refused() {
    let from = |source: [u8; 4]| Tuple::v4(17, (source.into(), 1), (SERVER, 2));
    let to = |destination: [u8; 4]| Tuple::v4(17, (CLIENT, 1), (destination.into(), 2));
    for tuple in [
        from([0, 0, 0, 0]),
        from([0, 1, 2, 3]),
        from([127, 0, 0, 1]),
        from([224, 0, 0, 1]),
        from([239, 255, 255, 255]),
        from([255, 255, 255, 255]),
        to([127, 0, 0, 1]),
        to([0, 0, 0, 0]),
    ] {
        assert_eq!(read(&build::udp(&tuple, b"")), Err(DropReason::MartianAddress), "{tuple}");
    }
    let ends = |source: Ipv6Addr, destination: Ipv6Addr| Tuple::v6(17, (source, 1), (destination, 2));
    let mapped = CLIENT.to_ipv6_mapped();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
    for tuple in [
        ends(Ipv6Addr::UNSPECIFIED, v6(1)),
        ends(Ipv6Addr::LOCALHOST, v6(1)),
        ends(all_nodes, v6(1)),
        ends(mapped, v6(1)),
        ends(v6(1), Ipv6Addr::UNSPECIFIED),
        ends(v6(1), Ipv6Addr::LOCALHOST),
        ends(v6(1), mapped),
    ] {
        assert_eq!(read(&build::udp(&tuple, b"")), Err(DropReason::MartianAddress), "{tuple}");
    }
    for tuple in [to([224, 0, 0, 18]), to([255, 255, 255, 255]), ends(v6(1), all_nodes)] {
        assert!(read(&build::udp(&tuple, b"")).is_ok(), "{tuple}: a group may be a destination");
    }
}

#[test]
fn source_routing_is_refused_other_options_pass() {
    let with = |ipv4_options| Envelope { ipv4_options, ..Envelope::default() }.udp(&udp4(), b"");
    let router_alert: &[u8] = &[148, 4, 0, 0];
    assert!(read(&with(router_alert)).is_ok());
    assert!(read(&with(&[1, 1, 0, 131])).is_ok(), "behind the end of the options lies padding");
    for source_route in [&[131, 7, 4, 1, 2, 3, 4, 0][..], &[1, 137, 7, 4, 1, 2, 3, 4]] {
        assert_eq!(read(&with(source_route)), Err(DropReason::UnsupportedNetworkFeature));
    }
    for malformed in [&[7, 1, 0, 0][..], &[7, 5, 0, 0], &[1, 1, 1, 7], &[7, 0, 0, 0]] {
        assert_eq!(read(&with(malformed)), Err(DropReason::Malformed), "{malformed:?}");
    }
}

#[test]
fn extension_headers_are_skipped_to_the_transport() {
    fn with(ipv6_extensions: &[(u8, &[u8])]) -> Vec<u8> {
        Envelope { ipv6_extensions, ..Envelope::default() }.udp(&udp6(), b"hello")
    }
    let options: &[u8] = &[1, 4, 0, 0, 0, 0];
    let visited: &[u8] = &[0, 0, 0, 0, 0, 0];
    let to_visit: &[u8] = &[0, 1, 0, 0, 0, 0];
    let all = [(0, options), (60, options), (43, visited), (60, options)];
    let headers = headers(&with(&all));
    assert_eq!((headers.tuple, headers.transport), (udp6(), Transport::Udp));
    assert_eq!(headers.l4_offset, 14 + 40 + 4 * 8);
    assert_eq!(read(&with(&[(43, to_visit)])), Err(DropReason::UnsupportedNetworkFeature));
    assert_eq!(read(&with(&[(60, options), (0, options)])), Err(DropReason::Malformed));
    assert!(read(&with(&[(60, options); 8])).is_ok());
    assert_eq!(read(&with(&[(60, options); 9])), Err(DropReason::UnsupportedNetworkFeature));
}

#[test]
fn only_the_first_fragment_has_ports() {
    for tuple in [udp4(), udp6()] {
        let fragment = |offset_bytes, more| {
            let fragment = Some(FragmentHeader { offset_bytes, more, identification: 9 });
            let whole = build::udp(&tuple, &[7; 40]);
            let transport = &whole[whole.len() - 48..];
            let part = if more { &transport[..16] } else { &transport[offset_bytes as usize..] };
            Envelope { fragment, ..Envelope::default() }.raw(&tuple, part)
        };
        let first = headers(&fragment(0, true));
        assert_eq!((first.transport, first.tuple, first.is_fragment), (Transport::Udp, tuple, true));
        let last = headers(&fragment(16, false));
        let without_ports = Tuple { source_port: 0, destination_port: 0, ..tuple };
        assert_eq!((last.transport, last.tuple, last.is_fragment), (Transport::Other, without_ports, true));
    }
}

#[test]
fn an_atomic_fragment_is_a_whole_packet() {
    let fragment = Some(FragmentHeader { offset_bytes: 0, more: false, identification: 9 });
    let headers = headers(&Envelope { fragment, ..Envelope::default() }.udp(&udp6(), b"hello"));
    assert_eq!((headers.is_fragment, headers.tuple), (false, udp6()));
}

#[test]
fn malicious_fragments_are_refused() {
    let fragment = |tuple: &Tuple, offset_bytes, transport: &[u8]| {
        let fragment = Some(FragmentHeader { offset_bytes, more: false, identification: 9 });
        read(&Envelope { fragment, ..Envelope::default() }.raw(tuple, transport))
    };
    assert_eq!(fragment(&udp4(), 65_528, &[0; 8]), Err(DropReason::FragmentTooLong), "ends behind byte 65 535");
    assert_eq!(fragment(&tcp4(), 8, &[0; 20]), Err(DropReason::TinyFragment), "would overwrite TCP flags");
    assert!(fragment(&udp4(), 65_520, &[0; 8]).is_ok());
}

#[test]
fn other_link_protocols_and_third_tags_are_refused() {
    let mut frame = build::udp(&udp4(), b"");
    frame[12..14].copy_from_slice(&[0x88, 0xcc]);
    assert_eq!(read(&frame), Err(DropReason::UnsupportedLinkProtocol));
    let mut frame = Envelope { vlans: &[1, 2], ..Envelope::default() }.udp(&udp4(), b"");
    frame[20..22].copy_from_slice(&ether_type::VLAN.to_be_bytes());
    assert_eq!(read(&frame), Err(DropReason::UnsupportedLinkProtocol));
}

#[test]
fn headers_that_contradict_themselves_are_malformed() {
    // (offset from the IP header, value, fault), in a TCP/IPv4 frame of which only the IPv4 header checksum is
    // verified.
    for (at, value, what) in [
        (0, 0x44, "IPv4 header length"),
        (0, 0x65, "IP version"),
        (3, 19, "total length below the header's"),
        (20 + 12, 0x40, "TCP data offset below the header's"),
        (20 + 12, 0xf0, "TCP data offset behind the packet"),
    ] {
        let mut frame = build::tcp(&tcp4(), Tcp::default(), b"");
        frame[14 + at] = value;
        frame[24..26].fill(0);
        let checksum = crate::wire::checksum::Sum::of(&frame[14..34]).checksum();
        frame[24..26].copy_from_slice(&checksum.to_be_bytes());
        assert_eq!(read_with(&frame, Checksum::Valid), Err(DropReason::Malformed), "{what}");
    }
    let mut frame = build::udp(&udp4(), b"hello");
    for length in [7, 14] {
        frame[14 + 20 + 5] = length;
        assert_eq!(read_with(&frame, Checksum::Valid), Err(DropReason::Malformed), "UDP length {length}");
    }
}

#[test]
fn a_frame_that_stands_for_many_segments_may_be_as_long_as_ip_allows() {
    let payload = vec![1; 65_535 - 40];
    let headers = headers(&build::tcp(&tcp4(), Tcp::default(), &payload));
    assert_eq!(headers.l3_bytes, 65_535);
    let Transport::Tcp(segment) = headers.transport else { panic!("no TCP") };
    assert_eq!(segment.payload_bytes as usize, payload.len());
}

#[test]
fn a_partial_checksum_must_lie_within_the_frame() {
    let mut frame = build::udp(&udp4(), b"hello");
    let checksum = build::offload_checksum(&mut frame);
    assert_eq!(checksum, Checksum::Partial { start: 34, offset: 6 });
    assert!(read_with(&frame, checksum).is_ok());
    assert_eq!(read(&frame), Err(DropReason::BadTransportChecksum));
    let behind = Checksum::Partial { start: frame.len() as u16 - 1, offset: 0 };
    assert_eq!(read_with(&frame, behind), Err(DropReason::Malformed));
}
