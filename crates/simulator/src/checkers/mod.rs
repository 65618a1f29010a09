//! The invariants of a run: each has a checker, which does not depend on the cause of a violation.

mod claims;
mod compact;
mod content;
mod limits;
pub(crate) mod order;
pub(crate) mod replicas;
mod roles;
pub(crate) mod survival;
pub(crate) mod versions;
mod view;
pub(crate) mod zombies;

use cluster::node::Node;
use flow::Instant;

use crate::report::Outcome;
use crate::scenario::Scenario;
use crate::topology::NODES;

pub(crate) use view::{Conditions, View};

/// Whether the node's resynchronisation from its peer is complete.
fn is_resynchronised(node: &Node) -> bool {
    let status = node.status(Instant::ZERO);
    status.peers.iter().all(|peer| {
        let has_filter = peer.compact.as_ref().is_none_or(|filter| filter.filters > 0);
        peer.session.is_some_and(|session| session.received_all) && has_filter
    })
}

/// All checkers of a run.
pub(crate) struct Checkers {
    pub(crate) survival: survival::Survival,
    pub(crate) order: order::Order,
    pub(crate) versions: versions::Versions,
    roles: roles::Roles,
    claims: claims::Claims,
    limits: limits::Limits,
    /// Nodes whose resynchronisation was complete at some time since they started.
    were_resynchronised: [bool; NODES],
}

impl Checkers {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        Self {
            survival: survival::Survival::new(scenario),
            order: order::Order::default(),
            versions: versions::Versions::default(),
            roles: roles::Roles::default(),
            claims: claims::Claims::default(),
            limits: limits::Limits::default(),
            were_resynchronised: [false; NODES],
        }
    }

    /// A node has started, empty.
    pub(crate) fn started(&mut self, now: Instant, node: usize, connections_max: u32, has_new_dialect: bool) {
        self.order.forget(node);
        self.survival.started(now, node);
        self.roles.disturbed(now);
        self.claims.returned(now, node);
        self.limits.started(node, connections_max);
        self.were_resynchronised[node] = false;
        self.versions.started(now, node, has_new_dialect);
    }

    /// A node has processed its input.
    pub(crate) fn after_step(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        let Some(value) = view.nodes[node] else { return };
        self.were_resynchronised[node] = self.were_resynchronised[node] || is_resynchronised(value);
        if self.limits.has_evicted(node, value) {
            self.survival.note_eviction(now, node, value, view);
        }
        self.roles.after_step(now, node, value, outcome);
        self.claims.reach(now, self.roles.unreached());
        self.limits.after_step(now, node, value, outcome);
    }

    /// A node is about to process a replication datagram.
    pub(crate) fn before_datagram(&mut self, node: usize, value: &Node) {
        self.order.before_datagram(node, value);
    }

    /// A node has processed a replication datagram.
    pub(crate) fn after_datagram(&mut self, now: Instant, node: usize, value: &Option<Node>, outcome: &mut Outcome) {
        if let Some(value) = value {
            // A connection restored from a filter has no version: it starts from the beginning.
            if value.status(now).compact.is_some() {
                return;
            }
            self.order.after_datagram(now, node, value, outcome);
            self.versions.after_datagram(now, node, value, outcome);
        }
    }

    /// A node is about to fail.
    pub(crate) fn before_kill(&mut self, now: Instant, node: usize, view: &View<'_>, outcome: &mut Outcome) {
        compact::compare(node, view, outcome);
        self.survival.before_kill(now, node, view, outcome);
        self.roles.stopped(now, node);
        self.claims.stopped(node);
    }

    /// A node has taken the addresses, or released them.
    pub(crate) fn role_changed(
        &mut self,
        now: Instant,
        node: usize,
        holds: bool,
        view: &View<'_>,
        outcome: &mut Outcome,
    ) {
        let was_informed = self.were_resynchronised[node] || view.nodes[node].as_ref().is_some_and(is_resynchronised);
        self.survival.role_changed(now, node, holds, view, outcome);
        self.claims.role_changed(now, node, holds, was_informed, view, outcome);
    }

    /// A node is paused.
    pub(crate) fn paused(&mut self, now: Instant, node: usize) {
        self.roles.disturbed(now);
        self.claims.paused(now, node);
    }

    /// A paused node resumes.
    pub(crate) fn resumed(&mut self, now: Instant, node: usize) {
        self.roles.resumed(now);
        self.claims.resumed(now, node);
    }

    /// The nodes work under these conditions from now on.
    pub(crate) fn conditions(&mut self, now: Instant, conditions: Conditions) {
        self.roles.conditions(now, conditions);
        self.claims.conditions(now, conditions);
        self.survival.conditions(now, conditions);
        self.versions.conditions(now, conditions);
    }

    /// Runs the final checks.
    pub(crate) fn finish(&mut self, now: Instant, view: &View<'_>, outcome: &mut Outcome) {
        self.survival.finish(now, view, outcome);
        self.versions.finish(now, outcome);
        content::finish(now, view, &self.survival, outcome);
    }
}
