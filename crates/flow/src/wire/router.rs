//! Router discovery for IPv6 (RFC 4861 section 4): advertisements are written, solicitations are read.

use alloc::vec::Vec;
use core::net::Ipv6Addr;
use core::time::Duration;

use super::ethernet::MacAddress;
use super::icmp::IcmpView;
use super::icmpv6::{find_link_address, kind};
use crate::{DropReason, Prefix};

/// The longest time for which hosts may use a router without another advertisement (RFC 8319 section 4).
pub const ROUTER_LIFETIME_MAX: Duration = Duration::from_secs(65_535);
/// Name servers in one option at most: its length is a byte, in units of 8 bytes.
pub const NAME_SERVERS_MAX: usize = 127;

/// Bits of the flags of an advertisement.
const MANAGED: u8 = 0x80;
const OTHER: u8 = 0x40;
/// Bits of the flags of a prefix.
const ON_LINK: u8 = 0x80;
const AUTONOMOUS: u8 = 0x40;

const OPTION_SOURCE_LINK_ADDRESS: u8 = 1;
const OPTION_PREFIX: u8 = 3;
const OPTION_MTU: u8 = 5;
const OPTION_NAME_SERVERS: u8 = 25;

/// How hosts with several routers rank one (RFC 4191 section 2.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RouterPreference {
    /// Before the others.
    High,
    /// As a router that gives no preference.
    #[default]
    Medium,
    /// After the others.
    Low,
}

impl RouterPreference {
    const fn bits(self) -> u8 {
        match self {
            Self::High => 0b01 << 3,
            Self::Medium => 0,
            Self::Low => 0b11 << 3,
        }
    }
}

/// A network in an advertisement (RFC 4861 section 4.6.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AdvertisedPrefix {
    /// The network.
    pub prefix: Prefix,
    /// Hosts find its addresses on the link.
    pub is_on_link: bool,
    /// Hosts make themselves addresses in it (RFC 4862). Only networks of 64 bits are used so.
    pub is_autonomous: bool,
    /// How long it counts.
    pub valid_lifetime: Duration,
    /// How long addresses in it are used for new connections.
    pub preferred_lifetime: Duration,
}

/// A router advertisement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RouterAdvertisement<'a> {
    /// How long hosts may use the router by default; zero: not at all, and no longer.
    pub router_lifetime: Duration,
    /// How it ranks among others.
    pub preference: RouterPreference,
    /// Hosts get addresses by DHCPv6.
    pub is_managed: bool,
    /// Hosts get other settings by DHCPv6.
    pub has_other: bool,
    /// The router's link address.
    pub link_address: MacAddress,
    /// The MTU of the link, if it is to be said.
    pub mtu_bytes: Option<u32>,
    /// Networks of the link.
    pub prefixes: &'a [AdvertisedPrefix],
    /// Name servers (RFC 8106), at most [`NAME_SERVERS_MAX`]; those beyond are left out.
    pub name_servers: &'a [Ipv6Addr],
    /// How long name servers may be used.
    pub name_servers_lifetime: Duration,
}

impl RouterAdvertisement<'_> {
    /// Appends the message with a zero checksum.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let managed = if self.is_managed { MANAGED } else { 0 };
        let other = if self.has_other { OTHER } else { 0 };
        let lifetime_s = u16::try_from(self.router_lifetime.as_secs()).unwrap_or(u16::MAX);
        // The preference of a router that is none is not to be used.
        let preference = if lifetime_s == 0 { 0 } else { self.preference.bits() };
        out.extend_from_slice(&[kind::ROUTER_ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, managed | other | preference]);
        out.extend_from_slice(&lifetime_s.to_be_bytes());
        // Reachable time and retransmission timer: the host's own.
        out.extend_from_slice(&[0; 8]);
        out.extend_from_slice(&[OPTION_SOURCE_LINK_ADDRESS, 1]);
        out.extend_from_slice(&self.link_address.0);
        if let Some(mtu_bytes) = self.mtu_bytes {
            out.extend_from_slice(&[OPTION_MTU, 1, 0, 0]);
            out.extend_from_slice(&mtu_bytes.to_be_bytes());
        }
        self.prefixes.iter().for_each(|prefix| prefix.emit(out));
        let servers = &self.name_servers[..self.name_servers.len().min(NAME_SERVERS_MAX)];
        if !servers.is_empty() {
            out.extend_from_slice(&[OPTION_NAME_SERVERS, 1 + 2 * servers.len() as u8, 0, 0]);
            out.extend_from_slice(&seconds(self.name_servers_lifetime));
            servers.iter().for_each(|server| out.extend_from_slice(&server.octets()));
        }
    }
}

/// The hop limit that hosts are to use.
const HOP_LIMIT: u8 = 64;

impl AdvertisedPrefix {
    /// The network's address without the bits of a host, and its length in bits; `None`: it is not of IPv6.
    #[must_use]
    pub fn network(&self) -> Option<(Ipv6Addr, u8)> {
        let core::net::IpAddr::V6(address) = self.prefix.address else { return None };
        let hosts = u128::MAX.checked_shr(self.prefix.length_bits.into()).unwrap_or(0);
        Some((Ipv6Addr::from_bits(address.to_bits() & !hosts), self.prefix.length_bits))
    }

