//! What the stages tell those who look on.

use flow::connection::flags;
use flow::conntrack::{Advance, Next, ProtocolState, state_name};
use flow::table::Slot;
use flow::wire::{Packet, Transport};
use flow::{Direction, Disposition, Instant, NodeId};

use super::{Edge, Pipeline, record};
use crate::observation::{ConnectionChange, Step};

impl Pipeline {
    /// Something was done with the packet that is being handled.
    #[inline]
    pub(super) fn observe(&mut self, step: Step) {
        if self.observation.attends() {
            self.observation.step(step);
        }
    }

    /// Something happened to the connection in a slot.
    #[inline]
    pub(super) fn follow(&mut self, change: ConnectionChange, slot: Slot) {
        if self.observation.is_following() {
            let entered_at = self.entered_at(slot);
            self.observation.note_connection(change, record(&self.table, slot), entered_at);
        }
    }

    /// When the connection in a slot was entered.
    pub(super) fn entered_at(&self, slot: Slot) -> Instant {
        self.table.cold(slot).map_or(Instant::ZERO, |cold| Instant::from_nanos(cold.created_at_nanos))
    }

    /// The packet was looked up.
    #[cold]
    pub(super) fn observe_lookup(&mut self, packet: &Packet<'_, '_>, found: Option<(Slot, Direction)>) {
        let step = match found {
            None => Step::Unknown,
            Some((slot, direction)) => {
                let connection = record(&self.table, slot);
                let original = connection.original;
                if matches!(packet.headers.transport, Transport::IcmpError(_)) {
                    Step::QuotesPacketOf { original }
                } else {
                    Step::Known {
                        direction,
                        state: state_name(original.protocol, &connection.protocol),
                        original,
                        master: connection.owner,
                        is_copy: connection.flags & flags::COPY != 0,
                    }
                }
            }
        };
        self.observation.step(step);
    }

    /// The packet was handed over, unless it had been before.
    pub(super) fn observe_redirect(&mut self) {
        if self.observation.attends()
            && let Some(worker) = self.shard.last_handed_to()
        {
            self.observation.step(Step::HandedOver(worker));
        }
    }

    /// The packet moved its connection's automaton on. `former` was the master if the node has taken the connection over.
    #[cold]
    pub(super) fn observe_tracking(&mut self, slot: Slot, state: u8, advance: &Advance, former: Option<NodeId>) {
        let connection = record(&self.table, slot);
        let protocol = connection.original.protocol;
        let tracked = Step::Tracked {
            before: state_name(protocol, &ProtocolState { state, ..ProtocolState::default() }),
            after: state_name(protocol, &connection.protocol),
            verdict: advance.verdict,
            next: advance.next,
        };
        if let Some(from) = former {
            self.observation.step(Step::TakenOver { from });
        }
        self.observation.step(tracked);
    }

    /// The packet was a plain segment, which moves windows and no state.
    #[cold]
    pub(super) fn observe_plain_segment(&mut self, slot: Slot) {
        let connection = record(&self.table, slot);
        let state = state_name(connection.original.protocol, &connection.protocol);
        let tracked = Step::Tracked { before: state, after: state, verdict: Ok(()), next: Next::Keep };
        self.observation.step(tracked);
    }

    /// Sends a packet, already translated, on its way.
    #[inline]
    pub(super) fn forward<E: Edge>(&mut self, now: Instant, packet: &mut Packet<'_, '_>, edge: &mut E) -> Disposition {
        if self.observation.attends() {
            self.observation.step(Step::Routed(edge.way(&packet.headers.tuple)));
        }
        edge.forward(now, packet)
    }
}
