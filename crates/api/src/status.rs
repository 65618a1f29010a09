//! How a node is, in the words of the control API.

use serde::{Deserialize, Serialize};

use super::{ChannelStatus, FilterStatus, LazyStatus, PeerFilterStatus, RedundancyStatus, SyncStatus};

/// How a node is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub program_version: String,
    /// This node.
    pub node: NodeStatus,
    /// When this was said, in nanoseconds of the monotonic clock.
    pub monotonic_now_ns: u64,
    /// Seconds since the gateway started.
    pub uptime_s: f64,
    /// Fingerprint of the configuration, as far as nodes must agree in it.
    #[serde(default)]
    pub configuration: String,
    /// Whether a peer could take over without losing connections.
    pub takeover: TakeoverStatus,
    /// The connection table.
    pub connections: ConnectionsStatus,
    /// Deferred replication, if it is configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy: Option<LazyStatus>,
    /// What goes through, over the last second or so.
    pub rates: Rates,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// The ports.
    pub ports: Vec<PortStatus>,
    /// The next hops that are tracked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_hops: Vec<NextHopStatus>,
    /// Dropped packets, by reason; reasons that never occurred are left out.
    pub drops: Vec<DropCount>,
    /// The threads that move packets, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The tunnel to another site, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Box<RedundancyStatus>>,
    /// This node's filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Box<FilterStatus>>,
    /// The kernel's connections, where this node replicates those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Box<SyncStatus>>,
}

/// A thread that moves packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number; 0 leads.
    pub number: u8,
    /// Connections that it holds.
    pub connections: u64,
    /// Share of its time that it worked, 0 to 1, over the last second or so.
    pub load: f64,
    /// Packets that it forwarded.
    pub forwarded: u64,
    /// Packets that came to it and belong to another worker.
    pub handed_over: u64,
    /// Packets that other workers handed to it.
    pub taken: u64,
    /// Connections of other workers whose replies come to it.
    pub redirects: u64,
}

/// A node and its role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// `init`, `standby`, `taking_over`, `active`, `leaving` or, when it is drained, `left`.
    pub role: String,
    /// Since when it has the role, in nanoseconds of the monotonic clock.
    pub role_since_ns: u64,
    /// Why it takes no shared addresses over, if it is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<String>,
    /// Its role in each group of shared addresses, where there are several; `role` is then active if one of them is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
}

/// A node's role in a group of shared addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The group's name.
    pub name: String,
    /// As the node's role.
    pub role: String,
    /// Since when it has the role, in nanoseconds of the monotonic clock.
    pub role_since_ns: u64,
    /// Its priority for the group: the highest wins.
    pub priority: u8,
    /// The number of the group's latest take-over that it knows of.
    pub term: u64,
}

/// Whether a peer could take over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TakeoverStatus {
    /// Every connection worth keeping is on another node that is up.
    pub ready: bool,
    /// What is in the way, a clause each; empty when ready.
    pub why_not: Vec<String>,
}

/// The connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Connections held.
    pub count: u64,
    /// Connections held at most.
    pub max: u64,
    /// Connections that this node is master of, when it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<u64>,
}

/// What goes through.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Packets forwarded a second.
    pub packets_per_s: f64,
    /// Bits forwarded a second.
    pub bits_per_s: f64,
    /// Connections begun a second.
    pub connections_per_s: f64,
}

/// How a node's replicas of a peer's connections compare with what the peer sent.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AntiEntropy {
    /// When they were last found to be the same, in nanoseconds of the monotonic clock; `None`: never, or the peer is of a
    /// release that does not compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreed_ns: Option<u64>,
    /// Connections known to differ now.
    pub divergent: u64,
    /// Comparisons that the peer answered.
    pub rounds: u64,
    /// Connections found to differ.
    pub found: u64,
    /// Missing and wrong replicas that were sent again.
    pub repaired: u64,
    /// Replicas removed because the peer had no such connection.
    pub extra_removed: u64,
    /// Replicas that were not in the table as they had been entered.
    pub unnoted_changes: u64,
}

/// Another node, as this one sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its number.
    pub id: u8,
    /// Its replication address.
    pub address: String,
    /// The failure detector's state: `up`, `down`, `init` or `admin_down`.
    pub detector: String,
    /// How each path to it stands: the replication path, and the ports that failure detection uses. Empty where nothing but the
    /// replication path is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<PathStatus>,
    /// Whether it may hold the same addresses as this node: `none`, `suspected` or `confirmed`.
    #[serde(default)]
    pub split_brain: String,
    /// How the traffic to it is secured.
    #[serde(default)]
    pub channel: ChannelStatus,
    /// The replication session's state.
    pub session: String,
    /// The role in its heartbeat; with several groups, active if one of them is.
    pub role: String,
    /// The groups whose addresses it holds by its heartbeat, by name, where there are several groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The fingerprint of its configuration, if it sends one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// It has every connection that this node has replicated to it.
    pub synchronised: bool,
    /// Age of the oldest change that it has not acknowledged, in milliseconds.
    pub lag_ms: f64,
    /// Round-trip time, in milliseconds; `None` while not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Changes waiting to be sent.
    pub queued: u64,
    /// Messages sent and not acknowledged.
    pub in_flight: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Changes sent again under a new number.
    pub resent: u64,
    /// Messages that this node has missed.
    pub lost: u64,
    /// How this node's replicas of its connections compare with what it sent.
    #[serde(default)]
    pub anti_entropy: AntiEntropy,
    /// Its filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<PeerFilterStatus>,
    /// When a datagram of it was last received, in nanoseconds of the monotonic clock; `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_received_ns: Option<u64>,
}

/// A path to another node, over which failures are detected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PathStatus {
    /// `replication`, or the port's name.
    pub path: String,
    /// `up`, `down`, or `never` while it has not been up yet.
    pub state: String,
    /// Since when, in nanoseconds of the monotonic clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// The system's interface.
    pub interface: String,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that the system dropped before the gateway saw them.
    pub missed_packets: u64,
    /// Its interface is switched on and has carrier; `None` where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up: Option<bool>,
    /// Since when it is up, or down, in nanoseconds of the monotonic clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// The link's speed in Mbit/s, where the driver gives it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u32>,
}

/// A next hop that is tracked.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NextHopStatus {
    /// The port on whose link it is.
    pub port: String,
    /// Its address.
    pub address: String,
    /// `reached`, `lost`, or `unknown` while its port is down or it has been probed too seldom.
    pub state: String,
    /// Since when, in nanoseconds of the monotonic clock.
    pub since_ns: u64,
}

/// Dropped packets of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason, as in metrics.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}
