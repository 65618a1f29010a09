//! Compact replication, as it is reported to operators.

use std::time::Duration;

use cluster::node::{CompactStatus, Node, NodeStatus, PeerStatus};
use flow::Instant;

use api::{FilterStatus, PeerFilterStatus, RecoveryStatus};
use config::validated::Config;

/// What of the filter is configured and does not change.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Filter {
    representation: &'static str,
    /// Of this worker.
    entries_max: u64,
    /// Bytes of its updates when the rate was last taken, and their rate then.
    bytes: u64,
    bytes_per_s: f64,
}

/// Bytes by which a node advertised its connections, and re-advertised inherited filters.
const fn bytes_advertised(compact: &CompactStatus) -> u64 {
    compact.sender.bytes + compact.inherited.bytes
}

impl Filter {
    pub(super) fn new(config: &Config) -> Self {
        let compact = config.cluster.as_ref().and_then(|cluster| cluster.replication.compact.as_ref());
        compact.map_or_else(Self::default, |compact| Self {
            representation: compact.representation.name(),
            entries_max: compact.entries_max.div_ceil(config.workers.count.max(1).into()),
            ..Self::default()
        })
    }

    /// So much time has passed since this was called last.
    pub(super) fn take_rate(&mut self, elapsed: Duration, node: &Node) {
        let Some(compact) = node.compact_status() else { return };
        let bytes = bytes_advertised(&compact);
        // An inherited filter ends some day, and its bytes with it.
        self.bytes_per_s = bytes.saturating_sub(self.bytes) as f64 / elapsed.as_secs_f64();
        self.bytes = bytes;
    }

    /// How this node advertises its connections, and how many advertised ones it has recovered; `None`: there is no filter.
    pub(super) fn status(&self, status: &NodeStatus, now: Instant) -> Option<Box<FilterStatus>> {
        let compact = status.compact.as_ref()?;
        let (sender, precision, recovery) = (&compact.sender, &compact.precision, &compact.recovery);
        Some(Box::new(FilterStatus {
            representation: self.representation.to_owned(),
            entries: sender.entries,
            entries_max: self.entries_max,
            refused: sender.refused,
            beyond: sender.beyond,
            bytes: bytes_advertised(compact),
            bytes_per_s: self.bytes_per_s,
            datagrams: sender.datagrams,
            whole_updates: sender.whole_updates,
            incremental_updates: sender.incremental_updates,
            drifts: sender.drifts,
            memory_bytes: sender.memory_bytes + compact.inherited.memory_bytes,
            inherited: compact.inherited.filters,
            inherited_entries: compact.inherited.entries,
            precise_long_lived: precision.long_lived,
            precise_urgent: precision.urgent,
            recovery: RecoveryStatus {
                begun: recovery.begun,
                ends_in_s: compact.recovery_ends_at.map(|at| at.saturating_since(now).as_secs_f64()),
                counts: recovery.named().into_iter().map(|(name, count)| (name.to_owned(), count)).collect(),
            },
        }))
    }
}

/// What a peer advertised by its filter.
pub(super) fn of_peer(peer: &PeerStatus) -> Option<PeerFilterStatus> {
    let filter = peer.compact.as_ref()?;
    Some(PeerFilterStatus {
        entries: filter.entries,
        filters: filter.filters,
        drifts: filter.drifts,
        bad_datagrams: filter.bad_datagrams,
        is_complete: peer.has_whole_filter,
    })
}
