//! A node that replicates the kernel's connections, in the control API.

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

/// How ready a node is.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SyncReadiness {
    /// `primary`, `backup` or `fault`.
    pub role: String,
    /// All that is known of connections that this node is to carry is in its kernel.
    pub usable: bool,
    /// What is in the way of that, a clause each.
    #[serde(default)]
    pub not_usable_because: Vec<String>,
    /// This node could take over now.
    pub may_take_over: bool,
    /// What is in the way of that, a clause each.
    #[serde(default)]
    pub may_not_because: Vec<String>,
    /// A failover now, from whichever node carries connections, would lose none.
    pub failover_safe: bool,
    /// What is in the way of that, a clause each.
    #[serde(default)]
    pub not_safe_because: Vec<String>,
}

/// The status of a node that replicates the kernel's connections, beside what every node has.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct SyncStatus {
    /// `primary-backup` or `multi-primary`.
    pub mode: String,
    /// `direct` or `external-cache`.
    pub injection: String,
    /// How ready it is.
    pub readiness: SyncReadiness,
    /// One sentence: a failover now would be safe, or would not, because ….
    pub failover: String,
    /// The kernel's table and what is known of it.
    pub kernel: KernelStatus,
    /// Another node holds that it is primary, too, where one at a time is.
    pub split_brain: bool,
    /// What is wrong now, a sentence each, with what to do about it.
    #[serde(default)]
    pub troubles: Vec<String>,
}

/// The kernel's table, and the way to and from it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct KernelStatus {
    /// Connections that the kernel tracks.
    pub connections: u64,
    /// Connections that it tracks at most (`net.netfilter.nf_conntrack_max`).
    pub connections_max: u64,
    /// Connections whose packets this node's kernel sees.
    pub own: u64,
    /// Peers' connections.
    pub copies: u64,
    /// Of those, how many are in this kernel.
    pub injected: u64,
    /// Changes that wait to be made in the kernel.
    pub waiting: u64,
    /// Requests made about connections that others have announced.
    pub expectation_requests: u64,
    /// Which events the kernel makes of TCP connections: `lean` or `all`.
    #[serde(default)]
    pub events_made: String,
    /// Times that the rules for `lean` were found gone, and were put back.
    #[serde(default)]
    pub event_rules_put_back: u64,
    /// Events read.
    pub events: u64,
    /// Events that could not be understood.
    pub events_malformed: u64,
    /// Times that the kernel found no room for an event.
    pub overruns: u64,
    /// Connections found changed, new or gone after that.
    pub repaired: u64,
    /// Buffer of the event socket now, in bytes.
    pub receive_buffer_bytes: u64,
    /// Times that the whole table was read.
    pub dumps: u64,
    /// Requests made to the kernel.
    pub requests: u64,
    /// Requests that it refused, by why.
    pub refused: Vec<RefusedRequests>,
    /// Copies that the kernel ended before their master did, and that were injected again.
    pub injected_again: u64,
    /// Connections of this kernel not remembered for want of room (`kernel.connections_max`).
    pub table_full: u64,
}

/// Requests that the kernel refused for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RefusedRequests {
    /// Why.
    pub reason: String,
    /// How many.
    pub requests: u64,
}
