//! The file of `mainstay edge` as it is written: shape only.

use serde::Deserialize;
use toml::Spanned;

use super::{RawControl, RawNode, Text};
use crate::value::{DurationText, PathText, SizeText};

/// A file of `mainstay edge`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeFile {
    /// `[node]`.
    pub node: Option<Spanned<RawNode>>,
    /// `[edge]`.
    pub edge: Option<Spanned<RawEdge>>,
    /// `[recovery]`.
    #[serde(default)]
    pub recovery: RawEdgeRecovery,
    /// `[rate_control]`.
    pub rate_control: Option<Spanned<RawRateControl>>,
    /// `[fast_path]`.
    #[serde(default)]
    pub fast_path: RawEdgeFastPath,
    /// `[failure_detection]`.
    #[serde(default)]
    pub failure_detection: RawEdgeDetection,
    /// `[security]`.
    pub security: Option<Spanned<RawEdgeSecurity>>,
    /// `[control]`.
    pub control: Option<Spanned<RawControl>>,
}

/// The section names the interfaces of the edge: one to the network, and one to each node. It is required.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdge {
    /// Interface to the hosts and routers on this side of the cluster.
    pub network: Text,
    /// Method by which all interfaces receive and send frames.
    pub backend: Option<Text>,
    /// What keeps the packets of a connection on one node. `"learned"` is right for every network function: a connection stays on the node
    /// that its first packet left the cluster from. The others hash the tuple, or the address of the host on this side or on the far side.
    pub affinity: Option<Text>,
    /// File with the secret of the hashed affinities, which `mainstay key` makes. Its mode is 0600 and its content is the same at both
    /// edges. Required for affinities other than `"learned"`, and with `replication.backups` of the nodes.
    pub hash_key: Option<PathText>,
    /// Largest number of connections that the edge follows. Each takes 144 bytes once it exists.
    pub connections_max: Option<Spanned<u32>>,
    /// `[[edge.node]]`.
    #[serde(default)]
    pub node: Vec<Spanned<RawEdgeNode>>,
}

/// Each section is a node of the cluster: 1 to 64 of them.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeNode {
    /// Number of the node in its cluster, 0 to 63.
    pub id: Spanned<u8>,
    /// Interface that leads to this node, and to no other.
    pub interface: Text,
}

/// The section configures local recovery: the edge holds what a node could lose, and resends it once another node serves the connection.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeRecovery {
    /// Packets that are held: the lowest unacknowledged segment of every connection (`"always"`), of the connections of a node that has lost two
    /// heartbeats (`"from-second-lost-heartbeat"`), of the connections with the most bytes (`"heavy-hitters"`), SYN segments only
    /// (`"syn-only"`), or none (`"off"`).
    pub policy: Option<Text>,
    /// Memory for held packets. When it is full, the packet that was held first is released.
    pub memory: Option<Spanned<SizeText>>,
    /// Largest number of packets that are resent in a second.
    pub resends_per_s: Option<Spanned<u32>>,
    /// Largest number of connections that `"heavy-hitters"` holds packets of.
    pub heavy_hitters: Option<Spanned<u32>>,
}

/// The section limits the rates of connections while a node is dead, by the advertised window. Without the section windows stay as they are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRateControl {
    /// TCP payload that a node can forward in a second, in bits.
    pub capacity_bits_per_s: Spanned<u64>,
    /// Weight of the last interval (α).
    pub alpha: Option<Spanned<f64>>,
    /// Target utilisation of a node (δ).
    pub delta: Option<Spanned<f64>>,
    /// Interval after which rates are adapted.
    pub granularity: Option<DurationText>,
    /// Lowest window, in bytes.
    pub window_min: Option<Spanned<u32>>,
}

/// The section has the kernel forward the packets of settled flows, which then do not reach the edge's process. With the default
/// `recovery.policy`, `"always"`, the edge needs every segment of TCP, and the kernel forwards UDP alone.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeFastPath {
    /// Whether the kernel forwards settled flows. Where the host cannot do so, the edge logs why and forwards all packets. At the hook `tc`,
    /// frames with a VLAN tag do not pass the edge then.
    pub enabled: Option<bool>,
    /// Where the kernel forwards them: `tc` at the ingress of any interface, `xdp` in the driver of a network card. Where an interface cannot
    /// have `xdp`, the edge logs why and uses `tc`.
    pub hook: Option<Text>,
    /// Largest number of flows that the kernel forwards at a time; others go through the edge. Each takes about 430 bytes of the kernel's
    /// memory from the start. More than `edge.connections_max` is not used.
    pub connections_max: Option<Spanned<u32>>,
}

/// The section authenticates and encrypts the frames between the edge and the nodes. Nodes with `replication.security.pre_shared_keys` take
/// no edge in plain text, unless their `failure_detection.plain_edges` permits it. The number of an edge with keys, `node.id`, is 64 or more.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeSecurity {
    /// Protection of the frames. `"plain"` is for nodes without pre-shared keys: who can send frames on a link between an edge and a node
    /// can then move flows.
    pub mode: Option<Text>,
    /// Paths of 1 to 4 files with a pre-shared key each, mode 0600: those of `replication.security` of the nodes. Handshakes begin with the
    /// first key, and all keys are accepted.
    #[serde(default)]
    pub pre_shared_keys: Vec<PathText>,
}

/// The section configures how the edge detects that a node is dead (BFD, RFC 5880). A node is dead after `interval` × `multiplier` without
/// a packet. The nodes answer edges where their `failure_detection.edges_max` permits it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawEdgeDetection {
    /// Interval of control packets.
    pub interval: Option<DurationText>,
    /// Number of intervals without a packet of this edge after which a node takes it for dead. That of a node is in the node's file.
    pub multiplier: Option<Spanned<u8>>,
}
