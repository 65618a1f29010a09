//! Lowering what TCP end points agree to send in one segment to what the ports' links take, for paths on which the ICMP
//! messages with the MTU do not arrive.

use flow::PortId;
use flow::wire::{Packet, Transport, tcp_flags};

use super::forwarder::Forwarder;

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
