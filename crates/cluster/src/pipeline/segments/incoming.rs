//! The backup's part: at most one segment for each direction of a connection, and what is resent of them after a take-over.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use flow::held::{HeldPackets, Holding, Resending, SEGMENT_FRAME_BYTES_MAX};
use flow::list::NONE;
use flow::serial::is_after;
use flow::table::Table;
use flow::wire::ethernet::{ETHERNET_HEADER_BYTES, ether_type};
use flow::wire::tcp::SegmentOptions;
use flow::wire::{Headers, Parsed, TcpSegment, Transport, parse, tcp_flags};
use flow::{Connection, Direction, Frame, Instant, NodeId, PortId, Tuple};
use replication::message::{Acknowledged, SegmentMessage};

use super::config::{SegmentCounters, SegmentsConfig, SegmentsResent};
use super::tracked::{directed_hash, is_closed, unacknowledged};

/// A segment that was not renewed for so long is not resent: its sender has given up, or waits for a long timeout.
const LIFETIME: Duration = Duration::from_secs(60);
/// Packets that may be resent at once after a pause.
const BURST_PACKETS_MAX: u32 = 32;
/// Slots that one poll examines at most.
const VISITS_PER_POLL_MAX: usize = 256;

/// A held segment that is due: to be handled as if its sender had sent it once more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::pipeline) struct Due {
    /// The tuple that it came in with.
    pub(in crate::pipeline) tuple: Tuple,
    /// The number behind it.
    pub(in crate::pipeline) end: u32,
    /// It begins a connection.
    pub(in crate::pipeline) is_first: bool,
    /// It is a SYN, or a SYN/ACK.
    pub(in crate::pipeline) is_syn: bool,
    /// The frame, with link addresses of zeros.
    pub(in crate::pipeline) frame: Vec<u8>,
}

/// Of a slot.
#[derive(Clone, Copy, Debug)]
struct Entry {
    tuple: Tuple,
    hash: u64,
    from: NodeId,
}

