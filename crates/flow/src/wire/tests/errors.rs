//! ICMP errors: the quoted connection, and their translation.

use super::*;
use crate::key::address_bytes;
use crate::wire::IcmpError;
use crate::wire::ipv6::FragmentHeader;

fn error_of(headers: &Headers) -> IcmpError {
    match headers.transport {
        Transport::IcmpError(error) => error,
        other => panic!("{other:?} is no error"),
    }
}

proptest! {
    #[test]
    fn an_error_identifies_the_quoted_packet(sample in sample()) {
        let sample = Sample { vlans: Vec::new(), payload: vec![7; 8], ..sample };
        let frame = error_about(&sample.build(), sample.tuple.version);
        let headers = headers(&frame);
        prop_assert_eq!(error_of(&headers).inner, sample.tuple);
        prop_assert_eq!(headers.tuple.destination, sample.tuple.source);
        prop_assert_eq!((headers.tuple.source_port, headers.tuple.discriminator), (0, 0));
        prop_assert_eq!(headers.payload_offset, error_of(&headers).inner_l3_offset);
    }

    #[test]
    fn a_translated_error_equals_one_built_for_the_other_side(
        (sample, other) in sample_and_other_tuple(), quoted_transport_bytes in 8usize..60,
    ) {
        // A quote that ends within the checksum has half a number, which stays unchanged.
        prop_assume!(quoted_transport_bytes != 17);
        let sample = Sample { vlans: Vec::new(), payload: vec![7; 100], ..sample };
        let translated = Sample { tuple: other, ..sample.clone() };
        let header_bytes = if sample.tuple.version == 4 { 20 } else { 40 };
        let quote = |sample: &Sample| {
            let mut frame = sample.build();
            frame.truncate(14 + header_bytes + quoted_transport_bytes);
            error_about(&frame, sample.tuple.version)
        };
        let mut frame = quote(&sample);
        let expected = quote(&translated);
        let source = headers(&expected).tuple.source;
        let after = change(&mut frame, Checksum::Unverified, |packet| {
            packet.rewrite_icmp_error(&other, &source, &other.source);
        });
        prop_assert_eq!(&frame, &expected);
        prop_assert_eq!(after, headers(&frame));
    }

    #[test]
    fn an_error_with_offloaded_checksum_is_translated((sample, other) in sample_and_other_tuple()) {
        let sample = Sample { vlans: Vec::new(), payload: vec![7; 100], ..sample };
        let mut frame = error_about(&sample.build(), sample.tuple.version);
        let checksum = build::offload_checksum(&mut frame);
        change(&mut frame, checksum, |packet| packet.rewrite_icmp_error(&other, &other.destination, &other.source));
        let Checksum::Partial { start, offset } = checksum else { panic!("{checksum:?}") };
        prop_assert!(crate::wire::checksum::complete_partial(&mut frame, start, offset));
        let after = headers(&frame);
        prop_assert_eq!((error_of(&after).inner, after.tuple.source), (other, other.destination));
    }
}

#[test]
fn an_error_to_another_address_than_the_quoted_source_is_refused() {
    for (tuple, others) in [
        (udp4(), vec![SERVER.into(), Ipv4Addr::new(224, 0, 0, 5).into(), Ipv4Addr::BROADCAST.into(), ROUTER.into()]),
        (udp6(), vec![IpAddr::from(v6(9)), "ff02::1".parse().unwrap()]),
    ] {
        let about = build::udp(&tuple, b"hello");
        assert!(read(&error_about(&about, tuple.version)).is_ok());
        for destination in others {
            let mut frame = error_about(&about, tuple.version);
            let other = Tuple { source: address_bytes(destination), ..tuple };
            let quoted = error_of(&headers(&frame)).inner;
            change(&mut frame, Checksum::Unverified, |packet| {
                let source = packet.headers.tuple.source;
                packet.rewrite_icmp_error(&quoted, &source, &other.source);
            });
            assert_eq!(read(&frame), Err(DropReason::MisdirectedIcmpError), "to {destination}");
        }
    }
}

#[test]
fn a_quoted_datagram_without_checksum_stays_without() {
    let mut datagram = build::udp(&udp4(), b"hello");
    datagram[14 + 20 + 6..][..2].fill(0);
    let mut frame = error_about(&datagram, 4);
    let other = Tuple { source: address_bytes(SERVER.into()), source_port: 9, ..udp4() };
    change(&mut frame, Checksum::Unverified, |packet| {
        packet.rewrite_icmp_error(&other, &address_bytes(ROUTER.into()), &other.source);
    });
    let error = error_of(&headers(&frame));
    assert_eq!(error.inner, other);
    assert_eq!(frame[usize::from(error.inner_l4_offset) + 6..][..2], [0, 0]);
}

#[test]
fn link_padding_behind_a_short_quote_is_not_its_checksum() {
    let mut segment = build::tcp(&tcp4(), Tcp::default(), b"");
    segment.truncate(14 + 20 + 8);
    let mut frame = error_about(&segment, 4);
    let packet_bytes = frame.len();
    frame.resize(packet_bytes + 20, 0xee);
    change(&mut frame, Checksum::Unverified, |packet| {
        packet.rewrite_icmp_error(&tcp4().inverse(), &address_bytes(ROUTER.into()), &tcp4().destination);
    });
    assert!(frame[packet_bytes..].iter().all(|byte| *byte == 0xee));
    assert_eq!(error_of(&headers(&frame)).inner, tcp4().inverse());
}

#[test]
fn quotes_without_a_tuple_are_refused() {
    let about = |frame: &[u8]| read(&error_about(frame, 4));
    let segment = build::tcp(&tcp4(), Tcp::default(), b"");
    assert_eq!(about(&segment[..14 + 20 + 7]), Err(DropReason::Malformed), "seven bytes of transport header");
    let error = error_about(&segment, 4);
    assert_eq!(about(&error), Err(DropReason::Malformed), "an error about an error");
    let fragment = Some(FragmentHeader { offset_bytes: 16, more: false, identification: 9 });
    let later = Envelope { fragment, ..Envelope::default() }.raw(&udp4(), &[0; 16]);
    assert_eq!(about(&later), Err(DropReason::Fragment), "a fragment without ports");
}

#[test]
fn a_long_packet_is_quoted_in_part() {
    let long = build::udp(&udp4(), &[7; 1400]);
    assert_eq!(error_about(&long, 4).len(), 14 + build::ICMP_ERROR_BYTES_MAX);
    let long = build::udp(&udp6(), &[7; 1400]);
    assert_eq!(error_about(&long, 6).len(), 14 + build::ICMPV6_ERROR_BYTES_MAX);
    let error = IcmpHeader::default();
    assert_eq!(build::icmp_error(v6(1).into(), error, &build::udp(&udp4(), b"")[14..]), None, "of another family");
}
