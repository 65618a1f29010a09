//! ICMP errors about packets in transit, no more than the network should bear (RFC 1812 section 4.3.2, RFC 4443
//! section 2.4).

use core::net::IpAddr;

use flow::wire::build::{Envelope, IcmpHeader};
use flow::wire::ethernet::EthernetView;
use flow::wire::{Headers, Transport, icmp, icmpv6};
use flow::{Instant, PortId, RateLimit};

use super::forwarder::Forwarder;

/// ICMP errors that are sent in a second. Further ones are not sent, and counted.
pub const ERRORS_PER_SECOND_MAX: u32 = 1000;
/// ICMP errors that are sent at once after a time of none.
pub const ERROR_BURST_MAX: u32 = 50;

const ERRORS: RateLimit = RateLimit::new(ERRORS_PER_SECOND_MAX, ERROR_BURST_MAX);

/// What an error tells the sender of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ErrorCause {
    TimeExceeded,
    NoRoute,
    NeighbourUnreachable,
    TooBig { mtu_bytes: u32 },
}

impl ErrorCause {
    const fn header(self, is_ipv4: bool) -> IcmpHeader {
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
            (Self::TooBig { mtu_bytes }, true) => (V4_UNREACHABLE, v4_code::FRAGMENTATION_NEEDED, mtu_bytes & 0xffff),
            (Self::TooBig { mtu_bytes }, false) => (icmpv6::kind::PACKET_TOO_BIG, 0, mtu_bytes),
        };
        IcmpHeader { kind, code, parameter }
    }
}

impl Forwarder {
    /// Tells the sender of `frame` what became of it, back the way that it came, unless it must not be told.
    pub(super) fn send_error(
        &mut self,
        now: Instant,
        ingress: PortId,
        frame: &[u8],
        headers: &Headers,
        cause: ErrorCause,
    ) {
        let Ok(link) = EthernetView::new_checked(frame) else { return };
        if !self.is_active() || link.destination().is_group() || !may_be_answered(headers) {
            return;
        }
        let sender = headers.tuple.source_ip();
        let Some(from) = self.addresses.source_for(ingress, sender, self.held) else { return };
        let Some(port) = self.ports.get(usize::from(ingress.0)) else { return };
        if !self.error_tokens.take(now, &ERRORS) {
            self.counters.errors_limited += 1;
            return;
        }
        let envelope = Envelope { source: port.mac, destination: link.source(), ..Envelope::default() };
        let start = usize::from(headers.l3_offset);
        let end = frame.len().min(start + headers.l3_bytes as usize);
        let about = frame.get(start..end).unwrap_or_default();
        if let Some(error) = envelope.icmp_error(from, cause.header(from.is_ipv4()), about) {
            self.counters.errors_sent += 1;
            self.push_control(ingress, error);
        }
    }
}

/// No error about an error, about a fragment that is not the first, or to and about groups (RFC 1122 section 3.2.2).
fn may_be_answered(headers: &Headers) -> bool {
    let answerable = match headers.transport {
        Transport::IcmpError(_) | Transport::IcmpOther(..) => false,
        Transport::Other => !headers.is_fragment,
        Transport::Tcp(_) | Transport::Udp | Transport::Sctp(_) | Transport::IcmpQuery(_) => true,
    };
    let (source, destination) = (headers.tuple.source_ip(), headers.tuple.destination_ip());
    let to_everybody = matches!(destination, IpAddr::V4(address) if address.is_broadcast());
    answerable && !destination.is_multicast() && !to_everybody && !source.is_unspecified() && !source.is_multicast()
}
