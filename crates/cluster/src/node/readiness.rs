//! Whether a take-over now would keep every connection, and what stands in its way.
//!
//! Everything that a take-over needs is checked here and nowhere else: status, metrics, events and [`Node::drain`] use the
//! same answer. A node that holds a group's addresses checks its peers; a standby node checks itself.
//!
//! [`Node::drain`]: super::Node::drain

use alloc::vec::Vec;
use core::time::Duration;

use flow::NodeId;
use replication::Link;

use super::replication_set::BackupsStatus;
use super::status::{GroupStatus, NodeStatus, PeerStatus};
use crate::failure_detector;
use crate::role::{Heartbeat, State};

/// A replica that is older than this is not counted on: changes wait for the peer's acknowledgement longer than any
/// retransmission takes.
pub const LAG_MAX: Duration = Duration::from_secs(1);

/// While the replication path is down: a connection that the peer does not have after this time is not about to reach it.
const UNCOVERED_LAG_MAX: Duration = Duration::from_millis(200);

/// Why a node could not take a group's addresses over without harm. The text names the remedy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Obstacle {
    /// No peer is configured.
    #[error("has no peer; configure one")]
    NoPeer,
    /// The peer is silent on every path.
    #[error("is down")]
    Down,
    /// The operator took it out of service.
    #[error("is drained (mainstay undrain, there)")]
    Drained,
    /// It is still listening after its start, or its role is unknown.
    #[error("is not standby")]
    NotStandby,
    /// It refuses to take addresses over.
    #[error("is passive: another host defends the addresses, or packets of a peer are rejected (see its status)")]
    Passive,
    /// It divides its packets otherwise.
    #[error("has another workers.count, or runs another release")]
    WorkersDiffer,
    /// Connections are not replicated to it.
    #[error("receives no connections (replication.representation is \"none\")")]
    NotReplicated,
    /// The replication session is silent.
    #[error("does not answer on the replication link")]
    ReplicationSilent,
    /// The replication path is down, and so many connections that began since have not reached it.
    #[error("lacks {0} connections that began since the replication link is down: repair the replication link")]
    Uncovered(u32),
    /// The first full synchronisation is not complete.
    #[error("is still being synchronised")]
    Synchronising,
    /// It has not received all connections, or had no room for some.
    #[error("lacks connections (see its events: its table may be too small)")]
    LacksConnections,
    /// Nodes came or went: not every connection has an owner, and backups that have acknowledged it.
    #[error("is giving connections new owners or backups, because nodes came or went")]
    Unsettled,
    /// It is up, and has not acknowledged connections that it backs up for seconds.
    #[error("does not acknowledge connections that it backs up: look at its events, and at the replication link")]
    Unacknowledged,
    /// Its replicas are older than [`LAG_MAX`].
    #[error("lags {} ms behind", .0.as_millis())]
    Lags(Duration),
    /// Fewer of the tracked ports and next hops can be reached from it.
    #[error(
        "reaches less: tracked ports and next hops of weight {theirs} are lost there, of weight {ours} on the active node"
    )]
    ReachesLess {
        /// The weights that the node to take over has lost.
        theirs: u16,
        /// The weights that the active node has lost.
        ours: u16,
    },
    /// Its configuration has another fingerprint.
    #[error("has another configuration: make the files equal and reload")]
    ConfigurationDiffers,
    /// Its heartbeats are late: its machine is overloaded, or the links between the nodes are.
    #[error("sends its heartbeats late: is its machine, or a link between the nodes, overloaded?")]
    HeartbeatsLate,
    /// It was not served for longer than [`SERVICE_GAP_MAX`](super::SERVICE_GAP_MAX) not long ago.
    #[error("stood still for {} ms a moment ago: is its machine overloaded?", .0.as_millis())]
    ServedLate(Duration),
}

/// A node that could not take over, and why.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NodeObstacle {
    /// The node.
    pub node: NodeId,
    /// What stands in its way.
    pub obstacle: Obstacle,
}

/// What stands in the way of the backups: each of them has a share of the connections that no other node may have. Nodes that
/// are down have been replaced by others.
fn add_obstacles_of_backups(status: &NodeStatus, backups: &BackupsStatus, node: NodeId, readiness: &mut Readiness) {
    let is_backup = |peer: &&PeerStatus| {
        let is_up = peer.down_since.is_none() && peer.detector.state == failure_detector::State::Up;
        is_up && backups.edge_nodes.contains(peer.id)
    };
    status.peers.iter().filter(is_backup).for_each(|peer| readiness.add(peer.id, obstacles_of_replication(peer)));
    backups.silent.iter().for_each(|peer| readiness.add(peer, [Obstacle::Unacknowledged]));
    readiness.add(node, (backups.is_unsettled && backups.silent.is_empty()).then_some(Obstacle::Unsettled));
    readiness.add(node, (!status.synchronised).then_some(Obstacle::Synchronising));
}

/// Whether a take-over of every group would keep every connection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Readiness {
    /// What stands in the way; empty: ready.
    pub obstacles: Vec<NodeObstacle>,
}

impl Readiness {
    /// Nothing stands in the way.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.obstacles.is_empty()
    }

    fn add(&mut self, node: NodeId, obstacles: impl IntoIterator<Item = Obstacle>) {
        for obstacle in obstacles {
            let found = NodeObstacle { node, obstacle };
            if !self.obstacles.contains(&found) {
                self.obstacles.push(found);
            }
        }
    }
}

