//! What operators see of the node's ports and next hops.

use std::net::IpAddr;

use cluster::node::{Consequence, NextHopState, NodeStatus, PortTrack, Target};
use flow::PortId;

use super::Reporting;
use api::{EventKind, NextHopStatus};

impl Reporting {
    pub(super) fn port_name(&self, port: PortId) -> &str {
        self.ports.get(usize::from(port.0)).map_or("?", |(name, _)| name)
    }

    fn next_hop_name(&self, port: PortId, address: IpAddr) -> String {
        format!("{address} on port {}", self.port_name(port))
    }

    /// The loss of a port or next hop: the kind of the event, and its detail with what follows.
    pub(super) fn unreached(&self, target: Target, consequence: Consequence) -> (EventKind, String) {
        let (kind, what) = match target {
            Target::Port(port) => (EventKind::PortDown, format!("port {}", self.port_name(port))),
            Target::NextHop(port, address) => (EventKind::NextHopLost, self.next_hop_name(port, address)),
        };
        let consequence = match consequence {
            Consequence::NotTracked => "it is not tracked: no addresses move".to_owned(),
            Consequence::StandsBy => "this node takes no addresses from a node that reaches more".to_owned(),
            Consequence::PeerReachesMore(id) => format!("node {} reaches more and takes the addresses", id.0),
            Consequence::NoPeerReachesMore => {
                "no peer that could serve reaches more: this node keeps the addresses until one does".to_owned()
            }
        };
        (kind, format!("{what}: {consequence}"))
    }

    /// A port or next hop is reached again.
    pub(super) fn reached(&self, target: Target) -> (EventKind, String) {
        match target {
            Target::Port(port) => (EventKind::PortUp, format!("port {}", self.port_name(port))),
            Target::NextHop(port, address) => (EventKind::NextHopReached, self.next_hop_name(port, address)),
        }
    }

    pub(super) fn next_hops(&self, status: &NodeStatus) -> Vec<NextHopStatus> {
        let describe = |hop: &cluster::node::NextHopTrack| NextHopStatus {
            port: self.port_name(hop.port).to_owned(),
            address: hop.address.to_string(),
            state: match hop.state {
                NextHopState::Unknown => api::NextHopState::Unknown,
                NextHopState::Reached => api::NextHopState::Reached,
                NextHopState::Lost => api::NextHopState::Lost,
            },
            since_ns: hop.since.as_nanos(),
        };
        status.next_hops.iter().map(describe).collect()
    }
}

/// The link of a port, where it is known.
pub(super) fn link(status: &NodeStatus, port: PortId) -> Option<PortTrack> {
    status.ports.iter().find(|known| known.port == port).copied()
}
