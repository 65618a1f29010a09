//! Rewritten packets equal packets built with the new tuple.

use super::*;
use crate::wire::checksum::complete_partial;
use crate::wire::ipv6::FragmentHeader;
use crate::wire::tcp_flags;

proptest! {
    #[test]
    fn a_rewritten_packet_equals_one_built_with_the_tuple((sample, other) in sample_and_other_tuple()) {
        let mut frame = sample.build();
        let original = frame.clone();
        let after = change(&mut frame, Checksum::Unverified, |packet| packet.rewrite(&other));
        prop_assert_eq!(&frame, &Sample { tuple: other, ..sample.clone() }.build());
        prop_assert_eq!(after, headers(&frame), "the headers are kept true to the frame");
        change(&mut frame, Checksum::Unverified, |packet| packet.rewrite(&sample.tuple));
        prop_assert_eq!(frame, original);
    }

    #[test]
    fn a_verified_packet_is_rewritten_alike((sample, other) in sample_and_other_tuple()) {
        let mut frame = sample.build();
        change(&mut frame, Checksum::Valid, |packet| packet.rewrite(&other));
        prop_assert_eq!(frame, Sample { tuple: other, ..sample }.build());
    }

    #[test]
    fn a_partial_checksum_comes_out_right_after_rewriting((sample, other) in sample_and_other_tuple()) {
        let mut frame = sample.build();
        let checksum = build::offload_checksum(&mut frame);
        change(&mut frame, checksum, |packet| packet.rewrite(&other));
        let Checksum::Partial { start, offset } = checksum else {
            prop_assert_eq!(sample.tuple.protocol, 47, "of those built, this one alone has no checksum");
            return Ok(());
        };
        prop_assert!(complete_partial(&mut frame, start, offset));
        prop_assert_eq!(headers(&frame).tuple, other);
    }

    #[test]
    fn the_time_to_live_is_decremented(sample in sample(), ttl in 2u8..) {
        let mut frame = Envelope { ttl, ..sample.envelope() }.raw(&sample.tuple, &sample.payload);
        let expected = Envelope { ttl: ttl - 1, ..sample.envelope() }.raw(&sample.tuple, &sample.payload);
        let Ok(Parsed::Ip(mut headers)) = read_with(&sample.build(), Checksum::Valid) else { panic!("built whole") };
        headers.ttl = ttl;
        let length = frame.len();
        let mut view = Frame::new(&mut frame, 0, length, PortId(0)).expect("the frame is its buffer");
        let mut packet = Packet { frame: &mut view, headers: &mut headers };
        prop_assert_eq!(packet.decrement_ttl(), Ok(()));
        prop_assert_eq!(packet.headers.ttl, ttl - 1);
        prop_assert_eq!(frame, expected);
    }

    #[test]
    fn a_clamped_syn_equals_one_built_with_the_segment_size(max in 1u16..1460, is_v4: bool, shifted: bool) {
        let tuple = if is_v4 { tcp4() } else { tcp6() };
        let syn = |mss| Tcp {
            flags: tcp_flags::SYN, maximum_segment_bytes: Some(mss), window_scale: Some(2), ..Tcp::default()
        };
        let mut frame = build::tcp(&tuple, syn(1460), b"");
        let mut expected = build::tcp(&tuple, syn(max), b"");
        if shifted {
            // The same options, the segment size at an odd offset: NOP, MSS, window scale instead of MSS, NOP, window scale.
            for bytes in [&mut frame, &mut expected] {
                let options = bytes.len() - 8;
                let [_, _, high, low] = bytes[options..options + 4] else { unreachable!("four bytes") };
                bytes[options..].copy_from_slice(&[1, 2, 4, high, low, 3, 3, 2]);
                refill_tcp_checksum(bytes);
            }
        }
        let after = change(&mut frame, Checksum::Unverified, |packet| assert!(packet.clamp_mss(max)));
        prop_assert_eq!(&frame, &expected);
        prop_assert_eq!(after, headers(&frame));
    }
}

