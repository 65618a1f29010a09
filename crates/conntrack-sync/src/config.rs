//! The configuration of a node that replicates the kernel's connections.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{HashKey, NodeId};
use replication::SessionConfig;
use replication::conntrackd::{FtfwConfig, FtfwConfigError};
use replication::secure::{Security, UnnamedPeer};

use super::filter::SyncFilter;

/// Where this node stores its peers' connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Injection {
    /// In the kernel immediately: a failover needs no further work.
    #[default]
    Direct,
    /// In memory until the node becomes primary.
    ExternalCache,
}

/// The number of nodes that forward at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// One.
    #[default]
    PrimaryBackup,
    /// Several nodes forward: each is primary for the connections whose packets it receives.
    MultiPrimary,
}

/// The role of this node, as keepalived or another manager of the addresses assigns it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SyncRole {
    /// It holds the addresses and forwards.
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

/// The configuration of a node. The hash key and the RNG seed are individual; all else is equal on nodes that back each
/// other up.
#[derive(Debug)]
pub struct SyncConfig {
    /// This node's number.
    pub node: NodeId,
    /// The maximum number of connections, 1 to 2^31.
    pub connections_max: u32,
    /// Secret under which tuples are hashed.
    pub hash_key: HashKey,
    /// The RNG seed of session numbers; it differs from start to start.
    pub seed: u64,
    /// Where the peers' connections are stored.
    pub injection: Injection,
    /// The number of nodes that forward at a time.
    pub mode: Mode,
    /// The initial role. Where several nodes forward it is always [`SyncRole::Primary`].
    pub role: SyncRole,
    /// The connections to replicate.
    pub filter: SyncFilter,
    /// Whether expectations are replicated as well.
    pub expectations: bool,
    /// The age from which connections are replicated; `None`: as soon as the filter permits.
    pub deferral: Option<Duration>,
    /// The minimum kernel timeout of a peer's connection that is not closing. The connection is refreshed before it
    /// expires, as the owner's kernel sends no event when packets keep it alive.
    pub timeout_floor: Duration,
    /// The interval of heartbeats, which distribute the role.
    pub heartbeat_interval: Duration,
    /// The other nodes.
    pub peers: Vec<SyncPeerConfig>,
    /// The credentials that secure the channels with peers; `None`: unsecured.
    pub security: Option<Security>,
}

/// A peer.
#[derive(Clone, Debug)]
pub struct SyncPeerConfig {
    /// Its number.
    pub id: NodeId,
    /// The replication protocol with the peer.
    pub profile: PeerProfile,
}

/// The replication protocol with a peer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PeerProfile {
    /// Another node of Mainstay. The session's `connections_max` is the node's.
    Native(SessionConfig),
    /// Conntrackd's protocol. The session's `connections_max` is the node's.
    Conntrackd {
        /// Limits and times.
        config: FtfwConfig,
        /// The time of day in seconds, from which message numbers start, as conntrackd's do.
        time_of_day_s: u32,
    },
}

/// Default of [`SyncConfig::timeout_floor`].
pub const TIMEOUT_FLOOR_DEFAULT: Duration = Duration::from_secs(180);
/// The minimum of [`SyncConfig::timeout_floor`]: a refresh scan of all connections, and as long again.
pub const TIMEOUT_FLOOR_MIN: Duration = Duration::from_secs(30);
/// Default of [`SyncConfig::heartbeat_interval`].
pub const HEARTBEAT_INTERVAL_DEFAULT: Duration = Duration::from_millis(100);
/// The most peers.
pub const SYNC_PEERS_MAX: usize = 16;

/// An error in a node's configuration.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A number is out of its range.
    #[error("{0} must be from {1} to {2}")]
    OutOfRange(&'static str, u64, u64),
    /// A peer has this node's number, or that of another peer.
    #[error("node {} is configured twice: give each node a distinct number", .0.0)]
    NamedTwice(NodeId),
    /// A session cannot be created.
    #[error("replication with node {}: {error}", .peer.0)]
    Session {
        /// The peer.
        peer: NodeId,
        /// The error.
        error: replication::ConfigError,
    },
    /// A session with conntrackd cannot be created.
    #[error("replication with conntrackd (node {}): {error}", .peer.0)]
    Conntrackd {
        /// The peer.
        peer: NodeId,
        /// The error.
        error: FtfwConfigError,
    },
    /// A channel cannot be created.
    #[error(transparent)]
    Channel(#[from] UnnamedPeer),
}

impl SyncConfig {
    /// Checks the limits and their relations.
    ///
    /// # Errors
    /// The first error found.
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
