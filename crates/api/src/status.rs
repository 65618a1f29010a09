//! The status of a node.

use serde::{Deserialize, Serialize};

use super::{
    ChannelStatus, ClassStatus, EdgeStatus, FilterStatus, LazyStatus, MembershipStatus, PeerFilterStatus,
    RateLimitStatus, RedundancyStatus, SegmentsStatus, ServiceStatus, StateServiceStatus, SynProxyStatus, SyncStatus,
    UrlFilterStatus,
};

/// The status of a node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Version of the program.
    pub program_version: String,
    /// Name and role of this node.
    pub node: NodeStatus,
    /// Time of the answer.
    pub monotonic_now_ns: u64,
    /// Seconds since the process started.
    pub uptime_s: f64,
    /// Fingerprint of the configuration. It covers the keys in which nodes must agree.
    #[serde(default)]
    pub configuration: String,
    /// Readiness for a take-over by a peer.
    pub takeover: TakeoverStatus,
    /// Use of the connection table.
    pub connections: ConnectionsStatus,
    /// Deferral of replication, with `[replication.lazy]`. Of several workers, threshold, level and utilisation are the greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy: Option<LazyStatus>,
    /// Replication of unacknowledged segments, with `[replication.segments]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segments: Option<Box<SegmentsStatus>>,
    /// Rates over about the last second.
    pub rates: Rates,
    /// Other nodes, as this one knows them. With several workers, a peer is synchronised when it is so for all of them.
    pub peers: Vec<PeerStatus>,
    /// Ports of the gateway.
    pub ports: Vec<PortStatus>,
    /// Tracked next hops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_hops: Vec<NextHopStatus>,
    /// Dropped packets by reason. Reasons without packets are left out.
    pub drops: Vec<DropCount>,
    /// Workers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The fast path in the kernel, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fast_path: Option<Box<FastPathStatus>>,
    /// Traffic classes, with `[classifier]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<ClassStatus>,
    /// Services of the load balancer, with `[[service]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<ServiceStatus>,
    /// Rate limits, with `[rate_limit]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rate_limits: Vec<RateLimitStatus>,
    /// Rules of the SYN proxy, with `[syn_proxy]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub syn_proxy: Vec<SynProxyStatus>,
    /// Lists and rules of the URL filter, with `[url_filter]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url_filter: Option<Box<UrlFilterStatus>>,
    /// Members of the cluster, where `membership.source` is not `"static"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub membership: Option<Box<MembershipStatus>>,
    /// The tunnel to another site, with `[redundancy]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Box<RedundancyStatus>>,
    /// Connections that are looked up at peers, with `[replication.backups]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_service: Option<Box<StateServiceStatus>>,
    /// This node's peer filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Box<FilterStatus>>,
    /// Replication of the kernel's connections. Only `mainstay sync` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Box<SyncStatus>>,
    /// Nodes and held packets of an edge. Only `mainstay edge` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edge: Option<Box<EdgeStatus>>,
}

/// The fast path: established connections whose packets the kernel forwards.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FastPathStatus {
    /// Whether it forwards. It does not on a standby node.
    pub forwarding: bool,
    /// Where it sees packets: `tc`, the ingress of the ports, or `xdp`, their drivers.
    pub hook: String,
    /// Why that is not the configured `fast_path.hook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_reason: Option<String>,
    /// Connections that are installed.
    pub connections: u64,
    /// Packets that it has forwarded. A frame of many segments is one. Those of the last moments may be missing.
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    pub bytes: u64,
    /// Installations that were refused because all places were taken.
    pub full: u64,
    /// Installations that were refused otherwise.
    pub refused: u64,
    /// Packets that reached the kernel's program, by what became of them: `forwarded`, or why they went to the gateway.
    pub outcomes: Vec<OutcomeCount>,
}

/// Packets with one outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct OutcomeCount {
    /// The outcome.
    pub outcome: String,
    /// Packets.
    pub packets: u64,
}

/// A worker: a thread that moves packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Number of the worker. Worker 0 leads.
    pub number: u8,
    /// Connections of the worker.
    pub connections: u64,
    /// Share of its time that the worker was busy, from 0 to 1, over about the last second.
    pub load: f64,
    /// Packets that the worker forwarded.
    pub forwarded: u64,
    /// Packets that the worker received and that belong to another worker.
    pub handed_over: u64,
    /// Packets that other workers handed to this one.
    pub taken: u64,
    /// Connections of other workers whose replies arrive at this one.
    pub redirects: u64,
    /// Messages to other workers that found no room.
    #[serde(default)]
    pub messages_lost: u64,
}

/// A node and its role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Number of the node.
    pub id: u8,
    /// Name of the node.
    pub name: String,
    /// Role: `init`, `standby`, `taking_over`, `active`, `leaving` or `drained`. With several groups it is `active` if the node is active for any
    /// of them.
    pub role: String,
    /// Time of the last change of the role.
    pub role_since_ns: u64,
    /// Reason and remedy, while the node takes no shared addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<String>,
    /// Role of the node in each group of shared addresses, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
}

/// A node's role in a group of shared addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Role of the node in the group.
    pub role: String,
    /// Time of the last change of the role.
    pub role_since_ns: u64,
    /// Priority of the node for the group: the highest wins.
    pub priority: u8,
    /// Term of the group's latest take-over that the node knows.
    pub term: u64,
}

