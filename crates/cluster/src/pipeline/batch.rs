//! From a batch of frames to packets with their connections looked up, and back to dispositions.

use flow::steering::is_link_local_control;
use flow::table::Slot;
use flow::wire::{self, Headers, Packet, Parsed, Transport};
use flow::{Disposition, DropReason, Frame, Instant, PacketBatch, WorkerId};

use super::Pipeline;
use super::arrival::{Arrival, Origin};
use super::connections::Connections;
use super::edge::Edge;
use super::plan::may_be_planned;
use super::shard::Shard;
use super::waiting::count_released;
use crate::forwarding::{Admission, is_path_frame, path_frame_worker};

/// Packets that are parsed between the two prefetches of a lookup: as much work as a cache miss takes time.
const PREFETCH_DISTANCE: usize = 8;

/// A packet of the batch that waits for its lookup. Its headers lie here for as long as it is handled: its handler
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
    admission: Admitted,
}

/// What is known of a packet's admission before its lookup.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Admitted {
    /// Whether it is for one of the node's own addresses, unless a function sends it elsewhere.
    Local(bool),
    /// It may pass by a plan, which stands for its admission.
    Later,
}

impl Pending {
    /// A place for a packet.
    pub(super) const EMPTY: Self =
        Self { headers: Headers::NONE, frame: 0, hash: 0, likely: None, admission: Admitted::Later };
}

