//! The status of a node that replicates the kernel's connections.

use serde::{Deserialize, Serialize};

use crate::NodeRole;
use crate::report::Report;

/// What an operator, or keepalived, wants of `mainstay sync`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyncOrder {
    /// The node is to carry connections.
    Primary,
    /// The node is to stand by.
    Backup,
    /// The node is not to be chosen.
    Fault,
    /// A full synchronisation in both directions.
    Resync,
    /// Nothing: it is only asked how ready the node is.
    Nothing,
}

impl SyncOrder {
    /// As the request and the command line spell it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Backup => "backup",
            Self::Fault => "fault",
            Self::Resync => "resync",
            Self::Nothing => "nothing",
        }
    }
}

/// Readiness of a `mainstay sync` node.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct SyncReadiness {
    /// Role: `primary`, `backup` or `fault`.
    #[report(gauge("sync_primary", value = self.role == NodeRole::Primary,
        help = "1 while this node is primary, by order of keepalived or an operator."))]
    pub role: NodeRole,
    /// Whether all known connections that this node carries are in its kernel.
    #[report(gauge("sync_usable"))]
    pub usable: bool,
    /// Reasons why not, a clause each.
    #[serde(default)]
    pub not_usable_reasons: Vec<String>,
    /// Whether this node could take over now.
    pub may_take_over: bool,
    /// Reasons why not, a clause each.
    #[serde(default)]
    pub may_not_reasons: Vec<String>,
    /// Whether a failover now would keep every connection, whichever node is primary.
    pub failover_safe: bool,
    /// Reasons why not, a clause each.
    #[serde(default)]
    pub not_safe_reasons: Vec<String>,
}

/// Replication of the kernel's connections. Only `mainstay sync` has it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct SyncStatus {
    /// `cluster.mode`: `primary-backup` or `multi-primary`.
    pub mode: String,
    /// `kernel.injection`: `direct` or `external-cache`.
    pub injection: String,
    /// Readiness of the node.
    #[report(nested)]
    pub readiness: SyncReadiness,
    /// Sentence that states whether a failover now would be safe, and if not, why.
    pub failover: String,
    /// The kernel's connection tracking, and this node's connection table.
    #[report(nested)]
    pub kernel: KernelStatus,
    /// Whether another node is primary, too, although `mode` is `primary-backup`.
    #[report(gauge(
        "sync_split_brain",
        help = "1 while another node is primary, too, although `cluster.mode` is `primary-backup`."
    ))]
    pub split_brain: bool,
    /// Present troubles, each a sentence with its remedy.
    #[serde(default)]
    #[report(gauge("sync_troubles", value = self.troubles.len(),
        help = "Present troubles, which `mainstay status` names."))]
    pub troubles: Vec<String>,
}

/// The kernel's connection tracking, and this node's connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct KernelStatus {
    /// Connections that the kernel tracks.
    #[report(gauge("kernel_connections"))]
    pub connections: u64,
    /// Largest number of connections that the kernel tracks (`net.netfilter.nf_conntrack_max`).
    #[report(gauge(
        "kernel_connections_max",
        help = "Largest number of connections that the kernel tracks; 0 is no limit."
    ))]
    pub connections_max: u64,
    /// Connections whose packets this kernel receives.
    #[report(gauge(
        "sync_connections",
        kind = "own",
        help = "Connections in the connection table: those whose packets this kernel receives (`own`), replicas of peers' connections (`copy`), and the replicas that are in this kernel (`injected`)."
    ))]
    pub own: u64,
    /// Connections of this kernel that are not replicated although no rule of `[filter]` excludes them, by reason.
    #[serde(default)]
    #[report(nested)]
    pub unreplicated: Vec<UnreplicatedConnections>,
    /// Replicas of peers' connections.
    #[report(gauge("sync_connections", kind = "copy"))]
    pub copies: u64,
    /// Replicas that are in this kernel.
    #[report(gauge("sync_connections", kind = "injected"))]
    pub injected: u64,
    /// Changes that wait for injection into the kernel.
    #[report(gauge("sync_kernel_requests_waiting"))]
    pub waiting: u64,
    /// Requests to the kernel about expectations.
    #[report(counter("sync_kernel_expectation_requests_total"))]
    pub expectation_requests: u64,
    /// Events that the kernel makes of TCP connections: `lean` or `all`.
    #[serde(default)]
    pub events_made: String,
    /// Times that the rules for `lean` were missing and were restored.
    #[serde(default)]
    pub event_rules_put_back: u64,
    /// Events that were read from the kernel.
    #[report(counter("sync_kernel_events_total"))]
    pub events: u64,
    /// Events that were malformed.
    #[report(counter("sync_kernel_events_malformed_total"))]
    pub events_malformed: u64,
    /// Times that the kernel lost events because the buffer was full.
    #[report(counter("sync_kernel_event_overruns_total"))]
    pub overruns: u64,
    /// Connections that were found new, changed or gone after events were lost.
    #[report(counter("sync_kernel_repaired_total"))]
    pub repaired: u64,
    /// Size of the buffer for the kernel's events, in bytes.
    #[report(gauge("sync_kernel_receive_buffer_bytes"))]
    pub receive_buffer_bytes: u64,
    /// Times that the kernel's whole table was read.
    #[report(counter("sync_kernel_dumps_total"))]
    pub dumps: u64,
    /// Requests to the kernel.
    #[report(counter("sync_kernel_requests_total"))]
    pub requests: u64,
    /// Requests that the kernel refused, by reason.
    #[report(nested)]
    pub refused: Vec<RefusedRequests>,
    /// Replicas that the kernel removed before their owner did, and that were injected again.
    #[report(counter("sync_reinjected_total"))]
    pub reinjected: u64,
    /// Connections of this kernel that found no room in the connection table (`kernel.connections_max`).
    #[report(counter("sync_table_full_total"))]
    pub table_full: u64,
}

/// Connections that are not replicated for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(reason = self.reason))]
pub struct UnreplicatedConnections {
    /// Reason: `unreplied`, `zone_of_one_direction` or `inexpressible`.
    pub reason: String,
    /// Connections now.
    #[report(gauge(
        "sync_connections_unreplicated",
        help = "Connections of this kernel that are not replicated although no rule excludes them: without a reply yet (`unreplied`), younger than `replication.lazy.threshold` (`deferred`), or of a kind that the protocol of conntrackd cannot express (`zone_of_one_direction`, `inexpressible`)."
    ))]
    pub connections: u64,
}

/// Requests that the kernel refused for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(reason = self.reason))]
pub struct RefusedRequests {
    /// Reason of the refusal.
    pub reason: String,
    /// Requests that were refused for it.
    #[report(counter("sync_kernel_requests_refused_total", help = "Requests that the kernel refused, by reason."))]
    pub requests: u64,
}
