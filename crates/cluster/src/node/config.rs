//! What a node is made from.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::conntrack::{Tracker, TrackerConfig};
use flow::{HashKey, Instant, NodeId};
use network_functions::chain::Chain;
use network_functions::restoration::ChainUnrestorable;
use replication::compact::{CompactConfigError, CompactReceiver};
use replication::representation::Selection;
use replication::secure::{OVERHEAD_BYTES, Security, UnnamedPeer};
use replication::{Resync, Session, SessionConfig};

use super::elsewhere::{Announcing, LastKnown};
use super::event::Events;
use super::held::HeldReplies;
use super::judging::Judging;
use super::passive::Passive;
use super::paths::Paths;
use super::peer::Peer;
use super::replication_set::compact::{Compact, CompactNodeConfig, Readvertised};
use super::replication_set::{Peers, ReplicationSet};
use super::securing::{PlainText, channel};
use super::split_brain::SplitWatch;
use super::store::ReplicaCounters;
use super::tracking::Tracking;
use super::workers::Others;
use super::{Node, failure_detector, forwarding, role};
use crate::group::{GROUPS_MAX, GroupId};
use crate::pipeline::{Limits, Pipeline, SharingConfig};

/// What a node is made from. The chain, the hash key and the seed are its own; all else is alike on nodes that back
/// each other up.
#[derive(Debug)]
pub struct NodeConfig {
    /// This node's number.
    pub node: NodeId,
    /// Connections held at most, 1 to 2^31.
    pub connections_max: u32,
    /// What is held beside connections, and what one source may have.
    pub limits: Limits,
    /// Secret under which tuples are hashed.
    pub hash_key: HashKey,
    /// Secret from which session numbers, discriminators and jitter come; differs from start to start.
    pub seed: u64,
    /// Timeouts and options of connection tracking.
    pub tracker: TrackerConfig,
    /// The functions.
    pub chain: Chain,
    /// Ports, addresses and routes.
    pub forwarding: forwarding::Config,
    /// The choice of who holds the addresses; its node and peers are filled in from here.
    pub role: role::Config,
    /// Which changes the peers are told.
    pub selection: Selection,
    /// How long at most a connection's first reply waits for a backup to confirm the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Other nodes forward at the same time, so that packets of one connection may come to several of them; `None`: one
    /// node forwards at a time, and becomes master of whatever packets come to it.
    pub sharing: Option<SharingConfig>,
    /// How connections are told compactly; `None`: all are told precisely.
    pub compact: Option<CompactNodeConfig>,
    /// The other nodes.
    pub peers: Vec<PeerConfig>,
    /// What the channels with them are secured by; `None`: they are not.
    pub security: Option<Security>,
}

/// A peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Its number.
    pub id: NodeId,
    /// How it is watched.
    pub detector: failure_detector::Config,
    /// How connections are told to it; `None`: not at all.
    pub session: Option<SessionConfig>,
}

/// So that what a peer is told compactly is numbered otherwise than its session.
const RECEIVER_SEED: u64 = 0x7f4a_7c15_9e37_79b9;
/// As above, for what it tells on.
const READVERTISED_SEED: u64 = 0x94d0_49bb_1331_11eb;