    fn emit(&self, out: &mut Vec<u8>) {
        let Some((network, _)) = self.network() else { return };
        let on_link = if self.is_on_link { ON_LINK } else { 0 };
        let autonomous = if self.is_autonomous && self.prefix.length_bits == 64 { AUTONOMOUS } else { 0 };
        out.extend_from_slice(&[OPTION_PREFIX, 4, self.prefix.length_bits, on_link | autonomous]);
        out.extend_from_slice(&seconds(self.valid_lifetime));
        out.extend_from_slice(&seconds(self.preferred_lifetime));
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&network.octets());
    }
}

fn seconds(duration: Duration) -> [u8; 4] {
    u32::try_from(duration.as_secs()).unwrap_or(u32::MAX).to_be_bytes()
}

/// Reads a router solicitation from its ICMPv6 header on: the link address of its sender, if it gives one. The caller must verify that the
/// hop limit is [`super::icmpv6::NEIGHBOUR_HOP_LIMIT`].
///
/// # Errors
/// [`DropReason::Malformed`]: it is no solicitation, its code is not 0, or an option does not fit (RFC 4861 section 6.1.1).
pub fn solicitation_from(bytes: &[u8]) -> Result<Option<MacAddress>, DropReason> {
    let message = IcmpView::new_checked(bytes)?;
    if message.kind() != kind::ROUTER_SOLICITATION || message.code() != 0 {
        return Err(DropReason::Malformed);
    }
    find_link_address(message.body(), OPTION_SOURCE_LINK_ADDRESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;
    use std::vec;

    const MAC: MacAddress = MacAddress([2, 1, 2, 3, 4, 5]);

    fn prefix(length_bits: u8) -> AdvertisedPrefix {
        let address = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 1);
        AdvertisedPrefix {
            prefix: Prefix::new(IpAddr::V6(address), length_bits),
            is_on_link: true,
            is_autonomous: true,
            valid_lifetime: Duration::from_secs(0x0102),
            preferred_lifetime: Duration::from_secs(0x0304),
        }
    }

    fn advertisement<'a>(prefixes: &'a [AdvertisedPrefix], name_servers: &'a [Ipv6Addr]) -> RouterAdvertisement<'a> {
        RouterAdvertisement {
            router_lifetime: Duration::from_secs(1800),
            preference: RouterPreference::High,
            is_managed: false,
            has_other: true,
            link_address: MAC,
            mtu_bytes: Some(1400),
            prefixes,
            name_servers,
            name_servers_lifetime: Duration::from_secs(1800),
        }
    }

    #[test]
    fn an_advertisement_has_the_layout_of_the_standards() {
        let (mut bytes, server) = (vec![], Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x53));
        advertisement(&[prefix(64)], &[server]).emit(&mut bytes);
        assert_eq!(bytes[..16], [134, 0, 0, 0, 64, 0x48, 0x07, 0x08, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bytes[16..24], [1, 1, 2, 1, 2, 3, 4, 5]);
        assert_eq!(bytes[24..32], [5, 1, 0, 0, 0, 0, 0x05, 0x78]);
        assert_eq!(bytes[32..48], [3, 4, 64, 0xc0, 0, 0, 1, 2, 0, 0, 3, 4, 0, 0, 0, 0]);
        let network = Ipv6Addr::new(0x2001, 0xdb8, 1, 2, 0, 0, 0, 0);
        assert_eq!(bytes[48..64], network.octets(), "without the bits of a host");
        assert_eq!(bytes[64..72], [25, 3, 0, 0, 0, 0, 0x07, 0x08]);
        assert_eq!(bytes[72..], server.octets());
        assert_eq!(find_link_address(&bytes[16..], 1), Ok(Some(MAC)), "all options can be walked");
    }

    #[test]
    fn only_networks_of_64_bits_are_autonomous_and_no_router_has_no_preference() {
        let mut bytes = vec![];
        let prefixes = [prefix(56)];
        let none = RouterAdvertisement { router_lifetime: Duration::ZERO, ..advertisement(&prefixes, &[]) };
        none.emit(&mut bytes);
        assert_eq!(bytes[5..8], [0x40, 0, 0]);
        assert_eq!(bytes[32..36], [3, 4, 56, 0x80]);
    }

    #[test]
    fn a_solicitation_gives_the_link_address_of_its_sender() {
        let bare = [133, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(solicitation_from(&bare), Ok(None));
        let with_address = [bare, [1, 1, 2, 1, 2, 3, 4, 5]].concat();
        assert_eq!(solicitation_from(&with_address), Ok(Some(MAC)));
        let endless = [bare, [1, 0, 2, 1, 2, 3, 4, 5]].concat();
        assert_eq!(solicitation_from(&endless), Err(DropReason::Malformed));
        assert_eq!(solicitation_from(&[133, 1, 0, 0, 0, 0, 0, 0]), Err(DropReason::Malformed));
        assert_eq!(solicitation_from(&[135, 0, 0, 0, 0, 0, 0, 0]), Err(DropReason::Malformed));
        assert!(solicitation_from(&bare[..7]).is_err());
    }
}
