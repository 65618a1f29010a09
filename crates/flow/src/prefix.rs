//! Addresses with their networks.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An IP address and the length of its network's prefix in bits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// The address; where a network is meant, only its leading bits count.
    pub address: IpAddr,
    /// The length of the prefix: at most 32 for IPv4, 128 for IPv6.
    pub length_bits: u8,
}

impl Prefix {
    /// All of IPv4: the destination of a default route.
    pub const DEFAULT_V4: Self = Self { address: IpAddr::V4(Ipv4Addr::UNSPECIFIED), length_bits: 0 };
    /// All of IPv6.
    pub const DEFAULT_V6: Self = Self { address: IpAddr::V6(Ipv6Addr::UNSPECIFIED), length_bits: 0 };

    /// The prefix. Its length is not checked; see [`Prefix::is_valid`].
    #[must_use]
    pub const fn new(address: IpAddr, length_bits: u8) -> Self {
        Self { address, length_bits }
    }

    /// Whether the address has so many bits.
    #[must_use]
    pub const fn is_valid(&self) -> bool {
        self.length_bits <= if self.address.is_ipv4() { 32 } else { 128 }
    }

    /// The address that all hosts of an IPv4 network listen to; networks of 31 and 32 bits have none (RFC 3021).
    #[must_use]
    pub fn broadcast(&self) -> Option<Ipv4Addr> {
        match self.address {
            IpAddr::V4(address) if self.length_bits < 31 => {
                Some(Ipv4Addr::from_bits(address.to_bits() | u32::MAX >> self.length_bits))
            }
            _ => None,
        }
    }

    /// Whether the address is in the network; one of the other family is not.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let (one, other, width) = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => (u128::from(one.to_bits()), u128::from(other.to_bits()), 32),
            (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits(), other.to_bits(), 128),
            _ => return false,
        };
        let host_bits = u32::saturating_sub(width, self.length_bits.into());
        (one ^ other).checked_shr(host_bits).unwrap_or(0) == 0
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length_bits)
    }
}