fn refill_tcp_checksum(frame: &mut [u8]) {
    let Ok(Parsed::Ip(headers)) = read_with(frame, Checksum::Valid) else { panic!("not whole") };
    let l4 = usize::from(headers.l4_offset);
    let length = frame.len() - l4;
    frame[l4 + 16..l4 + 18].fill(0);
    let sum = crate::wire::checksum::pseudo_header(&headers.tuple, length as u32);
    let checksum = sum.plus(crate::wire::checksum::Sum::of(&frame[l4..])).checksum();
    frame[l4 + 16..l4 + 18].copy_from_slice(&checksum.to_be_bytes());
}

#[test]
fn segments_within_the_limit_are_unchanged() {
    let syn = Tcp { flags: tcp_flags::SYN, maximum_segment_bytes: Some(1400), ..Tcp::default() };
    let not_syn = Tcp { flags: tcp_flags::ACK, ..syn };
    let without = Tcp { maximum_segment_bytes: None, ..syn };
    for (segment, max) in [(syn, 1400), (not_syn, 1), (without, 1)] {
        let mut frame = build::tcp(&tcp4(), segment, b"");
        let original = frame.clone();
        change(&mut frame, Checksum::Unverified, |packet| assert!(!packet.clamp_mss(max)));
        assert_eq!(frame, original);
    }
}

#[test]
fn a_packet_at_its_last_hop_is_unchanged() {
    for ttl in [0, 1] {
        let mut frame = Envelope { ttl, ..Envelope::default() }.udp(&udp4(), b"hello");
        let original = frame.clone();
        change(&mut frame, Checksum::Unverified, |packet| {
            assert_eq!(packet.decrement_ttl(), Err(DropReason::TtlExceeded));
        });
        assert_eq!(frame, original);
    }
}

#[test]
fn a_missing_checksum_stays_missing() {
    for (tuple, l4) in [(udp4(), 14 + 20), (udp6(), 14 + 40)] {
        let mut frame = build::udp(&tuple, b"hello");
        frame[l4 + 6..][..2].fill(0);
        change(&mut frame, Checksum::Unverified, |packet| {
            packet.rewrite(&tuple.inverse());
            assert!(packet.replace_payload(0..5, b"other"));
        });
        assert_eq!(headers(&frame).tuple, tuple.inverse());
        assert_eq!(frame[l4 + 6..][..2], [0, 0]);
    }
}

#[test]
fn a_udp_checksum_of_zero_is_sent_as_ones() {
    // Every source port once: one of them makes the checksum zero.
    let mut seen = 0;
    for source_port in 0..=u16::MAX {
        let tuple = Tuple { source_port, ..udp4() };
        let mut frame = build::udp(&udp4(), b"hello");
        change(&mut frame, Checksum::Valid, |packet| packet.rewrite(&tuple));
        assert_ne!(frame[14 + 20 + 6..][..2], [0, 0]);
        seen += usize::from(frame[14 + 20 + 6..][..2] == [0xff, 0xff]);
    }
    assert_eq!(seen, 1);
}

#[test]
fn only_the_addresses_of_a_later_fragment_are_rewritten() {
    for (tuple, other) in [(udp4(), udp4().inverse()), (udp6(), udp6().inverse())] {
        let fragment = Some(FragmentHeader { offset_bytes: 16, more: false, identification: 9 });
        let envelope = Envelope { fragment, ..Envelope::default() };
        let mut frame = envelope.raw(&tuple, &[7; 32]);
        change(&mut frame, Checksum::Unverified, |packet| packet.rewrite(&other));
        assert_eq!(frame, envelope.raw(&other, &[7; 32]));
    }
}

#[test]
fn a_partial_checksum_of_a_quoted_packet_keeps_the_outer_one_valid() {
    let mut frame = build::udp(&udp4(), &[7; 60]);
    let inner = Checksum::Partial { start: 14 + 20 + 8 + 20, offset: 16 };
    change(&mut frame, inner, |packet| packet.rewrite(&udp4().inverse()));
    assert_eq!(frame, build::udp(&udp4().inverse(), &[7; 60]));
}

#[test]
fn the_payload_ends_where_the_packet_does() {
    let mut frame = build::udp(&udp4(), b"hello");
    frame.extend_from_slice(b"padding");
    change(&mut frame, Checksum::Unverified, |packet| assert_eq!(packet.payload(), b"hello"));
}
