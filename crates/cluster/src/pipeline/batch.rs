//! From a batch of frames to packets with their connections looked up, and back to dispositions.

use flow::steering::is_link_local_control;
use flow::table::Slot;
use flow::wire::{self, Headers, Packet, Parsed, Transport};
use flow::{Direction, Disposition, DropReason, Frame, Instant, PacketBatch, Tuple};

use super::shard::Shard;
use super::{Edge, Pipeline, Recollection};
use crate::forwarding::{Admission, is_path_frame};

/// Packets that are parsed between the two prefetches of a lookup: as much work as a cache miss takes time.
const PREFETCH_DISTANCE: usize = 8;

/// A packet of the batch that waits for its lookup. Its headers lie here for as long as it is handled: whoever handles it
/// is lent them.
#[derive(Clone)]
pub(super) struct Pending {
    headers: Headers,
    /// Its place in the batch.
    frame: usize,
    /// Of the tuple that is looked up.
    hash: u64,
    /// Where its connection lies, most likely.
    likely: Option<Slot>,
    /// It is for one of the node's own addresses, unless a function sends it elsewhere.
    is_local: bool,
}

impl Pending {
    /// A place for a packet.
    pub(super) const EMPTY: Self = Self { headers: Headers::NONE, frame: 0, hash: 0, likely: None, is_local: false };
}

