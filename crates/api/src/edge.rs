//! The status of an edge.

use serde::{Deserialize, Serialize};

/// What only `mainstay edge` has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EdgeStatus {
    /// Nodes, in the order of the file.
    pub nodes: Vec<EdgeNodeStatus>,
    /// Packets that entered the cluster here.
    pub entered: u64,
    /// Packets that left the cluster here.
    pub left: u64,
    /// Connections that moved because their node failed.
    pub moved: u64,
    /// Held segments.
    pub held_segments: u64,
    /// Largest number of held segments.
    pub held_segments_max: u64,
    /// Held acknowledgements.
    pub held_acknowledgements: u64,
    /// Memory of held packets, in bytes.
    pub held_bytes: u64,
    /// Held packets that were released for others because the memory was full.
    pub evicted: u64,
    /// Packets that were not held because of urgent data, a signature or unusual headers.
    pub unholdable: u64,
    /// Resent segments, without SYNs.
    pub resent_segments: u64,
    /// Resent SYNs.
    pub resent_syns: u64,
    /// Copies of acknowledgements that were sent to hosts.
    pub resent_acknowledgements: u64,
}

/// A node, as an edge knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EdgeNodeStatus {
    /// Number of the node.
    pub id: u8,
    /// State of failure detection: `up`, `init`, `down` or `admin_down`.
    pub detector: String,
    /// Time when the node was received, or no longer received. It is absent if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Whether flows go to the node.
    pub forwards: bool,
    /// Whether the node gets no new connections, as an operator wants it.
    #[serde(default)]
    pub drained: bool,
    /// Nodes whose connections it serves because they are dead or passive.
    pub serves: Vec<u8>,
    /// Link address of the node's port. It is absent until the node was received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_address: Option<String>,
}
