//! Nodes of different versions refuse each other's word of connections, and say so once.

use std::time::Duration;

use cluster::node::Node;
use flow::Instant;

use super::Conditions;
use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// Nodes that do not understand each other have noticed it after this time, over the worst link.
const NOTICED_WITHIN: Duration = Duration::from_secs(3);

/// What was refused, and since when it must be.
#[derive(Default)]
pub(crate) struct Versions {
    /// Both run, and do not understand each other, since.
    apart_since: Option<Instant>,
    understand: bool,
    /// How often each node has said so since.
    said: [u32; NODES],
    /// How many connections each has taken from the other.
    taken: [Option<u64>; NODES],
}

impl Versions {
    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        if !std::mem::replace(&mut self.understand, conditions.understand) && conditions.understand {
            self.said = [0; NODES];
        }
        let is_apart = !conditions.understand && conditions.works == [true; NODES] && conditions.hear;
        self.apart_since = is_apart.then(|| self.apart_since.unwrap_or(now));
    }

    /// A node has started; `speaks_anew`: otherwise than before, which is worth a word of its own.
    pub(super) fn started(&mut self, now: Instant, node: usize, speaks_anew: bool) {
        self.apart_since = self.apart_since.map(|_| now);
        if speaks_anew {
            self.said[1 - node] = 0;
        }
        (self.said[node], self.taken[node]) = (0, None);
    }

    /// A node has said that the other speaks another version.
    pub(crate) fn refused(&mut self, now: Instant, node: usize, outcome: &mut Outcome) {
        self.said[node] += 1;
        if self.said[node] == 2 {
            let text = format!("node {node} says again and again that the other speaks another version");
            outcome.problem(now, Problem::SaidAgain, text);
        }
    }

    /// Nothing that the other says of connections is taken: what a node has taken so far stays as it is.
    pub(super) fn after_datagram(&mut self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        let taken: u64 = value.status(now).peers.iter().map(|peer| peer.replica.taken).sum();
        let before = self.taken[node].replace(taken).filter(|_| self.apart_since.is_some());
        if let Some(before) = before.filter(|before| *before < taken) {
            let text = format!("node {node} took {} connections from a node of another version", taken - before);
            outcome.problem(now, Problem::Misunderstood, text);
        }
    }

    pub(super) fn finish(&self, now: Instant, outcome: &mut Outcome) {
        let Some(since) = self.apart_since.filter(|since| *since + NOTICED_WITHIN <= now) else { return };
        if let Some(node) = self.said.iter().position(|said| *said == 0) {
            let text = format!("node {node} has not said since {since:?} that the other speaks another version");
            outcome.problem(now, Problem::Misunderstood, text);
        }
    }
}
