//! Packets that pass by a [plan](super::plan), and packets by which one is made.

use flow::table::Slot;
use flow::wire::{Packet, Translation};
use flow::{Direction, Disposition, Instant};

use super::connections::{Connections, record, record_mut};
use super::edge::Edge;
use super::plan::may_be_planned;

impl Connections {
    /// Finds out whether plans are used for the next batch, which came in on ports if `is_from_port`.
    pub(super) fn begin_plans<E: Edge>(&mut self, is_from_port: bool, is_reevaluating: bool, edge: &E) {
        let may_use = is_from_port && !is_reevaluating && !self.observation.is_active();
        self.plans.begin_batch(may_use && edge.plan_revision().is_some());
    }

    /// Counts what passed by plans since [`Connections::begin_plans`].
    pub(super) fn end_plans(&mut self) {
        let packets = self.plans.end_batch();
        if packets > 0 {
            self.functions.chain.count_translated(&mut self.functions.output.counters, packets);
        }
    }

    /// Passes a packet by its plan. `None`, and nothing done: it takes the general path.
    #[inline(always)]
    pub(super) fn pass_planned<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        (slot, direction): (Slot, Direction),
        edge: &mut E,
    ) -> Option<Disposition> {
        let plan = self.plans.get(slot, direction, edge).filter(|plan| plan.ingress == packet.frame.ingress)?;
        let link = edge.planned_link(now, plan.hop, packet)?;
        self.take_seen(slot);
        if !self.advance_plain(now, packet, slot, direction) {
            return None;
        }
        let connection = record_mut(&mut self.table, slot);
        let answer = connection.tuple(direction.reverse());
        let is_whole = plan.translation.forward(packet.frame, answer, link.destination, link.source);
        debug_assert!(is_whole, "a parsed TCP segment has all its headers");
        connection.note_egress(direction, link.egress);
        self.plans.count();
        self.follow_in_fast_path(slot);
        Some(Disposition::Transmit(link.egress))
    }

    /// Plans the way of the packets that follow one that was admitted and sent, if they may be planned.
    pub(super) fn plan<E: Edge>(&mut self, packet: &Packet<'_, '_>, slot: Slot, direction: Direction, edge: &E) {
        let connection = record(&self.table, slot);
        if !may_be_planned(packet.headers) || self.functions.chain.needs_packets(connection) {
            return;
        }
        let outgoing = connection.translated(direction);
        let Some(hop) = edge.planned_hop(&outgoing) else { return };
        let translation = Translation::new(connection.tuple(direction), &outgoing);
        self.plans.set((slot, direction), (packet.frame.ingress, hop), translation, edge);
    }
}
