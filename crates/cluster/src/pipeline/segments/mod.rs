//! Local recovery [HALR, chapter 3] without edges: the owner of a TCP connection replicates the lowest segment that it has forwarded
//! and that is not acknowledged. The node that takes over sends it on once more.
//!
//! ```text
//!   host ─► segment ─► owner ─► forwarded         owner ✗
//!                        │ held, if it is the lowest unacknowledged one
//!                        └── Segment ──► backup: holds one for each direction of a connection
//!                        └── Acknowledged ─► drops it
//!                                               │ takes over, addresses are announced
//!                                               └──► the pipeline, as if the host had sent it once more
//! ```
//!
//! [`outgoing`] is the owner's part, [`incoming`] that of the backup. Each has half of the memory. What arrived while no node forwarded
//! was held by no node, so it is not resent: that is what an edge does.

mod config;
mod incoming;
mod outgoing;
#[cfg(test)]
mod tests;
mod tracked;

use alloc::vec::Vec;

use flow::table::{Slot, Table};
use flow::wire::Packet;
use flow::{Connection, Direction, Instant, NodeId};
use replication::message::SegmentMessage;

pub use config::{SegmentCounters, SegmentPolicy, SegmentStatus, SegmentsConfig, SegmentsResent};
pub(super) use incoming::Due;
use incoming::Incoming;
use outgoing::Outgoing;
pub(super) use tracked::{directed_hash, is_closed, unacknowledged};

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Segments {
    outgoing: Outgoing,
    incoming: Incoming,
    counters: SegmentCounters,
}

impl Segments {
    /// `packet_bytes_max`: longer packets are cut, so that their messages fit a datagram.
    pub(super) fn new(config: &SegmentsConfig, packet_bytes_max: usize) -> Self {
        Self {
            outgoing: Outgoing::new(config, packet_bytes_max),
            incoming: Incoming::new(config),
            counters: SegmentCounters::default(),
        }
    }

    pub(super) fn status(&self) -> SegmentStatus {
        SegmentStatus {
            counters: self.counters,
            own: self.outgoing.len(),
            of_peers: self.incoming.len(),
            memory_bytes: self.outgoing.memory_bytes() + self.incoming.memory_bytes(),
        }
    }

    /// A segment of an own connection was tracked, and is about to be translated. `is_renumbered`: what arrives has other numbers
    /// than what is tracked.
    pub(super) fn note_packet(
        &mut self,
        now: Instant,
        table: &Table,
        (slot, direction): (Slot, Direction),
        packet: &Packet<'_, '_>,
        is_renumbered: bool,
    ) {
        self.outgoing.note_packet(now, table, (slot, direction), packet, is_renumbered, &mut self.counters);
    }

    /// The chain has dropped the packet that was noted last: it was not forwarded.
    pub(super) fn note_dropped(&mut self, slot: Slot, direction: Direction) {
        self.outgoing.note_dropped(slot, direction);
    }

    /// A connection leaves the table.
    pub(super) fn note_removed(&mut self, table: &Table, slot: Slot, removed: &Connection) {
        self.outgoing.note_removed(slot, removed);
        self.incoming.note_removed(table, removed);
    }

    /// A peer has replicated a connection.
    pub(super) fn note_replica(&mut self, table: &Table, replica: &Connection) {
        self.incoming.note_replica(table, replica);
    }

    /// A message of a peer.
    pub(super) fn note_message(&mut self, now: Instant, table: &Table, from: NodeId, message: &SegmentMessage<'_>) {
        self.incoming.note_message(now, table, from, message, &mut self.counters);
    }

    /// Appends messages for the peers, at most `room_bytes`. False: there are none now.
    pub(super) fn poll_messages(
        &mut self,
        now: Instant,
        table: &Table,
        node: NodeId,
        room_bytes: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        self.outgoing.poll_messages(now, table, node, room_bytes, out, &mut self.counters)
    }

    /// This node has taken over: what the former owners forwarded is due.
    pub(super) fn begin_resending(&mut self, now: Instant) {
        self.incoming.begin_resending(now);
    }

    /// The next held segment that is due. It leaves its slot.
    pub(super) fn poll_due(&mut self, now: Instant, is_live: impl Fn(NodeId) -> bool) -> Option<Due> {
        self.incoming.poll_due(now, is_live)
    }

    /// What was polled last was resent, or dropped.
    pub(super) const fn count_resent(&mut self, is_resent: bool, is_syn: bool) {
        if is_resent {
            self.counters.syns_resent += is_syn as u64;
            self.counters.segments_resent += !is_syn as u64;
        }
        self.incoming.count_resent(is_resent, is_syn);
    }

    /// All that was due was polled: what came of it, once.
    pub(super) fn poll_finished(&mut self) -> Option<SegmentsResent> {
        self.incoming.poll_finished()
    }

    /// When [`Segments::poll_due`] has something at the earliest.
    pub(super) fn resends_at(&self) -> Option<Instant> {
        self.incoming.poll_timeout()
    }

    /// When [`Segments::poll_messages`] has something at the earliest.
    pub(super) fn messages_at(&self) -> Option<Instant> {
        self.outgoing.poll_timeout()
    }
}
