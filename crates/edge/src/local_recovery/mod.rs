//! Local recovery [HALR, chapter 3]: the edge resends what a failed node lost, so that end points need not wait for their next
//! timeout.
//!
//! ```text
//!   near host ─► segment ─► held: the lowest that is not acknowledged ─► node ✗
//!                                        │ switched_over, owner_confirmed
//!                                        └──► resent once, paced, the packet that was held first comes first ─► new owner
//! ```
//!
//! A connection has at most one held segment, and one held acknowledgement if it does not use SACK. A segment leaves its slot
//! when an acknowledgement covers it. A retransmission of the same bytes replaces it.

mod owner_recovery;

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use arrayvec::ArrayVec;
use flow::wire::{Headers, MacAddress, TcpSegment, tcp_flags};
use flow::{Frame, Instant, NODES_MAX, NodeId, NodeSet, SegmentationKind};

use crate::config::{CachePolicy, RecoveryConfig};
use crate::distribution::Distribution;
use crate::flows::{Flows, Index, Record};
use crate::heavy_hitters::HeavyHitters;
use crate::tcp::Observed;
use flow::held::{
    ACKNOWLEDGEMENT_FRAME_BYTES_MAX, HeldPackets, Holding, Resending, SEGMENT_FRAME_BYTES_MAX, is_replaced,
};
use flow::list::NONE;

use owner_recovery::{OwnerRecovery, skip};

/// Lost heartbeats in a row from which packets are held by [`CachePolicy::FromSecondLostHeartbeat`].
const HEARTBEATS_LOST_MIN: u32 = 2;
/// Copies of an acknowledgement: three duplicates begin fast retransmission (RFC 5681 section 3.2).
const ACKNOWLEDGEMENT_COPIES: u8 = 3;
/// Packets that may be resent at once after a pause.
const BURST_PACKETS_MAX: u32 = 4;
/// Held SYNs that are examined for one that can be evicted.
const SYNS_EXAMINED_MAX: usize = 64;
/// Slots that one poll examines at most.
const VISITS_PER_POLL_MAX: usize = 1024;

/// What local recovery did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RecoveryCounters {
    /// Packets held, retransmissions included.
    pub held: u64,
    /// Packets that were not held because they have urgent data, a signature or unusual headers.
    pub unholdable: u64,
    /// Held packets that gave way to others because the memory was full.
    pub evicted: u64,
    /// Held packets released because their connection was closed or removed, or is no heavy hitter any more.
    pub released: u64,
    /// Segments resent, SYNs not included.
    pub segments_resent: u64,
    /// SYNs resent.
    pub syns_resent: u64,
    /// Copies of acknowledgements sent.
    pub acknowledgements_resent: u64,
}

/// What was resent to one node after a switch-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Resent {
    /// Segments with data or FIN.
    pub segments: u64,
    /// SYNs.
    pub syns: u64,
    /// Copies of acknowledgements, which go to the near hosts.
    pub acknowledgements: u64,
}

/// A packet that was written to be resent, and its direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outgoing {
    /// To the node.
    ToNode(NodeId),
    /// To the near host.
    ToNetwork,
}

/// A packet of a connection, in a frame.
#[derive(Clone, Copy)]
pub(crate) struct Passing<'a, 'b> {
    pub(crate) frame: &'a Frame<'b>,
    pub(crate) headers: &'a Headers,
    pub(crate) segment: &'a TcpSegment,
    pub(crate) observed: Observed,
    /// It has a signature, so nothing of it can be changed.
    pub(crate) is_signed: bool,
}

/// Held packets, and what is being resent.
#[derive(Debug)]
pub(crate) struct LocalRecovery {
    policy: CachePolicy,
    interval: Duration,
    segments: HeldPackets<SEGMENT_FRAME_BYTES_MAX>,
    acknowledgements: HeldPackets<ACKNOWLEDGEMENT_FRAME_BYTES_MAX>,
    /// Slots of segments that were SYNs when they were held, and when that was: the candidates for eviction. At most as many as there are
    /// slots; the oldest is forgotten. One that is no SYN any more is skipped.
    syns: VecDeque<(u32, Instant)>,
    hitters: Option<HeavyHitters>,
    /// Nodes that have lost heartbeats.
    suspected: NodeSet,
    /// By survivor: the failed nodes that it has not confirmed to have taken over.
    unconfirmed: [NodeSet; NODES_MAX],
    recoveries: ArrayVec<OwnerRecovery, NODES_MAX>,
    finished: VecDeque<(NodeId, Resent)>,
    next_at: Instant,
    counters: RecoveryCounters,
}

