//! Causes of ICMP errors, in either family's numbers.

use flow::wire::build::IcmpHeader;
use flow::wire::{icmp, icmpv6};

/// The cause that an error reports to the sender of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ErrorCause {
    TimeExceeded,
    NoRoute,
    NeighbourUnreachable,
    /// Of a service, no backend takes connections.
    ServiceUnavailable,
    /// Source NAT has no port left for a connection (RFC 5508, REQ-8).
    NoMapping,
    TooBig {
        mtu_bytes: u32,
    },
}

impl ErrorCause {
    pub(super) const fn header(self, is_ipv4: bool) -> IcmpHeader {
        use icmp::unreachable_code as v4_code;
        use icmpv6::unreachable_code as v6_code;
        const V4_UNREACHABLE: u8 = icmp::kind::DESTINATION_UNREACHABLE;
        const V6_UNREACHABLE: u8 = icmpv6::kind::DESTINATION_UNREACHABLE;
        let (kind, code, parameter) = match (self, is_ipv4) {
            (Self::TimeExceeded, true) => (icmp::kind::TIME_EXCEEDED, 0, 0),
            (Self::TimeExceeded, false) => (icmpv6::kind::TIME_EXCEEDED, 0, 0),
            (Self::NoRoute, true) => (V4_UNREACHABLE, v4_code::NETWORK, 0),
            (Self::NoRoute, false) => (V6_UNREACHABLE, v6_code::NO_ROUTE, 0),
            (Self::NeighbourUnreachable, true) => (V4_UNREACHABLE, v4_code::HOST, 0),
            (Self::NeighbourUnreachable, false) => (V6_UNREACHABLE, v6_code::ADDRESS, 0),
            (Self::ServiceUnavailable, true) => (V4_UNREACHABLE, v4_code::PORT, 0),
            (Self::ServiceUnavailable, false) => (V6_UNREACHABLE, v6_code::PORT, 0),
            (Self::NoMapping, true) => (V4_UNREACHABLE, v4_code::ADMINISTRATIVELY_PROHIBITED, 0),
            (Self::NoMapping, false) => (V6_UNREACHABLE, v6_code::ADMINISTRATIVELY_PROHIBITED, 0),
            (Self::TooBig { mtu_bytes }, true) => (V4_UNREACHABLE, v4_code::FRAGMENTATION_NEEDED, mtu_bytes & 0xffff),
            (Self::TooBig { mtu_bytes }, false) => (icmpv6::kind::PACKET_TOO_BIG, 0, mtu_bytes),
        };
        IcmpHeader { kind, code, parameter }
    }
}
