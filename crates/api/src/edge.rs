//! The status of an edge.

use serde::{Deserialize, Serialize};

use crate::DetectorState;
use crate::report::Report;

/// What only `mainstay edge` has.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct EdgeStatus {
    /// Nodes, in the order of the file.
    #[report(nested)]
    pub nodes: Vec<EdgeNodeStatus>,
    /// Packets that entered the cluster here.
    #[report(counter(
        "edge_packets_total",
        direction = "entered",
        help = "Packets that entered the cluster at this edge (`entered`) or left it here (`left`)."
    ))]
    pub entered: u64,
    /// Packets that left the cluster here.
    #[report(counter("edge_packets_total", direction = "left"))]
    pub left: u64,
    /// Connections that moved because their node failed.
    #[report(counter("edge_moved_connections_total"))]
    pub moved: u64,
    /// Held segments.
    #[report(gauge(
        "edge_held_packets",
        kind = "segment",
        help = "Packets that the edge holds to resend them: each a `segment` or an `acknowledgement`."
    ))]
    pub held_segments: u64,
    /// Largest number of held segments.
    pub held_segments_max: u64,
    /// Held acknowledgements.
    #[report(gauge("edge_held_packets", kind = "acknowledgement"))]
    pub held_acknowledgements: u64,
    /// Memory of held packets, in bytes.
    #[report(gauge("edge_held_bytes"))]
    pub held_bytes: u64,
    /// Held packets that were released for others because the memory was full.
    #[report(counter(
        "edge_not_held_packets_total",
        reason = "evicted",
        help = "Packets that the edge released because its memory was full (`evicted`), or could not hold (`unholdable`)."
    ))]
    pub evicted: u64,
    /// Packets that were not held because of urgent data, a signature or unusual headers.
    #[report(counter("edge_not_held_packets_total", reason = "unholdable"))]
    pub unholdable: u64,
    /// Resent segments, without SYNs.
    #[report(counter(
        "edge_resent_packets_total",
        kind = "segment",
        help = "Packets that the edge resent after a node failed: each a `segment`, a `syn` or an `acknowledgement`."
    ))]
    pub resent_segments: u64,
    /// Resent SYNs.
    #[report(counter("edge_resent_packets_total", kind = "syn"))]
    pub resent_syns: u64,
    /// Copies of acknowledgements that were sent to hosts.
    #[report(counter("edge_resent_packets_total", kind = "acknowledgement"))]
    pub resent_acknowledgements: u64,
}

/// A node, as an edge knows it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(node = self.id))]
pub struct EdgeNodeStatus {
    /// Number of the node.
    pub id: u8,
    /// State of failure detection: `up`, `init`, `down` or `admin_down`.
    pub detector: DetectorState,
    /// Time when the node was received, or no longer received. It is absent if it never was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Whether flows go to the node.
    #[report(gauge("edge_node_forwards"))]
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
