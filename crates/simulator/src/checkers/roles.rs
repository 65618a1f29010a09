//! Nodes that reach each other do not both hold the addresses for long, and one node always holds them.

use std::time::Duration;

use cluster::GroupId;
use cluster::node::Node;
use cluster::role::State;
use flow::Instant;

use super::Conditions;
use crate::report::{Outcome, Problem};
use crate::topology::NODES;

/// The time to detect each other: detection while down, the startup hold, one or more consecutive lost heartbeats.
const ELECTION_MAX: Duration = Duration::from_millis(2_000);
/// After a pause, one heartbeat in either direction suffices: several consecutive lost ones.
const YIELDING_MAX: Duration = Duration::from_millis(300);
/// The maximum duration of a take-over from a node that shuts down.
const HANDOVER_MAX: Duration = Duration::from_secs(5);

/// The active node, and the start of a violation.
#[derive(Default)]
pub(super) struct Roles {
    states: [Option<State>; NODES],
    conditions: Option<Conditions>,
    /// Since when both have held them, and the permitted duration.
    both_since: Option<(Instant, Duration)>,
    /// A node that resumed recently must first exchange heartbeats.
    resumed_at: Option<Instant>,
    /// Since when no node has held them.
    none_since: Option<Instant>,
    /// The ports that each node cannot reach, and whether it could take the addresses over.
    reach: [Reach; NODES],
    /// Since when the active node has reached less than a node that could take over.
    stranded_since: Option<Instant>,
}

/// The tracked objects that a node reaches.
#[derive(Clone, Copy, Default)]
struct Reach {
    unreached: u16,
    could_take_over: bool,
}

impl Roles {
    /// An event after which the nodes need time to recover.
    pub(super) fn disturbed(&mut self, now: Instant) {
        self.both_since = self.both_since.map(|_| (now, ELECTION_MAX));
        self.none_since = self.none_since.map(|_| now);
        self.stranded_since = None;
        self.resumed_at = None;
    }

    pub(super) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        if self.conditions.replace(conditions) != Some(conditions) {
            let resumed_at = self.resumed_at;
            self.disturbed(now);
            self.resumed_at = resumed_at.filter(|at| *at == now);
        }
    }

    pub(super) fn stopped(&mut self, now: Instant, node: usize) {
        self.states[node] = None;
        self.disturbed(now);
    }

    pub(super) fn resumed(&mut self, now: Instant) {
        self.disturbed(now);
        self.resumed_at = Some(now);
    }

    pub(super) fn after_step(&mut self, now: Instant, node: usize, value: &Node, outcome: &mut Outcome) {
        self.states[node] = Some(value.role());
        let Some(conditions) = self.conditions else { return };
        self.check_reach(now, node, value, conditions, outcome);
        let serves = |node: usize| {
            conditions.works[node] && self.states[node].is_some_and(|state: State| state.holds_addresses())
        };
        let both = serves(0) && serves(1) && conditions.can_detect;
        let is_handover = self.states.contains(&Some(State::Leaving));
        let limit = if is_handover {
            ELECTION_MAX + HANDOVER_MAX
        } else if self.resumed_at.is_some_and(|at| now < at + ELECTION_MAX) {
            YIELDING_MAX
        } else {
            ELECTION_MAX
        };
        self.both_since = both.then(|| self.both_since.unwrap_or((now, limit)));
        if let Some((since, limit)) = self.both_since.filter(|(since, limit)| now.saturating_since(*since) > *limit) {
            let text = format!("both nodes have held the addresses since {since:?}, for more than {limit:?}");
            outcome.problem(now, Problem::TwoActive, text);
            self.both_since = Some((now, limit));
        }
        let could = |node: usize| conditions.works[node] && self.states[node].is_some_and(|state| state != State::Left);
        let is_alone = !(conditions.works[0] && conditions.works[1]);
        let must = (could(0) || could(1)) && conditions.prompt && (conditions.can_detect || is_alone);
        let none = must && !serves(0) && !serves(1);
        self.none_since = none.then(|| self.none_since.unwrap_or(now));
        if let Some(since) = self.none_since.filter(|since| now.saturating_since(*since) > ELECTION_MAX) {
            outcome.problem(now, Problem::NoneActive, format!("no node has held the addresses since {since:?}"));
            self.none_since = Some(now);
        }
    }

    /// The ports that each node could not reach at the last check.
    pub(super) fn unreached(&self) -> [u16; NODES] {
        self.reach.map(|reach| reach.unreached)
    }

    /// Addresses do not stay with a node that reaches less than one that could take them over.
    fn check_reach(&mut self, now: Instant, node: usize, value: &Node, conditions: Conditions, outcome: &mut Outcome) {
        let could_take_over = value.role() == State::Standby && value.roles().could_serve() && conditions.works[node];
        self.reach[node] = Reach { unreached: value.roles().unreached(GroupId::FIRST), could_take_over };
        let holds = |node: usize| conditions.works[node] && self.states[node] == Some(State::Active);
        let is_stranded = (0..NODES).any(|node| {
            let (active, other) = (self.reach[node], self.reach[1 - node]);
            // A paused node could, at the last check.
            let could_take_over = other.could_take_over && conditions.works[1 - node];
            holds(node) && could_take_over && active.unreached > other.unreached
        });
        let is_violation = is_stranded && conditions.can_detect && conditions.prompt;
        self.stranded_since = is_violation.then(|| self.stranded_since.unwrap_or(now));
        if let Some(since) = self.stranded_since.filter(|since| now.saturating_since(*since) > ELECTION_MAX) {
            let text = format!("the active node has reached less than its peer since {since:?}");
            outcome.problem(now, Problem::Stranded, text);
            self.stranded_since = Some(now);
        }
    }
}
