//! ICMP errors belong to the connection whose packet they quote (RFC 5508 section 4, RFC 4443 section 2.4).

use flow::table::Slot;
use flow::wire::{IcmpError, Packet};
use flow::{Direction, Disposition, DropReason, Instant};

use super::connections::is_on_its_way;
use super::{Edge, Pipeline};

impl Pipeline {
    /// Translates an error back to what the quoted packet's sender knows, and sends it there. `found` is the connection,
    /// and the direction in which the error goes on it: against the packet that it quotes.
    ///
    /// # Errors
    /// The quoted packet is of no connection.
    pub(super) fn translate_icmp_error<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        error: &IcmpError,
        found: Option<(Slot, Direction)>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if found.is_none() && self.waits_for_peer(now, packet, DropReason::UnrelatedIcmpError) {
            return Ok(Disposition::Consumed);
        }
        let (slot, direction) = found.ok_or(DropReason::UnrelatedIcmpError)?;
        let connection = self.table.get(slot).ok_or(DropReason::UnrelatedIcmpError)?;
        let as_sent = *connection.tuple(direction.reverse());
        let outer = packet.headers.tuple;
        // A router on the way speaks for itself, unless it is on the side that the translation hides: nobody on the other
        // would take a packet from an address there. It then speaks, as the end host does, under the address that the end
        // host is known by (RFC 5508 section 4.2, and Linux).
        let is_hidden = error.inner.destination != as_sent.destination;
        let source = if is_hidden { as_sent.destination } else { outer.source };
        packet.rewrite_icmp_error(&as_sent, &source, &as_sent.source);
        let sent = Ok(self.forward(now, packet, edge));
        if !is_on_its_way(sent) {
            edge.note_not_sent(now, packet, &outer);
        }
        sent
    }
}
