//! Nodes of different versions reject each other's updates, and report it once.

use std::time::Duration;

use cluster::node::Node;
use flow::Instant;

use super::Conditions;
use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// The maximum time to detect different versions, over the worst link.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);

/// Rejections, and since when they are due.
#[derive(Default)]
pub(crate) struct Versions {
    /// Since when both run with different versions.
    apart_since: Option<Instant>,
    understand: bool,
    /// How often each node has reported it since.
    reports: [u32; NODES],
    /// The number of connections that each has applied from the other.
    taken: [Option<u64>; NODES],
}

impl Versions {
    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        if !std::mem::replace(&mut self.understand, conditions.same_version) && conditions.same_version {
            self.reports = [0; NODES];
        }
        let is_apart = !conditions.same_version && conditions.works == [true; NODES] && conditions.can_detect;
        self.apart_since = is_apart.then(|| self.apart_since.unwrap_or(now));
    }

    /// A node has started; `has_new_version`: with another protocol version than before, which requires a new report.
    pub(super) fn started(&mut self, now: Instant, node: usize, has_new_version: bool) {
        self.apart_since = self.apart_since.map(|_| now);
        if has_new_version {
            self.reports[1 - node] = 0;
        }
        (self.reports[node], self.taken[node]) = (0, None);
    }

    /// A node has reported that the other uses another version.
    pub(crate) fn refused(&mut self, now: Instant, node: usize, outcome: &mut Outcome) {
        self.reports[node] += 1;
        if self.reports[node] == 2 {
            let text = format!("node {node} repeatedly reports the other's version");
            outcome.problem(now, Problem::RepeatedReport, text);
        }
    }

    /// No update of the other node is applied: the node's counter of applied updates stays.
    pub(super) fn after_datagram(&mut self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        let taken: u64 = value.status(now).peers.iter().map(|peer| peer.replica.taken).sum();
        let before = self.taken[node].replace(taken).filter(|_| self.apart_since.is_some());
        if let Some(before) = before.filter(|before| *before < taken) {
            let text = format!("node {node} applied {} connections from a node of another version", taken - before);
            outcome.problem(now, Problem::VersionMismatchMissed, text);
        }
    }

    pub(super) fn finish(&self, now: Instant, outcome: &mut Outcome) {
        let Some(since) = self.apart_since.filter(|since| *since + NOTICED_WITHIN <= now) else { return };
        if let Some(node) = self.reports.iter().position(|count| *count == 0) {
            let text = format!("node {node} has not reported the other's version since {since:?}");
            outcome.problem(now, Problem::VersionMismatchMissed, text);
        }
    }
}
