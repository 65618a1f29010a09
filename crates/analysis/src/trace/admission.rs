//! Frames that a gateway would drop, and that a study takes in if it is asked to: their checksums are wrong, or they go to loopback
//! addresses. Captures that were taken on an end host are full of the first (its hardware was to fill the checksums in, or the capture's
//! addresses were changed afterwards), captures of `lo` consist of the second.

use std::net::Ipv4Addr;

use flow::wire::checksum::{self, Sum};
use flow::wire::ethernet::{self, ether_type};
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::{Headers, Parsed, Transport};
use flow::{Checksum, DropReason};

use super::packet::{is_left_to_hardware, parse, write_ipv4_checksum};

/// Where addresses stand in the network headers, source first.
const IPV4_ADDRESSES: [usize; 2] = [12, 16];
const IPV6_ADDRESSES: [usize; 2] = [8, 24];
/// The first byte of IPv4's loopback network, and one that parsers have nothing against.
const LOOPBACK: u8 = 127;
const ADMITTED: u8 = 10;
/// IPv6's loopback address.
const LOOPBACK_V6: [u8; 16] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];

/// What is taken in although a gateway would drop it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admission {
    /// Checksums are taken for right, whatever they are.
    pub believes_checksums: bool,
    /// Packets from and to loopback addresses are packets as others.
    pub admits_loopback: bool,
}

/// Reads a frame that the parser refuses for `reason`, if it is to be taken in. `is_believed`: its checksums are not looked at.
#[cold]
pub(super) fn admit(
    frame: &mut [u8],
    reason: DropReason,
    is_believed: bool,
    admission: Admission,
    headers: &mut Headers,
) -> Result<(), DropReason> {
    let reason = match reason {
        DropReason::BadIpChecksum if admission.believes_checksums => {
            right_ipv4_header(frame).ok_or(reason)?;
            match parse(frame, Checksum::Valid, headers) {
                Ok(Parsed::Ip(())) => return Ok(()),
                Ok(Parsed::Arp(_)) => return Err(reason),
                Err(reason) => reason,
            }
        }
        reason => reason,
    };
    if reason != DropReason::MartianAddress || !admission.admits_loopback {
        return Err(reason);
    }
    let found = parse_loopback(frame).ok_or(reason)?;
    if !is_believed && !transport_checksum_is_right(frame, &found) {
        return Err(DropReason::BadTransportChecksum);
    }
    *headers = found;
    Ok(())
}

fn right_ipv4_header(frame: &mut [u8]) -> Option<()> {
    let (kind, at) = ethernet::network_layer(frame).ok()?;
    let packet = frame.get_mut(at..).filter(|_| kind == ether_type::IPV4)?;
    let header_bytes = usize::from(*packet.first()? & 0x0f) * 4;
    write_ipv4_checksum(packet.get_mut(..header_bytes).filter(|header| header.len() >= IPV4_HEADER_BYTES)?);
    Some(())
}

/// Has the frame parsed under addresses that the parser takes, and puts the real ones into what it found. The frame is as it was.
fn parse_loopback(frame: &mut [u8]) -> Option<Headers> {
    let (kind, at) = ethernet::network_layer(frame).ok()?;
    let (is_ipv4, network_bytes) = match kind {
        ether_type::IPV4 => (true, usize::from(*frame.get(at)? & 0x0f) * 4),
        ether_type::IPV6 => (false, IPV6_ADDRESSES[1] + 16),
        _ => return None,
    };
    if network_bytes < IPV4_HEADER_BYTES {
        return None;
    }
    let real = frame.get(at..at + network_bytes)?.to_vec();
    let packet = &mut frame[at..at + network_bytes];
    let (places, address_bytes) = if is_ipv4 { (IPV4_ADDRESSES, 4) } else { (IPV6_ADDRESSES, 16) };
    for place in places {
        let address = &mut packet[place..place + address_bytes];
        if is_ipv4 && address[0] == LOOPBACK {
            address[0] = ADMITTED;
        } else if *address == LOOPBACK_V6 {
            address[0] = 0x20;
        }
    }
    if is_ipv4 {
        write_ipv4_checksum(packet);
    }
    let mut headers = Headers::NONE;
    let parsed = parse(frame, Checksum::Valid, &mut headers);
    frame[at..at + network_bytes].copy_from_slice(&real);
    if parsed != Ok(Parsed::Ip(())) {
        return None;
    }
    let address = |place: usize| match is_ipv4 {
        true => real[place..].first_chunk::<4>().map(|address| Ipv4Addr::from(*address).to_ipv6_mapped().octets()),
        false => real[place..].first_chunk().copied(),
    };
    (headers.tuple.source, headers.tuple.destination) = (address(places[0])?, address(places[1])?);
    Some(headers)
}

/// Whether TCP's or UDP's checksum is right or left to hardware; what else there is on loopback is believed.
fn transport_checksum_is_right(frame: &[u8], headers: &Headers) -> bool {
    let is_without = match headers.transport {
        Transport::Tcp(_) => false,
        // Over IPv4, UDP may do without (RFC 768).
        Transport::Udp => frame.get(usize::from(headers.l4_offset) + 6..).is_some_and(|at| at.starts_with(&[0, 0])),
        _ => true,
    };
    let transport = frame.get(usize::from(headers.l4_offset)..headers.l3_end()).unwrap_or_default();
    let pseudo_header = checksum::pseudo_header(&headers.tuple, transport.len() as u32);
    is_without
        || headers.is_fragment
        || is_left_to_hardware(frame, headers) == Some(true)
        || Sum::of(transport).plus(pseudo_header).is_whole()
}
