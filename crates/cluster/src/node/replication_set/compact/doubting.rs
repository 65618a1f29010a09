//! Connections of which a peer says that they are its own, though this node goes on with them.
//!
//! A precise word of a peer that took a connection over makes this node's record a copy, whose windows are learnt afresh with its next
//! packet. A filter says it less loudly: an entry appears in it. So a node that forwards looks through its own connections when a
//! peer that lives tells of entries: those that the peer's filter has are marked as copies are. Both nodes may have passed
//! packets of them while neither heard the other; what this one saw last may be far behind. A mistake costs little: the next
//! packet is taken as the first of a copy is.
//!
//! A node that stood by for a moment and forwards again has not looked at all its connections meanwhile
//! ([`super::standing_by`]). The node that forwarded in its place may have let them go since, so that no filter names them: all
//! that were not looked at are marked.

use core::time::Duration;

use flow::Instant;
use flow::connection::flags;
use flow::table::Slot;

use crate::node::replication_set::ReplicationSet;
use crate::pipeline::Pipeline;

/// Slots looked at in one step.
const SLOTS_PER_STEP: usize = 256;
/// From a peer's word to the round that follows it: what else it tells by then is looked at in the same one.
const ROUND_DELAY: Duration = Duration::from_millis(100);

/// Where the round stands.
#[derive(Debug, Default)]
pub(in crate::node) struct Doubting {
    cursor: Option<Slot>,
    /// The next round begins then.
    next_at: Option<Instant>,
    /// This round asks no filter: all connections from its cursor on are marked.
    marks_all: bool,
}

impl Doubting {
    /// Another node forwarded until now: what lies in slots from `from` on is of before.
    pub(in crate::node) const fn mark_all(&mut self, from: Slot) {
        (self.cursor, self.marks_all) = (Some(from), true);
    }

    /// A peer that lives told of entries.
    pub(in crate::node) fn note_told(&mut self, now: Instant) {
        self.next_at = self.next_at.or(Some(now + ROUND_DELAY));
    }

    pub(in crate::node) const fn poll_timeout(&self) -> Option<Instant> {
        if self.cursor.is_some() { Some(Instant::ZERO) } else { self.next_at }
    }
}

impl ReplicationSet {
    pub(in crate::node) fn doubt_what_peers_claim(&mut self, now: Instant, pipeline: &mut Pipeline, forwards: bool) {
        let Some(compact) = &mut self.compact else { return };
        let doubting = &mut compact.doubting;
        if !forwards {
            *doubting = Doubting::default();
            return;
        }
        if doubting.cursor.is_none() && doubting.next_at.is_some_and(|at| at <= now) {
            *doubting = Doubting { cursor: Some(Slot(0)), ..Doubting::default() };
        }
        let marks_all = doubting.marks_all;
        let Some(mut cursor) = doubting.cursor.take() else { return };
        doubting.marks_all = false;
        for _ in 0..SLOTS_PER_STEP {
            let Some(slot) = pipeline.table().next_occupied(cursor) else { return };
            self.doubt(pipeline, slot, marks_all);
            cursor = Slot(slot.0 + 1);
        }
        if let Some(compact) = &mut self.compact {
            (compact.doubting.cursor, compact.doubting.marks_all) = (Some(cursor), marks_all);
        }
    }

    fn doubt(&self, pipeline: &mut Pipeline, slot: Slot, is_marked: bool) {
        let is_own =
            |connection: &&flow::Connection| connection.owner == self.id && connection.flags & flags::COPY == 0;
        let Some(connection) = pipeline.connection(slot).filter(is_own) else { return };
        let original = connection.original;
        let mut receivers = self.peers.iter().filter(|peer| peer.is_up()).filter_map(|peer| peer.compact.as_ref());
        if is_marked || receivers.any(|receiver| receiver.lookup(&original).is_some()) {
            pipeline.keep_as_copy(slot);
        }
    }
}
