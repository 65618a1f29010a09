//! What an edge reports: events and status.

use flow::{Instant, NodeId};

use super::Edge;
use crate::event::{EdgeEvent, EdgeStatus};
use crate::local_recovery::LocalRecovery;
use crate::rate_control::{RateControl, RateStatus};

impl Edge {
    /// The next event, and when it happened.
    pub fn poll_event(&mut self) -> Option<(Instant, EdgeEvent)> {
        self.events.pop()
    }

    /// Makes events of what the parts report.
    pub(super) fn report(&mut self, now: Instant) {
        while let Some((node, resent)) = self.recovery.as_mut().and_then(LocalRecovery::poll_finished) {
            self.events.push(now, EdgeEvent::Recovered { node, resent });
        }
        while let Some((node, status)) = self.rate_control.as_mut().and_then(RateControl::poll_change) {
            self.events.push(now, EdgeEvent::RateControl { node, status });
        }
    }

    /// The status of the edge.
    #[must_use]
    pub fn status(&self) -> EdgeStatus {
        let recovery = self.recovery.as_ref();
        let [segments_held, acknowledgements_held] = recovery.map_or([(0, 0); 2], LocalRecovery::slots);
        EdgeStatus {
            alive: self.distribution.ecmp.alive(),
            connections: self.flows.len(),
            segments_held,
            acknowledgements_held,
            held_bytes: recovery.map_or(0, LocalRecovery::memory_bytes),
            flows: self.flows.counters(),
            recovery: recovery.map(LocalRecovery::counters).unwrap_or_default(),
            fast_path: self.fast_path.as_ref().map(|fast_path| fast_path.counters),
            counters: self.counters.clone(),
        }
    }

    /// The rate control of a node. `None`: there is none.
    #[must_use]
    pub fn rate_status(&self, node: NodeId) -> Option<RateStatus> {
        self.rate_control.as_ref().map(|rate_control| rate_control.status(node))
    }
}
