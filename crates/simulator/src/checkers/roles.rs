//! Nodes that can hear each other do not both hold the addresses for long, and somebody holds them.

use std::time::Duration;

use cluster::node::Node;
use flow::Instant;

use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// Long enough to hear each other: detection while down, the startup hold, a heartbeat or several lost in a row.
const AGREEMENT_MAX: Duration = Duration::from_millis(2_000);

/// Who holds the addresses, and since when that has been as it should not be.
#[derive(Default)]
pub(crate) struct Roles {
    holds: [bool; NODES],
    is_cut: bool,
    /// Both have held them since.
    both_since: Option<Instant>,
    /// Nobody has held them since.
    nobody_since: Option<Instant>,
}

impl Roles {
    /// Something happened from which the nodes have to recover.
    pub(super) fn disturbed(&mut self, now: Instant) {
        self.both_since = self.both_since.map(|_| now);
        self.nobody_since = Some(now);
    }

    pub(super) fn partitioned(&mut self, now: Instant, is_cut: bool) {
        self.is_cut = is_cut;
        self.disturbed(now);
    }

    pub(super) fn stopped(&mut self, now: Instant, node: usize) {
        self.holds[node] = false;
        self.disturbed(now);
    }

    pub(super) fn after_step(&mut self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        self.holds[node] = value.status(now).role.holds_addresses();
        let both = self.holds.iter().all(|holds| *holds) && !self.is_cut;
        self.both_since = both.then(|| self.both_since.unwrap_or(now));
        let nobody = !self.holds.iter().any(|holds| *holds);
        self.nobody_since = nobody.then(|| self.nobody_since.unwrap_or(now));
        if let Some(since) = self.both_since.filter(|since| now.saturating_since(*since) > AGREEMENT_MAX) {
            outcome.problem(now, Problem::TwoActive, format!("both nodes have held the addresses since {since:?}"));
            self.both_since = Some(now);
        }
        if let Some(since) = self.nobody_since.filter(|since| now.saturating_since(*since) > AGREEMENT_MAX) {
            outcome.problem(now, Problem::NoneActive, format!("no node has held the addresses since {since:?}"));
            self.nobody_since = Some(now);
        }
    }
}
