//! How a node stands, for operators.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};
use replication::SessionStatus;
use replication::compact::CompactReceiverStatus;

use super::event::{PassiveReason, Path};
use super::paths::PathStatus;
use super::readiness::Readiness;
use super::replication_set::BackupsStatus;
use super::replication_set::compact::CompactStatus;
use super::split_brain::SplitBrain;
use super::store::ReplicaCounters;
use super::tracking::{NextHopTrack, PortTrack};
use crate::group::GroupId;
use crate::pipeline::{StateServiceStatus, TombstoneCounters};
use crate::{failure_detector, forwarding, role};

/// How a node stands.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its role: active if it is for any group.
    pub role: role::State,
    /// Its role in each group, in the order of the groups; one at least.
    pub groups: Vec<GroupStatus>,
    /// The number that nodes have in common if they are configured alike.
    pub configuration: Option<u64>,
    /// Whether a take-over now would keep every connection, and what stands in its way.
    pub readiness: Readiness,
    /// This is the worker that decides roles and receives heartbeats.
    pub leads: bool,
    /// This node has a replica of every connection that it is to back up.
    pub synchronised: bool,
    /// How long the node was not served lately, if that was too long.
    pub served_late: Option<Duration>,
    /// Connections held, replicas included.
    pub connections: u32,
    /// Connections held at most.
    pub connections_max: u32,
    /// Connections that ended while a peer that knows them was away.
    pub tombstones: TombstoneCounters,
    /// First replies that were kept back.
    pub replies_held: u64,
    /// Of those, the ones let go unconfirmed because their time was over.
    pub replies_overdue: u64,
    /// Own connections that are not replicated, because nobody has answered them.
    pub unanswered: u32,
    /// The state of lazy insertion; `None` where connections are replicated as soon as they begin.
    pub lazy: Option<replication::deferral::DeferralStatus>,
    /// Why it takes no shared addresses, if it is so.
    pub passive: Option<PassiveReason>,
    /// What the forwarder counted.
    pub forwarding: forwarding::Counters,
    /// Compact replication; `None`: there is none.
    pub compact: Option<CompactStatus>,
    /// What is looked up at peers; `None`: nothing.
    pub state_service: Option<StateServiceStatus>,
    /// The backups of connections; `None`: every peer has every connection.
    pub backups: Option<BackupsStatus>,
    /// The peers.
    pub peers: Vec<PeerStatus>,
    /// The ports whose links are known, in their order.
    pub ports: Vec<PortTrack>,
    /// The next hops that are tracked.
    pub next_hops: Vec<NextHopTrack>,
    /// The tunnel to another site, if there is one.
    pub tunnel: Option<tunnel::TunnelStatus>,
    /// Edges that receive this node, and that it receives; each port counts its own.
    pub edges_up: usize,
}

/// How a node stands to a group of shared addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// The group.
    pub group: GroupId,
    /// Its role.
    pub role: role::State,
    /// The latest take-over that it knows of.
    pub term: u64,
    /// Its priority: the highest wins.
    pub priority: u8,
    /// The weights of all that is tracked for the group and not reached, added up.
    pub unreached: u16,
}

/// How a node stands to a peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer.
    pub id: NodeId,
    /// The failure detector.
    pub detector: failure_detector::Status,
    /// How each path to it stands: the replication path, and the ports that failure detection uses. Of a worker that is not
    /// the lead the replication path alone, as it is without the lead's knowledge.
    pub paths: Vec<PathStatus>,
    /// Whether it may hold the same addresses as this node.
    pub split_brain: SplitBrain,
    /// Since when it is down, if it is.
    pub down_since: Option<Instant>,
    /// What it last said of its role in each of this node's groups, if that still counts.
    pub heartbeats: Vec<Option<role::Heartbeat>>,
    /// It is up, and its last heartbeat is older than [`HEARTBEAT_AGE_MAX`](super::HEARTBEAT_AGE_MAX).
    pub heartbeats_late: bool,
    /// How it divides its packets among its workers, if that is not how this node does: then replication is refused.
    pub refused: Option<role::Division>,
    /// The replication session; `None` when replication is off.
    pub session: Option<SessionStatus>,
    /// How far its knowledge is behind.
    pub lag: Duration,
    /// What it replicated.
    pub replica: ReplicaCounters,
    /// The secure channel; `None` when all is said in plain text.
    pub channel: Option<replication::secure::ChannelStatus>,
    /// What it replicated compactly; `None`: nothing.
    pub compact: Option<CompactReceiverStatus>,
    /// That is here whole, and so are the inherited filters that the peer re-advertises.
    pub has_whole_filter: bool,
}

impl PeerStatus {
    /// The peer is up on service paths alone: no node takes over, and updates go over a service path at a limited rate, or not at all.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        let is_up = |wanted: fn(&Path) -> bool| {
            self.paths.iter().any(|path| wanted(&path.path) && path.state == failure_detector::State::Up)
        };
        !is_up(|path| *path == Path::Replication) && is_up(|path| *path != Path::Replication)
    }

    /// The peer is standby and reports that it lacks connections: it has no room for all of them, or its full synchronisation
    /// is not complete.
    #[must_use]
    pub fn lacks_connections(&self) -> bool {
        self.heartbeats.iter().flatten().any(|said| said.state == role::State::Standby && !said.synchronised)
    }

    /// Connections that a failover to the peer would lose: they are to be replicated to it, and it does not have them in any state.
    #[must_use]
    pub fn uncovered(&self) -> u32 {
        self.session.map_or(0, |session| session.uncovered)
    }

    /// The peer could take over now without losing a connection: it is up, and has received everything and taken it.
    #[must_use]
    pub fn could_take_over(&self) -> bool {
        self.down_since.is_none()
            && !self.lacks_connections()
            && self.refused.is_none()
            && self.detector.state == failure_detector::State::Up
            && self.session.is_some_and(|session| session.link == replication::Link::Open && session.sent_all)
    }

    /// What it last said of its role in the group, if that still counts.
    #[must_use]
    pub fn heartbeat(&self, group: GroupId) -> Option<role::Heartbeat> {
        self.heartbeats.get(group.index()).copied().flatten()
    }

    /// The peer is drained, or about to be: it takes nothing over.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.heartbeats.iter().flatten().any(|said| matches!(said.state, role::State::Leaving | role::State::Left))
    }

    /// The peer holds the group's addresses, by its heartbeat.
    #[must_use]
    pub fn holds(&self, group: GroupId) -> bool {
        self.heartbeat(group).is_some_and(|said| said.state.holds_addresses())
    }
}

impl GroupStatus {
    /// Of this node's `role`, as operators see it.
    pub(super) fn of(roles: &role::Roles, group: GroupId, role: role::State) -> Self {
        let (term, priority, unreached) = (roles.term(group), roles.priority(group), roles.unreached(group));
        Self { group, role, term, priority, unreached }
    }
}
