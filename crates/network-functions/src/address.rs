//! Addresses and prefixes of rules.

use core::net::{IpAddr, Ipv6Addr};

use flow::IpFamily;
pub use ipnet::IpNet as Prefix;

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

/// The first and the last address of a prefix, as numbers, in the form that tuples hold.
#[must_use]
pub fn bounds(prefix: &Prefix) -> [u128; 2] {
    [prefix.network(), prefix.broadcast()].map(|address| u128::from_be_bytes(tuple_bytes(address)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_of_a_prefix_have_the_form_of_its_family() {
        let of = |text: &str| bounds(&text.parse().expect(text));
        assert_eq!(of("10.1.16.0/20"), [0xffff_0a01_1000, 0xffff_0a01_1fff]);
        assert_eq!(of("0.0.0.0/0"), [0xffff_0000_0000, 0xffff_ffff_ffff]);
        assert_eq!(of("::/0"), [0, u128::MAX]);
        // Bits behind the prefix length belong to an interface's address, not to the network.
        assert_eq!(of("10.1.17.5/20"), of("10.1.16.0/20"));
    }
}
