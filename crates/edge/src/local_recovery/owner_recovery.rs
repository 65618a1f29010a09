//! The recovery of the connections that one node has taken over: through the held packets, in the order in which they were held.

use flow::{Instant, NodeId, NodeSet};

use super::Resent;
use crate::distribution::Distribution;
use crate::flows::Record;
use flow::held::{Held, HeldPackets, SEGMENT_FRAME_BYTES_MAX};
use flow::list::NONE;

/// The recovery of the connections that one node has taken over.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnerRecovery {
    pub(super) node: NodeId,
    /// The nodes whose connections it has taken over.
    pub(super) failed: NodeSet,
    pub(super) confirmed_at: Instant,
    /// The next slots.
    pub(super) acknowledgement: u32,
    pub(super) segment: u32,
    pub(super) copies_sent: u8,
    pub(super) resent: Resent,
}

impl OwnerRecovery {
    /// Whether a held packet is to be resent: the node of its connection has failed, this node has taken it over, and
    /// the packet passed before that. Closed connections hold none.
    pub(super) fn is_due(&self, held: &Held, record: &Record, distribution: &Distribution) -> bool {
        let failed = match record.moved_from() {
            Some(failed) if record.node == self.node => Some(failed),
            _ if distribution.is_alive(record.node) => None,
            _ => distribution
                .select(&record.entering, Some(record.node))
                .filter(|node| *node == self.node)
                .map(|_| record.node),
        };
        failed.is_some_and(|failed| self.failed.contains(failed))
            && held.held_at <= self.confirmed_at
            && held.resent_to != self.node
    }

    /// The slot behind `slot`. Packets that were held after the confirmation end the recovery: all further ones were, too.
    pub(super) fn next_of<const N: usize>(&self, packets: &HeldPackets<N>, slot: u32) -> u32 {
        let next = packets.next(slot);
        if next != NONE && packets.get(next).held_at > self.confirmed_at { NONE } else { next }
    }
}

/// A slot loses its place in the order: recoveries that are there go on behind it.
pub(super) fn skip<const N: usize>(recoveries: &mut [OwnerRecovery], packets: &HeldPackets<N>, slot: u32) {
    for recovery in recoveries {
        let next = packets.next(slot);
        let cursor = if N == SEGMENT_FRAME_BYTES_MAX { &mut recovery.segment } else { &mut recovery.acknowledgement };
        if *cursor == slot {
            *cursor = next;
            if N != SEGMENT_FRAME_BYTES_MAX {
                recovery.copies_sent = 0;
            }
        }
    }
}
