//! Roles of the node and its peers, and what keeps them from a take-over.

use cluster::node::NodeStatus;
use flow::Instant;

use super::groups::peer_role;
use super::{Reporting, compact, paths};
use crate::describe;
use api::{PeerStatus, SessionState, TakeoverStatus};

/// Whether a failover now would keep every connection, and if not, why.
pub(super) fn takeover(status: &NodeStatus) -> TakeoverStatus {
    TakeoverStatus { ready: status.readiness.is_ready(), obstacles: hindrances(status) }
}

/// What keeps nodes from taking over, a clause each.
pub(super) fn hindrances(status: &NodeStatus) -> Vec<String> {
    let obstacles = status.readiness.obstacles.iter();
    obstacles.map(|found| format!("node {} {}", found.node.0, found.obstacle)).collect()
}

pub(super) fn peer_status(peer: &cluster::node::PeerStatus, reporting: &Reporting) -> PeerStatus {
    let session = peer.session;
    PeerStatus {
        id: peer.id.0,
        paths: paths::statuses(peer, reporting),
        split_brain: paths::certainty(peer.split_brain),
        channel: describe::channel(peer.channel.as_ref()),
        address: reporting.peer_addresses.get(&peer.id.0).map(ToString::to_string).unwrap_or_default(),
        detector: describe::detector(peer.detector.state),
        session: session.map_or(SessionState::Off, |session| describe::link(session.link)),
        role: peer_role(peer),
        holds: reporting.roles.held_by(peer),
        configuration: peer.heartbeats.iter().flatten().find_map(|said| said.configuration).map(describe::fingerprint),
        synchronised: peer.could_take_over(),
        lag_ms: peer.lag.as_secs_f64() * 1e3,
        filter: compact::of_peer(peer),
        last_received_ns: session.and_then(|session| session.last_received_at).map(Instant::as_nanos),
        ..session.as_ref().map(describe::session).unwrap_or_default()
    }
}
