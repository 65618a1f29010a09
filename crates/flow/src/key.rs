//! The identification of a connection: its tuple, and the keyed hash that distributes tuples over the table and the
//! workers.

use core::fmt;
use core::hash::{Hash, Hasher};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::ip_protocol;

/// The address family of a tuple.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum IpFamily {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

/// A directed five-tuple: source and destination.
///
/// IPv4 addresses lie in `source` and `destination` in their IPv4-mapped form (`::ffff:a.b.c.d`). For ICMP queries
/// both ports hold the identifier and `discriminator` the *request's* type, with [`QUERY_REPLY`] in replies: two hosts that
/// ask each other under the same identifier have two connections, as in Linux. No request has type 0: a discriminator of
/// 0 means none.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Tuple {
    /// Source address, network order.
    pub source: [u8; 16],
    /// Destination address, network order.
    pub destination: [u8; 16],
    /// Source port, host order.
    pub source_port: u16,
    /// Destination port, host order.
    pub destination_port: u16,
    /// IP protocol number (IANA).
    pub protocol: u8,
    /// 4 or 6.
    pub version: u8,
    /// The request's type for ICMP queries, with [`QUERY_REPLY`] in the tuples of replies, else 0.
    pub discriminator: u16,
}

/// The bit of [`Tuple::discriminator`] that distinguishes an ICMP reply from its request.
pub const QUERY_REPLY: u16 = 0x100;
/// The bits of [`Tuple::discriminator`] that are the request's type.
const QUERY_TYPE: u16 = 0xff;

impl PartialEq for Tuple {
    /// Compared by words and without a branch: the tuples of a packet and of its connection are nearly always equal.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let (own, others): ([u64; 5], [u64; 5]) = (zerocopy::transmute!(*self), zerocopy::transmute!(*other));
        own.iter().zip(others).fold(0, |difference, (own, other)| difference | (own ^ other)) == 0
    }
}

impl Eq for Tuple {}

impl PartialOrd for Tuple {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Tuple {
    /// An arbitrary order, for maps.
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for Tuple {
    /// Hashes all bytes with one write.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.as_bytes());
    }
}

impl Tuple {
    /// That of no packet: a version that does not exist.
    pub const NONE: Self = Self {
        source: [0; 16],
        destination: [0; 16],
        source_port: 0,
        destination_port: 0,
        protocol: 0,
        version: 0,
        discriminator: 0,
    };

    /// A tuple of the family of the two end points.
    ///
    /// # Panics
    /// The end points are of different families.
    #[must_use]
    pub fn new(protocol: u8, source: SocketAddr, destination: SocketAddr) -> Self {
        match (source, destination) {
            (SocketAddr::V4(from), SocketAddr::V4(to)) => {
                Self::v4(protocol, (*from.ip(), from.port()), (*to.ip(), to.port()))
            }
            (SocketAddr::V6(from), SocketAddr::V6(to)) => {
                Self::v6(protocol, (*from.ip(), from.port()), (*to.ip(), to.port()))
            }
            _ => panic!("a tuple's end points must be of one address family: {source}, {destination}"),
        }
    }

    /// A tuple of IPv4 end points.
    #[must_use]
    pub const fn v4(protocol: u8, source: (Ipv4Addr, u16), destination: (Ipv4Addr, u16)) -> Self {
        Self {
            source: mapped(source.0.octets()),
            destination: mapped(destination.0.octets()),
            source_port: source.1,
            destination_port: destination.1,
            protocol,
            version: 4,
            discriminator: 0,
        }
    }

    /// A tuple of the IPv4 end points of a packet, assembled in whole words: storing it bytewise would make the next
    /// load slow.
    #[inline(always)]
    pub(crate) fn of_ipv4(protocol: u8, source: ([u8; 4], u16), destination: ([u8; 4], u16)) -> Self {
        let address =
            |octets: [u8; 4]| u64::from_be_bytes([0, 0, 0xff, 0xff, octets[0], octets[1], octets[2], octets[3]]);
        let [a, b] = source.1.to_ne_bytes();
        let [c, d] = destination.1.to_ne_bytes();
        let words: [u64; 5] = [
            0,
            address(source.0).to_be(),
            0,
            address(destination.0).to_be(),
            u64::from_ne_bytes([a, b, c, d, protocol, 4, 0, 0]),
        ];
        zerocopy::transmute!(words)
    }

