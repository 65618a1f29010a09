//! Lowering what TCP end points agree to send in one segment to what the ports' links take, for paths on which the ICMP
//! messages that would tell them do not arrive.

use flow::PortId;
use flow::wire::ipv4::IPV4_HEADER_BYTES;
use flow::wire::ipv6::IPV6_HEADER_BYTES;
use flow::wire::tcp::TCP_HEADER_BYTES;
use flow::wire::{Packet, Transport, tcp_flags};

use super::config::Port;
use super::forwarder::Forwarder;

/// The largest TCP segment that is to be agreed on for a port's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MssClamp {
    /// What fits the port's MTU with headers without options: 40 bytes less for IPv4, 60 for IPv6.
    Mtu,
    /// So many bytes of payload, whatever the family.
    Bytes(u16),
}

impl Port {
    /// The most payload of a segment that passes the port, if it is clamped.
    fn segment_bytes_max(&self, version: u8) -> Option<u16> {
        let ip_header_bytes = if version == 4 { IPV4_HEADER_BYTES } else { IPV6_HEADER_BYTES };
        match self.mss_clamp? {
            MssClamp::Bytes(bytes) => Some(bytes),
            MssClamp::Mtu => {
                let headers_bytes = (ip_header_bytes + TCP_HEADER_BYTES) as u32;
                Some(u16::try_from(self.mtu_bytes.saturating_sub(headers_bytes)).unwrap_or(u16::MAX))
            }
        }
    }
}

impl Forwarder {
    /// Lowers the maximum segment size that a SYN or SYN/ACK asks for to what both of the ports that it passes take. What
    /// it asks for is what will be sent to it, the other way through the same two.
    pub(super) fn clamp_segments(&self, packet: &mut Packet<'_, '_>, egress: PortId) {
        let Transport::Tcp(segment) = &packet.headers.transport else { return };
        if !segment.has(tcp_flags::SYN) {
            return;
        }
        let version = packet.headers.tuple.version;
        let of_port = |id: PortId| self.ports.get(usize::from(id.0))?.segment_bytes_max(version);
        if let Some(bytes) = [packet.frame.ingress, egress].into_iter().filter_map(of_port).min() {
            packet.clamp_mss(bytes);
        }
    }
}
