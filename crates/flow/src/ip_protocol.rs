//! IP protocol numbers (IANA), those of IPv6 extension headers among them.

/// Hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// Routing header.
pub const ROUTING: u8 = 43;
/// Fragment header.
pub const FRAGMENT: u8 = 44;
/// ICMPv6.
pub const ICMPV6: u8 = 58;
/// Destination options.
pub const DESTINATION_OPTIONS: u8 = 60;
/// SCTP.
pub const SCTP: u8 = 132;
/// IPv4 in IP (RFC 2003, RFC 2473).
pub const IPIP: u8 = 4;
/// IPv6 in IP (RFC 2473, RFC 4213).
pub const IPV6_IN_IP: u8 = 41;
