//! The virtio-net header before each frame: the sender's offload requests (virtio 1.2, section 5.1.6).
//!
//! ```text
//! 0        1        2                 4                 6                 8                 10
//! +--------+--------+-----------------+-----------------+-----------------+-----------------+
//! | flags  | gso    | header length   | gso size        | checksum start  | checksum offset |
//! +--------+--------+-----------------+-----------------+-----------------+-----------------+
//! ```
//! Numbers are in the host's byte order, as `PACKET_VNET_HDR` and `IFF_VNET_HDR` have them.

use flow::{Checksum, Segmentation, SegmentationKind};

/// Length of the header, in bytes.
pub(crate) const HEADER_BYTES: usize = 10;

const FLAG_NEEDS_CHECKSUM: u8 = 1;
const FLAG_DATA_VALID: u8 = 2;

const GSO_NONE: u8 = 0;
const GSO_TCP_IPV4: u8 = 1;
const GSO_TCP_IPV6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// Bytes of a UDP header (RFC 768).
const UDP_HEADER_BYTES: usize = 8;
/// The offset of a TCP header's own length, from its start, in bytes (RFC 9293 section 3.1).
const TCP_DATA_OFFSET_AT: usize = 12;

/// Decodes a header. `shift_bytes` is the growth of the frame at its front since the header was written. `None` for an
/// unsupported offload.
pub(crate) fn parse(header: [u8; HEADER_BYTES], shift_bytes: u16) -> Option<(Checksum, Segmentation)> {
    let number = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
    let checksum = if header[0] & FLAG_NEEDS_CHECKSUM != 0 {
        Checksum::Partial { start: number(6).checked_add(shift_bytes)?, offset: number(8) }
    } else if header[0] & FLAG_DATA_VALID != 0 {
        Checksum::Valid
    } else {
        Checksum::Unverified
    };
    let kind = match header[1] & !GSO_ECN {
        GSO_NONE => return Some((checksum, Segmentation::default())),
        GSO_TCP_IPV4 => SegmentationKind::TcpIpv4,
        GSO_TCP_IPV6 => SegmentationKind::TcpIpv6,
        GSO_UDP => SegmentationKind::Udp,
        _ => return None,
    };
    let header_bytes = match number(2) {
        0 => 0,
        stated => stated.saturating_add(shift_bytes),
    };
    let ecn = header[1] & GSO_ECN != 0;
    Some((checksum, Segmentation { kind, size_bytes: number(4), header_bytes, ecn }))
}

/// The header for `frame`.
pub(crate) fn emit(checksum: Checksum, segmentation: Segmentation, frame: &[u8]) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    let mut put = |at: usize, number: u16| header[at..at + 2].copy_from_slice(&number.to_ne_bytes());
    if let Checksum::Partial { start, offset } = checksum {
        put(6, start);
        put(8, offset);
    }
    let gso = match segmentation.kind {
        SegmentationKind::None => GSO_NONE,
        SegmentationKind::TcpIpv4 => GSO_TCP_IPV4,
        SegmentationKind::TcpIpv6 => GSO_TCP_IPV6,
        SegmentationKind::Udp => GSO_UDP,
    };
    if gso != GSO_NONE {
        put(2, header_bytes(checksum, segmentation, frame));
        put(4, segmentation.size_bytes);
        header[1] = if segmentation.ecn { gso | GSO_ECN } else { gso };
    }
    if matches!(checksum, Checksum::Partial { .. }) {
        header[0] = FLAG_NEEDS_CHECKSUM;
    }
    header
}

/// Bytes of header before the payload. The frame's own headers take precedence over the sender's value, which may
/// include payload: the kernel copies these bytes into the linear part of its buffer. With 64 KB it would search for
/// contiguous memory each time.
pub(crate) fn header_bytes(checksum: Checksum, segmentation: Segmentation, frame: &[u8]) -> u16 {
    let Checksum::Partial { start, .. } = checksum else { return segmentation.header_bytes.min(frame_limit(frame)) };
    let transport = usize::from(start);
    let transport_header_bytes = match segmentation.kind {
        SegmentationKind::Udp => UDP_HEADER_BYTES,
        _ => frame.get(transport + TCP_DATA_OFFSET_AT).map_or(0, |byte| usize::from(byte >> 4) * 4),
    };
    u16::try_from(transport + transport_header_bytes).unwrap_or(u16::MAX).min(frame_limit(frame))
}

fn frame_limit(frame: &[u8]) -> u16 {
    u16::try_from(frame.len()).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn checksums() -> impl Strategy<Value = Checksum> {
        prop_oneof![
            Just(Checksum::Unverified),
            (0..200_u16, 0..64_u16).prop_map(|(start, offset)| Checksum::Partial { start, offset }),
        ]
    }

    fn segmentations() -> impl Strategy<Value = Segmentation> {
        let kinds =
            prop_oneof![Just(SegmentationKind::TcpIpv4), Just(SegmentationKind::TcpIpv6), Just(SegmentationKind::Udp)];
        prop_oneof![
            Just(Segmentation::default()),
            (kinds, 1..9000_u16, any::<bool>()).prop_map(|(kind, size_bytes, ecn)| Segmentation {
                kind,
                size_bytes,
                header_bytes: 0,
                ecn
            })
        ]
    }

    proptest! {
        #[test]
        fn an_encoded_header_decodes_to_the_same_state(checksum in checksums(), segmentation in segmentations()) {
            let header = emit(checksum, segmentation, &[0x50; 300]);
            let (read_checksum, read_segmentation) = parse(header, 0).unwrap();
            prop_assert_eq!(read_checksum, checksum);
            prop_assert_eq!(Segmentation { header_bytes: 0, ..read_segmentation }, segmentation);
        }

        #[test]
        fn any_header_on_any_frame_is_decoded_without_panic(
            header: [u8; HEADER_BYTES],
            shift_bytes in 0..8_u16,
            frame in prop::collection::vec(any::<u8>(), 0..100),
        ) {
            if let Some((checksum, segmentation)) = parse(header, shift_bytes) {
                emit(checksum, segmentation, &frame);
            }
        }
    }

    #[test]
    fn a_checked_frame_is_valid_and_needs_no_offload() {
        let (checksum, segmentation) = parse([FLAG_DATA_VALID, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0).unwrap();
        assert_eq!(checksum, Checksum::Valid);
        assert_eq!(emit(checksum, segmentation, &[]), [0; HEADER_BYTES]);
    }

    #[test]
    fn the_header_length_derives_from_the_frame() {
        let mut frame = [0; 3000];
        frame[34 + TCP_DATA_OFFSET_AT] = 0x80;
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let segmentation =
            Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes: 1448, header_bytes: 2900, ecn: false };
        let header = emit(checksum, segmentation, &frame);
        assert_eq!(u16::from_ne_bytes([header[2], header[3]]), 34 + 32);
    }

    #[test]
    fn offsets_move_with_an_inserted_tag() {
        let checksum = Checksum::Partial { start: 34, offset: 16 };
        let (moved, _) = parse(emit(checksum, Segmentation::default(), &[]), 4).unwrap();
        assert_eq!(moved, Checksum::Partial { start: 38, offset: 16 });
    }
}
