//! How compact replication stands, for operators.

use flow::Instant;
use replication::compact::CompactSenderStatus;

use crate::pipeline::RecoveryCounters;

/// Counters of connections that are replicated precisely beside the filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrecisionCounters {
    /// Connections replicated precisely because they have lived long.
    pub long_lived: u64,
    /// Connections replicated precisely because a failover would lose them: the filter has no room for them, or the functions
    /// cannot make them again.
    pub urgent: u64,
    /// Connections that this node, standing by, has let go because the one that took over has them.
    pub let_go: u64,
}

/// The inherited filters that a node re-advertises.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InheritedStatus {
    /// Filters.
    pub filters: u64,
    /// Their entries whose connections have not come back.
    pub entries: u64,
    /// Bytes that re-advertised them.
    pub bytes: u64,
    /// What they take, in bytes.
    pub memory_bytes: u64,
}

/// How compact replication stands.
#[derive(Clone, Debug)]
pub struct CompactStatus {
    /// The node's own filter.
    pub sender: CompactSenderStatus,
    /// The inherited filters that it re-advertises.
    pub inherited: InheritedStatus,
    /// The connections that it replicates precisely beside that.
    pub precision: PrecisionCounters,
    /// The recovery of connections that peers had replicated.
    pub recovery: RecoveryCounters,
    /// When the running recovery ends.
    pub recovery_ends_at: Option<Instant>,
}
