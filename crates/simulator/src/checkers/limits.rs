//! No node exceeds its limits.

use cluster::node::Node;
use flow::{DropReason, Instant};

use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// The limits of each node.
#[derive(Default)]
pub(super) struct Limits {
    connections_max: [u32; NODES],
    /// The number of connections that each node has evicted.
    evicted: [u64; NODES],
}

impl Limits {
    pub(super) const fn started(&mut self, node: usize, connections_max: u32) {
        self.connections_max[node] = connections_max;
        self.evicted[node] = 0;
    }

    /// Whether the node evicted a connection since the last call, because its table was full.
    pub(super) fn has_evicted(&mut self, node: usize, value: &Node) -> bool {
        let evicted = value.pipeline().counters().early_dropped;
        std::mem::replace(&mut self.evicted[node], evicted) != evicted
    }

    pub(super) fn after_step(&self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        let table = value.pipeline().table();
        if table.len() > self.connections_max[node] || table.capacity() != self.connections_max[node] {
            let text = format!("node {node} holds {} connections of {}", table.len(), self.connections_max[node]);
            outcome.problem(now, Problem::Limit, text);
        }
        let undecided = value.pipeline().counters().drops[DropReason::Undecided as usize];
        if undecided > 0 {
            outcome.problem(now, Problem::Undecided, format!("node {node} left {undecided} frames undecided"));
        }
    }
}