impl LocalRecovery {
    pub(crate) fn new(config: &RecoveryConfig) -> Self {
        let acknowledgement_bytes = config.memory_bytes_max / 8;
        let hitters = match config.policy {
            CachePolicy::HeavyHitters { connections_max } => Some(HeavyHitters::new(connections_max)),
            _ => None,
        };
        Self {
            policy: config.policy,
            interval: Duration::from_nanos(1_000_000_000 / u64::from(config.resends_per_s_max.max(1))),
            segments: HeldPackets::new(config.memory_bytes_max - acknowledgement_bytes),
            acknowledgements: HeldPackets::new(acknowledgement_bytes),
            syns: VecDeque::new(),
            hitters,
            suspected: NodeSet::EMPTY,
            unconfirmed: [NodeSet::EMPTY; NODES_MAX],
            recoveries: ArrayVec::new(),
            finished: VecDeque::new(),
            next_at: Instant::ZERO,
            counters: RecoveryCounters::default(),
        }
    }

    pub(crate) const fn policy(&self) -> CachePolicy {
        self.policy
    }

    /// Whether packets of this node's connections are held because it has lost heartbeats.
    pub(crate) const fn holds_for_suspected(&self, node: NodeId) -> bool {
        matches!(self.policy, CachePolicy::FromSecondLostHeartbeat) && self.suspected.contains(node)
    }

    pub(crate) const fn counters(&self) -> RecoveryCounters {
        self.counters
    }

    /// Held segments and held acknowledgements: (in use, at most).
    pub(crate) const fn slots(&self) -> [(u32, u32); 2] {
        let (segments, acknowledgements) = (&self.segments, &self.acknowledgements);
        [(segments.count(), segments.slots_max()), (acknowledgements.count(), acknowledgements.slots_max())]
    }

    /// Bytes of memory of the slots in use.
    pub(crate) const fn memory_bytes(&self) -> usize {
        self.segments.count() as usize * HeldPackets::<SEGMENT_FRAME_BYTES_MAX>::SLOT_BYTES
            + self.acknowledgements.count() as usize * HeldPackets::<ACKNOWLEDGEMENT_FRAME_BYTES_MAX>::SLOT_BYTES
    }

    /// The first of two steps before a packet of a connection is handled: fetches what is known of its held segment.
    #[inline]
    pub(crate) fn prefetch(&self, record: &Record) {
        if record.segment != NONE {
            self.segments.prefetch(record.segment);
        }
    }

    /// The second step: fetches the neighbours of its held segment.
    #[inline]
    pub(crate) fn prefetch_neighbours(&self, record: &Record) {
        if record.segment != NONE {
            self.segments.prefetch_neighbours(record.segment);
        }
    }

    /// A node has lost so many heartbeats in a row; 0: it has sent one.
    pub(crate) const fn note_heartbeats_lost(&mut self, node: NodeId, count: u32) {
        if count >= HEARTBEATS_LOST_MIN {
            self.suspected.insert(node);
        } else {
            self.suspected.remove(node);
        }
    }

    /// A segment that enters the cluster was observed.
    pub(crate) fn handle_entering(&mut self, now: Instant, flows: &mut Flows, index: Index, passing: Passing<'_, '_>) {
        let record = flows.get(index);
        if passing.observed.is_reopened || record.tcp.is_closed() {
            self.release(flows, index);
        }
        if !passing.observed.has_unacknowledged || !self.is_wanted(flows, index, passing.segment) {
            return;
        }
        let record = flows.get(index);
        let (slot, unacknowledged) = (record.segment, record.tcp.near_unacknowledged());
        let frame = passing.frame;
        let packet = Holding {
            frame: frame.bytes(),
            headers: passing.headers,
            segment: passing.segment,
            payload_bytes_max: payload_bytes_max(frame, passing.headers, record),
            is_signed: passing.is_signed,
        };
        if slot == NONE {
            self.make_room(flows);
            let slot = self.segments.insert(now, index, packet);
            self.count_held(slot.is_some());
            flows.get_mut(index).segment = slot.unwrap_or(NONE);
            slot.into_iter().for_each(|slot| self.note_syn(slot));
            return;
        }
        let held = self.segments.get(slot);
        if is_replaced((held.sequence(), held.end()), unacknowledged, passing.segment.sequence) {
            skip(&mut self.recoveries, &self.segments, slot);
            let is_held = self.segments.replace(now, slot, packet);
            self.count_held(is_held);
            self.note_syn(slot);
        }
    }

