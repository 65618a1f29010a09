//! What an edge reports: events and status.

use flow::{Instant, NodeId, NodeSet};

use super::Edge;
use crate::event::{EdgeEvent, EdgeStatus};
use crate::flows::EdgeFlow;
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

    /// The first connection in a place of the table from this one on, for operators.
    #[must_use]
    pub fn next_flow(&self, from: u32) -> Option<EdgeFlow> {
        self.flows.next_flow(from)
    }

    /// Nodes that get no new connections.
    #[must_use]
    pub const fn drained(&self) -> NodeSet {
        self.distribution.drained()
    }

    /// A node gets no new connections from now on, or gets them again. Its connections stay. False: they could not, as the edge does not
    /// learn the nodes of connections.
    pub const fn set_drained(&mut self, node: NodeId, is_drained: bool) -> bool {
        self.distribution.set_drained(node, is_drained)
    }

    /// The rate control of a node. `None`: there is none.
    #[must_use]
    pub fn rate_status(&self, node: NodeId) -> Option<RateStatus> {
        self.rate_control.as_ref().map(|rate_control| rate_control.status(node))
    }
}
