//! IPv6 packets and their extension headers (RFC 8200).

use super::ip_protocol;
use crate::DropReason;

/// Bytes of an IPv6 header.
pub const IPV6_HEADER_BYTES: usize = 40;
/// The maximum number of extension headers; a packet with more is dropped as [`DropReason::UnsupportedNetworkFeature`].
pub const IPV6_EXTENSION_HEADERS_MAX: usize = 8;
/// Bytes of a fragment header.
pub const IPV6_FRAGMENT_HEADER_BYTES: usize = 8;

/// A checked view of an IPv6 packet: version and payload length fit the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6View<'a> {
    header: &'a [u8; IPV6_HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> Ipv6View<'a> {
    /// Views a packet; bytes behind it are padding. Jumbograms (RFC 2675) are not known.
    ///
    /// # Errors
    /// [`DropReason::Truncated`]: the frame ends before the packet. [`DropReason::Malformed`]: the version is another.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let view = Self::split(bytes).ok_or(DropReason::Truncated)??;
        let payload = view.payload.get(..usize::from(view.payload_length())).ok_or(DropReason::Truncated)?;
        Ok(Self { payload, ..view })
    }

    /// Views the beginning of a packet, as an ICMPv6 error quotes it: the payload length may be more than is there.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: the header is none, or not all there.
    pub fn new_quoted(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let view = Self::split(bytes).ok_or(DropReason::Malformed)??;
        let payload = view.payload.get(..usize::from(view.payload_length())).unwrap_or(view.payload);
        Ok(Self { payload, ..view })
    }

    #[inline]
    fn split(bytes: &'a [u8]) -> Option<Result<Self, DropReason>> {
        let (header, payload) = bytes.split_first_chunk::<IPV6_HEADER_BYTES>()?;
        Some(if header[0] >> 4 == 6 { Ok(Self { header, payload }) } else { Err(DropReason::Malformed) })
    }

    /// The payload length in the header, in bytes, extension headers included.
    #[must_use]
    #[inline]
    pub const fn payload_length(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The protocol of the payload or of its first extension header.
    #[must_use]
    #[inline]
    pub const fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Hop limit.
    #[must_use]
    #[inline]
    pub const fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Source address.
    #[must_use]
    #[inline]
    pub fn source(&self) -> [u8; 16] {
        *self.header[8..].first_chunk().expect("the header has 40 bytes")
    }

    /// Destination address.
    #[must_use]
    #[inline]
    pub fn destination(&self) -> [u8; 16] {
        *self.header[24..].first_chunk().expect("the header has 40 bytes")
    }

    /// What the packet carries, extension headers included, without the link's padding.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Skips the extension headers.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: a header that does not fit, or hop-by-hop options that are not first.
    /// [`DropReason::TinyFragment`]: a first fragment that ends within its headers (RFC 7112).
    /// [`DropReason::UnsupportedNetworkFeature`]: source routing, or too many headers.
    #[inline]
    pub fn upper_layer(&self) -> Result<UpperLayer, DropReason> {
        match self.next_header() {
            ip_protocol::TCP | ip_protocol::UDP | ip_protocol::SCTP | ip_protocol::ICMPV6 => Ok(UpperLayer {
                protocol: self.next_header(),
                offset_bytes: 0,
                fragment: None,
                fragmentable_offset_bytes: 0,
            }),
            first => skip_extensions(first, self.payload),
        }
    }
}

/// The upper layer behind the extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpperLayer {
    /// Its protocol.
    pub protocol: u8,
    /// Its offset from the end of the IPv6 header, in bytes.
    pub offset_bytes: usize,
    /// The fragment header among the extension headers.
    pub fragment: Option<FragmentHeader>,
    /// The offset of the bytes behind the fragment header from the end of the IPv6 header: fragment offsets count from
    /// there. 0 without a fragment header.
    pub fragmentable_offset_bytes: usize,
}

/// A fragment header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentHeader {
    /// Where the fragment lies in its datagram, in bytes.
    pub offset_bytes: u32,
    /// More fragments are to come.
    pub more: bool,
    /// The number that a datagram's fragments share.
    pub identification: u32,
}

impl FragmentHeader {
    /// A datagram with a fragment header that is not fragmented (an "atomic fragment", RFC 6946).
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.offset_bytes == 0 && !self.more
    }
}

#[cold]
fn skip_extensions(first: u8, payload: &[u8]) -> Result<UpperLayer, DropReason> {
    let mut upper = UpperLayer { protocol: first, offset_bytes: 0, fragment: None, fragmentable_offset_bytes: 0 };
    for index in 0..=IPV6_EXTENSION_HEADERS_MAX {
        // Data that a whole packet must contain may be in the next fragment here.
        let missing = if upper.fragment.is_some_and(|fragment| !fragment.is_whole()) {
            DropReason::TinyFragment
        } else {
            DropReason::Malformed
        };
        let rest = payload.get(upper.offset_bytes..).ok_or(missing)?;
        let length_bytes = match upper.protocol {
            ip_protocol::HOP_BY_HOP if index != 0 => return Err(DropReason::Malformed),
            ip_protocol::HOP_BY_HOP | ip_protocol::DESTINATION_OPTIONS => extension_length(rest).ok_or(missing)?,
            ip_protocol::ROUTING => {
                // Segments left: the packet still has to visit a node. With zero, the header has no effect.
                if *rest.get(3).ok_or(missing)? != 0 {
                    return Err(DropReason::UnsupportedNetworkFeature);
                }
                extension_length(rest).ok_or(missing)?
            }
            ip_protocol::FRAGMENT => {
                if upper.fragment.is_some() {
                    return Err(DropReason::Malformed);
                }
                upper.fragment = Some(fragment_header(rest)?);
                upper.fragmentable_offset_bytes = upper.offset_bytes + IPV6_FRAGMENT_HEADER_BYTES;
                IPV6_FRAGMENT_HEADER_BYTES
            }
            _ => return Ok(upper),
        };
        upper.protocol = *rest.first().ok_or(missing)?;
        upper.offset_bytes += length_bytes;
        if upper.offset_bytes > payload.len() {
            return Err(missing);
        }
        if upper.fragment.is_some_and(|fragment| fragment.offset_bytes != 0) {
            return Ok(upper);
        }
    }
    Err(DropReason::UnsupportedNetworkFeature)
}

fn extension_length(header: &[u8]) -> Option<usize> {
    header.get(1).map(|units| (usize::from(*units) + 1) * 8)
}

fn fragment_header(header: &[u8]) -> Result<FragmentHeader, DropReason> {
    let header: &[u8; IPV6_FRAGMENT_HEADER_BYTES] = header.first_chunk().ok_or(DropReason::Malformed)?;
    let offset_and_flags = u16::from_be_bytes([header[2], header[3]]);
    Ok(FragmentHeader {
        offset_bytes: u32::from(offset_and_flags & 0xfff8),
        more: offset_and_flags & 1 != 0,
        identification: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
    })
}

/// Whether an address may not be a packet's source on a wire: unspecified, loopback, multicast, or IPv4-mapped
/// (RFC 4291 sections 2.5 and 2.7, RFC 4942 section 2.2).
#[must_use]
#[inline]
pub const fn is_martian_source(address: &[u8; 16]) -> bool {
    address[0] == 0xff || is_martian_destination(address)
}

/// Whether an address may not be a packet's destination on a wire: unspecified, loopback or IPv4-mapped.
#[must_use]
#[inline]
pub const fn is_martian_destination(address: &[u8; 16]) -> bool {
    let address = u128::from_be_bytes(*address);
    address <= 1 || address >> 32 == 0xffff
}
