//! Paths to peers, and split brains, in words.

use cluster::failure_detector::State;
use cluster::node::{self, Path};
use flow::{Instant, NodeId};

use super::Reporting;
use api::{PathState, PathStatus, SplitBrain};

/// The name of the replication path in the control API.
const REPLICATION: &str = "replication";

/// How each path to a peer stands; none where nothing but the replication path is used.
pub(super) fn statuses(peer: &node::PeerStatus, reporting: &Reporting) -> Vec<PathStatus> {
    if peer.paths.len() < 2 {
        return Vec::new();
    }
    let status = peer.paths.iter().map(|path| PathStatus {
        path: reporting.path_name(path.path),
        state: match path.state {
            State::Up => PathState::Up,
            _ if path.since.is_none() => PathState::Never,
            _ => PathState::Down,
        },
        since_ns: path.since.map(Instant::as_nanos),
    });
    status.collect()
}

/// How certain a split brain is, in the control API.
pub(super) const fn certainty(split_brain: node::SplitBrain) -> SplitBrain {
    match split_brain {
        node::SplitBrain::None => SplitBrain::None,
        node::SplitBrain::Suspected => SplitBrain::Suspected,
        node::SplitBrain::Confirmed => SplitBrain::Confirmed,
    }
}

impl Reporting {
    fn path_name(&self, path: Path) -> String {
        match path {
            Path::Replication => REPLICATION.to_owned(),
            Path::Port(port) => self.ports.get(usize::from(port.0)).map(|(name, _)| name.clone()).unwrap_or_default(),
        }
    }

    /// A path to a peer in words.
    pub(super) fn path_to(&self, peer: NodeId, path: Path) -> String {
        match path {
            Path::Replication => format!("to node {} over the replication link", peer.0),
            Path::Port(_) => format!("to node {} over port {}", peer.0, self.path_name(path)),
        }
    }

    /// A peer is reachable over service ports alone.
    pub(super) fn degraded(&self, peer: NodeId, carries_updates: bool) -> String {
        format!(
            "replication link to node {} lost: detection continues over service ports, and nobody takes over; {}; repair the \
             replication link",
            peer.0,
            if carries_updates {
                "updates go over a service port at a limited rate, new connections first"
            } else {
                "connections are not replicated meanwhile"
            }
        )
    }
}
