//! The status of a node that replicates the kernel's connections.

use serde::{Deserialize, Serialize};

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
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SyncReadiness {
    /// Role: `primary`, `backup` or `fault`.
    pub role: String,
    /// Whether all known connections that this node carries are in its kernel.
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
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SyncStatus {
    /// `cluster.mode`: `primary-backup` or `multi-primary`.
    pub mode: String,
    /// `kernel.injection`: `direct` or `external-cache`.
    pub injection: String,
    /// Readiness of the node.
    pub readiness: SyncReadiness,
    /// Sentence that states whether a failover now would be safe, and if not, why.
    pub failover: String,
    /// The kernel's connection tracking, and this node's connection table.
    pub kernel: KernelStatus,
    /// Whether another node is primary, too, although `mode` is `primary-backup`.
    pub split_brain: bool,
    /// Present troubles, each a sentence with its remedy.
    #[serde(default)]
    pub troubles: Vec<String>,
}

/// The kernel's connection tracking, and this node's connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelStatus {
    /// Connections that the kernel tracks.
    pub connections: u64,
    /// Largest number of connections that the kernel tracks (`net.netfilter.nf_conntrack_max`).
    pub connections_max: u64,
    /// Connections whose packets this kernel receives.
    pub own: u64,
    /// Connections of this kernel that are not replicated although no rule of `[filter]` excludes them, by reason.
    #[serde(default)]
    pub unreplicated: Vec<UnreplicatedConnections>,
    /// Replicas of peers' connections.
    pub copies: u64,
    /// Replicas that are in this kernel.
    pub injected: u64,
    /// Changes that wait for injection into the kernel.
    pub waiting: u64,
    /// Requests to the kernel about expectations.
    pub expectation_requests: u64,
    /// Events that the kernel makes of TCP connections: `lean` or `all`.
    #[serde(default)]
    pub events_made: String,
    /// Times that the rules for `lean` were missing and were restored.
    #[serde(default)]
    pub event_rules_put_back: u64,
    /// Events that were read from the kernel.
    pub events: u64,
    /// Events that were malformed.
    pub events_malformed: u64,
    /// Times that the kernel lost events because the buffer was full.
    pub overruns: u64,
    /// Connections that were found new, changed or gone after events were lost.
    pub repaired: u64,
    /// Size of the buffer for the kernel's events, in bytes.
    pub receive_buffer_bytes: u64,
    /// Times that the kernel's whole table was read.
    pub dumps: u64,
    /// Requests to the kernel.
    pub requests: u64,
    /// Requests that the kernel refused, by reason.
    pub refused: Vec<RefusedRequests>,
    /// Replicas that the kernel removed before their owner did, and that were injected again.
    pub reinjected: u64,
    /// Connections of this kernel that found no room in the connection table (`kernel.connections_max`).
    pub table_full: u64,
}

/// Connections that are not replicated for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct UnreplicatedConnections {
    /// Reason: `unreplied`, `zone_of_one_direction` or `inexpressible`.
    pub reason: String,
    /// Connections now.
    pub connections: u64,
}

/// Requests that the kernel refused for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RefusedRequests {
    /// Reason of the refusal.
    pub reason: String,
    /// Requests that were refused for it.
    pub requests: u64,
}
