//! The status of a node.

use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use super::metrics::{Catalogue, Description, Metric};
use super::report::{Report, sum_by_key};
use super::{
    ChannelStatus, ClassStatus, DetectorState, EdgeStatus, FilterStatus, LazyStatus, MembershipStatus, NextHopState,
    NodeRole, PathState, PeerFilterStatus, RateLimitStatus, RedundancyStatus, ServiceStatus, SessionState, SplitBrain,
    StateServiceStatus, SynProxyStatus, SyncStatus, UrlFilterStatus,
};

/// All metrics, in the order of the page: those of the status, then the others.
#[must_use]
pub fn catalogue() -> &'static [Description] {
    static CATALOGUE: LazyLock<Catalogue> = LazyLock::new(|| {
        let mut catalogue = Catalogue::default();
        Status::describe(&[], &mut catalogue);
        Metric::ALL.iter().for_each(|metric| catalogue.add(metric.description()));
        catalogue
    });
    CATALOGUE.as_slice()
}

/// The status of a node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct Status {
    /// Version of the program.
    #[report(gauge("build_info", version = self.program_version, value = 1_u8,
        help = "Always 1. The label is the program's version."))]
    pub program_version: String,
    /// Name and role of this node.
    #[report(nested)]
    pub node: NodeStatus,
    /// Time of the answer.
    pub monotonic_now_ns: u64,
    /// Seconds since the process started.
    #[report(gauge("uptime_seconds"))]
    pub uptime_s: f64,
    /// Fingerprint of the configuration. It covers the keys in which nodes must agree.
    #[serde(default)]
    pub configuration: String,
    /// Readiness for a take-over by a peer.
    #[report(nested)]
    pub takeover: TakeoverStatus,
    /// Use of the connection table.
    #[report(nested)]
    pub connections: ConnectionsStatus,
    /// Deferral of replication, with `[replication.lazy]`. Of several workers, threshold, level and utilisation are the greatest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub lazy: Option<LazyStatus>,
    /// Rates over about the last second.
    #[report(nested)]
    pub rates: Rates,
    /// Other nodes, as this one knows them. With several workers, a peer is synchronised when it is so for all of them.
    #[report(nested)]
    pub peers: Vec<PeerStatus>,
    /// Ports of the gateway.
    #[report(nested)]
    pub ports: Vec<PortStatus>,
    /// Tracked next hops.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub next_hops: Vec<NextHopStatus>,
    /// Dropped packets by reason. Reasons without packets are left out.
    #[report(with(sum_drops))]
    pub drops: Vec<DropCount>,
    /// Workers, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub workers: Vec<WorkerStatus>,
    /// The fast path in the kernel, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub fast_path: Option<Box<FastPathStatus>>,
    /// Traffic classes, with `[classifier]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub classes: Vec<ClassStatus>,
    /// Services of the load balancer, with `[[service]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub services: Vec<ServiceStatus>,
    /// Rate limits, with `[rate_limit]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub rate_limits: Vec<RateLimitStatus>,
    /// Rules of the SYN proxy, with `[syn_proxy]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub syn_proxy: Vec<SynProxyStatus>,
    /// Lists and rules of the URL filter, with `[url_filter]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub url_filter: Option<Box<UrlFilterStatus>>,
    /// Members of the cluster, where `membership.source` is not `"static"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub membership: Option<Box<MembershipStatus>>,
    /// The tunnel to another site, with `[redundancy]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub redundancy: Option<Box<RedundancyStatus>>,
    /// Connections that are looked up at peers, with `[replication.backups]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub state_service: Option<Box<StateServiceStatus>>,
    /// This node's peer filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub filter: Option<Box<FilterStatus>>,
    /// Replication of the kernel's connections. Only `mainstay sync` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub sync: Option<Box<SyncStatus>>,
    /// Nodes and held packets of an edge. Only `mainstay edge` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub edge: Option<Box<EdgeStatus>>,
}

impl Status {
    /// Adds the status of another worker, which knows of itself alone in [`Status::workers`].
    pub fn add_worker(&mut self, other: &Self) {
        self.merge(other);
        self.workers.extend_from_slice(&other.workers);
    }
}

fn sum_drops(drops: &mut Vec<DropCount>, others: &[DropCount]) {
    sum_by_key(drops, others, |drop| &drop.reason, |drop| &mut drop.packets);
}

