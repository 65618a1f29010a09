//! How a node stands, for operators.

use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId};
use replication::SessionStatus;

use super::peer::Peer;
use super::{Node, ReplicaCounters};
use crate::{failure_detector, forwarding, role};

/// How a node stands.
#[derive(Clone, Debug)]
pub struct NodeStatus {
    /// Its role.
    pub role: role::State,
    /// The latest take-over that it knows of.
    pub term: u64,
    /// The number that nodes have in common if they are configured alike.
    pub configuration: Option<u64>,
    /// Connections held, copies included.
    pub connections: u32,
    /// Connections held at most.
    pub connections_max: u32,
    /// First replies that were kept back.
    pub replies_held: u64,
    /// Of those, the ones let go unconfirmed because their time was over.
    pub replies_overdue: u64,
    /// What the forwarder counted.
    pub forwarding: forwarding::Counters,
    /// The peers.
    pub peers: Vec<PeerStatus>,
}

/// How a node stands to a peer.
#[derive(Clone, Debug)]
pub struct PeerStatus {
    /// The peer.
    pub id: NodeId,
    /// The failure detector.
    pub detector: failure_detector::Status,
    /// Since when it is down, if it is.
    pub down_since: Option<Instant>,
    /// What it last said of its role, if that still counts.
    pub heartbeat: Option<role::Heartbeat>,
    /// How it divides its packets among its workers, if that is not how this node does: then replication is refused.
    pub refused: Option<role::Division>,
    /// The replication session; `None` when replication is off.
    pub session: Option<SessionStatus>,
    /// How far its knowledge is behind.
    pub lag: Duration,
    /// What it told.
    pub replica: ReplicaCounters,
    /// The secure channel; `None` when all is said in plain text.
    pub channel: Option<replication::secure::ChannelStatus>,
}

impl PeerStatus {
    /// The peer could take over now without losing a connection: it is up, and has been told everything.
    #[must_use]
    pub fn could_take_over(&self) -> bool {
        self.down_since.is_none()
            && self.refused.is_none()
            && self.detector.state == failure_detector::State::Up
            && self.session.is_some_and(|session| session.link == replication::Link::Open && session.told)
    }

    /// The peer is drained, or about to be: it takes nothing over.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.heartbeat.is_some_and(|said| matches!(said.state, role::State::Leaving | role::State::Left))
    }

    /// The peer could take over and would, if this node left.
    #[must_use]
    pub fn would_relieve(&self) -> bool {
        let stands_by = |said: role::Heartbeat| said.state == role::State::Standby && said.synchronised;
        self.could_take_over() && self.heartbeat.is_some_and(stands_by)
    }
}

/// Where the peer is not watched, the state is what the lead says.
fn detector_status(peer: &Peer) -> failure_detector::Status {
    let status = peer.detector.status();
    let state = if peer.is_up() { failure_detector::State::Up } else { failure_detector::State::Down };
    if peer.is_watched { status } else { failure_detector::Status { state, ..status } }
}

pub(super) fn of(node: &Node, now: Instant) -> NodeStatus {
    let peers = node.peers.iter().map(|peer| {
        let session = peer.session.as_ref().map(replication::Session::status);
        PeerStatus {
            id: peer.id,
            detector: detector_status(peer),
            down_since: peer.orphaned_at,
            heartbeat: node.role.peer(now, peer.id),
            refused: peer.refused,
            session,
            lag: session.map_or(Duration::ZERO, |session| session.lag(now)),
            replica: peer.replica,
            channel: peer.channel.as_ref().map(replication::secure::Channel::status),
        }
    });
    NodeStatus {
        role: node.role.state(),
        term: node.role.term(),
        configuration: node.role.configuration(),
        connections: node.pipeline.table().len(),
        connections_max: node.pipeline.table().capacity(),
        replies_held: node.held.held,
        replies_overdue: node.held.overdue,
        forwarding: node.forwarder.counters(),
        peers: peers.collect(),
    }
}
