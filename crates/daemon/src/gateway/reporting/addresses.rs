//! Shared addresses that others have, in words.

use cluster::forwarding::AddressConflict;
use cluster::node::PassiveReason;

use super::Reporting;

impl Reporting {
    /// Why the node takes no shared addresses, and the remedy.
    pub(super) fn passive(&self, reason: &PassiveReason) -> String {
        match reason {
            PassiveReason::Probing => {
                "the node has just started and asks whether another host has the addresses".to_owned()
            }
            PassiveReason::AddressDefended { port, address, mac } => format!(
                "{address} on port {} is in use by {}: if that is a node of this cluster, give both the same configuration and look \
                 after the link between them; if not, give that host another address",
                self.port_name(*port),
                mac,
            ),
            PassiveReason::PeerRejected { peer, reason } => format!("node {} lives, but its packets {reason}", peer.0),
        }
    }

    /// A claim on an address that this node holds, and the remedy.
    pub(super) fn conflict(&self, conflict: &AddressConflict) -> String {
        let AddressConflict { port, address, mac } = conflict;
        format!(
            "{address} on port {} is also claimed by {}; this node holds it and announces it again. Give that host another address; \
             if it is a node of this cluster, look after the link between them",
            self.port_name(*port),
            mac,
        )
    }
}