/// Of the sessions that the workers have with a peer, the least good one is that of the node.
fn least_open(session: &mut SessionState, other: &SessionState) {
    if *session == SessionState::Open {
        *session = *other;
    }
}

/// The fast path: established connections whose packets the kernel forwards.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct FastPathStatus {
    /// Whether it forwards. It does not on a standby node.
    #[report(least)]
    pub forwarding: bool,
    /// Where it sees packets: `tc`, the ingress of the ports, or `xdp`, their drivers.
    #[report(gauge("fast_path_hook", hook = self.hook, value = 1_u8,
        help = "1 for the hook at which the kernel's fast path sees packets: `tc` or `xdp`."))]
    pub hook: String,
    /// Why that is not the configured `fast_path.hook`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook_reason: Option<String>,
    /// Connections that are installed.
    #[report(sum, gauge("fast_path_connections", help = "Connections whose packets the kernel forwards."))]
    pub connections: u64,
    /// Packets that it has forwarded. A frame of many segments is one. Those of the last moments may be missing.
    #[report(sum)]
    pub packets: u64,
    /// Bytes of these packets, from the IP header on.
    #[report(
        sum,
        counter(
            "fast_path_bytes_total",
            help = "Bytes of packets that the kernel's fast path forwarded, from the IP header on."
        )
    )]
    pub bytes: u64,
    /// Installations that were refused because all places were taken.
    #[report(
        sum,
        counter(
            "fast_path_refused_installations_total",
            reason = "full",
            help = "Connections that were not installed in the fast path: all places were taken (`full`), or the kernel refused (`other`)."
        )
    )]
    pub full: u64,
    /// Installations that were refused otherwise.
    #[report(sum, counter("fast_path_refused_installations_total", reason = "other"))]
    pub refused: u64,
    /// Packets that reached the kernel's program, by what became of them: `forwarded`, or why they went to the gateway.
    #[report(nested)]
    pub outcomes: Vec<OutcomeCount>,
}

/// Packets with one outcome.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(outcome = self.outcome))]
pub struct OutcomeCount {
    /// The outcome.
    pub outcome: String,
    /// Packets.
    #[report(counter(
        "fast_path_packets_total",
        help = "Packets that the kernel's fast path looked at: `forwarded`, or the reason for which they went to the gateway."
    ))]
    pub packets: u64,
}

/// A worker: a thread that moves packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(worker = self.number))]
pub struct WorkerStatus {
    /// Number of the worker. Worker 0 leads.
    pub number: u8,
    /// Connections of the worker.
    #[report(gauge("worker_connections"))]
    pub connections: u64,
    /// Share of its time that the worker was busy, from 0 to 1, over about the last second.
    #[report(gauge("worker_load_ratio"))]
    pub load: f64,
    /// Packets that the worker forwarded.
    #[report(counter("worker_forwarded_packets_total"))]
    pub forwarded: u64,
    /// Packets that the worker received and that belong to another worker.
    #[report(counter("worker_handed_over_packets_total"))]
    pub handed_over: u64,
    /// Packets that other workers handed to this one.
    #[report(counter("worker_taken_packets_total"))]
    pub taken: u64,
    /// Connections of other workers whose replies arrive at this one.
    pub redirects: u64,
    /// Messages to other workers that found no room.
    #[serde(default)]
    #[report(counter("worker_messages_lost_total"))]
    pub messages_lost: u64,
}

/// A node and its role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct NodeStatus {
    /// Number of the node.
    pub id: u8,
    /// Name of the node.
    pub name: String,
    /// Role: `init`, `standby`, `taking_over`, `active`, `leaving` or `drained`. With several groups it is `active` if the node is active for any
    /// of them.
    #[report(gauge("node_active", value = matches!(self.role, NodeRole::Active | NodeRole::Primary),
        help = "1 while this node holds the shared addresses of a group."))]
    pub role: NodeRole,
    /// Time of the last change of the role.
    pub role_since_ns: u64,
    /// Reason and remedy, while the node takes no shared addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub passive: Option<String>,
    /// Role of the node in each group of shared addresses, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub groups: Vec<GroupStatus>,
}

