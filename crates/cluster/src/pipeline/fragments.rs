//! Fragments: the first goes the way of a whole packet, the others after it (see [`flow::fragments`]).

use flow::fragments::{FirstOutcome, FragmentAction, FragmentRoute};
use flow::table::Slot;
use flow::wire::{Fragment, Headers, Packet, Transport};
use flow::{Direction, Disposition, DropReason, Instant, Tuple};

use super::Pipeline;
use super::arrival::Arrival;
use super::connections::{Connections, record, record_mut};
use super::edge::Edge;
use super::packet::{forward, is_transmitted};
use crate::observation::Step;

impl Pipeline {
    /// A fragment that came in.
    ///
    /// # Errors
    /// Why it is dropped.
    #[cold]
    pub(super) fn handle_fragment<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let fragment = Fragment::of(packet)?;
        let look = self.fragments.handle_fragment(arrival.now, &fragment, packet.frame);
        let disposition = match look {
            Ok(FragmentAction::First) => self.handle_first_fragment(arrival, packet, &fragment, edge),
            Ok(FragmentAction::Follows(way)) => self.follow_first_fragment(arrival.now, packet, &fragment, &way, edge),
            Ok(FragmentAction::Held) => Ok(Disposition::Consumed),
            Ok(FragmentAction::OtherWorker(worker)) => {
                self.connections.observe(Step::HandedOver(worker));
                Ok(self.connections.shard.hand_to(worker, packet))
            }
            Err(reason) => Err(reason),
        };
        self.count_lost_fragments();
        disposition
    }

    fn handle_first_fragment<E: Edge>(
        &mut self,
        arrival: &Arrival,
        packet: &mut Packet<'_, '_>,
        fragment: &Fragment,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        let incoming = *packet.headers;
        let disposition = match incoming.transport {
            // An error quotes less than any link takes, and neighbour discovery must not be fragmented (RFC 6980).
            Transport::IcmpError(_) | Transport::IcmpOther(..) => Err(DropReason::Fragment),
            _ => {
                let found = self.connections.table.lookup(arrival.hash, &incoming.tuple);
                // Fragments come to the worker of their addresses, which is seldom that of their ports.
                if found.is_none()
                    && let Some(worker) = self.connections.shard.worker_of_fragments(&incoming)
                {
                    self.fragments.note_first(fragment, FirstOutcome::OtherWorker(worker));
                    self.connections.observe(Step::HandedOver(worker));
                    return Ok(self.connections.shard.hand_to(worker, packet));
                }
                let disposition = self.handle_packet(arrival, packet, found, edge);
                if disposition == Ok(Disposition::Consumed)
                    && is_first_reply_awaited(&self.connections, &incoming.tuple)
                {
                    self.fragments.note_first(fragment, FirstOutcome::Waiting);
                    return disposition;
                }
                disposition
            }
        };
        let first_outcome = match disposition {
            Err(reason) | Ok(Disposition::Drop(reason)) => FirstOutcome::Dropped(reason),
            Ok(_) => FirstOutcome::Passed(FragmentRoute {
                incoming: incoming.tuple,
                outgoing: packet.headers.tuple,
                sequence_base: sequence_base(&incoming, fragment),
            }),
        };
        self.fragments.note_first(fragment, first_outcome);
        disposition
    }

    /// A fragment behind the first goes where that went: only its addresses are there to be translated.
    fn follow_first_fragment<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        fragment: &Fragment,
        way: &FragmentRoute,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        self.connections.observe(Step::FollowsFirstFragment);
        let (slot, direction) = self.connections.lookup(&way.incoming).ok_or(DropReason::NoConnection)?;
        let tunnel = self.connections.tunnel(slot, direction)?;
        let Connections { table, tracker, observation, .. } = &mut self.connections;
        let connection = record_mut(table, slot);
        connection.packets[direction.index()] += 1;
        connection.bytes[direction.index()] += u64::from(packet.headers.l3_bytes);
        if let Some(base) = way.sequence_base {
            tracker.extend(&mut connection.protocol, direction, base.wrapping_add(fragment.end.into()));
        }
        let as_received = packet.headers.tuple;
        let Tuple { source, destination, .. } = way.outgoing;
        let outgoing = Tuple { source, destination, ..packet.headers.tuple };
        if outgoing != packet.headers.tuple {
            packet.rewrite(&outgoing);
        }
        let sent = Ok(forward(now, packet, tunnel, observation, edge));
        if !is_transmitted(sent) {
            edge.note_not_sent(now, packet, &as_received.into());
        }
        sent
    }

    /// Gives up packets whose fragments did not come in time.
    pub(super) fn expire_fragments(&mut self, now: Instant) {
        self.fragments.expire(now);
        self.count_lost_fragments();
    }

    fn count_lost_fragments(&mut self) {
        for (reason, frames) in self.fragments.take_lost() {
            self.connections.counters.drops[reason as usize] += frames;
        }
    }
}

/// The packet that was consumed is a first reply that is kept back until a backup knows the connection: only then
/// has a packet of the reply direction gone by without the connection being marked as answered.
fn is_first_reply_awaited(connections: &Connections, incoming: &Tuple) -> bool {
    use flow::connection::flags::{REPLICA, REPLIED};
    let is_unanswered = |slot: Slot| record(&connections.table, slot).flags & (REPLIED | REPLICA) == 0;
    matches!(connections.lookup(incoming), Some((slot, Direction::Reply)) if is_unanswered(slot))
}

/// See [`FragmentRoute::sequence_base`]: what the segment would end at, had it neither header nor data.
fn sequence_base(headers: &Headers, fragment: &Fragment) -> Option<u32> {
    let Transport::Tcp(segment) = headers.transport else { return None };
    let header_bytes = headers.payload_offset.saturating_sub(headers.l4_offset);
    let data_at = u32::from(fragment.transport_at) + u32::from(header_bytes);
    Some(segment.end().wrapping_sub(segment.payload_bytes).wrapping_sub(data_at))
}