    /// Remembers a segment that was held as a candidate for eviction, if it is a SYN.
    fn note_syn(&mut self, slot: u32) {
        let held = self.segments.get(slot);
        if !held.is_syn() {
            return;
        }
        let syn = (slot, held.held_at);
        if self.syns.len() >= self.segments.slots_max() as usize {
            self.syns.pop_front();
        }
        self.syns.push_back(syn);
    }

    const fn count_held(&mut self, is_held: bool) {
        self.counters.held += is_held as u64;
        self.counters.unholdable += !is_held as u64;
    }

    /// Evicts a segment if there is no room for another: the SYN that was held first, or else the segment that was held first. So a flood
    /// of SYNs displaces its own kind.
    fn make_room(&mut self, flows: &mut Flows) {
        if let Some(first) = self.segments.victim() {
            let victim = self.oldest_syn(flows).unwrap_or(first);
            let connection = self.segments.get(victim).connection;
            self.remove_segment(flows.get_mut(connection));
            self.counters.evicted += 1;
        }
    }

    /// The SYN that was held first. `None`: none is held, as far as can be found with bounded work.
    fn oldest_syn(&mut self, flows: &Flows) -> Option<u32> {
        for _ in 0..SYNS_EXAMINED_MAX {
            let (slot, held_at) = self.syns.pop_front()?;
            let held = self.segments.get(slot);
            // Its slot may be free by now, or have another packet.
            if held.is_syn() && held.held_at == held_at && flows.get(held.connection).segment == slot {
                return Some(slot);
            }
        }
        None
    }

    /// Whether the policy holds this segment.
    fn is_wanted(&mut self, flows: &mut Flows, index: Index, segment: &TcpSegment) -> bool {
        match self.policy {
            CachePolicy::Always => true,
            CachePolicy::FromSecondLostHeartbeat => self.suspected.contains(flows.get(index).node),
            CachePolicy::SynOnly => segment.has(tcp_flags::SYN),
            CachePolicy::HeavyHitters { .. } => {
                let Some(hitters) = self.hitters.as_mut().filter(|_| segment.payload_bytes > 0) else { return false };
                if let Some(victim) = hitters.count(index, segment.payload_bytes) {
                    self.counters.released += u64::from(flows.get(victim).segment != NONE);
                    self.remove_segment(flows.get_mut(victim));
                }
                true
            }
        }
    }

    /// A segment that leaves the cluster was observed, and is about to go to the near host.
    pub(crate) fn handle_leaving(&mut self, now: Instant, flows: &mut Flows, index: Index, passing: Passing<'_, '_>) {
        let record = flows.get_mut(index);
        if passing.observed.is_reopened || record.tcp.is_closed() {
            self.release(flows, index);
            return;
        }
        let unacknowledged = record.tcp.near_unacknowledged();
        if record.segment != NONE && !flow::serial::is_after(self.segments.get(record.segment).end(), unacknowledged) {
            self.remove_segment(record);
        }
        if passing.observed.acknowledged_bytes > 0 {
            record.set_recovered();
        }
        let segment = passing.segment;
        let is_acknowledgement = segment.has(tcp_flags::ACK) && segment.flags & (tcp_flags::SYN | tcp_flags::FIN) == 0;
        let holds_data = match self.policy {
            CachePolicy::Always => true,
            CachePolicy::FromSecondLostHeartbeat => self.suspected.contains(record.node),
            CachePolicy::HeavyHitters { .. } => record.segment != NONE,
            CachePolicy::SynOnly => false,
        };
        if holds_data && is_acknowledgement && segment.acknowledgement == unacknowledged && record.tcp.is_without_sack()
        {
            self.hold_acknowledgement(now, flows, index, passing);
        }
    }

