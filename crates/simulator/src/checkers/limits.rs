//! No node holds more than it was allowed.

use cluster::node::Node;
use flow::{DropReason, Instant};

use crate::report::{Outcome, Problem};
use crate::topology::CONNECTIONS_MAX;

pub(super) fn after_step(now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
    let table = value.pipeline().table();
    if table.len() > table.capacity() || table.capacity() < CONNECTIONS_MAX {
        let text = format!("node {node} holds {} connections of {}", table.len(), table.capacity());
        outcome.problem(now, Problem::Limit, text);
    }
    let undecided = value.pipeline().counters().drops[DropReason::Undecided as usize];
    if undecided > 0 {
        outcome.problem(now, Problem::Undecided, format!("node {node} left {undecided} frames undecided"));
    }
}