/// Why a node cannot be made from its configuration: the part that is unsound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Ports, addresses or routes.
    #[error(transparent)]
    Forwarding(#[from] forwarding::ConfigError),
    /// Replication.
    #[error(transparent)]
    Replication(#[from] replication::ConfigError),
    /// Failure detection.
    #[error(transparent)]
    Detection(#[from] failure_detector::ConfigError),
    /// More groups of addresses than a cluster can have.
    #[error("{0} groups of shared addresses are too many: {GROUPS_MAX} at most")]
    TooManyGroups(usize),
    /// Two groups that the nodes could not tell apart.
    #[error("two groups of shared addresses have the same identity; give one of them another name")]
    DuplicateGroup,
    /// A shared address is of a group that there is not.
    #[error("a shared address is of group {}, which is not configured", .0.0)]
    UnknownGroup(GroupId),
    /// A peer has the node's own number, or two peers share one.
    #[error("node {} is among the peers twice, or is this node itself", .0.0)]
    DuplicatePeer(NodeId),
    /// Its certificate cannot be told from others.
    #[error(transparent)]
    UnnamedPeer(#[from] UnnamedPeer),
    /// The stream of filters.
    #[error(transparent)]
    Compact(#[from] CompactConfigError),
    /// What cannot be had together with compact words.
    #[error("connections that are told by a filter cannot be had with {0}: tell them precisely, or do without")]
    NotWithCompact(&'static str),
    /// A function's state cannot be had from tuples.
    #[error("connections cannot be told by a filter: {0}")]
    Unrestorable(#[from] ChainUnrestorable),
}

impl NodeConfig {
    /// Makes the node.
    pub(super) fn build(self, now: Instant) -> Result<Node, ConfigError> {
        let ids: Vec<NodeId> = self.peers.iter().map(|peer| peer.id).collect();
        for (index, id) in ids.iter().enumerate() {
            if *id == self.node || ids[..index].contains(id) {
                return Err(ConfigError::DuplicatePeer(*id));
            }
        }
        check_groups(&self.role, &self.forwarding)?;
        let compact = self.build_compact(&ids)?;
        let mut peers = self
            .peers
            .iter()
            .zip(1_u64..)
            .map(|(peer, nth)| self.build_peer(peer, self.seed.rotate_left(16).wrapping_add(nth), now))
            .collect::<Result<Vec<_>, _>>()?;
        let tracker = Tracker::new(self.tracker);
        let mut pipeline =
            Pipeline::new(self.node, self.connections_max, self.hash_key, tracker, self.chain).with_limits(self.limits);
        if let Some(sharing) = self.sharing {
            pipeline = pipeline.with_sharing(sharing);
        }
        let startup_hold = self.role.startup_hold;
        let mut roles = role::Roles::new(
            role::Config { node: self.node, peers: ids, incarnation: (self.seed >> 24) as u32, ..self.role },
            now,
        );
        peers.iter_mut().for_each(Peer::note_told_all);
        roles.set_informed(now, peers.iter().all(|peer| peer.has_told_all));
        let passive = Passive::new(startup_hold, self.seed.rotate_left(32), now);
        Ok(Node {
            id: self.node,
            pipeline,
            replication: ReplicationSet {
                id: self.node,
                selection: self.selection,
                hold_first_reply: self.hold_first_reply,
                peers: Peers::new(peers),
                next_session: 0,
                deferral: None,
                compact,
                attributes: Vec::new(),
            },
            forwarder: forwarding::Forwarder::new(self.forwarding)?,
            roles,
            held: HeldReplies::default(),
            others: Others::default(),
            outbox: VecDeque::new(),
            events: Events::default(),
            awaiting_first_packet: None,
            more_expiries: false,
            judging: Judging::default(),
            tracking: Tracking::default(),
            drain_given_up_at: None,
            leaving: super::leaving::Leaving::default(),
            served_at: now,
            service_gap: super::readiness::ServiceGap::default(),
            passive,
            announcing: Announcing::default(),
            plain: PlainText::default(),
            site: None,
        })
    }

    /// Refuses what cannot be had together with compact words, and makes what tells them.
    fn build_compact(&self, peers: &[NodeId]) -> Result<Option<Box<Compact>>, ConfigError> {
        let Some(config) = &self.compact else { return Ok(None) };
        let lacks_session = |peer: &PeerConfig| peer.session.is_none();
        if self.sharing.is_some() {
            return Err(ConfigError::NotWithCompact("several nodes that forward at a time"));
        }
        if !self.hold_first_reply.is_zero() {
            return Err(ConfigError::NotWithCompact("first replies that wait for a backup's confirmation"));
        }
        if self.peers.iter().any(lacks_session) {
            return Err(ConfigError::NotWithCompact("peers to which nothing is replicated"));
        }
        self.chain.restorable()?;
        let room_bytes = if self.security.is_some() { OVERHEAD_BYTES } else { 0 };
        let mut config = config.clone();
        config.config.datagram_bytes_max = config.config.datagram_bytes_max.saturating_sub(room_bytes);
        Ok(Some(Box::new(Compact::new(&config, peers, self.connections_max)?)))
    }

    fn build_peer(&self, peer: &PeerConfig, seed: u64, now: Instant) -> Result<Peer, ConfigError> {
        peer.detector.check()?;
        let channel = self.security.as_ref().map(|security| channel(security, self.node, peer, now)).transpose()?;
        let session = match peer.session {
            None => None,
            Some(config) => {
                let room_bytes = if channel.is_some() { OVERHEAD_BYTES } else { 0 };
                let datagram_bytes_max = config.datagram_bytes_max.saturating_sub(room_bytes);
                let config = SessionConfig { connections_max: self.connections_max, datagram_bytes_max, ..config };
                Some(Session::new(config, self.node, peer.id, seed)?)
            }
        };
        // RFC 5880 section 6.8.1: unique among this system's sessions and not 0; random besides.
        let discriminator = (seed >> 32) as u32 & !0xff | u32::from(peer.id.0) | 0x100;
        Ok(Peer {
            id: peer.id,
            detector: failure_detector::Session::new(peer.detector, discriminator, seed),
            session,
            resync: Resync::default(),
            replica: ReplicaCounters::default(),
            orphaned_at: None,
            is_watched: true,
            is_said_up: false,
            refused: None,
            heartbeats: None,
            paths: Paths::default(),
            split: SplitWatch::default(),
            is_replica_incomplete: false,
            has_told_all: false,
            last_known: LastKnown::default(),
            channel,
            compact: self
                .compact
                .as_ref()
                .map(|compact| CompactReceiver::new(compact.receiver_limits(), seed ^ RECEIVER_SEED)),
            heard_compactly_at: None,
            readvertised: self
                .compact
                .as_ref()
                .map(|compact| Readvertised::new(compact.receiver_limits(), seed ^ READVERTISED_SEED)),
        })
    }
}

/// Checks that there are such groups, and that their addresses are of one of them.
pub(super) fn check_groups(role: &role::Config, forwarding: &forwarding::Config) -> Result<(), ConfigError> {
    let groups = &role.groups;
    if groups.len() > GROUPS_MAX {
        return Err(ConfigError::TooManyGroups(groups.len()));
    }
    let is_duplicate = |index: usize| groups[..index].iter().any(|other| other.identity == groups[index].identity);
    if (0..groups.len()).any(is_duplicate) {
        return Err(ConfigError::DuplicateGroup);
    }
    let count = groups.len().max(1);
    let mut shared = forwarding.ports.iter().flat_map(|port| &port.shared);
    let unknown = shared.find(|shared| shared.group.index() >= count);
    unknown.map_or(Ok(()), |shared| Err(ConfigError::UnknownGroup(shared.group)))
}