    fn hold_acknowledgement(&mut self, now: Instant, flows: &mut Flows, index: Index, passing: Passing<'_, '_>) {
        let (headers, segment) = (passing.headers, passing.segment);
        let (frame, is_signed) = (passing.frame.bytes(), passing.is_signed);
        let packet = Holding { frame, headers, segment, payload_bytes_max: 0, is_signed };
        let mut slot = flows.get(index).acknowledgement;
        let is_held = if slot == NONE {
            if let Some(victim) = self.acknowledgements.victim() {
                let connection = self.acknowledgements.get(victim).connection;
                self.remove_acknowledgement(flows.get_mut(connection));
                self.counters.evicted += 1;
            }
            slot = self.acknowledgements.insert(now, index, packet).unwrap_or(NONE);
            slot != NONE
        } else {
            skip(&mut self.recoveries, &self.acknowledgements, slot);
            self.acknowledgements.replace(now, slot, packet)
        };
        flows.get_mut(index).acknowledgement = slot;
        self.count_held(is_held);
    }

    /// Frees what is held for a connection.
    fn release(&mut self, flows: &mut Flows, index: Index) {
        self.release_record(index, flows.get_mut(index));
    }

    /// Frees what is held for a connection that is being removed.
    pub(crate) fn release_record(&mut self, index: Index, record: &mut Record) {
        self.counters.released += u64::from(record.segment != NONE) + u64::from(record.acknowledgement != NONE);
        self.remove_segment(record);
        self.remove_acknowledgement(record);
        if let Some(hitters) = &mut self.hitters {
            hitters.remove(index);
        }
    }

    fn remove_segment(&mut self, record: &mut Record) {
        let slot = core::mem::replace(&mut record.segment, NONE);
        if slot != NONE {
            skip(&mut self.recoveries, &self.segments, slot);
            self.segments.remove(slot);
        }
    }

    fn remove_acknowledgement(&mut self, record: &mut Record) {
        let slot = core::mem::replace(&mut record.acknowledgement, NONE);
        if slot != NONE {
            skip(&mut self.recoveries, &self.acknowledgements, slot);
            self.acknowledgements.remove(slot);
        }
    }

    /// The connections of a node go on elsewhere, as soon as their new owners confirm it.
    pub(crate) fn switched_over(&mut self, failed: NodeId) {
        self.unconfirmed.iter_mut().for_each(|nodes| {
            nodes.insert(failed);
        });
    }

    /// A failed node has returned: its connections are not taken over any more.
    pub(crate) fn node_returned(&mut self, node: NodeId) {
        self.unconfirmed.iter_mut().for_each(|nodes| {
            nodes.remove(node);
        });
    }

    /// A node has the state of the connections that it took over: what they lost is resent.
    pub(crate) fn owner_confirmed(&mut self, now: Instant, node: NodeId) {
        let Some(unconfirmed) = self.unconfirmed.get_mut(usize::from(node.0)) else { return };
        let mut failed = core::mem::take(unconfirmed);
        if failed.is_empty() {
            return;
        }
        let mut resent = Resent::default();
        // A recovery that is not finished begins once more; what it has resent is marked.
        if let Some(at) = self.recoveries.iter().position(|recovery| recovery.node == node) {
            let before = self.recoveries.remove(at);
            before.failed.iter().for_each(|node| {
                failed.insert(node);
            });
            resent = before.resent;
        }
        let (acknowledgement, segment) = (self.acknowledgements.first(), self.segments.first());
        self.recoveries.push(OwnerRecovery {
            node,
            failed,
            confirmed_at: now,
            acknowledgement,
            segment,
            copies_sent: 0,
            resent,
        });
    }

    /// When [`LocalRecovery::poll`] has work.
    pub(crate) fn poll_timeout(&self) -> Option<Instant> {
        (!self.recoveries.is_empty()).then_some(self.next_at)
    }

    /// A node whose connections are recovered, and what was resent for them.
    pub(crate) fn poll_finished(&mut self) -> Option<(NodeId, Resent)> {
        self.finished.pop_front()
    }

