//! ICMP errors about packets in transit, no more than the network should bear (RFC 1812 section 4.3.2, RFC 4443
//! section 2.4).

use core::net::IpAddr;

use flow::wire::build::Envelope;
use flow::wire::ethernet::EthernetView;
use flow::wire::{Headers, Transport};
use flow::{Instant, PortId, RateLimit};

use super::error_cause::ErrorCause;
use super::forwarder::Forwarder;

/// ICMP errors that are sent in a second. Further ones are not sent, and counted.
pub const ERRORS_PER_SECOND_MAX: u32 = 1000;
/// ICMP errors that are sent at once after a time of none.
pub const ERROR_BURST_MAX: u32 = 50;

/// The type of service, or traffic class, of errors: internetwork control (RFC 1812 section 4.3.2.5).
const ERROR_TRAFFIC_CLASS: u8 = 0xc0;

const ERRORS: RateLimit = RateLimit::new(ERRORS_PER_SECOND_MAX, ERROR_BURST_MAX);

impl Forwarder {
    /// Sends the sender of `frame` an ICMP error, back the way that it came, unless that is not permitted.
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
        let envelope = Envelope {
            source: port.mac,
            destination: link.source(),
            traffic_class: ERROR_TRAFFIC_CLASS,
            ..Envelope::default()
        };
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
