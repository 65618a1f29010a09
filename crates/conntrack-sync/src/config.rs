//! What a node that replicates the kernel's connections is made from.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{HashKey, NodeId};
use replication::SessionConfig;
use replication::conntrackd::{FtfwConfig, FtfwConfigError};
use replication::secure::{Security, UnnamedPeer};

use super::filter::SyncFilter;

/// What this node does with its peers' connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Injection {
    /// They are in its kernel at once: nothing is left to do at a failover.
    #[default]
    Direct,
    /// They are kept in memory until it is made primary.
    ExternalCache,
}

/// How many nodes forward at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// One.
    #[default]
    PrimaryBackup,
    /// Several: each is primary for what its packets are.
    MultiPrimary,
}

/// What keepalived, or whoever moves the addresses, says that this node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncRole {
    /// It holds the addresses.
    Primary,
    /// Another node does.
    #[default]
    Backup,
    /// It cannot hold them.
    Fault,
}

impl SyncRole {
    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
            Self::Fault => "fault",
        }
    }
}

/// What a node is made from. The hash key and the seed are its own; all else is alike on nodes that back each other up.
#[derive(Debug)]
pub struct SyncConfig {
    /// This node's number.
    pub node: NodeId,
    /// Connections held at most, 1 to 2^31.
    pub connections_max: u32,
    /// Secret under which tuples are hashed.
    pub hash_key: HashKey,
    /// Secret from which session numbers come; differs from start to start.
    pub seed: u64,
    /// What is done with the peers' connections.
    pub injection: Injection,
    /// How many nodes forward at a time.
    pub mode: Mode,
    /// The role at the start. Where several forward it is always [`SyncRole::Primary`].
    pub role: SyncRole,
    /// Which connections the peers are told of.
    pub filter: SyncFilter,
    /// Announced connections are replicated as well.
    pub expectations: bool,
    /// A peer's connection that is not about to end has at least this long in the kernel, and is refreshed before it is over:
    /// its master's kernel makes no event when packets keep it alive.
    pub timeout_floor: Duration,
    /// Time between two heartbeats, which tell the roles.
    pub heartbeat_interval: Duration,
    /// The other nodes.
    pub peers: Vec<SyncPeerConfig>,
    /// What the channels with them are secured by; `None`: they are not.
    pub security: Option<Security>,
}

/// A peer.
#[derive(Clone, Debug)]
pub struct SyncPeerConfig {
    /// Its number.
    pub id: NodeId,
    /// How it is spoken with.
    pub profile: PeerProfile,
}

/// How a peer is spoken with.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PeerProfile {
    /// Another node of Mainstay. The session's `connections_max` is the node's.
    Native(SessionConfig),
    /// A conntrackd, or what speaks as it does. The session's `connections_max` is the node's.
    Conntrackd {
        /// Limits and times.
        config: FtfwConfig,
        /// The time of day in seconds, from which numbers begin, as conntrackd's do.
        time_of_day_s: u32,
    },
}

/// Default of [`SyncConfig::timeout_floor`].
pub const TIMEOUT_FLOOR_DEFAULT: Duration = Duration::from_secs(180);
/// The least [`SyncConfig::timeout_floor`]: a walk over all connections, and as long again.
pub const TIMEOUT_FLOOR_MIN: Duration = Duration::from_secs(30);
/// Default of [`SyncConfig::heartbeat_interval`].
pub const HEARTBEAT_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// The most peers.
pub const SYNC_PEERS_MAX: usize = 16;

/// Why a node cannot be made from its configuration: the part that is unsound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{0} must be from {1} to {2}")]
    OutOfRange(&'static str, u64, u64),
    /// A peer has this node's number, or that of another peer.
    #[error("node {} is named twice: give each node a number of its own", .0.0)]
    NamedTwice(NodeId),
    /// A session cannot be had.
    #[error("replication with node {}: {error}", .peer.0)]
    Session {
        /// With whom.
        peer: NodeId,
        /// Why.
        error: replication::ConfigError,
    },
    /// A session with a conntrackd cannot be had.
    #[error("replication with conntrackd (node {}): {error}", .peer.0)]
    Conntrackd {
        /// With whom.
        peer: NodeId,
        /// Why.
        error: FtfwConfigError,
    },
    /// A channel cannot be had.
    #[error(transparent)]
    Channel(#[from] UnnamedPeer),
}

impl SyncConfig {
    /// Checks the limits and their relations.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), ConfigError> {
        let ranges = [
            ("connections_max", u64::from(self.connections_max), 1, 1 << 31),
            ("timeout_floor", self.timeout_floor.as_secs(), TIMEOUT_FLOOR_MIN.as_secs(), 86_400),
            ("heartbeat_interval in ms", self.heartbeat_interval.as_millis() as u64, 10, 10_000),
            ("the number of peers", self.peers.len() as u64, 0, SYNC_PEERS_MAX as u64),
        ];
        if let Some((name, _, low, high)) = ranges.iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
            return Err(ConfigError::OutOfRange(name, *low, *high));
        }
        let named = core::iter::once(self.node).chain(self.peers.iter().map(|peer| peer.id));
        let mut seen = BTreeSet::new();
        for node in named {
            if !seen.insert(node.0) {
                return Err(ConfigError::NamedTwice(node));
            }
        }
        Ok(())
    }
}
