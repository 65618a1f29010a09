//! Holding connections against a configuration that is newer than they are.
//!
//! A connection's master judges it. A node that stands by when it is told to judge therefore owes it: should it take the
//! connections over before the master has judged them, it does so itself. Of nodes that each hold some of the groups of addresses,
//! each judges its own connections, and owes those of the others.

use flow::Instant;

use super::{Node, NodeEvent};
use crate::pipeline::Pipeline;

/// Connections judged in one call of [`Node::handle_timeout`].
const JUDGED_PER_TIMEOUT_MAX: usize = 128;

/// What is still to be done.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Judging {
    /// The connections have not all been judged since this node was last told to.
    is_owed: bool,
    /// Others' connections are judged as well as this node's own.
    is_of_all: bool,
    /// Connections that were ended so before.
    ended_before: u64,
}

impl Judging {
    /// The configuration is another, and the connections are to be held against it.
    pub(super) const fn owe(&mut self) {
        self.is_owed = true;
    }

    /// They go on unjudged.
    pub(super) const fn forgive(&mut self, pipeline: &mut Pipeline) {
        self.is_owed = false;
        pipeline.stop_reevaluation();
    }

    /// Begins, from the first connection on, if it is owed: with those of all masters, or with this node's own.
    pub(super) const fn take_up(&mut self, pipeline: &mut Pipeline, is_of_all: bool) {
        if self.is_owed {
            if !pipeline.is_reevaluating() {
                self.ended_before = pipeline.counters().disallowed;
            }
            self.is_of_all = is_of_all;
            pipeline.begin_reevaluation();
        }
    }

    /// Another node is master from now on.
    pub(super) const fn leave_off(&self, pipeline: &mut Pipeline) {
        pipeline.stop_reevaluation();
    }
}

impl Node {
    /// Judges some more connections.
    pub(super) fn judge_some(&mut self, now: Instant) {
        if !self.pipeline.is_reevaluating() {
            return;
        }
        self.pipeline.reevaluate_some(now, JUDGED_PER_TIMEOUT_MAX, self.judging.is_of_all);
        if !self.pipeline.is_reevaluating() {
            // Others judge theirs, unless they die first.
            self.judging.is_owed = !self.judging.is_of_all;
            let ended = self.pipeline.counters().disallowed - self.judging.ended_before;
            self.events.push(now, NodeEvent::Judged { ended });
        }
    }
}
