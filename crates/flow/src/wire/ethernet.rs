//! Ethernet II frames, and 802.1Q tags up to the network header.

use alloc::vec::Vec;
use core::fmt;

use super::vlan::VlanView;
use crate::DropReason;

/// Bytes of an Ethernet II header.
pub const ETHERNET_HEADER_BYTES: usize = 14;
/// The most 802.1Q tags that a frame may carry (802.1ad: a service tag and a customer tag).
pub const VLAN_TAGS_MAX: usize = 2;

pub mod ether_type {
    //! Ether types (IANA).
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// A customer tag (802.1Q).
    pub const VLAN: u16 = 0x8100;
    /// A service tag (802.1ad).
    pub const SERVICE_VLAN: u16 = 0x88a8;
}

/// A link-layer address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// The address is that of a group (multicast or broadcast).
    #[must_use]
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The group address that an IPv6 multicast address maps to (RFC 2464 section 7).
    #[must_use]
    pub const fn of_ipv6_multicast(address: &[u8; 16]) -> Self {
        Self([0x33, 0x33, address[12], address[13], address[14], address[15]])
    }
}

impl fmt::Display for MacAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// A checked view of an Ethernet II frame.
#[derive(Clone, Copy, Debug)]
pub struct EthernetView<'a> {
    header: &'a [u8; ETHERNET_HEADER_BYTES],
    payload: &'a [u8],
}

impl<'a> EthernetView<'a> {
    /// Views a frame.
    ///
    /// # Errors
    /// [`DropReason::Truncated`].
    #[inline]
    pub fn new_checked(frame: &'a [u8]) -> Result<Self, DropReason> {
        let (header, payload) = frame.split_first_chunk().ok_or(DropReason::Truncated)?;
        Ok(Self { header, payload })
    }

    /// The destination's link address.
    #[must_use]
    pub const fn destination(&self) -> MacAddress {
        let h = self.header;
        MacAddress([h[0], h[1], h[2], h[3], h[4], h[5]])
    }

    /// The source's link address.
    #[must_use]
    pub const fn source(&self) -> MacAddress {
        let h = self.header;
        MacAddress([h[6], h[7], h[8], h[9], h[10], h[11]])
    }

    /// The type of its payload: one of [`ether_type`], or a length below 1536 (IEEE 802.3).
    #[must_use]
    #[inline]
    pub const fn ether_type(&self) -> u16 {
        u16::from_be_bytes([self.header[12], self.header[13]])
    }

    /// All behind the header, padding included.
    #[must_use]
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// The ether type behind the link headers, tags included, and its offset from the start of the frame in bytes.
///
/// # Errors
/// [`DropReason::Truncated`].
#[inline]
pub fn network_layer(frame: &[u8]) -> Result<(u16, usize), DropReason> {
    let ethernet = EthernetView::new_checked(frame)?;
    match ethernet.ether_type() {
        ether_type::VLAN | ether_type::SERVICE_VLAN => behind_tags(ethernet.payload()),
        kind => Ok((kind, ETHERNET_HEADER_BYTES)),
    }
}

#[cold]
fn behind_tags(mut rest: &[u8]) -> Result<(u16, usize), DropReason> {
    let mut offset = ETHERNET_HEADER_BYTES;
    for _ in 0..VLAN_TAGS_MAX {
        let tag = VlanView::new_checked(rest)?;
        rest = tag.payload();
        offset += super::vlan::VLAN_TAG_BYTES;
        if !matches!(tag.ether_type(), ether_type::VLAN | ether_type::SERVICE_VLAN) {
            return Ok((tag.ether_type(), offset));
        }
    }
    Err(DropReason::UnsupportedLinkProtocol)
}

/// Appends an Ethernet II header.
pub fn emit(out: &mut Vec<u8>, destination: MacAddress, source: MacAddress, ether_type: u16) {
    out.extend_from_slice(&destination.0);
    out.extend_from_slice(&source.0);
    out.extend_from_slice(&ether_type.to_be_bytes());
}

/// Writes new link addresses into a frame. Returns false, without changes, when the frame is too short.
pub fn set_addresses(frame: &mut [u8], destination: MacAddress, source: MacAddress) -> bool {
    let Some((to, rest)) = frame.split_first_chunk_mut::<6>() else { return false };
    let Some(from) = rest.first_chunk_mut::<6>() else { return false };
    *to = destination.0;
    *from = source.0;
    true
}