impl Pipeline {
    /// Handles a batch that came in on ports to completion: each frame's disposition is decided when this returns.
    pub fn handle_packets<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.handle_batch(now, batch, Origin::PORT, edge);
    }

    /// As [`Pipeline::handle_packets`], for packets that were steered already: handed over by another worker, or kept here
    /// for a while.
    pub fn handle_steered<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, edge: &mut E) {
        self.handle_batch(now, batch, Origin::STEERED, edge);
    }

    /// As [`Pipeline::handle_packets`], for packets of any origin.
    pub(crate) fn handle_batch<E: Edge>(
        &mut self,
        now: Instant,
        batch: &mut PacketBatch<'_>,
        mut origin: Origin,
        edge: &mut E,
    ) {
        self.connections.begin_plans(origin.is_steering, self.reevaluation.is_active(), edge);
        origin.is_steering &= !self.connections.shard.place().is_alone();
        self.connections.functions.output.classes.is_counted = origin.is_counted;
        if !origin.is_counted {
            self.connections.counters.received += batch.len() as u64;
        }
        let Connections { observation, table, .. } = &mut self.connections;
        observation.set_now(now);
        if observation.looks_at_packets() {
            observation.note_arrivals(batch, table);
        }
        let others_waiting = self.waiting.len();
        self.handle_frames(now, batch, origin, edge);
        self.connections.end_plans();
        self.connections.functions.output.classes.is_counted = false;
        if let Some(deadline) = origin.waits_until
            && let Some(sharing) = self.connections.sharing.as_deref_mut()
        {
            count_released(&mut sharing.counters, now, deadline, self.waiting.len() > others_waiting);
        }
        let Connections { observation, shard, .. } = &mut self.connections;
        if observation.is_active() {
            observation.note_outcomes(batch, |headers| shard.elsewhere(headers).filter(|_| origin.is_steering));
        }
        self.count_dispositions(batch);
    }

    fn handle_frames<E: Edge>(&mut self, now: Instant, batch: &mut PacketBatch<'_>, origin: Origin, edge: &mut E) {
        let mut pending = core::mem::take(&mut self.pending);
        let waiting = self.look_at_batch(now, batch, origin, &mut pending, edge);
        for Pending { headers, frame, hash, likely, admission } in &mut pending[..waiting] {
            if self.connections.observation.is_active() {
                self.connections.observation.attend_to(*frame);
            }
            let table = &self.connections.table;
            let found = match &headers.transport {
                // The error goes against the packet that it quotes.
                Transport::IcmpError(error) => table.lookup_likely(*likely, *hash, &error.inner.inverse()),
                _ => table.lookup_likely(*likely, *hash, &headers.tuple),
            };
            let mut packet = Packet { frame: &mut batch[*frame], headers };
            let is_local = match (*admission, found) {
                (Admitted::Local(is_local), _) => is_local,
                (Admitted::Later, found) => {
                    let connections = &mut self.connections;
                    let planned = found.and_then(|found| connections.pass_planned(now, &mut packet, found, edge));
                    if let Some(disposition) = planned {
                        packet.frame.disposition = disposition;
                        continue;
                    }
                    let admitted = admit(now, &mut packet, origin, &mut connections.shard, edge);
                    let Some(is_local) = admitted else { continue };
                    is_local
                }
            };
            let arrival = Arrival { now, origin, hash: *hash, is_local };
            let disposition = if packet.headers.is_fragment {
                self.handle_fragment(&arrival, &mut packet, edge)
            } else {
                self.handle_packet(&arrival, &mut packet, found, edge)
            };
            packet.frame.disposition = disposition.unwrap_or_else(Disposition::Drop);
        }
        self.pending = pending;
    }

    /// Parses the batch: what needs no connection is dealt with at once, the rest waits for the lookup in `pending`, with
    /// its connections on their way into the cache. Returns how many packets wait.
    fn look_at_batch<E: Edge>(
        &mut self,
        now: Instant,
        batch: &mut PacketBatch<'_>,
        origin: Origin,
        pending: &mut [Pending],
        edge: &mut E,
    ) -> usize {
        let mut waiting = 0;
        for (index, frame) in batch.iter_mut().enumerate() {
            // What does not wait leaves its place to the next packet.
            let place = &mut pending[waiting];
            match wire::parse_into(frame, &mut place.headers) {
                Err(DropReason::UnsupportedLinkProtocol) if is_path_frame(frame.bytes()) => {
                    let worker = self.worker_of_path_frame(frame);
                    if !self.hands_to(worker, origin, frame) {
                        frame.disposition = edge.handle_path_frame(now, frame);
                    }
                }
                Err(reason) => frame.disposition = Disposition::Drop(reason),
                Ok(Parsed::Arp(_)) if self.hands_to(WorkerId::LEAD, origin, frame) => {}
                Ok(Parsed::Arp(offset)) => frame.disposition = edge.handle_arp(now, frame, offset),
                Ok(Parsed::Ip(())) => {
                    let mut packet = Packet { frame, headers: &mut place.headers };
                    let admission = if self.connections.plans.are_used() && may_be_planned(packet.headers) {
                        Some(Admitted::Later)
                    } else {
                        admit(now, &mut packet, origin, &mut self.connections.shard, edge).map(Admitted::Local)
                    };
                    if let Some(admission) = admission {
                        (place.frame, place.admission) = (index, admission);
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

    /// Hands a frame to a worker, unless this one is it. The lead worker alone detects failures and learns neighbours.
    fn hands_to(&mut self, worker: WorkerId, origin: Origin, frame: &mut Frame<'_>) -> bool {
        origin.is_steering && self.connections.shard.hands_over(worker, frame)
    }

    /// The worker that a frame between nodes is for.
    fn worker_of_path_frame(&self, frame: &Frame<'_>) -> WorkerId {
        let workers = self.connections.shard.place().steering.workers();
        path_frame_worker(frame.bytes()).filter(|worker| worker.0 < workers).unwrap_or(WorkerId::LEAD)
    }

    /// Has the last packet's index bucket fetched, and the record of the one that waited for its bucket long enough.
    #[inline(always)]
    fn await_lookup(&self, pending: &mut [Pending]) {
        let Some((last, before)) = pending.split_last_mut() else { return };
        last.hash = match &last.headers.transport {
            // The connection is that of the packet quoted; its hash is the same in both directions.
            Transport::IcmpError(error) => self.connections.table.hash(&error.inner),
            _ => self.connections.table.hash(&last.headers.tuple),
        };
        self.connections.table.prefetch_index(last.hash);
        if let Some(earlier) = before.len().checked_sub(PREFETCH_DISTANCE) {
            self.prefetch_record(&mut before[earlier]);
        }
    }

    #[inline(always)]
    fn prefetch_record(&self, pending: &mut Pending) {
        pending.likely = self.connections.table.prefetch_record(pending.hash);
        let Some(slot) = pending.likely else { return };
        if self.connections.functions.packets_use_states {
            self.connections.table.prefetch_functions(slot);
        }
        if self.connections.plans.are_used() {
            self.connections.plans.prefetch(slot);
        }
    }

    fn count_dispositions(&mut self, batch: &mut PacketBatch<'_>) {
        for frame in batch.iter_mut() {
            if frame.disposition == Disposition::Undecided {
                frame.disposition = Disposition::Drop(DropReason::Undecided);
            }
            match frame.disposition {
                Disposition::Drop(reason) => self.count_drop(reason),
                Disposition::Transmit(_) => self.connections.counters.forwarded += 1,
                Disposition::Consumed | Disposition::Undecided => {}
            }
        }
    }
}

/// Whether a packet goes on to the lookup, and then whether it is for the node itself. `None`: it has been dealt with.
#[inline(always)]
fn admit<E: Edge>(
    now: Instant,
    packet: &mut Packet<'_, '_>,
    origin: Origin,
    shard: &mut Shard,
    edge: &mut E,
) -> Option<bool> {
    let disposition = match edge.admit(now, packet) {
        Admission::Refused(reason) => Disposition::Drop(reason),
        Admission::Own => edge.handle_local(now, packet),
        _ if origin.is_steering && shard.hands_to_owner(packet) => return None,
        Admission::Local if !packet.headers.is_fragment && is_link_local_control(packet.headers) => {
            edge.handle_local(now, packet)
        }
        admission => return Some(admission == Admission::Local),
    };
    packet.frame.disposition = disposition;
    None
}
