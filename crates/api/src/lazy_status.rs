//! The status of deferred replication.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// Deferral of replication: young connections are not replicated.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct LazyStatus {
    /// Age in milliseconds from which connections are replicated. 0 replicates all at once.
    #[report(greatest, gauge("lazy_threshold_seconds", value = self.threshold_ms / 1e3,
        help = "Age from which connections are replicated."))]
    pub threshold_ms: f64,
    /// Level of deferral that the load requires. It is 0 where it requires none, or the threshold is fixed.
    #[report(
        greatest,
        gauge("lazy_level", help = "Level of deferral that the load requires; 0 defers no connection.")
    )]
    pub level: u8,
    /// Number of levels. It is 0 where the threshold is fixed.
    pub levels: u8,
    /// Share of the last interval in which the worker, or a processor that serves ports, was busy, from 0 to 1, where it decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[report(greatest, gauge("lazy_utilisation_ratio", value = self.utilisation.unwrap_or_default()))]
    pub utilisation: Option<f64>,
    /// Connections that are deferred now. A failover now would lose them.
    #[report(sum, gauge("connections_deferred"))]
    pub deferred: u64,
    /// Connections that ended before they were replicated.
    #[report(sum, counter("connections_never_replicated_total"))]
    pub never_replicated: u64,
    /// Connections that were replicated after deferral.
    #[report(sum, counter("connections_replicated_late_total"))]
    pub replicated_late: u64,
    /// Connections that were replicated as soon as they began.
    #[report(sum)]
    pub replicated_at_once: u64,
}
