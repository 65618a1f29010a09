//! How compact replication stands, for operators.

use flow::Instant;
use replication::compact::CompactSenderStatus;

use crate::pipeline::RecoveryCounters;

/// What is counted of connections that are told precisely beside the filter.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrecisionCounters {
    /// Connections told precisely because they have lived long.
    pub long_lived: u64,
    /// Connections told precisely because a failover would lose them: the filter has no room for them, or the functions cannot
    /// make them again.
    pub urgent: u64,
    /// Connections that this node, standing by, has let go because the one that took over has them.
    pub let_go: u64,
}

/// What a node tells on for others that are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct InheritedStatus {
    /// Filters.
    pub filters: u64,
    /// Their entries whose connections have not come back.
    pub entries: u64,
    /// Bytes that told them on.
    pub bytes: u64,
    /// What they take, in bytes.
    pub memory_bytes: u64,
}

/// How compact replication stands.
#[derive(Clone, Debug)]
pub struct CompactStatus {
    /// What this node tells.
    pub sender: CompactSenderStatus,
    /// What it tells on for nodes that are gone.
    pub inherited: InheritedStatus,
    /// What it tells precisely beside that.
    pub precision: PrecisionCounters,
    /// What came of connections that it was told of.
    pub recovery: RecoveryCounters,
    /// When the recovery that is under way ends.
    pub recovery_ends_at: Option<Instant>,
}
