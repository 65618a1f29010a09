//! The way out of an established connection's packets, for a pipeline that has planned it.
//!
//! A plan names the next hop's entry in the neighbour cache. The entry itself is read for each packet, so that a new link address
//! counts at once. Another route, a reload, a change of role, or the eviction of an entry voids all plans.

use core::net::IpAddr;

use flow::wire::ethernet::EthernetView;
use flow::wire::{MacAddress, Packet};
use flow::{Instant, PortId};

use super::forwarder::Forwarder;
use super::oversize::wire_bytes;

/// How a planned packet leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedLink {
    /// The port that it leaves by.
    pub egress: PortId,
    /// The port's link address.
    pub source: MacAddress,
    /// The next hop's.
    pub destination: MacAddress,
}

impl Forwarder {
    /// Changes whenever a plan may have become wrong. `None`: this node does not forward.
    #[must_use]
    pub const fn plan_revision(&self) -> Option<u32> {
        // Both only grow.
        if self.is_active() { Some(self.plan_revision.wrapping_add(self.neighbours.evictions)) } else { None }
    }

    /// Voids all plans.
    pub(super) const fn void_plans(&mut self) {
        self.plan_revision = self.plan_revision.wrapping_add(1);
    }

    /// The next hop of packets to `destination`, as a number for [`Forwarder::planned_link`]. `None`: it is not known.
    #[must_use]
    pub fn planned_hop(&self, destination: IpAddr) -> Option<u16> {
        let next_hop = self.route(destination)?;
        next_hop.slot().or_else(|| self.neighbours.find(next_hop.port, next_hop.gateway.unwrap_or(destination)))
    }

    /// What [`Forwarder::admit`] and [`Forwarder::forward`] would do with a TCP packet that is no SYN and does not expire here, whose
    /// like passed both since the plans were void last. `None`, without side effects: they may not just send it, so they must be called.
    #[inline(always)]
    pub fn planned_link(&mut self, now: Instant, hop: u16, packet: &Packet<'_, '_>) -> Option<PlannedLink> {
        let ingress = self.ports.get(usize::from(packet.frame.ingress.0))?;
        let link = EthernetView::new_checked(packet.frame.bytes()).ok()?;
        if link.destination() != ingress.mac {
            return None;
        }
        let (egress, destination) = self.neighbours.settled_link(now, hop)?;
        let port = self.ports.get(usize::from(egress.0))?;
        let fits = wire_bytes(packet.headers, &packet.frame.segmentation) <= port.mtu_bytes;
        fits.then_some(PlannedLink { egress, source: port.mac, destination })
    }
}