    /// A tuple of IPv6 end points.
    #[must_use]
    pub const fn v6(protocol: u8, source: (Ipv6Addr, u16), destination: (Ipv6Addr, u16)) -> Self {
        Self {
            source: source.0.octets(),
            destination: destination.0.octets(),
            source_port: source.1,
            destination_port: destination.1,
            protocol,
            version: 6,
            discriminator: 0,
        }
    }

    /// The tuple of packets in the opposite direction.
    #[must_use]
    #[inline]
    pub const fn inverse(&self) -> Self {
        // Whole words avoid slow loads of bytewise stores. The ports are the first half of the last word.
        let [a, b, c, d, rest]: [u64; 5] = zerocopy::transmute!(*self);
        let rest = u64::from_le(rest);
        let ports = (rest as u32).rotate_left(16) as u64;
        let words = [c, d, a, b, (rest >> 32 << 32 | ports).to_le()];
        let mut inverse: Self = zerocopy::transmute!(words);
        if self.discriminator & QUERY_TYPE != 0 {
            inverse.discriminator ^= QUERY_REPLY;
        }
        inverse
    }

    /// The family of its addresses.
    #[must_use]
    pub const fn family(&self) -> IpFamily {
        if self.version == 4 { IpFamily::V4 } else { IpFamily::V6 }
    }

    /// Source address.
    #[must_use]
    pub fn source_ip(&self) -> IpAddr {
        ip_address(&self.source, self.family())
    }

    /// Destination address.
    #[must_use]
    pub fn destination_ip(&self) -> IpAddr {
        ip_address(&self.destination, self.family())
    }

    /// Source address and port.
    #[must_use]
    pub fn source_addr(&self) -> SocketAddr {
        SocketAddr::new(self.source_ip(), self.source_port)
    }

    /// Destination address and port.
    #[must_use]
    pub fn destination_addr(&self) -> SocketAddr {
        SocketAddr::new(self.destination_ip(), self.destination_port)
    }
}

/// `tcp 10.0.0.2:4000 > 192.0.2.1:80`, `icmp 10.0.0.2 > 192.0.2.1 type 8 id 7`, `protocol 47 10.0.0.2 > 192.0.2.1`.
impl fmt::Display for Tuple {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (source, destination) = (self.source_ip(), self.destination_ip());
        match self.protocol {
            ip_protocol::TCP => write!(f, "tcp {} > {}", self.source_addr(), self.destination_addr()),
            ip_protocol::UDP => write!(f, "udp {} > {}", self.source_addr(), self.destination_addr()),
            ip_protocol::SCTP => write!(f, "sctp {} > {}", self.source_addr(), self.destination_addr()),
            ip_protocol::ICMP | ip_protocol::ICMPV6 => {
                let name = if self.protocol == ip_protocol::ICMP { "icmp" } else { "icmpv6" };
                write!(f, "{name} {source} > {destination}")?;
                if self.discriminator != 0 {
                    let reply = if self.discriminator & QUERY_REPLY == 0 { "" } else { " reply to" };
                    write!(f, "{reply} type {} id {}", self.discriminator & QUERY_TYPE, self.source_port)?;
                }
                Ok(())
            }
            other => write!(f, "protocol {other} {source} > {destination}"),
        }
    }
}

/// An address in the form of [`Tuple`].
#[must_use]
pub const fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => mapped(address.octets()),
        IpAddr::V6(address) => address.octets(),
    }
}

fn ip_address(bytes: &[u8; 16], family: IpFamily) -> IpAddr {
    match family {
        IpFamily::V4 => IpAddr::from(unmapped(bytes)),
        IpFamily::V6 => IpAddr::from(*bytes),
    }
}

#[inline]
pub(crate) const fn mapped(address: [u8; 4]) -> [u8; 16] {
    // One wide value rather than sixteen bytes: bytewise stores make the next load slow.
    (0xffff << 32 | u32::from_be_bytes(address) as u128).to_be_bytes()
}

