//! Cuts a frame that stands for several packets (segmentation offload) into these packets, where it goes on in a form that no device
//! could cut: inside a tunnel.

use alloc::vec::Vec;

use super::checksum::{Sum, non_zero, pseudo_header};
use super::ipv4::IPV4_HEADER_BYTES;
use super::ipv6::IPV6_HEADER_BYTES;
use super::tcp::{TCP_CHECKSUM_OFFSET, TCP_HEADER_BYTES};
use super::udp::{UDP_CHECKSUM_OFFSET, UDP_HEADER_BYTES};
use super::{Headers, Transport, tcp_flags};
use crate::Segmentation;

const IPV4_LENGTH: core::ops::Range<usize> = 2..4;
const IPV4_IDENTIFICATION: core::ops::Range<usize> = 4..6;
const IPV4_CHECKSUM: core::ops::Range<usize> = 10..12;
const IPV6_LENGTH: core::ops::Range<usize> = 4..6;
const TCP_SEQUENCE: core::ops::Range<usize> = 4..8;
const TCP_FLAGS_OFFSET: usize = 13;
const UDP_LENGTH: core::ops::Range<usize> = 4..6;

/// The packets that `frame` stands for, each with the frame's link header, in order and with complete checksums. `headers` are those of
/// the frame. `None`: it is neither TCP nor UDP, or `segmentation` does not fit it.
///
/// Sequence numbers and IPv4 identifications count on; FIN and PSH go to the last segment, and CWR to the first, as devices do it.
#[must_use]
pub fn segment_frame(frame: &[u8], headers: &Headers, segmentation: &Segmentation) -> Option<Vec<Vec<u8>>> {
    let least = match headers.transport {
        Transport::Tcp(_) => TCP_HEADER_BYTES,
        Transport::Udp => UDP_HEADER_BYTES,
        _ => return None,
    };
    let (l3, l4) = (usize::from(headers.l3_offset), usize::from(headers.l4_offset));
    let at = usize::from(headers.payload_offset);
    let ip_bytes = if headers.tuple.version == 4 { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
    let is_sound = l3 + ip_bytes <= l4 && l4 + least <= at && segmentation.size_bytes != 0 && !headers.is_fragment;
    let (head, payload) = (frame.get(..at)?, frame.get(at..headers.l3_end())?);
    if !is_sound || payload.is_empty() {
        return None;
    }
    let size = usize::from(segmentation.size_bytes);
    let last = payload.len().div_ceil(size) - 1;
    let pieces = payload.chunks(size).enumerate().map(|(index, part)| {
        let mut packet = Vec::with_capacity(head.len() + part.len());
        packet.extend_from_slice(head);
        packet.extend_from_slice(part);
        set_network_header(&mut packet[l3..l4], headers.tuple.version, index, at - l4 + part.len());
        let transport = &mut packet[l4..];
        if let Transport::Tcp(segment) = &headers.transport {
            let sequence = segment.sequence.wrapping_add((index * size) as u32);
            transport[TCP_SEQUENCE].copy_from_slice(&sequence.to_be_bytes());
            let not_here = if index == last { 0 } else { tcp_flags::FIN | tcp_flags::PSH };
            let not_later = if index == 0 { 0 } else { tcp_flags::CWR };
            transport[TCP_FLAGS_OFFSET] &= !(not_here | not_later);
            fill_checksum(headers, transport, TCP_CHECKSUM_OFFSET);
        } else {
            let length = transport.len() as u16;
            transport[UDP_LENGTH].copy_from_slice(&length.to_be_bytes());
            fill_checksum(headers, transport, UDP_CHECKSUM_OFFSET);
        }
        packet
    });
    Some(pieces.collect())
}

/// Writes lengths, identification and checksum into an IP header with its options or extension headers.
fn set_network_header(header: &mut [u8], version: u8, index: usize, transport_bytes: usize) {
    let behind_fixed = header.len() + transport_bytes;
    if version != 4 {
        header[IPV6_LENGTH].copy_from_slice(&((behind_fixed - IPV6_HEADER_BYTES) as u16).to_be_bytes());
        return;
    }
    header[IPV4_LENGTH].copy_from_slice(&(behind_fixed as u16).to_be_bytes());
    let first = u16::from_be_bytes([header[IPV4_IDENTIFICATION.start], header[IPV4_IDENTIFICATION.start + 1]]);
    header[IPV4_IDENTIFICATION].copy_from_slice(&first.wrapping_add(index as u16).to_be_bytes());
    header[IPV4_CHECKSUM].fill(0);
    let checksum = Sum::of(header).checksum();
    header[IPV4_CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
}

fn fill_checksum(headers: &Headers, transport: &mut [u8], at: usize) {
    transport[at..at + 2].fill(0);
    let sum = pseudo_header(&headers.tuple, transport.len() as u32).plus(Sum::of(transport));
    transport[at..at + 2].copy_from_slice(&non_zero(sum.checksum()).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::wire::build::{self, Tcp};
    use crate::wire::{Parsed, ip_protocol, parse};
    use crate::{Frame, PortId, SegmentationKind, Tuple};

    fn tuple(protocol: u8, is_v4: bool) -> Tuple {
        if is_v4 {
            return Tuple::v4(protocol, (Ipv4Addr::new(10, 0, 0, 1), 9), (Ipv4Addr::new(192, 0, 2, 1), 53));
        }
        let host = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last);
        Tuple::v6(protocol, (host(1), 9), (host(2), 53))
    }

    fn parsed(bytes: &mut [u8]) -> Headers {
        let length = bytes.len();
        let frame = Frame::new(bytes, 0, length, PortId(0)).unwrap();
        let Ok(Parsed::Ip(headers)) = parse(&frame) else { panic!("a packet with valid checksums") };
        headers
    }

    fn offload(size_bytes: u16) -> Segmentation {
        Segmentation { kind: SegmentationKind::TcpIpv4, size_bytes, ..Segmentation::default() }
    }

    proptest! {
        #[test]
        fn the_packets_contain_the_whole_payload_in_order_with_valid_checksums(
            is_v4: bool, is_tcp: bool, size in 1u16..1500, length in 1usize..6000, sequence: u32,
        ) {
            let payload: Vec<u8> = (0..length).map(|at| (at * 11) as u8).collect();
            let mut frame = if is_tcp {
                let flags = tcp_flags::ACK | tcp_flags::PSH | tcp_flags::FIN | tcp_flags::CWR;
                let segment = Tcp { sequence, flags, ..Tcp::default() };
                build::tcp(&tuple(ip_protocol::TCP, is_v4), segment, &payload)
            } else {
                build::udp(&tuple(ip_protocol::UDP, is_v4), &payload)
            };
            let headers = parsed(&mut frame);
            let pieces = segment_frame(&frame, &headers, &offload(size)).unwrap();
            let last = pieces.len() - 1;
            let mut joined = vec![];
            for (index, mut piece) in pieces.into_iter().enumerate() {
                let its = parsed(&mut piece);
                prop_assert_eq!(its.tuple, headers.tuple);
                if let Transport::Tcp(segment) = its.transport {
                    prop_assert_eq!(segment.sequence, sequence.wrapping_add(joined.len() as u32));
                    prop_assert_eq!(segment.has(tcp_flags::FIN | tcp_flags::PSH), index == last);
                    prop_assert_eq!(segment.has(tcp_flags::CWR), index == 0);
                }
                joined.extend_from_slice(&piece[usize::from(its.payload_offset)..its.l3_end()]);
            }
            prop_assert_eq!(joined, payload);
        }
    }

    #[test]
    fn frames_that_do_not_fit_their_segmentation_are_refused() {
        let mut frame = build::udp(&tuple(ip_protocol::UDP, true), &[1; 100]);
        let headers = parsed(&mut frame);
        assert_eq!(segment_frame(&frame, &headers, &offload(0)), None);
        assert_eq!(segment_frame(&frame[..60], &headers, &offload(10)), None, "it ends before its packet");
        assert_eq!(segment_frame(&frame, &Headers { transport: Transport::Other, ..headers }, &offload(10)), None);
        assert_eq!(segment_frame(&frame, &headers, &offload(10)).map(|pieces| pieces.len()), Some(10));
    }
}