/// What is being resent.
#[derive(Clone, Copy, Debug)]
struct Resends {
    began_at: Instant,
    /// The next slot, or [`NONE`].
    cursor: u32,
    resent: SegmentsResent,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Incoming {
    held: HeldPackets<SEGMENT_FRAME_BYTES_MAX>,
    /// By the hash of the packet's tuple.
    slots: BTreeMap<u64, u32>,
    /// By slot.
    entries: Vec<Option<Entry>>,
    interval: Duration,
    next_at: Instant,
    resends: Option<Resends>,
    finished: Option<SegmentsResent>,
    scratch: Vec<u8>,
}

impl Incoming {
    pub(super) fn new(config: &SegmentsConfig) -> Self {
        Self {
            held: HeldPackets::new(config.memory_bytes_max / 2),
            slots: BTreeMap::new(),
            entries: Vec::new(),
            interval: Duration::from_nanos(1_000_000_000 / u64::from(config.resends_per_s_max.max(1))),
            next_at: Instant::ZERO,
            resends: None,
            finished: None,
            scratch: Vec::new(),
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.held.count()
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.held.count() as usize * HeldPackets::<SEGMENT_FRAME_BYTES_MAX>::SLOT_BYTES
    }

    /// See [`super::Segments::note_message`].
    pub(super) fn note_message(
        &mut self,
        now: Instant,
        table: &Table,
        from: NodeId,
        message: &SegmentMessage<'_>,
        counters: &mut SegmentCounters,
    ) {
        match message {
            SegmentMessage::Acknowledged(acknowledged) => self.note_acknowledged(table, from, acknowledged),
            SegmentMessage::Held(packet) => {
                let mut scratch = core::mem::take(&mut self.scratch);
                let held = read(packet, &mut scratch).is_some_and(|(headers, segment, is_signed)| {
                    let holding = Holding {
                        frame: &scratch,
                        headers: &headers,
                        segment: &segment,
                        payload_bytes_max: usize::MAX,
                        is_signed,
                    };
                    self.hold(now, table, from, holding, counters)
                });
                counters.received += u64::from(held);
                counters.refused += u64::from(!held);
                self.scratch = scratch;
            }
        }
    }

    /// Holds a segment in the place of what is held of its direction. False: it cannot be held.
    fn hold(
        &mut self,
        now: Instant,
        table: &Table,
        from: NodeId,
        holding: Holding<'_>,
        counters: &mut SegmentCounters,
    ) -> bool {
        let tuple = holding.headers.tuple;
        let hash = directed_hash(table, &tuple);
        let entry = Entry { tuple, hash, from };
        if let Some(slot) = self.slots.get(&hash).copied() {
            self.skip(slot);
            let is_held = self.held.replace(now, slot, holding);
            if is_held {
                self.entries[slot as usize] = Some(entry);
            }
            return is_held;
        }
        if let Some(victim) = self.held.victim() {
            self.remove(victim);
            counters.evicted += 1;
        }
        let Some(slot) = self.held.insert(now, 0, holding) else { return false };
        if self.entries.len() <= slot as usize {
            self.entries.resize(slot as usize + 1, None);
        }
        self.entries[slot as usize] = Some(entry);
        self.slots.insert(hash, slot);
        true
    }

    fn note_acknowledged(&mut self, table: &Table, from: NodeId, acknowledged: &Acknowledged) {
        let Some(slot) = self.find(table, &acknowledged.tuple) else { return };
        let is_same = self.entries[slot as usize].is_some_and(|entry| entry.from == from);
        let is_covered = acknowledged.has_ended || !is_after(self.held.get(slot).end(), acknowledged.number);
        if is_same && is_covered {
            self.remove(slot);
        }
    }

    /// See [`super::Segments::note_replica`].
    pub(super) fn note_replica(&mut self, table: &Table, replica: &Connection) {
        if self.slots.is_empty() {
            return;
        }
        for direction in [Direction::Original, Direction::Reply] {
            let Some(slot) = self.find(table, replica.tuple(direction)) else { continue };
            let end = self.held.get(slot).end();
            if is_closed(replica) || unacknowledged(replica, direction).is_some_and(|number| !is_after(end, number)) {
                self.remove(slot);
            }
        }
    }

    /// See [`super::Segments::note_removed`].
    pub(super) fn note_removed(&mut self, table: &Table, removed: &Connection) {
        if self.slots.is_empty() {
            return;
        }
        for direction in [Direction::Original, Direction::Reply] {
            if let Some(slot) = self.find(table, removed.tuple(direction)) {
                self.remove(slot);
            }
        }
    }

    /// See [`super::Segments::begin_resending`]. A take-over that follows another one goes on with what is left.
    pub(super) fn begin_resending(&mut self, now: Instant) {
        let resent = self.resends.take().map_or_else(SegmentsResent::default, |resends| resends.resent);
        self.resends = Some(Resends { began_at: now, cursor: self.held.first(), resent });
    }

    /// See [`super::Segments::poll_due`].
    pub(super) fn poll_due(&mut self, now: Instant, is_live: impl Fn(NodeId) -> bool) -> Option<Due> {
        if self.resends.is_none() || now < self.next_at {
            return None;
        }
        for _ in 0..VISITS_PER_POLL_MAX {
            let resends = self.resends.as_mut()?;
            let slot = resends.cursor;
            if slot == NONE || self.held.get(slot).held_at > resends.began_at {
                self.finished = self.resends.take().map(|resends| resends.resent);
                return None;
            }
            let Some(entry) = self.entries[slot as usize] else {
                resends.cursor = self.held.next(slot);
                continue;
            };
            if is_live(entry.from) {
                resends.cursor = self.held.next(slot);
                continue;
            }
            let held = self.held.get(slot);
            if now.saturating_since(held.held_at) > LIFETIME {
                resends.resent.dropped += 1;
                self.remove(slot);
                continue;
            }
            let mut frame = Vec::with_capacity(SEGMENT_FRAME_BYTES_MAX);
            self.held.write(slot, &entry.tuple, Resending::default(), &mut frame);
            let due =
                Due { tuple: entry.tuple, end: held.end(), is_first: held.is_first(), is_syn: held.is_syn(), frame };
            self.remove(slot);
            let burst_nanos = self.interval.as_nanos() as u64 * u64::from(BURST_PACKETS_MAX - 1);
            let earliest = Instant::from_nanos(now.as_nanos().saturating_sub(burst_nanos));
            self.next_at = self.next_at.max(earliest) + self.interval;
            return Some(due);
        }
        None
    }

    /// See [`super::Segments::count_resent`].
    pub(super) const fn count_resent(&mut self, is_resent: bool, is_syn: bool) {
        let Some(resends) = &mut self.resends else { return };
        let resent = &mut resends.resent;
        resent.dropped += !is_resent as u64;
        resent.syns += (is_resent && is_syn) as u64;
        resent.segments += (is_resent && !is_syn) as u64;
    }

    /// See [`super::Segments::poll_finished`].
    pub(super) const fn poll_finished(&mut self) -> Option<SegmentsResent> {
        self.finished.take()
    }

    /// See [`super::Segments::resends_at`].
    pub(super) const fn poll_timeout(&self) -> Option<Instant> {
        if self.resends.is_some() { Some(self.next_at) } else { None }
    }

    fn find(&self, table: &Table, tuple: &Tuple) -> Option<u32> {
        let slot = *self.slots.get(&directed_hash(table, tuple))?;
        self.entries[slot as usize].filter(|entry| entry.tuple == *tuple).map(|_| slot)
    }

    fn remove(&mut self, slot: u32) {
        self.skip(slot);
        if let Some(entry) = self.entries[slot as usize].take() {
            self.slots.remove(&entry.hash);
        }
        self.held.remove(slot);
    }

    /// A slot loses its place in the order: what is being resent goes on behind it.
    fn skip(&mut self, slot: u32) {
        if let Some(resends) = self.resends.as_mut().filter(|resends| resends.cursor == slot) {
            resends.cursor = self.held.next(slot);
        }
    }
}

/// Reads a packet that a peer sent, as a frame in `frame`, with its segment, and whether that is signed. `None`: it is no whole TCP
/// segment with something that can be acknowledged.
fn read(packet: &[u8], frame: &mut Vec<u8>) -> Option<(Headers, TcpSegment, bool)> {
    frame.clear();
    frame.resize(ETHERNET_HEADER_BYTES - 2, 0);
    let kind = if packet.first()? >> 4 == 4 { ether_type::IPV4 } else { ether_type::IPV6 };
    frame.extend_from_slice(&kind.to_be_bytes());
    frame.extend_from_slice(packet);
    let length_bytes = frame.len();
    let Ok(Parsed::Ip(headers)) = parse(&Frame::new(frame, 0, length_bytes, PortId::default())?) else { return None };
    let Transport::Tcp(segment) = headers.transport else { return None };
    let carries_something = segment.end() != segment.sequence && !segment.has(tcp_flags::RST);
    if headers.is_fragment || !carries_something || headers.l3_end() != length_bytes {
        return None;
    }
    let options = frame.get(headers.l4_offset.into()..headers.payload_offset.into())?;
    let is_signed = SegmentOptions::read(options).is_signed;
    Some((headers, segment, is_signed))
}
