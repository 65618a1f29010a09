//! What a node is made from.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::time::Duration;

use flow::conntrack::TrackerConfig;
use flow::{HashKey, Instant, NodeId};
use network_functions::chain::Chain;
use replication::compact::CompactReceiver;
use replication::representation::Selection;
use replication::secure::{OVERHEAD_BYTES, Security};
use replication::{Resync, Session, SessionConfig};

use super::error::ConfigError;
use super::paths::Paths;
use super::peer::{LastKnown, Peer};
use super::peers::Peers;
use super::replication_set::compact::{Compact, CompactNodeConfig, Readvertised};
use super::replication_set::{Backups, BackupsConfig};
use super::split_brain::SplitWatch;
use super::store::ReplicaCounters;
use crate::forwarding::PATH_DATAGRAM_BYTES_MAX;
use crate::group::GROUPS_MAX;
use crate::pipeline::{Limits, SharingConfig};
use crate::{failure_detector, forwarding, role};

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
    /// Which changes are replicated to the peers.
    pub selection: Selection,
    /// How long at most a connection's first reply waits for a backup to confirm the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Other nodes forward at the same time, so that packets of one connection may come to several of them; `None`: one
    /// node forwards at a time, and becomes the owner of whatever packets come to it.
    pub sharing: Option<SharingConfig>,
    /// Compact replication of connections; `None`: precise replication of all.
    pub compact: Option<CompactNodeConfig>,
    /// The peers that each connection is replicated to; `None`: all.
    pub backups: Option<BackupsConfig>,
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
    /// The session with it; `None`: nothing is replicated to it.
    pub session: Option<SessionConfig>,
}

/// Numbers of compact replication differ from those of the session.
const RECEIVER_SEED: u64 = 0x7f4a_7c15_9e37_79b9;
/// As above, for what it re-advertises.
const READVERTISED_SEED: u64 = 0x94d0_49bb_1331_11eb;

impl NodeConfig {
    /// The configurations of the groups and the peers go together.
    ///
    /// # Errors
    /// What does not.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        let ids = self.peer_ids();
        for (index, id) in ids.iter().enumerate() {
            if *id == self.node || ids[..index].contains(id) {
                return Err(ConfigError::DuplicatePeer(*id));
            }
        }
        check_groups(&self.role, &self.forwarding)
    }

    pub(super) fn peer_ids(&self) -> Vec<NodeId> {
        self.peers.iter().map(|peer| peer.id).collect()
    }

    /// The peers, of which nothing is known yet.
    pub(super) fn build_peers(&self, now: Instant) -> Result<Peers, ConfigError> {
        let seeds = (1..).map(|nth| self.seed.rotate_left(16).wrapping_add(nth));
        let Self { node, connections_max, ref security, ref compact, .. } = *self;
        let builder = PeerBuilder { node, connections_max, security: security.as_ref(), compact: compact.as_ref() };
        let peers = self.peers.iter().zip(seeds).map(|(peer, seed)| builder.build(peer, seed, now));
        let mut peers = peers.collect::<Result<Vec<_>, _>>()?;
        peers.iter_mut().for_each(Peer::note_sent_all);
        Ok(Peers::new(peers))
    }

    /// Compact replication, if it is configured. Refuses what cannot be had together with it.
    pub(super) fn build_compact(&self) -> Result<Option<Box<Compact>>, ConfigError> {
        let Some(config) = &self.compact else { return Ok(None) };
        let lacks_session = |peer: &PeerConfig| peer.session.is_none();
        if self.sharing.is_some_and(|sharing| !sharing.is_symmetric) {
            return Err(ConfigError::NotWithCompact("packets of one connection that come to several nodes"));
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
        // A service path must have room for them, too.
        let datagram_bytes_max = config.config.datagram_bytes_max.min(PATH_DATAGRAM_BYTES_MAX - 1);
        config.config.datagram_bytes_max = datagram_bytes_max.saturating_sub(room_bytes);
        Ok(Some(Box::new(Compact::new(&config, self.node, &self.peer_ids(), self.connections_max)?)))
    }

    /// The backups of connections, if they are configured. Refuses what cannot be had together with them.
    pub(super) fn build_backups(&self) -> Result<Option<Box<Backups>>, ConfigError> {
        let Some(config) = &self.backups else { return Ok(None) };
        if self.compact.is_some() {
            return Err(ConfigError::NotWithBackups("a filter, which all peers receive"));
        }
        if self.sharing.is_none() {
            return Err(ConfigError::NotWithBackups("one node that forwards at a time"));
        }
        if self.peers.iter().any(|peer| peer.session.is_none()) {
            return Err(ConfigError::NotWithBackups("peers to which nothing is replicated"));
        }
        Ok(Some(Box::new(Backups::new(config, self.connections_max))))
    }
}

/// What the peers of a node have in common.
pub(super) struct PeerBuilder<'a> {
    pub(super) node: NodeId,
    pub(super) connections_max: u32,
    pub(super) security: Option<&'a Security>,
    pub(super) compact: Option<&'a CompactNodeConfig>,
}

impl PeerBuilder<'_> {
    /// A peer of which nothing is known. `seed`: differs from peer to peer and from time to time.
    pub(super) fn build(&self, peer: &PeerConfig, seed: u64, now: Instant) -> Result<Peer, ConfigError> {
        peer.detector.check()?;
        let channel = self.security.map(|security| security.channel(self.node, peer.id, now)).transpose()?;
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
            is_up_by_lead: false,
            is_forwarding: false,
            drained_at: None,
            refused: None,
            has_state_service: None,
            shared_values_run: None,
            heartbeats: None,
            paths: Paths::default(),
            split: SplitWatch::default(),
            is_replica_incomplete: false,
            has_sent_all: false,
            has_been_up: false,
            last_known: LastKnown::default(),
            channel,
            compact: self.compact.map(|compact| CompactReceiver::new(compact.receiver_limits(), seed ^ RECEIVER_SEED)),
            compact_received_at: None,
            readvertised: self
                .compact
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