    /// Writes the next packet to be resent. `None`: there is none now; see [`LocalRecovery::poll_timeout`].
    pub(crate) fn poll(
        &mut self,
        now: Instant,
        flows: &Flows,
        distribution: &Distribution,
        link_address: impl Fn(NodeId) -> Option<MacAddress>,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        if now < self.next_at {
            return None;
        }
        for _ in 0..VISITS_PER_POLL_MAX {
            let mut recovery = *self.recoveries.first()?;
            let outgoing = if recovery.acknowledgement != NONE {
                self.visit_acknowledgement(now, &mut recovery, flows, distribution, out)
            } else if recovery.segment != NONE {
                let destination = link_address(recovery.node);
                self.visit_segment(&mut recovery, flows, distribution, destination, out)
            } else {
                self.finished.push_back((recovery.node, recovery.resent));
                self.recoveries.remove(0);
                continue;
            };
            self.recoveries[0] = recovery;
            if outgoing.is_some() {
                // Of a burst, all but the first count as sent earlier.
                let burst_nanos = self.interval.as_nanos() as u64 * u64::from(BURST_PACKETS_MAX - 1);
                let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(burst_nanos));
                self.next_at = self.next_at.max(earliest) + self.interval;
                return outgoing;
            }
        }
        None
    }

    fn visit_acknowledgement(
        &mut self,
        now: Instant,
        recovery: &mut OwnerRecovery,
        flows: &Flows,
        distribution: &Distribution,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let slot = recovery.acknowledgement;
        let acknowledgement = self.acknowledgements.acknowledgement(slot);
        let held = self.acknowledgements.get_mut(slot);
        let record = flows.get(held.connection);
        let is_due = recovery.is_due(held, record, distribution)
            && acknowledgement == record.tcp.near_unacknowledged()
            && record.tcp.near_is_waiting()
            && !record.tcp.near_has_timed_out(micros(now));
        if !is_due || recovery.copies_sent >= ACKNOWLEDGEMENT_COPIES {
            if recovery.copies_sent > 0 {
                held.resent_to = recovery.node;
            }
            recovery.copies_sent = 0;
            recovery.acknowledgement = recovery.next_of(&self.acknowledgements, slot);
            return None;
        }
        // Only a segment in sequence is acceptable to its receiver (RFC 9293 section 3.10.7.4).
        let resending = Resending { sequence: Some(record.tcp.far_next()), destination: None };
        self.acknowledgements.write(slot, &record.entering.inverse(), resending, out);
        recovery.copies_sent += 1;
        recovery.resent.acknowledgements += 1;
        self.counters.acknowledgements_resent += 1;
        Some(Outgoing::ToNetwork)
    }

    fn visit_segment(
        &mut self,
        recovery: &mut OwnerRecovery,
        flows: &Flows,
        distribution: &Distribution,
        destination: Option<MacAddress>,
        out: &mut Vec<u8>,
    ) -> Option<Outgoing> {
        let slot = recovery.segment;
        recovery.segment = recovery.next_of(&self.segments, slot);
        let held = self.segments.get_mut(slot);
        let record = flows.get(held.connection);
        if !recovery.is_due(held, record, distribution) {
            return None;
        }
        held.resent_to = recovery.node;
        let is_syn = held.is_syn();
        self.segments.write(slot, &record.entering, Resending { sequence: None, destination }, out);
        if is_syn {
            recovery.resent.syns += 1;
            self.counters.syns_resent += 1;
        } else {
            recovery.resent.segments += 1;
            self.counters.segments_resent += 1;
        }
        Some(Outgoing::ToNode(recovery.node))
    }
}

/// Bytes of payload of a segment that is held: all of a packet, one segment of a frame that stands for several.
fn payload_bytes_max(frame: &Frame<'_>, headers: &Headers, record: &Record) -> usize {
    match (frame.segmentation.kind, frame.segmentation.size_bytes) {
        (SegmentationKind::None, _) => usize::MAX,
        (_, 0) => {
            // The maximum segment size counts options (RFC 6691).
            let options_bytes = usize::from(headers.payload_offset - headers.l4_offset) - 20;
            usize::from(record.tcp.near_segment_bytes_max()).saturating_sub(options_bytes).max(1)
        }
        (_, size_bytes) => size_bytes.into(),
    }
}

/// The time as connections keep it: microseconds, modulo 2^32.
pub(crate) const fn micros(now: Instant) -> u32 {
    (now.as_nanos() / 1000) as u32
}
