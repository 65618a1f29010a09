//! From a batch of frames to packets with their connections looked up, and back to dispositions.

use flow::steering::is_link_local_control;
use flow::table::Slot;
use flow::wire::{self, Headers, Packet, Parsed, Transport};
use flow::{Direction, Disposition, DropReason, Instant, PacketBatch, Tuple};

use super::{Edge, Pipeline};
use crate::forwarding::Admission;

/// Packets that are parsed between the two prefetches of a lookup: as much work as a cache miss takes time.
const PREFETCH_DISTANCE: usize = 8;

/// A packet of the batch that waits for its lookup.
pub(super) struct Pending {
    frame: usize,
    headers: Headers,
    /// Of the tuple that is looked up.
    hash: u64,
    /// Where its connection lies, most likely.
    likely: Option<Slot>,
    /// It is for one of the node's own addresses, unless a function sends it elsewhere.
    is_local: bool,
}

impl Pipeline {
    /// Handles a batch to completion: each frame's disposition is decided when this returns.
    pub fn handle_packets<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.counters.received += batch.len() as u64;
        self.look_at_batch(now, batch, edge);
        let pending = core::mem::take(&mut self.pending);
        for Pending { frame, headers, hash, likely, is_local } in &pending {
            let mut packet = Packet { frame: &mut batch[*frame], headers: *headers };
            let found = self.table.lookup_likely(*likely, *hash, &wanted(headers));
            let disposition = self.handle_packet(now, &mut packet, *hash, found, *is_local, edge);
            packet.frame.disposition = disposition.unwrap_or_else(Disposition::Drop);
        }
        self.pending = pending;
        self.count_dispositions(batch);
    }

    /// Parses the batch: what needs no connection is dealt with at once, the rest waits for the lookup, with its
    /// connections on their way into the cache.
    fn look_at_batch<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.pending.clear();
        for (index, frame) in batch.iter_mut().enumerate() {
            match wire::parse(frame) {
                Err(reason) => frame.disposition = Disposition::Drop(reason),
                Ok(Parsed::Arp(_)) if self.shard.takes_from_lead(frame) => {}
                Ok(Parsed::Arp(offset)) => frame.disposition = edge.handle_arp(now, frame, offset),
                Ok(Parsed::Ip(headers)) => {
                    let mut packet = Packet { frame, headers };
                    match edge.admit(now, &packet) {
                        Admission::Refused(reason) => packet.frame.disposition = Disposition::Drop(reason),
                        _ if self.shard.takes_elsewhere(&mut packet) => {}
                        // Its ports are in another packet, or a part of what they belong to is.
                        _ if headers.is_fragment => packet.frame.disposition = Disposition::Drop(DropReason::Fragment),
                        Admission::Local if is_link_local_control(&headers) => {
                            packet.frame.disposition = edge.handle_local(now, &mut packet);
                        }
                        admission => self.await_lookup(index, headers, admission == Admission::Local),
                    }
                }
            }
        }
        let last = self.pending.len().saturating_sub(PREFETCH_DISTANCE);
        for pending in &mut self.pending[last..] {
            pending.likely = self.table.prefetch_record(pending.hash);
        }
    }

    fn await_lookup(&mut self, frame: usize, headers: Headers, is_local: bool) {
        let hash = self.table.hash(&wanted(&headers));
        self.table.prefetch_index(hash);
        if let Some(earlier) = self.pending.len().checked_sub(PREFETCH_DISTANCE) {
            let earlier = &mut self.pending[earlier];
            earlier.likely = self.table.prefetch_record(earlier.hash);
        }
        self.pending.push(Pending { frame, headers, hash, likely: None, is_local });
    }

    fn handle_packet<E: Edge>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, '_>,
        hash: u64,
        found: Option<(Slot, Direction)>,
        is_local: bool,
        edge: &mut E,
    ) -> Result<Disposition, DropReason> {
        if found.is_none()
            && let Some(elsewhere) = self.shard.redirect(packet, &wanted(&packet.headers))
        {
            return elsewhere;
        }
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

/// The tuple under which a packet's connection is looked up.
fn wanted(headers: &Headers) -> Tuple {
    match &headers.transport {
        // The error goes against the packet that it quotes.
        Transport::IcmpError(error) => error.inner.inverse(),
        _ => headers.tuple,
    }
}
