//! Deferral in a status.

use serde::{Deserialize, Serialize};

/// Connections that are replicated only once they have lived for a while.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LazyStatus {
    /// Connections younger than this are not replicated, in milliseconds; 0: all are replicated at once.
    pub threshold_ms: f64,
    /// The level of degradation, 0 where replication is not degraded or the threshold is fixed.
    pub level: u8,
    /// Levels that there are; 0 where the threshold is fixed.
    pub levels: u8,
    /// Share of the last interval that the thread was busy, 0 to 1, where that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Connections that are deferred now: a failover now would lose them.
    pub deferred: u64,
    /// Connections that ended before they were replicated.
    pub never_replicated: u64,
    /// Connections that were deferred and replicated when they were old enough.
    pub replicated_late: u64,
    /// Connections that were replicated as soon as they began.
    pub replicated_at_once: u64,
}

impl LazyStatus {
    /// Adds another worker's status: each decides by its own load, and the most degraded one is reported.
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
