//! Connections that a live peer claims, although this node forwards and owns them.
//!
//! An update of a peer that took a connection over turns this node's record into a replica, whose windows are learnt from its next packet. A
//! filter reports this only by an entry. So an active node compares its own connections with a live peer's filter when entries
//! arrive, and marks those that the filter has as replicas: during a split both nodes may have forwarded their packets, and this node's
//! windows may be far behind. A false match costs little.
//!
//! A node that was standby only for a moment has not compared all its connections ([`super::standby`]). The other node may have
//! removed them since, so that no filter has them: all that were not compared are marked.

use core::time::Duration;

use flow::connection::flags;
use flow::table::Slot;
use flow::{Connection, Instant, NodeId, Tuple};

use crate::node::peer::Peer;
use crate::pipeline::Pipeline;

/// Slots that one step compares.
const SLOTS_PER_STEP: usize = 256;
/// From a peer's entries to the round that follows: entries that arrive meanwhile are compared in the same round.
const ROUND_DELAY: Duration = Duration::from_millis(100);

/// Where the round stands.
#[derive(Debug, Default)]
pub(in crate::node) struct ClaimedComparison {
    cursor: Option<Slot>,
    /// The next round begins then.
    next_at: Option<Instant>,
    /// This round marks all connections from its cursor on.
    marks_all: bool,
}

impl ClaimedComparison {
    /// Another node forwarded until now: marks all connections from slot `from` on.
    pub(in crate::node) const fn mark_all(&mut self, from: Slot) {
        (self.cursor, self.marks_all) = (Some(from), true);
    }

    /// Entries of a live peer have arrived.
    pub(in crate::node) fn note_entries_received(&mut self, now: Instant) {
        self.next_at = self.next_at.or(Some(now + ROUND_DELAY));
    }

    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        if self.cursor.is_some() { Some(Instant::ZERO) } else { self.next_at }
    }

    /// Compares some more connections of `node`, which forwards packets or does not.
    pub(super) fn step(&mut self, now: Instant, node: NodeId, pipeline: &mut Pipeline, peers: &[Peer], forwards: bool) {
        if !forwards {
            *self = Self::default();
            return;
        }
        if self.cursor.is_none() && self.next_at.is_some_and(|at| at <= now) {
            *self = Self { cursor: Some(Slot(0)), ..Self::default() };
        }
        let marks_all = core::mem::take(&mut self.marks_all);
        let Some(mut cursor) = self.cursor.take() else { return };
        for _ in 0..SLOTS_PER_STEP {
            let Some(slot) = pipeline.table().next_occupied(cursor) else { return };
            let is_own = |connection: &&Connection| connection.owner == node && connection.flags & flags::REPLICA == 0;
            let original = pipeline.connection(slot).filter(is_own).map(|connection| connection.original);
            if original.is_some_and(|original| marks_all || is_claimed(peers, &original)) {
                pipeline.keep_as_copy(slot);
            }
            cursor = Slot(slot.0 + 1);
        }
        (self.cursor, self.marks_all) = (Some(cursor), marks_all);
    }
}

/// Whether the filter of a live peer has the connection.
fn is_claimed(peers: &[Peer], original: &Tuple) -> bool {
    let mut receivers = peers.iter().filter(|peer| peer.is_up()).filter_map(|peer| peer.compact.as_ref());
    receivers.any(|receiver| receiver.lookup(original).is_some())
}
