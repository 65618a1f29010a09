//! Addresses and prefixes as rules name them.

use core::fmt;
use core::net::{IpAddr, Ipv6Addr};
use core::str::FromStr;

use flow::IpFamily;

/// The family of an address.
#[must_use]
pub const fn family(address: IpAddr) -> IpFamily {
    match address {
        IpAddr::V4(_) => IpFamily::V4,
        IpAddr::V6(_) => IpFamily::V6,
    }
}

/// An address as tuples hold it: 16 bytes in network order, IPv4 in its mapped form.
#[must_use]
pub const fn tuple_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

/// The address that a tuple of `family` holds as `bytes`.
#[must_use]
pub fn from_tuple_bytes(bytes: [u8; 16], family: IpFamily) -> IpAddr {
    let address = Ipv6Addr::from(bytes);
    match (family, address.to_ipv4_mapped()) {
        (IpFamily::V4, Some(address)) => IpAddr::V4(address),
        _ => IpAddr::V6(address),
    }
}

/// Why something is no prefix.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PrefixError {
    /// Longer than the family's addresses.
    #[error("a prefix length of {length_bits} bits is more than the address has")]
    Length {
        /// The length asked for.
        length_bits: u8,
    },
    /// Bits behind the prefix are set.
    #[error(
        "{address}/{length_bits} has bits set behind the prefix: write {network}/{length_bits}, or {address} for the one address"
    )]
    HostBits {
        /// The address given.
        address: IpAddr,
        /// The length given.
        length_bits: u8,
        /// The address without the bits.
        network: IpAddr,
    },
    /// Not written as an address or `address/length`.
    #[error("not an address, nor an address with a prefix length (192.0.2.0/24, 2001:db8::/32)")]
    Syntax,
}

/// A range of addresses of one family that share their first bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Prefix {
    address: IpAddr,
    length_bits: u8,
}

impl Prefix {
    /// The prefix of `length_bits` (0–32 or 0–128) that begins with `address`.
    ///
    /// # Errors
    /// The length does not suit the family, or the address has bits set behind it.
    pub fn new(address: IpAddr, length_bits: u8) -> Result<Self, PrefixError> {
        let bits = family_bits(address);
        if length_bits > bits {
            return Err(PrefixError::Length { length_bits });
        }
        let prefix = Self { address, length_bits };
        let network = u128::from_be_bytes(tuple_bytes(address)) & prefix.mask();
        if network.to_be_bytes() != tuple_bytes(address) {
            let network = from_tuple_bytes(network.to_be_bytes(), family(address));
            return Err(PrefixError::HostBits { address, length_bits, network });
        }
        Ok(prefix)
    }

    /// The prefix that holds `address` alone.
    #[must_use]
    pub const fn host(address: IpAddr) -> Self {
        Self { address, length_bits: family_bits(address) }
    }

    /// Which family its addresses are of.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        family(self.address)
    }

    /// The first address, as tuples hold it.
    #[must_use]
    pub const fn first(&self) -> u128 {
        u128::from_be_bytes(tuple_bytes(self.address))
    }

    /// The bits of an address in a tuple that must be those of [`Prefix::first`].
    #[must_use]
    pub const fn mask(&self) -> u128 {
        let wildcard_bits = family_bits(self.address) - self.length_bits;
        match u128::MAX.checked_shl(wildcard_bits as u32) {
            Some(mask) => mask,
            None => 0,
        }
    }

    /// Whether `address` lies in the prefix.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        family(address) == self.family() && u128::from_be_bytes(tuple_bytes(address)) & self.mask() == self.first()
    }
}

const fn family_bits(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.address, self.length_bits)
    }
}

impl fmt::Debug for Prefix {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// Reads `address` or `address/length`.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        match text.split_once('/') {
            None => Ok(Self::host(text.parse().map_err(|_| PrefixError::Syntax)?)),
            Some((address, length_bits)) => Self::new(
                address.parse().map_err(|_| PrefixError::Syntax)?,
                length_bits.parse().map_err(|_| PrefixError::Syntax)?,
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn a_prefix_holds_its_own_family_only() {
        let any4 = prefix("0.0.0.0/0");
        let any6 = prefix("::/0");
        let address4: IpAddr = "198.51.100.7".parse().unwrap();
        let mapped: IpAddr = "::ffff:198.51.100.7".parse().unwrap();
        assert!(any4.contains(address4) && !any4.contains(mapped));
        assert!(any6.contains(mapped) && !any6.contains(address4));
    }

    #[test]
    fn the_ends_of_a_prefix_are_in_it_and_their_neighbours_are_not() {
        let net = prefix("10.1.16.0/20");
        for (address, inside) in
            [("10.1.16.0", true), ("10.1.31.255", true), ("10.1.15.255", false), ("10.1.32.0", false)]
        {
            assert_eq!(net.contains(address.parse().unwrap()), inside, "{address}");
        }
        assert!(prefix("2001:db8::1").contains("2001:db8::1".parse().unwrap()));
        assert!(!prefix("2001:db8::1").contains("2001:db8::2".parse().unwrap()));
    }

    #[test]
    fn mistakes_are_named_and_say_what_to_write() {
        assert_eq!("10.0.0.0/33".parse::<Prefix>(), Err(PrefixError::Length { length_bits: 33 }));
        assert_eq!("10.0.0.0/x".parse::<Prefix>(), Err(PrefixError::Syntax));
        assert_eq!("ten/8".parse::<Prefix>(), Err(PrefixError::Syntax));
        let host_bits = "10.0.0.5/24".parse::<Prefix>().unwrap_err().to_string();
        assert!(host_bits.contains("write 10.0.0.0/24"), "{host_bits}");
        assert_eq!(prefix("192.0.2.0/24").to_string(), "192.0.2.0/24");
    }
}
