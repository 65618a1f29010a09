//! Connections of a node that has given the addresses up and stands by.
//!
//! With records, the new owner's updates turn its connections into replicas. A filter has no owners. So the standby compares its own
//! connections with the active node's filter, a part of the table at a time, and removes those that the filter has. The others stay,
//! in the table and in its own filter, from which the active node restores them when their packets arrive.
//!
//! In the first two seconds it removes nothing: the filter that it has received may be older than a short change of roles, and each of
//! two nodes would remove a connection because of the other's outdated entry. A connection that closes meanwhile stays in the
//! active node's table and filter for ten seconds and more, so that it is still found.
//!
//! A connection that stays may be out of date at the next take-over: it is marked as a copy, whose windows are learnt from its next packets.

use core::time::Duration;

use flow::Instant;
use flow::connection::flags;
use flow::table::Slot;

use crate::node::replication_set::ReplicationSet;
use crate::pipeline::Pipeline;

/// Slots that one step compares.
const SLOTS_PER_STEP: usize = 256;
/// From the end of one round to the beginning of the next.
const ROUND_INTERVAL: Duration = Duration::from_secs(1);
/// How long a standby removes nothing.
const REMOVES_AFTER: Duration = Duration::from_secs(2);

/// Where the round stands.
#[derive(Debug, Default)]
pub(in crate::node) struct StandingBy {
    cursor: Option<Slot>,
    /// When the next round begins; `None`: there is no connection to compare.
    next_at: Option<Instant>,
    /// From then on connections are removed.
    removes_at: Instant,
}

impl StandingBy {
    pub(in crate::node) const fn poll_timeout(&self) -> Option<Instant> {
        if self.cursor.is_some() { Some(Instant::ZERO) } else { self.next_at }
    }
}

impl ReplicationSet {
    /// This node no longer forwards: its connections belong to the active node, or soon will.
    pub(in crate::node) fn begin_standing_by(&mut self, now: Instant) {
        if let Some(compact) = &mut self.compact {
            compact.standing_by = StandingBy {
                cursor: Some(Slot(0)),
                next_at: Some(now + ROUND_INTERVAL),
                removes_at: now + REMOVES_AFTER,
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
        let removes = standing_by.removes_at <= now;
        let Some(mut cursor) = standing_by.cursor.or_else(|| is_due.then_some(Slot(0))) else { return };
        for _ in 0..SLOTS_PER_STEP {
            let Some(slot) = pipeline.table().next_occupied(cursor) else {
                self.end_round(now, pipeline);
                return;
            };
            self.look_at_own(pipeline, slot, removes);
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

    /// Removes a connection of this node that the active node has; otherwise marks it as a copy.
    fn look_at_own(&mut self, pipeline: &mut Pipeline, slot: Slot, removes: bool) {
        let Some(connection) = pipeline.connection(slot).filter(|connection| connection.owner == self.id) else {
            return;
        };
        let original = connection.original;
        let is_copy = connection.flags & flags::REPLICA != 0;
        // Without fingerprints, too many lookups are wrong.
        let receivers = self.peers.iter().filter(|peer| peer.is_up()).filter_map(|peer| peer.compact.as_ref());
        let is_taken =
            receivers.filter(|receiver| receiver.is_sure()).any(|receiver| receiver.lookup(&original).is_some());
        if is_taken && removes {
            let was_precise = self.remove_compactly(pipeline, slot, &original);
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