/// Readiness for a take-over by a peer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TakeoverStatus {
    /// Whether a take-over would keep every replicated connection.
    pub ready: bool,
    /// Reasons why not, a clause each.
    pub obstacles: Vec<String>,
}

/// Use of the connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Connections in the table, replicas included.
    pub count: u64,
    /// Largest number of connections (`limits.connections_max`).
    pub max: u64,
    /// Own connections that are not replicated, because nobody has answered them or they are not established (`replication.start`).
    #[serde(default)]
    pub unanswered: u64,
    /// Connections that this node owns, where it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<u64>,
}

/// Rates over about the last second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Packets that the node forwarded per second.
    pub packets_per_s: f64,
    /// Bits that the node forwarded per second.
    pub bits_per_s: f64,
    /// Connections that began per second.
    pub connections_per_s: f64,
}

/// Comparison of this node's replicas with what the peer sent. Of several workers, `agreed_ns` and `rounds` are those of the last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AntiEntropy {
    /// Time when the replicas were last found equal. It is absent if they never were, or if the peer's release does not compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreed_ns: Option<u64>,
    /// Replicas that are known to differ now.
    pub divergent: u64,
    /// Comparisons that the peer answered, since the start.
    pub rounds: u64,
    /// Replicas that were found to differ.
    pub found: u64,
    /// Missing and wrong replicas that the peer sent again.
    pub repaired: u64,
    /// Replicas that were removed because the peer had no such connection.
    pub extra_removed: u64,
    /// Replicas that changed in memory without an update.
    pub unnoted_changes: u64,
}

/// Another node, as this one knows it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Number of the peer.
    pub id: u8,
    /// Replication address of the peer.
    pub address: String,
    /// State of the failure detector: `up` while any path is up, else `down`, `init` or `admin_down`. For `mainstay sync` it states whether
    /// packets of the peer arrive.
    pub detector: String,
    /// Paths to the peer, where failures are also detected over service ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathStatus>,
    /// Split brain with the peer: `none`; `suspected` while this node is active and the peer is silent on all paths without a hand-over;
    /// `confirmed` once the peer reports that it is active, too.
    #[serde(default)]
    pub split_brain: String,
    /// Secure channel to the peer.
    #[serde(default)]
    pub channel: ChannelStatus,
    /// State of the replication session.
    pub session: String,
    /// Role that the peer reports; for `mainstay sync` `primary`, `backup`, `fault` or `unknown`.
    pub role: String,
    /// Names of the groups that the peer reports to hold, where there are several groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Fingerprint of the peer's configuration, if the peer reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// Whether the peer has acknowledged every replicated connection.
    pub synchronised: bool,
    /// Age of the oldest change that the peer has not acknowledged, in milliseconds. Of several workers it is the longest.
    pub lag_ms: f64,
    /// Round-trip time in milliseconds, once it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Changes that wait to be sent.
    pub queued: u64,
    /// Connections that are to be replicated to the peer and that it does not have in any state. A failover now would lose them.
    #[serde(default)]
    pub uncovered: u64,
    /// Messages that are sent and not acknowledged.
    pub in_flight: u64,
    /// Messages that were sent to the peer.
    pub sent: u64,
    /// Messages that were received from the peer.
    pub received: u64,
    /// Changes that were retransmitted under a new message number.
    pub resent: u64,
    /// Messages of the peer that were lost.
    pub lost: u64,
    /// Comparison of this node's replicas with what the peer sent.
    #[serde(default)]
    pub anti_entropy: AntiEntropy,
    /// The peer's filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<PeerFilterStatus>,
    /// Time when a packet of the peer was last received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received_ns: Option<u64>,
}

/// A path to another node, over which failures are detected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// `replication`, or the name of the port.
    pub path: String,
    /// State: `up`, `down`, or `never` while the path has not been up.
    pub state: String,
    /// Time of the last change of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortStatus {
    /// Name of the port.
    pub name: String,
    /// Interface of the system.
    pub interface: String,
    /// Packets that the port received, with those that the kernel's fast path forwarded. A frame of many segments is one.
    pub received_packets: u64,
    /// Bytes that the port received, from the link header on, with those that the kernel's fast path forwarded.
    pub received_bytes: u64,
    /// Packets that the port sent, with those that the kernel's fast path forwarded. A frame of many segments is one.
    pub sent_packets: u64,
    /// Bytes that the port sent, from the link header on, with those that the kernel's fast path forwarded.
    pub sent_bytes: u64,
    /// Packets that the kernel dropped before the gateway received them.
    pub missed_packets: u64,
    /// Whether the interface is switched on and has carrier, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Time of the last change of `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Speed of the link in Mbit/s, where the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u32>,
}

/// A tracked next hop.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// Port on whose link the next hop is.
    pub port: String,
    /// Address of the next hop.
    pub address: String,
    /// State: `reached`, `lost`, or `unknown` while its port is down or too few probes were sent.
    pub state: String,
    /// Time of the last change of the state.
    pub since_ns: u64,
}

/// Dropped packets of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DropCount {
    /// Reason, as in metrics.
    pub reason: String,
    /// Packets that were dropped for it.
    pub packets: u64,
}
