//! Fragments: the first goes the way of a whole packet, the others after it (see [`flow::fragments`]).

use flow::fragments::{Fate, Look, Way};
use flow::table::Slot;
use flow::wire::{Fragment, Headers, Packet, Transport};
use flow::{Direction, Disposition, DropReason, Instant, OwnedFrame, Tuple};

use super::connections::is_on_its_way;
use super::{Edge, Pipeline, record, record_mut};
use crate::observation::Step;

impl Pipeline {
    /// A fragment that came in. `hash` is that of its tuple.
    ///
    /// # Errors
    /// Why it is dropped.
    #[cold]
    pub(super) fn handle_fragment<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let fragment = Fragment::of(packet)?;
        let look = self.fragments.handle_fragment(now, &fragment, packet.frame);
        let disposition = match look {
            Ok(Look::First) => self.handle_first_fragment(now, packet, &fragment, hash, is_local, edge),
            Ok(Look::Follows(way)) => self.follow_first_fragment(now, packet, &fragment, &way, edge),
            Ok(Look::Held) => Ok(Disposition::Consumed),
            Ok(Look::Elsewhere(worker)) => {
                self.observe(Step::HandedOver(worker));
                Ok(self.shard.hand_to(worker, packet))
            }
            Err(reason) => Err(reason),
        };
        self.count_lost_fragments();
        disposition
    }

    fn handle_first_fragment<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        fragment: &Fragment,
        hash: u64,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let incoming = *packet.headers;
        let disposition = match incoming.transport {
            // An error quotes less than any link takes, and nobody may cut neighbour discovery (RFC 6980).
            Transport::IcmpError(_) | Transport::IcmpOther(..) => Err(DropReason::Fragment),
            _ => {
                let found = self.table.lookup(hash, &incoming.tuple);
                // Fragments come to the worker of their addresses, which is seldom that of their ports.
                if found.is_none()
                    && let Some(worker) = self.shard.worker_of_fragments(&incoming)
                {
                    self.fragments.note_first(fragment, Fate::Elsewhere(worker));
                    self.observe(Step::HandedOver(worker));
                    return Ok(self.shard.hand_to(worker, packet));
                }
                let disposition = self.handle_packet(now, packet, hash, found, is_local, edge);
                if disposition == Ok(Disposition::Consumed) && self.is_first_reply_awaited(&incoming.tuple) {
                    self.fragments.note_first(fragment, Fate::KeptBack);
                    return disposition;
                }
                disposition
            }
        };
        let fate = match disposition {
            Err(reason) | Ok(Disposition::Drop(reason)) => Fate::Refused(reason),
            Ok(_) => Fate::Passed(Way {
                incoming: incoming.tuple,
                outgoing: packet.headers.tuple,
                sequence_base: sequence_base(&incoming, fragment),
            }),
        };
        self.fragments.note_first(fragment, fate);
        disposition
    }

    /// A fragment behind the first goes where that went: only its addresses are there to be translated.
    fn follow_first_fragment<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        fragment: &Fragment,
        way: &Way,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        self.observe(Step::FollowsFirstFragment);
        let (slot, direction) = self.lookup(&way.incoming).ok_or(DropReason::NoConnection)?;
        let connection = record_mut(&mut self.table, slot);
        connection.packets[direction.index()] += 1;
        connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
        if let Some(base) = way.sequence_base {
            self.tracker.extend(&mut connection.protocol, direction, base.wrapping_add(fragment.end.into()));
        }
        let as_received = packet.headers.tuple;
        let Tuple { source, destination, .. } = way.outgoing;
        let outgoing = Tuple { source, destination, ..packet.headers.tuple };
        if outgoing != packet.headers.tuple {
            packet.rewrite(&outgoing);
        }
        let sent = Ok(self.forward(now, packet, edge));
        if !is_on_its_way(sent) {
            edge.note_not_sent(now, packet, &as_received);
        }
        sent
    }

    /// The packet that was consumed is a first reply that is kept back until a backup knows the connection: only then
    /// has a packet of the reply direction gone by without the connection being marked as answered.
    fn is_first_reply_awaited(&self, incoming: &Tuple) -> bool {
        use flow::connection::flags::{COPY, REPLIED};
        let is_unanswered = |slot: Slot| record(&self.table, slot).flags & (REPLIED | COPY) == 0;
        matches!(self.lookup(incoming), Some((slot, Direction::Reply)) if is_unanswered(slot))
    }

    /// Fragments whose first one has passed since they were held. They are to be handed in again as they came.
    #[must_use]
    pub fn take_released_fragments(&mut self) -> Option<alloc::vec::Vec<OwnedFrame>> {
        self.fragments.take_released()
    }

    /// Packets in pieces that are under way.
    #[must_use]
    pub const fn fragments(&self) -> &flow::fragments::FragmentTable {
        &self.fragments
    }

    /// Gives up packets whose fragments did not come in time.
    pub(super) fn expire_fragments(&mut self, now: Instant) {
        self.fragments.expire(now);
        self.count_lost_fragments();
    }

    fn count_lost_fragments(&mut self) {
        for (reason, frames) in self.fragments.take_lost() {
            self.counters.drops[reason as usize] += frames;
        }
    }
}

/// See [`Way::sequence_base`]: what the segment would end at, had it neither header nor data.
fn sequence_base(headers: &Headers, fragment: &Fragment) -> Option<u32> {
    let Transport::Tcp(segment) = headers.transport else { return None };
    let header_bytes = headers.payload_offset.saturating_sub(headers.l4_offset);
    let data_at = u32::from(fragment.transport_at) + u32::from(header_bytes);
    Some(segment.end().wrapping_sub(segment.payload_bytes).wrapping_sub(data_at))
}
