//! Connections of a node that gave the addresses up and lives.
//!
//! Precise words would tell it whose connections are now the other's. A filter does not: so it looks, a part of its table at a
//! time, which of its own connections the other's filter has, and lets these go. The others stay, and stay in its own filter,
//! from which the node that took over restores them when their packets come.
//!
//! For the first two seconds it lets nothing go: what it has received of the other's filter may be of before the other gave the
//! addresses up for a moment, and both would let a connection go because of the other's entry. A connection that ends meanwhile is
//! not missed: closed ones stay in the other's table, and filter, for ten seconds and more.
//!
//! What stays may be out of date when this node takes over again: it is marked as a copy, whose windows are learnt afresh.

use core::time::Duration;

use flow::Instant;
use flow::connection::flags;
use flow::table::Slot;

use crate::node::replication_set::ReplicationSet;
use crate::pipeline::Pipeline;

/// Slots looked at in one step.
const SLOTS_PER_STEP: usize = 256;
/// From the end of one round to the beginning of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// For so long nothing is let go.
const LETS_GO_AFTER: Duration = Duration::from_secs(2);

/// Where the round stands.
#[derive(Debug, Default)]
pub(in crate::node) struct StandingBy {
    cursor: Option<Slot>,
    /// The next round begins then, unless there is nothing to look at.
    next_at: Option<Instant>,
    /// From then on connections are let go.
    lets_go_at: Instant,
}

impl StandingBy {
    pub(in crate::node) const fn poll_timeout(&self) -> Option<Instant> {
        if self.cursor.is_some() { Some(Instant::ZERO) } else { self.next_at }
    }
}

impl ReplicationSet {
    /// This node forwards nothing any more: what it is master of is another's, or will be.
    pub(in crate::node) fn begin_standing_by(&mut self, now: Instant) {
        if let Some(compact) = &mut self.compact {
            compact.standing_by = StandingBy {
                cursor: Some(Slot(0)),
                next_at: Some(now + ROUND_INTERVAL),
                lets_go_at: now + LETS_GO_AFTER,
            };
        }
    }

    pub(in crate::node) fn let_go_while_standing_by(&mut self, now: Instant, pipeline: &mut Pipeline, forwards: bool) {
        let Some(compact) = &mut self.compact else { return };
        let standing_by = &mut compact.standing_by;
        if forwards {
            if let Some(not_looked_at) = standing_by.cursor {
                compact.doubting.mark_all(not_looked_at);
            }
            *standing_by = StandingBy::default();
            return;
        }
        let is_due = standing_by.next_at.is_some_and(|at| at <= now);
        let lets_go = standing_by.lets_go_at <= now;
        let Some(mut cursor) = standing_by.cursor.or_else(|| is_due.then_some(Slot(0))) else { return };
        for _ in 0..SLOTS_PER_STEP {
            let Some(slot) = pipeline.table().next_occupied(cursor) else {
                self.end_round(now, pipeline);
                return;
            };
            self.look_at_own(pipeline, slot, lets_go);
            cursor = Slot(slot.0 + 1);
        }
        if let Some(compact) = &mut self.compact {
            compact.standing_by.cursor = Some(cursor);
        }
    }

    fn end_round(&mut self, now: Instant, pipeline: &Pipeline) {
        let is_master = pipeline.table().iter().take(1).count() > 0;
        if let Some(compact) = &mut self.compact {
            compact.standing_by.cursor = None;
            compact.standing_by.next_at = is_master.then_some(now + ROUND_INTERVAL);
        }
    }

    /// A connection of this node's goes if the node that took over has it, else it is kept as a copy is.
    fn look_at_own(&mut self, pipeline: &mut Pipeline, slot: Slot, lets_go: bool) {
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return;
        };
        let original = connection.original;
        let is_copy = connection.flags & flags::COPY != 0;
        // Where a filter has no fingerprints, too many of its answers are wrong to give connections away by them.
        let receivers = self.peers.iter().filter(|peer| peer.is_up()).filter_map(|peer| peer.compact.as_ref());
        let is_taken =
            receivers.filter(|receiver| receiver.is_sure()).any(|receiver| receiver.lookup(&original).is_some());
        if is_taken && lets_go {
            let was_precise = self.tell_left_compactly(pipeline, slot, &original);
            pipeline.let_go(slot);
            if let Some(compact) = &mut self.compact {
                compact.counters.let_go += 1;
                if was_precise {
                    crate::node::peer::sessions(&mut self.peers)
                        .for_each(|session| session.forget(replication::Handle(slot.0)));
                }
            }
        } else if !is_copy {
            pipeline.keep_as_copy(slot);
        }
    }
}
