//! IPv4 packets (RFC 791).

use super::checksum::Sum;
use crate::DropReason;

/// Bytes of an IPv4 header without options.
pub const IPV4_HEADER_BYTES: usize = 20;
/// Bytes that a whole IPv4 packet has at most.
pub const IPV4_PACKET_BYTES_MAX: usize = 65_535;

const OPTION_END: u8 = 0;
const OPTION_NOP: u8 = 1;
const OPTION_LOOSE_SOURCE_ROUTE: u8 = 131;
const OPTION_STRICT_SOURCE_ROUTE: u8 = 137;

/// A checked view of an IPv4 packet: version, header length and total length fit each other and the bytes.
#[derive(Clone, Copy, Debug)]
pub struct Ipv4View<'a> {
    header: &'a [u8; IPV4_HEADER_BYTES],
    options: &'a [u8],
    payload: &'a [u8],
}

impl<'a> Ipv4View<'a> {
    /// Views a packet; bytes behind it are padding.
    ///
    /// # Errors
    /// [`DropReason::Truncated`]: the frame ends before the packet. [`DropReason::Malformed`]: the header is none.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let total = usize::from(total_length(bytes)?);
        let packet = bytes.get(..total).ok_or(DropReason::Truncated)?;
        Self::split(packet)
    }

    /// Views the beginning of a packet, as an ICMP error quotes it: the total length may be more than is there.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: the header is none, or not all there.
    pub fn new_quoted(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let total = total_length(bytes).map_err(|_| DropReason::Malformed)?;
        Self::split(bytes.get(..usize::from(total)).unwrap_or(bytes))
    }

    #[inline]
    fn split(packet: &'a [u8]) -> Result<Self, DropReason> {
        let (header, rest) = packet.split_first_chunk::<IPV4_HEADER_BYTES>().ok_or(DropReason::Malformed)?;
        if header[0] == 0x45 {
            return Ok(Self { header, options: &[], payload: rest });
        }
        let header_bytes = usize::from(header[0] & 0x0f) * 4;
        let options_bytes = header_bytes.checked_sub(IPV4_HEADER_BYTES).ok_or(DropReason::Malformed)?;
        let (options, payload) = rest.split_at_checked(options_bytes).ok_or(DropReason::Malformed)?;
        if header[0] >> 4 != 4 {
            return Err(DropReason::Malformed);
        }
        Ok(Self { header, options, payload })
    }

    /// Bytes of the header, options included.
    #[must_use]
    #[inline]
    pub const fn header_bytes(&self) -> usize {
        IPV4_HEADER_BYTES + self.options.len()
    }

    /// The packet's length in its header, in bytes.
    #[must_use]
    #[inline]
    pub const fn total_length(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The number that a datagram's fragments share.
    #[must_use]
    pub const fn identification(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// The packet must not be fragmented.
    #[must_use]
    pub const fn dont_fragment(&self) -> bool {
        self.header[6] & 0x40 != 0
    }

    /// The packet is a fragment: its offset is above 0 or more are to come.
    #[must_use]
    #[inline]
    pub const fn is_fragment(&self) -> bool {
        u16::from_be_bytes([self.header[6], self.header[7]]) & 0x3fff != 0
    }

    /// More fragments are to follow.
    #[must_use]
    pub const fn more_fragments(&self) -> bool {
        self.header[6] & 0x20 != 0
    }

    /// Where the fragment lies in its datagram, in bytes.
    #[must_use]
    pub const fn fragment_offset_bytes(&self) -> u32 {
        ((u16::from_be_bytes([self.header[6], self.header[7]]) & 0x1fff) as u32) * 8
    }

    /// The time to live.
    #[must_use]
    #[inline]
    pub const fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// The protocol of the payload.
    #[must_use]
    #[inline]
    pub const fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Source address.
    #[must_use]
    #[inline]
    pub const fn source(&self) -> [u8; 4] {
        let h = self.header;
        [h[12], h[13], h[14], h[15]]
    }

    /// Destination address.
    #[must_use]
    #[inline]
    pub const fn destination(&self) -> [u8; 4] {
        let h = self.header;
        [h[16], h[17], h[18], h[19]]
    }

    /// The options, padding included.
    #[must_use]
    pub const fn options(&self) -> &'a [u8] {
        self.options
    }

    /// What the packet carries, without the link's padding.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The header's checksum is right.
    #[must_use]
    #[inline]
    pub fn checksum_is_right(&self) -> bool {
        let mut sum = Sum::of(self.header);
        if !self.options.is_empty() {
            sum = sum.plus(Sum::of(self.options));
        }
        sum.is_whole()
    }

    /// The ones-complement sum of the two addresses.
    #[must_use]
    #[inline]
    pub(super) fn address_sum(&self) -> Sum {
        Sum::of(&self.header[12..20])
    }
}

/// Validates the options of a header.
///
/// # Errors
/// [`DropReason::Malformed`]: an option does not fit. [`DropReason::UnsupportedNetworkFeature`]: source routing.
#[cold]
pub fn check_options(options: &[u8]) -> Result<(), DropReason> {
    let mut rest = options;
    while let [kind, behind @ ..] = rest {
        rest = match *kind {
            OPTION_END => return Ok(()),
            OPTION_NOP => behind,
            OPTION_LOOSE_SOURCE_ROUTE | OPTION_STRICT_SOURCE_ROUTE => {
                return Err(DropReason::UnsupportedNetworkFeature);
            }
            _ => {
                let length = usize::from(*behind.first().ok_or(DropReason::Malformed)?);
                rest.get(length..).filter(|_| length >= 2).ok_or(DropReason::Malformed)?
            }
        };
    }
    Ok(())
}

/// The total length field. `Truncated` when not even a header without options is there.
#[inline]
fn total_length(bytes: &[u8]) -> Result<u16, DropReason> {
    let header: &[u8; IPV4_HEADER_BYTES] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
    Ok(u16::from_be_bytes([header[2], header[3]]))
}

/// The header's checksum after the time to live was lowered by one: of all that it covers, the upper half of one word is one less
/// (RFC 1624, equation 3).
#[must_use]
#[inline]
pub const fn checksum_after_hop(checksum: u16) -> u16 {
    let (sum, carry) = (!checksum).overflowing_add(!0x0100);
    !(sum + carry as u16)
}

/// Whether an address may not be a packet's source: "this network", loopback, multicast or broadcast
/// (RFC 1122 section 3.2.1.3).
#[must_use]
#[inline]
pub const fn is_martian_source(address: [u8; 4]) -> bool {
    matches!(address[0], 0 | 127 | 224..=239) || u32::from_be_bytes(address) == u32::MAX
}

/// Whether an address may not be a packet's destination on a wire: "this network" or loopback.
#[must_use]
#[inline]
pub const fn is_martian_destination(address: [u8; 4]) -> bool {
    matches!(address[0], 0 | 127)
}
