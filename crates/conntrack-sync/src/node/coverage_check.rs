//! Checks periodically whether the filter excludes nearly all connections of this kernel.

use core::time::Duration;

use flow::Instant;
use flow::netfilter::Entry;

use super::SyncNode;
use crate::coverage::{FilterCoverage, is_nearly_none};
use crate::event::SyncEvent;

/// The minimum interval between two counts, each of which reads the table.
const COUNT_INTERVAL: Duration = Duration::from_secs(30);

impl SyncNode {
    /// The total number of connections in the kernel. If few of them are known here, or few were replicated at the last
    /// count, the table is read.
    pub fn note_kernel_connections(&mut self, now: Instant, connections: u32) {
        let known = self.connections.mirror.len();
        let is_suspect = is_nearly_none(known, connections) || self.coverage.coverage.is_nearly_none();
        if is_suspect && now >= self.coverage.count_at {
            self.coverage.count_at = now + COUNT_INTERVAL;
            self.connections.request_dump(now);
        }
    }

    /// Whether the filter replicates a connection in its present state.
    #[must_use]
    pub fn replicates(&self, entry: &Entry) -> bool {
        !self.connections.filter.excludes(entry)
    }

    /// Stores the count of established connections in the kernel's table.
    pub fn note_coverage(&mut self, now: Instant, coverage: FilterCoverage) {
        let was_nearly_none = self.coverage.coverage.is_nearly_none();
        self.coverage.coverage = coverage;
        if coverage.is_nearly_none() && !was_nearly_none {
            self.connections.events.push(now, SyncEvent::FewReplicated(coverage));
        }
    }
}
