//! Probes of next hops: whether they answer, whatever the node's role.

use core::net::IpAddr;

use flow::wire::MacAddress;
use flow::{Instant, PortId};

use super::forwarder::Forwarder;
use super::neighbour::NeighbourState;

impl Forwarder {
    /// Asks a neighbour for its link address though it may be known: with an ARP request, or a probe with sender 0.0.0.0 while
    /// this node has no address on the port (RFC 5227 section 1.1), or with a neighbour solicitation (RFC 4861 section 7.2.2).
    /// The request goes to the known link address alone, as RFC 1122 section 2.3.2.1 has it, or to everybody on the link if
    /// there is none or `everybody` is set. [`Forwarder::confirmed_at`] returns when it was last answered. The neighbour's
    /// entry is kept whatever comes, until the next [`Forwarder::reconfigure`].
    pub fn probe_next_hop(&mut self, now: Instant, port: PortId, address: IpAddr, everybody: bool) {
        if usize::from(port.0) >= self.ports.len() {
            return;
        }
        let Some(slot) = self.neighbours.find_or_insert(now, port, address) else { return };
        self.neighbours.pin(slot);
        let Some(mut entry) = self.neighbours.entry(slot).copied() else { return };
        let is_known = entry.mac != MacAddress::default();
        entry.state = if is_known && !everybody { NeighbourState::Probe } else { NeighbourState::Incomplete };
        self.solicit(&entry);
    }

    /// When the neighbour last answered a request; `None`: never, or it has been forgotten.
    #[must_use]
    pub fn confirmed_at(&self, port: PortId, address: IpAddr) -> Option<Instant> {
        self.neighbours.entry(self.neighbours.find(port, address)?)?.confirmed_at
    }
}
