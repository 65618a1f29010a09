//! Damaged frames: the parser never panics, and changed bytes under a checksum are detected.

use super::*;

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&bytes);
    }

    #[test]
    fn arbitrary_packets_behind_a_plausible_start_never_panic(
        tail in prop::collection::vec(any::<u8>(), 0..200), kind in 0usize..12, keep in 0usize..60, valid: bool,
    ) {
        let mut bytes = one_of_each().swap_remove(kind);
        bytes.truncate(keep.max(14));
        bytes.extend_from_slice(&tail);
        let checksum = if valid { Checksum::Valid } else { Checksum::Unverified };
        if let Ok(Parsed::Ip(_)) = read_with(&bytes, checksum) {
            let other = Tuple { source: [9; 16], source_port: 9, ..tcp4() };
            change(&mut bytes, checksum, |packet| {
                packet.rewrite_icmp_error(&other, &[8; 16], &[7; 16]);
                packet.rewrite(&Tuple { version: packet.headers.tuple.version, ..other });
                packet.clamp_mss(1);
                let _ = packet.decrement_ttl();
            });
        }
    }

    #[test]
    fn a_changed_byte_is_detected_unless_no_checksum_covers_it(
        sample in sample(), at: prop::sample::Index, difference in 1u8..,
    ) {
        if sample.tuple.protocol == 47 {
            return Ok(());
        }
        let frame = sample.build();
        let mut damaged = frame.clone();
        let at = at.index(frame.len());
        damaged[at] ^= difference;
        let Ok(parsed) = read(&damaged) else { return Ok(()) };
        let before = headers(&frame);
        let Parsed::Ip(after) = parsed else { return Err(TestCaseError::fail("parsed as ARP")) };
        let l3 = usize::from(before.l3_offset);
        // Without a header checksum, an IPv6 packet's protocol may change to an unknown one, or to UDP without a
        // checksum.
        if sample.tuple.version == 6 && at == l3 + 6 && matches!(after.transport, Transport::Other | Transport::Udp) {
            return Ok(());
        }
        let is_link = at < l3;
        // IPv6 covers neither traffic class, flow label nor hop limit.
        let is_uncovered_ipv6 = sample.tuple.version == 6 && (l3..l3 + 8).contains(&at) && ![4, 5, 6].contains(&(at - l3));
        let l4 = usize::from(before.l4_offset);
        let is_without_checksum = before.transport == Transport::Udp && damaged[l4 + 6..l4 + 8] == [0, 0];
        prop_assert!(is_link || is_uncovered_ipv6 || is_without_checksum, "byte {} of {:02x?}", at, frame);
        prop_assert_eq!(Headers { ttl: before.ttl, ..after }, before);
    }
}

#[test]
fn a_truncated_frame_is_never_taken_as_whole() {
    for frame in one_of_each() {
        assert!(read(&frame).is_ok(), "{frame:02x?}");
        for length in 0..frame.len() {
            assert_eq!(read(&frame[..length]), Err(DropReason::Truncated), "{length} of {frame:02x?}");
            assert_eq!(read_with(&frame[..length], Checksum::Valid), Err(DropReason::Truncated));
        }
    }
}
