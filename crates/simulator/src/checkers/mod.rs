//! What must hold, whatever happens: each promise has its checker, and none knows why something happens.

mod content;
mod limits;
pub(crate) mod order;
pub(crate) mod replicas;
mod roles;
pub(crate) mod survival;

use cluster::node::Node;
use flow::Instant;

use crate::host::Host;
use crate::report::Outcome;
use crate::scenario::Scenario;

/// What checkers may look at.
pub(crate) struct View<'a> {
    pub(crate) scenario: &'a Scenario,
    pub(crate) hosts: &'a [Host],
    pub(crate) nodes: [&'a Option<Node>; 2],
}

/// All checkers of a run.
pub(crate) struct Checkers {
    pub(crate) survival: survival::Survival,
    pub(crate) order: order::Order,
    roles: roles::Roles,
}

impl Checkers {
    pub(crate) fn new() -> Self {
        Self { survival: survival::Survival::default(), order: order::Order::default(), roles: roles::Roles::default() }
    }

    /// A node has started, empty.
    pub(crate) fn started(&mut self, now: Instant, node: usize) {
        self.order.forget(node);
        self.survival.started(now, node);
        self.roles.disturbed(now);
    }

    /// A node has dealt with whatever came.
    pub(crate) fn after_step(&mut self, now: Instant, node: usize, value: &Option<Node>, outcome: &mut Outcome) {
        let Some(value) = value else { return };
        self.roles.after_step(now, node, value, outcome);
        limits::after_step(now, node, value, outcome);
    }

    /// A node is about to take a replication datagram.
    pub(crate) fn before_datagram(&mut self, node: usize, value: &Node) {
        self.order.before_datagram(node, value);
    }

    /// A node has taken a replication datagram.
    pub(crate) fn after_datagram(&mut self, now: Instant, node: usize, value: &Option<Node>, outcome: &mut Outcome) {
        if let Some(value) = value {
            self.order.after_datagram(now, node, value, outcome);
        }
    }

    /// A node is about to stop dead.
    pub(crate) fn before_kill(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        self.survival.before_kill(now, node, view, outcome);
        self.roles.stopped(now, node);
    }

    /// The replication link was cut, or is whole again.
    pub(crate) fn partitioned(&mut self, now: Instant, is_cut: bool) {
        self.roles.partitioned(now, is_cut);
        self.survival.partitioned(now);
    }

    /// The run is over.
    pub(crate) fn finish(&mut self, now: Instant, view: &View<'_>, outcome: &mut Outcome) {
        self.survival.finish(now, view, outcome);
        content::finish(now, view, &self.survival, outcome);
    }
}