/// A node's role in a group of shared addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(group = self.name))]
pub struct GroupStatus {
    /// Name of the group.
    pub name: String,
    /// Role of the node in the group.
    #[report(gauge("group_active", value = self.role == NodeRole::Active,
        help = "1 while this node holds the group's shared addresses. It exists where there are several groups."))]
    pub role: NodeRole,
    /// Time of the last change of the role.
    pub role_since_ns: u64,
    /// Priority of the node for the group: the highest wins.
    pub priority: u8,
    /// Term of the group's latest take-over that the node knows.
    pub term: u64,
}

/// Readiness for a take-over by a peer.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct TakeoverStatus {
    /// Whether a take-over would keep every replicated connection.
    #[report(gauge("takeover_ready", merge = least))]
    pub ready: bool,
    /// Reasons why not, a clause each.
    pub obstacles: Vec<String>,
}

/// Use of the connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct ConnectionsStatus {
    /// Connections in the table, replicas included.
    #[report(sum, gauge("connections"))]
    pub count: u64,
    /// Largest number of connections (`limits.connections_max`).
    #[report(sum, gauge("connections_max"))]
    pub max: u64,
    /// Own connections that are not replicated, because nobody has answered them or they are not established (`replication.start`).
    #[serde(default)]
    #[report(sum, gauge("connections_unanswered"))]
    pub unanswered: u64,
    /// Connections that this node owns, where it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[report(sum)]
    pub master: Option<u64>,
}

/// Rates over about the last second.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct Rates {
    /// Packets that the node forwarded per second.
    #[report(sum)]
    pub packets_per_s: f64,
    /// Bits that the node forwarded per second.
    #[report(sum)]
    pub bits_per_s: f64,
    /// Connections that began per second.
    #[report(sum)]
    pub connections_per_s: f64,
}

/// Comparison of this node's replicas with what the peer sent. Of several workers, `agreed_ns` and `rounds` are those of the last.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct AntiEntropy {
    /// Time when the replicas were last found equal. It is absent if they never were, or if the peer's release does not compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[report(least)]
    pub agreed_ns: Option<u64>,
    /// Replicas that are known to differ now.
    #[report(sum, gauge("replica_divergent"))]
    pub divergent: u64,
    /// Comparisons that the peer answered, since the start.
    #[report(
        least,
        counter("replica_comparisons_total", help = "Comparisons of this node's replicas with what the peer sent.")
    )]
    pub rounds: u64,
    /// Replicas that were found to differ.
    #[report(sum, counter("replica_divergent_found_total"))]
    pub found: u64,
    /// Missing and wrong replicas that the peer sent again.
    #[report(sum, counter("replica_repaired_total"))]
    pub repaired: u64,
    /// Replicas that were removed because the peer had no such connection.
    #[report(sum, counter("replica_extra_removed_total"))]
    pub extra_removed: u64,
    /// Replicas that changed in memory without an update.
    #[report(sum, counter("replica_unnoted_changes_total"))]
    pub unnoted_changes: u64,
}

