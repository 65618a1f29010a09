//! What a status tells of connections that are put off.

use serde::{Deserialize, Serialize};

/// Connections that are told only once they have lived for a while.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LazyStatus {
    /// Connections younger than this are not told, in milliseconds; 0: all are told at once.
    pub threshold_ms: f64,
    /// The level of degradation, 0 where replication is not degraded or the threshold is fixed.
    pub level: u8,
    /// Levels that there are; 0 where the threshold is fixed.
    pub levels: u8,
    /// Share of the last interval that the thread was busy, 0 to 1, where that decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilisation: Option<f64>,
    /// Connections that are put off now: a failover now would lose them.
    pub put_off: u64,
    /// Connections that ended before they were told.
    pub spared: u64,
    /// Connections that were put off and told when they were old enough.
    pub told_late: u64,
    /// Connections that were told as soon as they began.
    pub told_at_once: u64,
}

impl LazyStatus {
    /// Adds what another worker says: each decides by its own load, and the most degraded one is told of.
    pub fn add(&mut self, other: &Self) {
        self.threshold_ms = self.threshold_ms.max(other.threshold_ms);
        self.level = self.level.max(other.level);
        self.utilisation = [self.utilisation, other.utilisation].into_iter().flatten().reduce(f64::max);
        self.put_off += other.put_off;
        self.spared += other.spared;
        self.told_late += other.told_late;
        self.told_at_once += other.told_at_once;
    }
}
