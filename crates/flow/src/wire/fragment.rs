//! The position of a fragment in its packet, and the packet's identification.

use super::ipv4::Ipv4View;
use super::ipv6::{IPV6_HEADER_BYTES, Ipv6View};
use super::{Headers, Packet};
use crate::{DropReason, Tuple};

/// A fragment's position in its packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Identifies the packet of a fragment: the addresses, for IPv4 the protocol (RFC 791 section 3.2; IPv6 fragments
    /// may carry different ones, RFC 8200 section 4.5), and in place of the ports the identification, its upper half
    /// first.
    pub packet: Tuple,
    /// The start offset in the fragmented payload, in bytes.
    pub start: u16,
    /// The end offset in the fragmented payload, in bytes; above `start`.
    pub end: u16,
    /// More are to follow; else it is the last.
    pub more: bool,
    /// The offset of the transport header in the fragmented payload, in bytes: extension headers may precede it. Valid
    /// only for the first fragment.
    pub transport_at: u16,
}

impl Fragment {
    /// The position of `packet`, whose headers mark it as a fragment.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: it is empty, is no fragment, or has a successor without ending at a multiple of eight
    /// bytes (RFC 8200 section 4.5).
    pub fn of(packet: &Packet<'_, '_>) -> Result<Self, DropReason> {
        let headers = &packet.headers;
        let bytes = packet.frame.bytes().get(usize::from(headers.l3_offset)..).unwrap_or_default();
        let fragment = if headers.tuple.version == 4 { of_ipv4(bytes, headers) } else { of_ipv6(bytes, headers) }?;
        let is_ragged = fragment.more && !(fragment.end - fragment.start).is_multiple_of(8);
        if fragment.start == fragment.end || is_ragged { Err(DropReason::Malformed) } else { Ok(fragment) }
    }

    /// Whether it is the one with the transport header.
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