/// Another node, as this one knows it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(peer = self.id))]
pub struct PeerStatus {
    /// Number of the peer.
    pub id: u8,
    /// Replication address of the peer.
    pub address: String,
    /// State of the failure detector: `up` while any path is up, else `down`, `init` or `admin_down`. For `mainstay sync` it states whether
    /// packets of the peer arrive.
    #[report(gauge("peer_up", value = self.detector == DetectorState::Up,
        help = "1 while the failure detector receives the peer on some path."))]
    pub detector: DetectorState,
    /// Paths to the peer, where failures are also detected over service ports.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[report(nested)]
    pub paths: Vec<PathStatus>,
    /// Split brain with the peer: `none`; `suspected` while this node is active and the peer is silent on all paths without a hand-over;
    /// `confirmed` once the peer reports that it is active, too.
    #[serde(default)]
    #[report(gauge("split_brain", certainty = "suspected", value = self.split_brain == SplitBrain::Suspected,
        help = "1 while the peer is `suspected` to hold the same addresses as this node, or while that is `confirmed`."))]
    #[report(gauge("split_brain", certainty = "confirmed", value = self.split_brain == SplitBrain::Confirmed))]
    pub split_brain: SplitBrain,
    /// Secure channel to the peer.
    #[serde(default)]
    #[report(nested)]
    pub channel: ChannelStatus,
    /// State of the replication session.
    #[report(with(least_open))]
    pub session: SessionState,
    /// Role that the peer reports; for `mainstay sync` `primary`, `backup`, `fault` or `unknown`.
    pub role: NodeRole,
    /// Names of the groups that the peer reports to hold, where there are several groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// Fingerprint of the peer's configuration, if the peer reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// Whether the peer has acknowledged every replicated connection.
    #[report(least, gauge("peer_synchronised"))]
    pub synchronised: bool,
    /// Age of the oldest change that the peer has not acknowledged, in milliseconds. Of several workers it is the longest.
    #[report(greatest, gauge("replication_lag_seconds", value = self.lag_ms / 1e3,
        help = "Age of the oldest change that the peer has not acknowledged."))]
    pub lag_ms: f64,
    /// Round-trip time in milliseconds, once it is measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[report(greatest)]
    pub rtt_ms: Option<f64>,
    /// Changes that wait to be sent.
    #[report(sum, gauge("replication_queued"))]
    pub queued: u64,
    /// Connections that are to be replicated to the peer and that it does not have in any state. A failover now would lose them.
    #[serde(default)]
    #[report(sum, gauge("replication_uncovered"))]
    pub uncovered: u64,
    /// Messages that are sent and not acknowledged.
    #[report(sum, gauge("replication_in_flight_messages"))]
    pub in_flight: u64,
    /// Messages that were sent to the peer.
    #[report(sum, counter("replication_sent_messages_total"))]
    pub sent: u64,
    /// Messages that were received from the peer.
    #[report(sum, counter("replication_received_messages_total"))]
    pub received: u64,
    /// Changes that were retransmitted under a new message number.
    #[report(sum, counter("replication_resent_messages_total"))]
    pub resent: u64,
    /// Messages of the peer that were lost.
    #[report(sum, counter("replication_lost_messages_total"))]
    pub lost: u64,
    /// Comparison of this node's replicas with what the peer sent.
    #[serde(default)]
    #[report(nested)]
    pub anti_entropy: AntiEntropy,
    /// The peer's filter, with compact replication.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(nested)]
    pub filter: Option<PeerFilterStatus>,
    /// Time when a packet of the peer was last received.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[report(greatest)]
    pub last_received_ns: Option<u64>,
}

/// A path to another node, over which failures are detected.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(path = self.path))]
pub struct PathStatus {
    /// `replication`, or the name of the port.
    pub path: String,
    /// State: `up`, `down`, or `never` while the path has not been up.
    #[report(gauge("path_up", value = self.state == PathState::Up,
        help = "1 while failure detection on the path is up. The path is `replication` or the name of a port."))]
    pub state: PathState,
    /// Time of the last change of the state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(port = self.name))]
pub struct PortStatus {
    /// Name of the port.
    pub name: String,
    /// Interface of the system.
    pub interface: String,
    /// Packets that the port received, with those that the kernel's fast path forwarded. A frame of many segments is one.
    #[report(sum, counter("received_packets_total"))]
    pub received_packets: u64,
    /// Bytes that the port received, from the link header on, with those that the kernel's fast path forwarded.
    #[report(sum, counter("received_bytes_total"))]
    pub received_bytes: u64,
    /// Packets that the port sent, with those that the kernel's fast path forwarded. A frame of many segments is one.
    #[report(sum, counter("sent_packets_total"))]
    pub sent_packets: u64,
    /// Bytes that the port sent, from the link header on, with those that the kernel's fast path forwarded.
    #[report(sum, counter("sent_bytes_total"))]
    pub sent_bytes: u64,
    /// Packets that the kernel dropped before the gateway received them.
    #[report(sum, counter("missed_packets_total"))]
    pub missed_packets: u64,
    /// Whether the interface is switched on and has carrier, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(gauge("port_up", help = "1 while the port's interface is switched on and has carrier."))]
    pub up: Option<bool>,
    /// Time of the last change of `up`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ns: Option<u64>,
    /// Speed of the link in Mbit/s, where the driver reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbps: Option<u32>,
}

/// A tracked next hop.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(port = self.port, next_hop = self.address))]
pub struct NextHopStatus {
    /// Port on whose link the next hop is.
    pub port: String,
    /// Address of the next hop.
    pub address: String,
    /// State: `reached`, `lost`, or `unknown` while its port is down or too few probes were sent.
    #[report(gauge("next_hop_up", value = self.state == NextHopState::Reached,
        help = "1 while the tracked next hop answers probes."))]
    pub state: NextHopState,
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
