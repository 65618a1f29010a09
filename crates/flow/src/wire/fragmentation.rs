//! Fragments an IPv4 packet that exceeds a link's MTU (RFC 791 section 3.2), as routers do where the packet permits it.

use alloc::vec::Vec;

use super::checksum::Sum;
use super::ipv4::{IPV4_HEADER_BYTES, Ipv4View};

const TOTAL_LENGTH_OFFSET: usize = 2;
const FLAGS_OFFSET: usize = 6;
const CHECKSUM_OFFSET: usize = 10;
const MORE_FRAGMENTS: u16 = 0x2000;
const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
/// The bit of an option's kind that requires the option in every fragment.
const OPTION_COPIED: u8 = 0x80;

/// Fragments the IPv4 packet at `l3_offset` of `frame` into frames of at most `mtu_bytes` from the IP header on. The
/// packet may be a fragment itself. Its transport checksum must be complete. `None`: it is no IPv4 packet, it must not
/// be fragmented, or the MTU has no room for data.
#[must_use]
pub fn fragment_ipv4(frame: &[u8], l3_offset: usize, mtu_bytes: usize) -> Option<Vec<Vec<u8>>> {
    let (link, packet) = frame.split_at_checked(l3_offset)?;
    let ip = Ipv4View::new_checked(packet).ok()?;
    let header = packet.get(..ip.header_bytes())?;
    if ip.dont_fragment() || mtu_bytes < header.len() + 8 {
        return None;
    }
    let later_header = later_header(header, ip.options());
    let mut frames = Vec::with_capacity(ip.payload().len().div_ceil(mtu_bytes - header.len() - 7));
    let mut at = 0;
    while at < ip.payload().len() {
        let header = if at == 0 { header } else { &later_header };
        let room = mtu_bytes - header.len();
        let rest = ip.payload().len() - at;
        // All but the last end at a multiple of eight bytes.
        let length = if rest <= room { rest } else { room & !7 };
        let offset = ip.fragment_offset_bytes() as usize + at;
        let more = at + length < ip.payload().len() || ip.more_fragments();
        let mut fragment = Vec::with_capacity(link.len() + header.len() + length);
        fragment.extend_from_slice(link);
        fragment.extend_from_slice(header);
        set_position(&mut fragment[link.len()..], length, offset, more);
        fragment.extend_from_slice(&ip.payload()[at..at + length]);
        frames.push(fragment);
        at += length;
    }
    Some(frames)
}

/// The header of all fragments but the first, with the options that every fragment carries.
fn later_header(header: &[u8], options: &[u8]) -> Vec<u8> {
    let mut later = header[..IPV4_HEADER_BYTES].to_vec();
    let mut rest = options;
    while let [kind, behind @ ..] = rest {
        let length = match *kind {
            OPTION_END => break,
            OPTION_NOP => 1,
            _ => behind.first().map_or(rest.len(), |length| usize::from(*length).clamp(2, rest.len())),
        };
        if kind & OPTION_COPIED != 0 {
            later.extend_from_slice(&rest[..length]);
        }
        rest = &rest[length..];
    }
    later.resize(later.len().next_multiple_of(4), OPTION_END);
    later[0] = 0x40 | (later.len() / 4) as u8;
    later
}

/// Writes length, flags and offset, and recomputes the header's checksum.
fn set_position(header: &mut [u8], length_bytes: usize, offset_bytes: usize, more: bool) {
    let total = (header.len() + length_bytes) as u16;
    let more = if more { MORE_FRAGMENTS } else { 0 };
    let mut put = |at: usize, word: u16| header[at..at + 2].copy_from_slice(&word.to_be_bytes());
    put(TOTAL_LENGTH_OFFSET, total);
    put(FLAGS_OFFSET, more | (offset_bytes / 8) as u16);
    put(CHECKSUM_OFFSET, 0);
    let checksum = Sum::of(header).checksum();
    header[CHECKSUM_OFFSET..CHECKSUM_OFFSET + 2].copy_from_slice(&checksum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;
    use std::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::Tuple;
    use crate::wire::build::{self, Envelope};
    use crate::wire::ethernet::ETHERNET_HEADER_BYTES;
    use crate::wire::ip_protocol;
    use crate::wire::ipv6::FragmentHeader;

    fn packet(payload: &[u8], ipv4_options: &[u8], offset_bytes: u32, more: bool) -> Vec<u8> {
        let tuple = Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, 1), 1), (Ipv4Addr::new(192, 0, 2, 1), 2));
        let fragment = Some(FragmentHeader { offset_bytes, more, identification: 77 });
        Envelope { fragment, ipv4_options, ..Envelope::default() }.raw(&tuple, payload)
    }

    #[test]
    fn a_packet_with_dont_fragment_is_not_fragmented() {
        let tuple = Tuple::v4(ip_protocol::UDP, (Ipv4Addr::new(10, 0, 0, 1), 1), (Ipv4Addr::new(192, 0, 2, 1), 2));
        let frame = build::udp(&tuple, &[0; 1000]);
        assert_eq!(fragment_ipv4(&frame, ETHERNET_HEADER_BYTES, 500), None);
        assert_eq!(
            fragment_ipv4(&packet(&[0; 100], &[], 0, false), ETHERNET_HEADER_BYTES, 27),
            None,
            "no room for data"
        );
    }

    #[test]
    fn copied_options_are_in_every_fragment_and_others_in_the_first() {
        // Record route (7) is for the first fragment only, router alert (148) for all.
        let options = [7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0];
        let frames = fragment_ipv4(&packet(&[0; 200], &options, 0, false), ETHERNET_HEADER_BYTES, 120).unwrap();
        let options: Vec<Vec<u8>> =
            frames.iter().map(|f| Ipv4View::new_checked(&f[14..]).unwrap().options().to_vec()).collect();
        assert_eq!(options[0], [7, 7, 4, 0, 0, 0, 0, 148, 4, 0, 0, 0]);
        assert!(options.len() == 3 && options[1..].iter().all(|options| options == &[148, 4, 0, 0]), "{options:?}");
    }

    proptest! {
        #[test]
        fn the_fragments_make_the_whole_within_the_mtu(
            length in 1usize..4000,
            mtu_bytes in 68usize..1600,
            options in prop::sample::select(vec![vec![], vec![148, 4, 0, 0], vec![1, 1, 1, 0]]),
            offset in 0u32..1000,
            more: bool,
        ) {
            let payload: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
            let frame = packet(&payload, &options, offset * 8, more);
            let frames = fragment_ipv4(&frame, ETHERNET_HEADER_BYTES, mtu_bytes).unwrap();
            let mut put_together = Vec::new();
            for (index, fragment) in frames.iter().enumerate() {
                let ip = Ipv4View::new_checked(&fragment[ETHERNET_HEADER_BYTES..]).unwrap();
                prop_assert!(ip.checksum_is_right() && usize::from(ip.total_length()) <= mtu_bytes);
                prop_assert_eq!(ip.fragment_offset_bytes() as usize, offset as usize * 8 + put_together.len());
                prop_assert_eq!(ip.identification(), 77);
                prop_assert_eq!(ip.more_fragments(), more || index + 1 < frames.len());
                put_together.extend_from_slice(ip.payload());
            }
            prop_assert_eq!(put_together, payload);
        }
    }
}