/// What stands in the way of a take-over of the group by this peer, which a node that holds the group asks. `own` are the
/// node's own heartbeat fields for the group.
pub(super) fn obstacles_of_peer(peer: &PeerStatus, group: &GroupStatus, own: &NodeStatus) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    if peer.down_since.is_some() || peer.detector.state != failure_detector::State::Up {
        return alloc::vec![Obstacle::Down];
    }
    obstacles.extend(obstacles_of_replication(peer));
    // Only the worker that leads receives heartbeats.
    if !own.leads {
        return obstacles;
    }
    let Some(heartbeat) = peer.heartbeat(group.group) else {
        obstacles.push(Obstacle::NotStandby);
        return obstacles;
    };
    let Heartbeat { state, synchronised, unreached, passive, configuration, .. } = heartbeat;
    match state {
        State::Leaving | State::Left => obstacles.push(Obstacle::Drained),
        State::Init => obstacles.push(Obstacle::NotStandby),
        State::Standby if !synchronised && obstacles.is_empty() => obstacles.push(Obstacle::LacksConnections),
        State::Standby | State::TakingOver | State::Active => {}
    }
    let differs = |(theirs, ours)| theirs != ours;
    let found = [
        passive.then_some(Obstacle::Passive),
        (unreached > group.unreached).then_some(Obstacle::ReachesLess { theirs: unreached, ours: group.unreached }),
        configuration.zip(own.configuration).is_some_and(differs).then_some(Obstacle::ConfigurationDiffers),
        peer.heartbeats_late.then_some(Obstacle::HeartbeatsLate),
    ];
    obstacles.extend(found.into_iter().flatten());
    obstacles
}

/// What is wrong with the replication between this node and the peer.
fn obstacles_of_replication(peer: &PeerStatus) -> Option<Obstacle> {
    if peer.refused.is_some() {
        return Some(Obstacle::WorkersDiffer);
    }
    let Some(session) = peer.session else { return Some(Obstacle::NotReplicated) };
    let waits = session.link != Link::Open || peer.lag > UNCOVERED_LAG_MAX;
    if peer.is_degraded() && session.uncovered > 0 && waits {
        return Some(Obstacle::Uncovered(session.uncovered));
    }
    match session.link {
        Link::Open if !session.sent_all => Some(Obstacle::Synchronising),
        Link::Open => (peer.lag > LAG_MAX).then_some(Obstacle::Lags(peer.lag)),
        Link::Seeking | Link::Closed => Some(Obstacle::ReplicationSilent),
    }
}

/// What stands in the way of a take-over of the group from `active` by this node, which is standby.
fn own_obstacles(status: &NodeStatus, group: &GroupStatus, active: &PeerStatus) -> Vec<Obstacle> {
    let of_role = match group.role {
        State::Leaving | State::Left => Some(Obstacle::Drained),
        State::Init => Some(Obstacle::NotStandby),
        State::Standby | State::TakingOver | State::Active => None,
    };
    let of_session = match active.session {
        _ if active.refused.is_some() => Some(Obstacle::WorkersDiffer),
        None => Some(Obstacle::NotReplicated),
        Some(session) if session.link != Link::Open => Some(Obstacle::ReplicationSilent),
        Some(session) if !session.received_all => Some(Obstacle::Synchronising),
        Some(_) => (!status.synchronised).then_some(Obstacle::LacksConnections),
    };
    let said = active.heartbeat(group.group);
    let theirs = said.map_or(0, |said| said.unreached);
    let differs = |(one, other)| one != other;
    let found = [
        of_role,
        of_session,
        status.passive.map(|_| Obstacle::Passive),
        (group.unreached > theirs).then_some(Obstacle::ReachesLess { theirs: group.unreached, ours: theirs }),
        said.and_then(|said| said.configuration)
            .zip(status.configuration)
            .is_some_and(differs)
            .then_some(Obstacle::ConfigurationDiffers),
        status.served_late.map(Obstacle::ServedLate),
    ];
    found.into_iter().flatten().collect()
}

/// Whether a take-over of every group would keep every connection.
pub(super) fn readiness(status: &NodeStatus, node: NodeId) -> Readiness {
    let mut readiness = Readiness::default();
    if let Some(backups) = &status.backups {
        add_obstacles_of_backups(status, backups, node, &mut readiness);
    }
    if status.peers.is_empty() {
        readiness.add(node, [Obstacle::NoPeer]);
    }
    for group in &status.groups {
        if let Some(active) =
            status.peers.iter().find(|peer| peer.holds(group.group)).filter(|_| !group.role.forwards())
        {
            readiness.add(node, own_obstacles(status, group, active));
            continue;
        }
        if status.leads && !group.role.forwards() {
            // No node holds the group: there is nothing to take over from.
            readiness.add(node, [Obstacle::NotStandby]);
        }
        let of_peers: Vec<_> =
            status.peers.iter().map(|peer| (peer.id, obstacles_of_peer(peer, group, status))).collect();
        if of_peers.iter().any(|(_, obstacles)| obstacles.is_empty()) {
            continue;
        }
        of_peers.into_iter().for_each(|(id, obstacles)| readiness.add(id, obstacles));
    }
    readiness
}
