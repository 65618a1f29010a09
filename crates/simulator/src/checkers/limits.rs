//! No node holds more than it was allowed.

use cluster::node::Node;
use flow::{DropReason, Instant};

use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// What each node is allowed.
#[derive(Default)]
pub(super) struct Limits {
    connections_max: [u32; NODES],
    /// Connections that each gave up for others so far.
    given_up: [u64; NODES],
}

impl Limits {
    pub(super) const fn started(&mut self, node: usize, connections_max: u32) {
        self.connections_max[node] = connections_max;
        self.given_up[node] = 0;
    }

    /// Whether the node has given a connection up for another, as its table was full, since last asked.
    pub(super) fn gave_up(&mut self, node: usize, value: &Node) -> bool {
        let given_up = value.pipeline().counters().early_dropped;
        std::mem::replace(&mut self.given_up[node], given_up) != given_up
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
