//! Shared addresses that others have, in words.

use cluster::forwarding::AddressConflict;
use cluster::node::PassiveReason;
use flow::PortId;

use super::Reporting;

/// Why the node takes no shared addresses, and the remedy.
pub(super) fn passive(reporting: &Reporting, reason: &PassiveReason) -> String {
    match reason {
        PassiveReason::Probing => {
            "the node has just started and asks whether another host has the addresses".to_owned()
        }
        PassiveReason::AddressDefended { port, address, mac } => format!(
            "{address} on port {} is in use by {}: if that is a node of this cluster, give both the same configuration and look \
             after the link between them; if not, give that host another address",
            port_name(reporting, *port),
            mac,
        ),
        PassiveReason::PeerRejected { peer, why } => format!("node {} lives, but its packets {why}", peer.0),
    }
}

/// A claim on an address that this node holds, and the remedy.
pub(super) fn conflict(reporting: &Reporting, conflict: &AddressConflict) -> String {
    let AddressConflict { port, address, mac } = conflict;
    format!(
        "{address} on port {} is also claimed by {}; this node holds it and announces it again. Give that host another address; \
         if it is a node of this cluster, look after the link between them",
        port_name(reporting, *port),
        mac,
    )
}

fn port_name(reporting: &Reporting, port: PortId) -> &str {
    reporting.ports.get(usize::from(port.0)).map_or("?", |(name, _)| name)
}
