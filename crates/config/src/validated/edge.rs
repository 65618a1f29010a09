//! What `mainstay edge` runs with: every value checked, every default filled in.

use std::path::PathBuf;

use ::edge::{Affinity, CachePolicy, RateControlConfig, RecoveryConfig};
use cluster::failure_detector;
use flow::NodeId;
use flow::fast_path::Hook;

use super::{Backend, Node};
use crate::remote::RemoteAccess;
use crate::security::Security;

/// A checked configuration.
#[derive(Clone, PartialEq, Debug)]
pub struct EdgeSettings {
    /// This edge.
    pub node: Node,
    /// The interface to hosts and routers.
    pub network: String,
    /// How frames are received and sent.
    pub backend: Backend,
    /// The nodes.
    pub nodes: Vec<EdgeNode>,
    /// How connections are kept on a node.
    pub affinity: Affinity,
    /// The file with the secret of hashed affinities; `None`: the edge draws one.
    pub hash_key: Option<PathBuf>,
    /// Connections at most.
    pub connections_max: u32,
    /// Local recovery; `None`: nothing is held.
    pub recovery: Option<RecoveryConfig>,
    /// Rate control; `None`: windows stay as they are.
    pub rate_control: Option<RateControlConfig>,
    /// The flows that the kernel forwards.
    pub fast_path: EdgeFastPath,
    /// How dead nodes are detected.
    pub failure_detection: failure_detector::Config,
    /// What the frames between the edge and the nodes are secured by; `None`: nothing.
    pub security: Option<Security>,
    /// The control API from afar, if it is offered.
    pub control: Option<RemoteAccess>,
}

/// The flows that the kernel forwards by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EdgeFastPath {
    /// It does, where the host can.
    pub enabled: bool,
    /// Where, if the ports can have it.
    pub hook: Hook,
    /// The most at a time.
    pub connections_max: u32,
}

/// A node of the cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EdgeNode {
    /// Its number.
    pub id: NodeId,
    /// The interface that leads to it.
    pub interface: String,
}

/// What local recovery holds, by name; a heavy hitter's limit is a key of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RecoveryPolicy {
    /// The lowest unacknowledged segment of every connection.
    #[default]
    Always,
    /// From the second lost heartbeat of the connection's node on.
    FromSecondLostHeartbeat,
    /// Of the connections with the most bytes.
    HeavyHitters,
    /// SYN segments.
    SynOnly,
    /// Nothing.
    Off,
}

impl RecoveryPolicy {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 5] = [
        ("always", Self::Always),
        ("from-second-lost-heartbeat", Self::FromSecondLostHeartbeat),
        ("heavy-hitters", Self::HeavyHitters),
        ("syn-only", Self::SynOnly),
        ("off", Self::Off),
    ];

    /// The policy of the edge; `connections_max` is the limit of heavy hitters. `None`: nothing is held.
    #[must_use]
    pub const fn cache_policy(self, connections_max: u32) -> Option<CachePolicy> {
        Some(match self {
            Self::Always => CachePolicy::Always,
            Self::FromSecondLostHeartbeat => CachePolicy::FromSecondLostHeartbeat,
            Self::HeavyHitters => CachePolicy::HeavyHitters { connections_max },
            Self::SynOnly => CachePolicy::SynOnly,
            Self::Off => return None,
        })
    }
}
