//! Connections told as entries of a filter, as it is told to operators.

use cluster::node::{NodeStatus, PeerStatus};
use flow::Instant;

use crate::config::validated::Config;
use crate::control::types::{FilterStatus, PeerFilterStatus, RecoveryStatus};

/// What of the filter is configured and does not change.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Filter {
    representation: &'static str,
    /// Of this worker.
    entries_max: u64,
}

impl Filter {
    pub(super) fn new(config: &Config) -> Self {
        let compact = config.cluster.as_ref().and_then(|cluster| cluster.replication.compact.as_ref());
        compact.map_or_else(Self::default, |compact| Self {
            representation: compact.representation.name(),
            entries_max: compact.entries_max.div_ceil(config.workers.count.max(1).into()),
        })
    }

    /// How this node tells its connections by it, and what came of those it was told of; `None`: there is none.
    pub(super) fn status(&self, status: &NodeStatus, now: Instant) -> Option<Box<FilterStatus>> {
        let compact = status.compact.as_ref()?;
        let (sender, precision, recovery) = (&compact.sender, &compact.precision, &compact.recovery);
        Some(Box::new(FilterStatus {
            representation: self.representation.to_owned(),
            entries: sender.entries,
            entries_max: self.entries_max,
            refused: sender.refused,
            beyond: sender.beyond,
            bytes: sender.bytes,
            datagrams: sender.datagrams,
            whole_updates: sender.whole_updates,
            incremental_updates: sender.incremental_updates,
            drifts: sender.drifts,
            memory_bytes: sender.memory_bytes,
            precise_long_lived: precision.long_lived,
            precise_urgent: precision.urgent,
            recovery: RecoveryStatus {
                begun: recovery.begun,
                ends_in_s: compact.recovery_ends_at.map(|at| at.saturating_since(now).as_secs_f64()),
                used_up: recovery.used_up,
                restored: recovery.restored,
                missed: recovery.missed,
                denied: recovery.denied,
                conflicts: recovery.conflicts,
                unasked: recovery.unasked,
                cold_started: recovery.cold_started,
                probed: recovery.probed,
                blocked: recovery.blocked,
                unblocked: recovery.unblocked,
            },
        }))
    }
}

/// What a peer told by its filter.
pub(super) fn of_peer(peer: &PeerStatus) -> Option<PeerFilterStatus> {
    let told = peer.compact.as_ref()?;
    Some(PeerFilterStatus {
        entries: told.entries,
        filters: told.filters,
        drifts: told.drifts,
        bad_datagrams: told.bad_datagrams,
    })
}
