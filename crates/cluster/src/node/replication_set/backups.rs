//! The backups of each connection: the nodes that edges send its packets to after failures.

use flow::{Affinity, HashKey, NodeSet};

/// The most backups of a connection.
pub const BACKUPS_MAX: usize = state_service::FAILURES_MAX;

/// Which peers a connection is replicated to. Alike on all nodes.
#[derive(Clone, Debug)]
pub struct BackupsConfig {
    /// Backups of a connection, from 1 to [`BACKUPS_MAX`]: so many nodes may fail at once without a loss.
    pub count: usize,
    /// The nodes that the edges distribute packets to.
    pub edge_nodes: NodeSet,
    /// The secret under which the edges hash flows.
    pub edge_hash_key: HashKey,
    /// The affinity of the edge on the side where connections begin.
    pub edge_affinity: Affinity,
}
