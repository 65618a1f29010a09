//! Plans: the way of an established connection's plain packets, computed once.
//!
//! ```text
//!            ┌ no plan, or a void one ─► admission ─► handle_known ─► chain ─► edge.forward ─► a plan is made
//!  look up ──┤
//!            └ a plan ─► window check, addresses and checksums, link addresses
//! ```
//! A plan has the next hop and the [`Translation`] of a direction of a connection. Its revision is the sum of the edge's and this
//! node's: a reload, a change of role, another route and the eviction of a neighbour change it, and void all plans. A plan becomes void
//! alone when its slot is filled anew and when a function changes its state of the connection.
//!
//! A plan is made for a connection of which no function [needs packets](network_functions::chain::Chain::needs_packets), by a packet
//! that has come in on a port, was admitted and was sent. Plans are used only for packets that match this: ACK segments in IPv4 in
//! untagged Ethernet. While packets are watched, or connections re-evaluated, no plan is used. A packet that does not just pass by
//! its plan takes the general path, with nothing done.

use alloc::vec::Vec;
use core::num::NonZeroU32;

use flow::table::Slot;
use flow::table::prefetch::prefetch;
use flow::wire::{Headers, Translation, Transport, tcp_flags};
use flow::{Direction, PortId};

use super::edge::Edge;

/// Of a direction of a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Plan {
    /// The revision under which it was made; 0: there is none.
    revision: u32,
    /// The edge's number of the next hop.
    pub(super) hop: u16,
    /// The port that its packets come in by. Another port may not have its sources.
    pub(super) ingress: PortId,
    pub(super) translation: Translation,
}

/// Both directions of a connection, within a cache line.
#[derive(Clone, Copy, Default)]
#[repr(align(32))]
struct PlanPair([Plan; 2]);

const _: () = assert!(size_of::<PlanPair>() == 32);

/// See the [module](self).
pub(super) struct Plans {
    /// By slot. The memory is reserved at the start, and touched as slots are used.
    pairs: Vec<PlanPair>,
    /// How often this node voided all plans; the edge counts for itself.
    voided: u32,
    /// Plans are made and used in this batch.
    are_used: bool,
    /// Packets of this batch that passed by a plan.
    packets: u64,
    /// Packets that passed by a plan ever.
    #[cfg(test)]
    pub(super) passed: u64,
}

impl Plans {
    pub(super) fn new(connections_max: u32) -> Self {
        Self {
            pairs: Vec::with_capacity(connections_max as usize),
            voided: 1,
            are_used: false,
            packets: 0,
            #[cfg(test)]
            passed: 0,
        }
    }

    /// Voids all plans.
    pub(super) const fn void_all(&mut self) {
        self.voided = self.voided.wrapping_add(1);
    }

    /// Voids the plans of a slot.
    pub(super) fn void(&mut self, slot: Slot) {
        if let Some(pair) = self.pairs.get_mut(slot.0 as usize) {
            *pair = PlanPair::default();
        }
    }

    /// Whether plans are made and used in this batch.
    #[inline(always)]
    pub(super) const fn are_used(&self) -> bool {
        self.are_used
    }

    #[inline(always)]
    pub(super) fn prefetch(&self, slot: Slot) {
        prefetch(&self.pairs, slot.0 as usize, 0);
    }

    /// The revision of plans that are made now. A packet of the batch may evict a neighbour, so the edge is asked for each.
    #[inline(always)]
    fn revision<E: Edge>(&self, edge: &E) -> Option<NonZeroU32> {
        edge.plan_revision().and_then(|of_edge| NonZeroU32::new(of_edge.wrapping_add(self.voided)))
    }

    #[inline(always)]
    pub(super) fn get<E: Edge>(&self, slot: Slot, direction: Direction, edge: &E) -> Option<Plan> {
        let plan = self.pairs.get(slot.0 as usize)?.0[direction.index()];
        self.revision(edge).is_some_and(|revision| revision.get() == plan.revision).then_some(plan)
    }

    /// Plans a direction of the connection in a slot.
    pub(super) fn set<E: Edge>(
        &mut self,
        (slot, direction): (Slot, Direction),
        (ingress, hop): (PortId, u16),
        translation: Translation,
        edge: &E,
    ) {
        let Some(revision) = self.revision(edge) else { return };
        let index = slot.0 as usize;
        if index >= self.pairs.len() {
            self.pairs.resize(index + 1, PlanPair::default());
        }
        self.pairs[index].0[direction.index()] = Plan { revision: revision.get(), hop, ingress, translation };
    }

    /// A batch begins, in which plans are made and used or are not.
    pub(super) const fn begin_batch(&mut self, are_used: bool) {
        self.are_used = are_used;
    }

    /// A packet passed by a plan.
    #[inline(always)]
    pub(super) const fn count(&mut self) {
        self.packets += 1;
    }

    /// The batch has ended. Returns how many of its packets passed by a plan.
    pub(super) const fn end_batch(&mut self) -> u64 {
        self.are_used = false;
        let packets = core::mem::replace(&mut self.packets, 0);
        #[cfg(test)]
        {
            self.passed += packets;
        }
        packets
    }
}

/// Whether a packet may pass by a plan, as far as it shows itself. Packets whose admission may send an error are not among them: errors
/// keep their order.
#[inline(always)]
pub(super) const fn may_be_planned(headers: &Headers) -> bool {
    const FLAGS: u8 = tcp_flags::SYN | tcp_flags::FIN | tcp_flags::RST | tcp_flags::URG | tcp_flags::ACK;
    match &headers.transport {
        Transport::Tcp(segment) => {
            segment.flags & FLAGS == tcp_flags::ACK && headers.ttl > 1 && Translation::applies_to(headers)
        }
        _ => false,
    }
}
