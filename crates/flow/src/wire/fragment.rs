//! Where a fragment lies in its packet, and which packet that is.

use super::ipv4::Ipv4View;
use super::ipv6::{IPV6_HEADER_BYTES, Ipv6View};
use super::{Headers, Packet};
use crate::{DropReason, Tuple};

/// A fragment's place in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// What the packet's fragments have in common and those of others have not: the addresses, for IPv4 the protocol
    /// (RFC 791 section 3.2; IPv6 fragments may name different ones, RFC 8200 section 4.5), and in place of the ports the
    /// identification, its upper half first.
    pub packet: Tuple,
    /// Where it begins in what was cut, in bytes.
    pub start: u16,
    /// Where it ends in what was cut, in bytes; above `start`.
    pub end: u16,
    /// More are to follow; else it is the last.
    pub more: bool,
    /// Where the transport header begins in what was cut, in bytes: extension headers may be cut with it. Meaningless but
    /// for the first.
    pub transport_at: u16,
}

impl Fragment {
    /// The place of `packet`, whose headers say that it is a fragment.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: it is empty, is to be followed by others and does not end at a multiple of eight bytes
    /// (RFC 8200 section 4.5), or is no fragment.
    pub fn of(packet: &Packet<'_, '_>) -> Result<Self, DropReason> {
        let headers = &packet.headers;
        let bytes = packet.frame.bytes().get(usize::from(headers.l3_offset)..).unwrap_or_default();
        let fragment = if headers.tuple.version == 4 { of_ipv4(bytes, headers) } else { of_ipv6(bytes, headers) }?;
        let is_ragged = fragment.more && !(fragment.end - fragment.start).is_multiple_of(8);
        if fragment.start == fragment.end || is_ragged { Err(DropReason::Malformed) } else { Ok(fragment) }
    }

    /// It is the one with the transport header.
    #[must_use]
    pub const fn is_first(&self) -> bool {
        self.start == 0
    }
}

fn of_ipv4(bytes: &[u8], headers: &Headers) -> Result<Fragment, DropReason> {
    let ip = Ipv4View::new_checked(bytes)?;
    let length_bytes = ip.payload().len();
    place(packet(headers, u32::from(ip.identification()), ip.protocol()), ip.fragment_offset_bytes(), length_bytes)
        .map(|fragment| Fragment { more: ip.more_fragments(), ..fragment })
}

fn of_ipv6(bytes: &[u8], headers: &Headers) -> Result<Fragment, DropReason> {
    let ip = Ipv6View::new_checked(bytes)?;
    let upper = ip.upper_layer()?;
    let header = upper.fragment.ok_or(DropReason::Malformed)?;
    let length_bytes = ip.payload().len().saturating_sub(upper.fragmentable_offset_bytes);
    let before = usize::from(headers.l3_offset) + IPV6_HEADER_BYTES + upper.fragmentable_offset_bytes;
    let fragment = place(packet(headers, header.identification, 0), header.offset_bytes, length_bytes)?;
    let transport_at = usize::from(headers.l4_offset).saturating_sub(before);
    Ok(Fragment { more: header.more, transport_at: transport_at as u16, ..fragment })
}

fn packet(headers: &Headers, identification: u32, protocol: u8) -> Tuple {
    Tuple {
        source_port: (identification >> 16) as u16,
        destination_port: identification as u16,
        protocol,
        discriminator: 0,
        ..headers.tuple
    }
}

fn place(packet: Tuple, offset_bytes: u32, length_bytes: usize) -> Result<Fragment, DropReason> {
    let start = u16::try_from(offset_bytes).map_err(|_| DropReason::FragmentTooLong)?;
    let end = u16::try_from(usize::from(start) + length_bytes).map_err(|_| DropReason::FragmentTooLong)?;
    Ok(Fragment { packet, start, end, more: false, transport_at: 0 })
}