impl Pipeline {
    /// Handles a batch to completion: each frame's disposition is decided when this returns.
    pub fn handle_packets<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.counters.received += batch.len() as u64;
        self.observation.set_now(now);
        if self.observation.looks_at_packets() {
            self.observation.note_arrivals(batch);
        }
        let mut pending = core::mem::take(&mut self.pending);
        let waiting = self.look_at_batch(now, batch, &mut pending, edge);
        for Pending { headers, frame, hash, likely, is_local } in &mut pending[..waiting] {
            if self.observation.is_active() {
                self.observation.attend_to(*frame);
            }
            let found = match &headers.transport {
                // The error goes against the packet that it quotes.
                Transport::IcmpError(error) => self.table.lookup_likely(*likely, *hash, &error.inner.inverse()),
                _ => self.table.lookup_likely(*likely, *hash, &headers.tuple),
            };
            let mut packet = Packet { frame: &mut batch[*frame], headers };
            let disposition = if packet.headers.is_fragment {
                self.handle_fragment(now, &mut packet, *hash, *is_local, edge)
            } else {
                self.handle_packet(now, &mut packet, *hash, found, *is_local, edge)
            };
            packet.frame.disposition = disposition.unwrap_or_else(Disposition::Drop);
        }
        self.pending = pending;
        if self.observation.is_active() {
            self.observation.note_outcomes(batch, |headers| self.shard.elsewhere(headers));
        }
        self.count_dispositions(batch);
    }

    /// Parses the batch: what needs no connection is dealt with at once, the rest waits for the lookup in `pending`, with
    /// its connections on their way into the cache. Returns how many packets wait.
    fn look_at_batch<E: Edge>(
        &mut self,
        now: Instant,
        batch: &mut PacketBatch<'_>,
        pending: &mut [Pending],
        edge: &mut E,
    ) -> usize {
        let mut waiting = 0;
        for (index, frame) in batch.iter_mut().enumerate() {
            // What does not wait leaves its place to the next packet.
            let place = &mut pending[waiting];
            match wire::parse_into(frame, &mut place.headers) {
                Err(DropReason::UnsupportedLinkProtocol) if is_path_frame(frame.bytes()) => {
                    // The lead alone detects failures.
                    if !self.shard.takes_from_lead(frame) {
                        frame.disposition = edge.handle_path_frame(now, frame);
                    }
                }
                Err(reason) => frame.disposition = Disposition::Drop(reason),
                Ok(Parsed::Arp(_)) if self.shard.takes_from_lead(frame) => {}
                Ok(Parsed::Arp(offset)) => frame.disposition = edge.handle_arp(now, frame, offset),
                Ok(Parsed::Ip(())) => {
                    if let Some(is_local) = admit(now, frame, &mut place.headers, &mut self.shard, edge) {
                        (place.frame, place.is_local) = (index, is_local);
                        self.await_lookup(&mut pending[..=waiting]);
                        waiting += 1;
                    }
                }
            }
        }
        for pending in &mut pending[waiting.saturating_sub(PREFETCH_DISTANCE)..waiting] {
            self.prefetch_record(pending);
        }
        waiting
    }

    /// Has the last packet's index bucket fetched, and the record of the one that waited for its bucket long enough.
    #[inline(always)]
    fn await_lookup(&self, pending: &mut [Pending]) {
        let Some((last, before)) = pending.split_last_mut() else { return };
        last.hash = match &last.headers.transport {
            // The connection is that of the packet quoted; its hash is the same in both directions.
            Transport::IcmpError(error) => self.table.hash(&error.inner),
            _ => self.table.hash(&last.headers.tuple),
        };
        self.table.prefetch_index(last.hash);
        if let Some(earlier) = before.len().checked_sub(PREFETCH_DISTANCE) {
            self.prefetch_record(&mut before[earlier]);
        }
    }

    #[inline(always)]
    fn prefetch_record(&self, pending: &mut Pending) {
        pending.likely = self.table.prefetch_record(pending.hash);
        if let Some(slot) = pending.likely
            && self.packets_use_states
        {
            self.table.prefetch_functions(slot);
        }
    }

    pub(super) fn handle_packet<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        found: Option<(Slot, Direction)>,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if self.observation.attends() {
            self.observe_lookup(packet, found);
        }
        if found.is_none()
            && let Some(elsewhere) = self.shard.redirect(packet, &wanted(packet.headers))
        {
            self.observe_redirect();
            return elsewhere;
        }
        let found = match found {
            None if self.recovery.is_some() => match self.recollect(now, packet, is_local, edge) {
                Recollection::Known(slot, direction) => Some((slot, direction)),
                Recollection::Unknown => None,
                Recollection::Done(disposition) => return disposition,
            },
            found => found,
        };
        match (&packet.headers.transport, found) {
            (Transport::IcmpError(error), found) => {
                let error = *error;
                self.translate_icmp_error(now, packet, &error, found, edge)
            }
            (_, Some((slot, direction))) => self.handle_known(now, packet, slot, direction, is_local, edge),
            (_, None) => self.handle_unknown(now, packet, hash, is_local, edge),
        }
    }

    fn count_dispositions(&mut self, batch: &mut PacketBatch<'_>) {
        for frame in batch.iter_mut() {
            if frame.disposition == Disposition::Undecided {
                frame.disposition = Disposition::Drop(DropReason::Undecided);
            }
            match frame.disposition {
                Disposition::Drop(reason) => self.count_drop(reason),
                Disposition::Transmit(_) => self.counters.forwarded += 1,
                Disposition::Consumed | Disposition::Undecided => {}
            }
        }
    }
}

/// Whether a packet goes on to the lookup, and then whether it is for the node itself. `None`: it has been dealt with.
#[inline(always)]
fn admit<E: Edge>(
    now: Instant,
    frame: &mut Frame<'_>,
    headers: &mut Headers,
    shard: &mut Shard,
    edge: &mut E,
) -> Option<bool> {
    let mut packet = Packet { frame, headers };
    let disposition = match edge.admit(now, &packet) {
        Admission::Refused(reason) => Disposition::Drop(reason),
        Admission::Own => edge.handle_local(now, &mut packet),
        _ if shard.takes_elsewhere(&mut packet) => return None,
        Admission::Local if !packet.headers.is_fragment && is_link_local_control(packet.headers) => {
            edge.handle_local(now, &mut packet)
        }
        admission => return Some(admission == Admission::Local),
    };
    packet.frame.disposition = disposition;
    None
}

/// The tuple under which a packet's connection is looked up.
pub(super) fn wanted(headers: &Headers) -> Tuple {
    match &headers.transport {
        // The error goes against the packet that it quotes.
        Transport::IcmpError(error) => error.inner.inverse(),
        _ => headers.tuple,
    }
}
