//! What a tunnel to another site needs to know of the edge.

use core::net::IpAddr;

use flow::PortId;
use flow::wire::{MacAddress, Packet};

use super::forwarder::Forwarder;

impl Forwarder {
    /// Whether this node holds the address now.
    #[must_use]
    pub fn holds_address(&self, address: IpAddr) -> bool {
        self.addresses.find(address, PortId::default()).is_some_and(|local| local.is_held(self.held))
    }

    /// A port's link address.
    #[must_use]
    pub fn link_address(&self, port: PortId) -> Option<MacAddress> {
        self.ports.get(usize::from(port.0)).map(|port| port.mac)
    }

    /// Lowers the maximum segment size of a packet that leaves in a tunnel by `egress`, as of one that leaves by itself.
    pub(crate) fn clamp_segments_for_tunnel(&self, packet: &mut Packet<'_, '_>, egress: PortId) {
        if self.clamps_segments {
            self.clamp_segments(packet, egress);
        }
    }
}
