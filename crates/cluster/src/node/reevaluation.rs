//! Re-evaluation: after a reload, connections are checked against the new rules. After an input of a function has changed, such as a
//! backend's health, they are checked against that.
//!
//! The owner of a connection re-evaluates it. A standby node keeps the re-evaluation pending during the reload. Should it take
//! connections over before their owner has re-evaluated them, it does so itself. Of nodes that each hold some of the groups of
//! addresses, each re-evaluates its own connections, and keeps those of the others pending.

use flow::Instant;

use super::event::{Events, NodeEvent};
use crate::pipeline::Pipeline;
use crate::role::{Roles, State};

/// Connections re-evaluated in one step.
const REEVALUATED_PER_STEP_MAX: usize = 128;

/// The re-evaluation that the latest reload or change of an input asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PendingReevaluation {
    /// Not all connections have been re-evaluated since then.
    is_pending: bool,
    /// By the rules, too, not only by the functions' inputs.
    by_rules: bool,
    /// Other nodes' connections are re-evaluated as well as this node's own.
    is_of_all: bool,
    /// Connections that had been ended by re-evaluations before.
    ended_before: u64,
}

impl PendingReevaluation {
    /// The rules are new, or (without `by_rules`) only an input of a function is: the re-evaluation begins as soon as the roles ask
    /// for it.
    pub(super) fn require(&mut self, by_rules: bool, roles: &Roles, pipeline: &mut Pipeline) {
        self.by_rules = by_rules || (self.is_pending && self.by_rules);
        self.is_pending = true;
        self.follow_roles(roles, pipeline);
    }

    /// Connections go on unjudged.
    pub(super) const fn cancel(&mut self, pipeline: &mut Pipeline) {
        self.is_pending = false;
        pipeline.stop_reevaluation();
    }

    /// Begins with the first connection, or stops, as the roles are now. A node that forwards only some groups re-evaluates its
    /// own connections; a node that forwards all re-evaluates all.
    pub(super) fn follow_roles(&mut self, roles: &Roles, pipeline: &mut Pipeline) {
        if !roles.forwards_any() {
            pipeline.stop_reevaluation();
        } else if self.is_pending {
            if !pipeline.is_reevaluating() {
                self.ended_before = pipeline.counters().disallowed;
            }
            self.is_of_all = roles.are_all(State::forwards);
            pipeline.begin_reevaluation(self.by_rules);
        }
    }

    /// Re-evaluates some more connections.
    pub(super) fn step(&mut self, now: Instant, pipeline: &mut Pipeline, events: &mut Events) {
        if !pipeline.is_reevaluating() {
            return;
        }
        pipeline.reevaluate_some(now, REEVALUATED_PER_STEP_MAX, self.is_of_all);
        if !pipeline.is_reevaluating() {
            // Other nodes re-evaluate theirs, unless they die first.
            self.is_pending = !self.is_of_all;
            events.push(now, NodeEvent::Reevaluated { ended: pipeline.counters().disallowed - self.ended_before });
        }
    }
}
