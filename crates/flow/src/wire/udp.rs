//! UDP datagrams (RFC 768).

use crate::DropReason;

/// Bytes of a UDP header.
pub const UDP_HEADER_BYTES: usize = 8;
/// Offset of the checksum from the start of the header, in bytes.
pub const UDP_CHECKSUM_OFFSET: usize = 6;

/// A checked view of a UDP datagram.
#[derive(Clone, Copy, Debug)]
pub struct UdpView<'a> {
    header: &'a [u8; UDP_HEADER_BYTES],
    datagram: &'a [u8],
}

impl<'a> UdpView<'a> {
    /// Views the payload of an IP packet.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: the length field is shorter than the header or longer than the packet.
    #[inline]
    pub fn new_checked(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let header: &[u8; UDP_HEADER_BYTES] = bytes.first_chunk().ok_or(DropReason::Malformed)?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let datagram = bytes.get(..length).filter(|datagram| datagram.len() >= UDP_HEADER_BYTES);
        Ok(Self { header, datagram: datagram.ok_or(DropReason::Malformed)? })
    }

    /// Views the first fragment of a datagram, or the part that an ICMP error quotes: the length field may exceed the
    /// available bytes.
    ///
    /// # Errors
    /// [`DropReason::Malformed`]: the header is incomplete.
    pub fn new_first_part(bytes: &'a [u8]) -> Result<Self, DropReason> {
        let header = bytes.first_chunk().ok_or(DropReason::Malformed)?;
        Ok(Self { header, datagram: bytes })
    }

    /// Source port.
    #[must_use]
    #[inline]
    pub const fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Destination port.
    #[must_use]
    #[inline]
    pub const fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// The checksum field; zero means "none".
    #[must_use]
    #[inline]
    pub const fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// Header and payload, without trailing bytes of the IP packet.
    #[must_use]
    #[inline]
    pub const fn datagram(&self) -> &'a [u8] {
        self.datagram
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.datagram.get(UDP_HEADER_BYTES..).unwrap_or_default()
    }
}
