//! The link addresses of next hops, for a fast path that sends packets without the forwarder.

use core::net::IpAddr;

use flow::wire::MacAddress;
use flow::{Instant, PortId};

use super::forwarder::Forwarder;
use super::neighbour::NeighbourState;

/// How frames to a neighbour look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Link {
    /// The port's link address.
    pub(crate) source: MacAddress,
    /// The neighbour's.
    pub(crate) destination: MacAddress,
    /// The largest packet that the link takes, from the IP header on.
    pub(crate) mtu_bytes: u32,
}

impl Forwarder {
    /// The link to a neighbour whose link address is known.
    pub(crate) fn link_to(&self, port: PortId, neighbour: IpAddr) -> Option<Link> {
        let own = self.ports.get(usize::from(port.0))?;
        let entry = self.neighbours.entry(self.neighbours.find(port, neighbour)?)?;
        let is_known = !matches!(entry.state, NeighbourState::Idle | NeighbourState::Incomplete);
        is_known.then_some(Link { source: own.mac, destination: entry.mac, mtu_bytes: own.mtu_bytes })
    }

    /// A packet goes to a neighbour: a link address that was not confirmed lately is asked for. `None`: it is not known.
    pub(crate) fn use_neighbour(&mut self, now: Instant, port: PortId, neighbour: IpAddr) -> Option<MacAddress> {
        let slot = self.neighbours.find(port, neighbour)?;
        self.neighbours.link_address(now, slot)
    }

    /// Changes whenever a link address becomes known, changes, or is known no more.
    pub(crate) const fn neighbours_revision(&self) -> u64 {
        self.neighbours.revision
    }
}