#[inline]
pub(crate) const fn unmapped(address: &[u8; 16]) -> [u8; 4] {
    [address[12], address[13], address[14], address[15]]
}

/// The secret under which tuples are hashed, so that outsiders cannot choose colliding tuples.
#[derive(Clone, Copy)]
pub struct HashKey(pub [u64; 2]);

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey(secret)")
    }
}

impl HashKey {
    /// The hash of a connection's tuple: the same for a tuple and its inverse. SipHash-1-3 (Aumasson and Bernstein,
    /// "SipHash: a fast short-input PRF", 2012) over the canonical tuple, the smaller end point first:
    ///
    /// ```text
    /// IPv4:  address (4)  address (4)  port (2) port (2) protocol (1) discriminator (2)    15 bytes
    /// IPv6:  address (16) address (16) port (2) port (2) protocol (1) discriminator (2)    39 bytes
    /// ```
    ///
    /// in network order, the discriminator without [`QUERY_REPLY`]. The length implies the family, and with SipHash's
    /// length byte both are whole words. The low half selects the table's bucket, the high bits the worker.
    #[must_use]
    #[inline]
    pub fn hash(&self, tuple: &Tuple) -> u64 {
        let mut state = SipState::new(self.0);
        if tuple.version == 4 {
            self.compress_ipv4(&mut state, tuple);
        } else {
            self.compress_ipv6(&mut state, tuple);
        }
        state.finish()
    }

    #[inline]
    fn compress_ipv4(&self, state: &mut SipState, tuple: &Tuple) {
        // Address and port as one number, so that ordering the end points takes no branch.
        let source = u64::from(u32::from_be_bytes(unmapped(&tuple.source))) << 16 | u64::from(tuple.source_port);
        let destination =
            u64::from(u32::from_be_bytes(unmapped(&tuple.destination))) << 16 | u64::from(tuple.destination_port);
        let (low, high) = (source.min(destination), source.max(destination));
        state.compress((low >> 16 << 32 | high >> 16).swap_bytes());
        state.compress(last_word(low as u16, high as u16, tuple, 15));
    }

    #[inline]
    fn compress_ipv6(&self, state: &mut SipState, tuple: &Tuple) {
        let source = (u128::from_be_bytes(tuple.source), tuple.source_port);
        let destination = (u128::from_be_bytes(tuple.destination), tuple.destination_port);
        let (low, high) = if source <= destination { (source, destination) } else { (destination, source) };
        for address in [low.0, high.0] {
            state.compress(((address >> 64) as u64).swap_bytes());
            state.compress((address as u64).swap_bytes());
        }
        state.compress(last_word(low.1, high.1, tuple, 39));
    }
}

/// Ports, protocol and discriminator in network order, and the final length byte of SipHash.
#[inline]
fn last_word(low_port: u16, high_port: u16, tuple: &Tuple, length_bytes: u8) -> u64 {
    let ports = u64::from(low_port) << 48 | u64::from(high_port) << 32;
    let kind = u64::from(tuple.discriminator & !QUERY_REPLY);
    let rest = u64::from(tuple.protocol) << 24 | kind << 8 | u64::from(length_bytes);
    (ports | rest).swap_bytes()
}

struct SipState {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl SipState {
    #[inline]
    const fn new(key: [u64; 2]) -> Self {
        Self {
            v0: key[0] ^ u64::from_be_bytes(*b"somepseu"),
            v1: key[1] ^ u64::from_be_bytes(*b"dorandom"),
            v2: key[0] ^ u64::from_be_bytes(*b"lygenera"),
            v3: key[1] ^ u64::from_be_bytes(*b"tedbytes"),
        }
    }

    #[inline]
    const fn compress(&mut self, word: u64) {
        self.v3 ^= word;
        self.round();
        self.v0 ^= word;
    }

    #[inline]
    const fn finish(mut self) -> u64 {
        self.v2 ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.v0 ^ self.v1 ^ self.v2 ^ self.v3
    }

    #[inline]
    const fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.rotate_left(32);
    }
}

#[cfg(test)]
mod tests;
