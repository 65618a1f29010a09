//! The status of deferred replication.

use serde::{Deserialize, Serialize};

/// Deferral of replication: young connections are not replicated.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LazyStatus {
    /// Age in milliseconds from which connections are replicated. 0 replicates all at once.
    pub threshold_ms: f64,
    /// Level of deferral that the load requires. It is 0 where it requires none, or the threshold is fixed.
    pub level: u8,
    /// Number of levels. It is 0 where the threshold is fixed.
    pub levels: u8,
    /// Share of the last interval in which the worker, or a processor that serves ports, was busy, from 0 to 1, where it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Connections that are deferred now. A failover now would lose them.
    pub deferred: u64,
    /// Connections that ended before they were replicated.
    pub never_replicated: u64,
    /// Connections that were replicated after deferral.
    pub replicated_late: u64,
    /// Connections that were replicated as soon as they began.
    pub replicated_at_once: u64,
}

impl LazyStatus {
    /// Adds the status of another worker. Each decides by its own load, and the greatest threshold counts.
    pub fn add(&mut self, other: &Self) {
        self.threshold_ms = self.threshold_ms.max(other.threshold_ms);
        self.level = self.level.max(other.level);
        self.utilisation = [self.utilisation, other.utilisation].into_iter().flatten().reduce(f64::max);
        self.deferred += other.deferred;
        self.never_replicated += other.never_replicated;
        self.replicated_late += other.replicated_late;
        self.replicated_at_once += other.replicated_at_once;
    }
}
