//! The owner's part: what it has forwarded and nobody has acknowledged, and the messages about it.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use flow::held::{HeldPackets, Holding, Resending, SEGMENT_FRAME_BYTES_MAX, is_replaced};
use flow::list::NONE;
use flow::serial::is_after;
use flow::table::{Slot, Table};
use flow::wire::tcp::{SegmentOptions, TCP_HEADER_BYTES};
use flow::wire::{Packet, TcpSegment, Transport, tcp_flags};
use flow::{Connection, Direction, Instant, NodeId, SegmentationKind, Tuple};
use replication::message::{Acknowledged, SegmentMessage};

use super::config::{SegmentCounters, SegmentPolicy, SegmentsConfig};
use super::tracked::{is_closed, unacknowledged};

/// What is acknowledged waits so long for a newer segment, which makes the message needless.
const ACKNOWLEDGED_DELAY: Duration = Duration::from_millis(5);
/// Messages about acknowledged segments that wait at most; further ones are not sent.
const ACKNOWLEDGED_WAITING_MAX: usize = 1 << 16;
/// Messages of so many bytes may be sent at once after a pause.
const BURST_BYTES_MAX: u64 = 1 << 16;
/// The payload of a segment whose size is not known (RFC 9293 section 3.7.1), in bytes.
const PAYLOAD_BYTES_DEFAULT: usize = 536;

const DIRECTIONS: [Direction; 2] = [Direction::Original, Direction::Reply];

/// What is held of one direction of a connection.
#[derive(Clone, Copy, Debug)]
struct Side {
    /// Its slot, or [`NONE`].
    held: u32,
    /// It waits to be sent.
    is_queued: bool,
    /// The peers have a segment of this direction.
    is_sent: bool,
}

impl Side {
    const EMPTY: Self = Self { held: NONE, is_queued: false, is_sent: false };
}

/// A message that waits: segments of a direction need not be resent.
#[derive(Debug)]
struct Release {
    due: Instant,
    side: usize,
    message: Acknowledged,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Outgoing {
    policy: SegmentPolicy,
    held: HeldPackets<SEGMENT_FRAME_BYTES_MAX>,
    /// By slot of the table, twice: a side for each direction.
    sides: Vec<Side>,
    /// Sides whose segment is to be sent, in the order in which they changed. Each is here once.
    queue: VecDeque<u32>,
    releases: VecDeque<Release>,
    /// Bytes of a packet that is held: its message fits a datagram.
    packet_bytes_max: usize,
    bytes_per_s: u64,
    next_at: Instant,
    scratch: Vec<u8>,
}

const fn side_of(slot: Slot, direction: Direction) -> usize {
    slot.0 as usize * 2 + direction.index()
}

impl Outgoing {
    pub(super) fn new(config: &SegmentsConfig, packet_bytes_max: usize) -> Self {
        Self {
            policy: config.policy,
            held: HeldPackets::new(config.memory_bytes_max / 2),
            sides: Vec::new(),
            queue: VecDeque::new(),
            releases: VecDeque::new(),
            packet_bytes_max,
            bytes_per_s: config.bytes_per_s_max.max(1).into(),
            next_at: Instant::ZERO,
            scratch: Vec::new(),
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.held.count()
    }

    pub(super) const fn memory_bytes(&self) -> usize {
        self.held.count() as usize * HeldPackets::<SEGMENT_FRAME_BYTES_MAX>::SLOT_BYTES
    }

    /// See [`super::Segments::note_packet`].
    pub(super) fn note_packet(
        &mut self,
        now: Instant,
        table: &Table,
        (slot, direction): (Slot, Direction),
        packet: &Packet<'_, '_>,
        is_renumbered: bool,
        counters: &mut SegmentCounters,
    ) {
        let Transport::Tcp(segment) = &packet.headers.transport else { return };
        let Some(connection) = table.get(slot) else { return };
        if packet.headers.is_fragment {
            return;
        }
        if is_closed(connection) || segment.has(tcp_flags::RST) {
            DIRECTIONS.iter().for_each(|direction| self.release(now, slot, *direction, connection, true));
            return;
        }
        if segment.has(tcp_flags::ACK) {
            self.note_acknowledgement(now, slot, direction.reverse(), connection, segment.acknowledgement);
        }
        if !is_renumbered && self.is_wanted(segment) && is_unacknowledged(connection, direction, segment) {
            self.hold(now, table, (slot, direction), packet, segment, counters);
        }
    }

    const fn is_wanted(&self, segment: &TcpSegment) -> bool {
        matches!(self.policy, SegmentPolicy::Always) || segment.has(tcp_flags::SYN)
    }

    fn note_acknowledgement(
        &mut self,
        now: Instant,
        slot: Slot,
        direction: Direction,
        connection: &Connection,
        number: u32,
    ) {
        let Some(side) = self.sides.get(side_of(slot, direction)) else { return };
        if side.held != NONE && !is_after(self.held.get(side.held).end(), number) {
            self.release(now, slot, direction, connection, false);
        }
    }

    fn hold(
        &mut self,
        now: Instant,
        table: &Table,
        (slot, direction): (Slot, Direction),
        packet: &Packet<'_, '_>,
        segment: &TcpSegment,
        counters: &mut SegmentCounters,
    ) {
        let at = side_of(slot, direction);
        if self.sides.len() <= at {
            self.sides.resize(at / 2 * 2 + 2, Side::EMPTY);
        }
        let headers = &*packet.headers;
        let options = packet.frame.bytes().get(headers.l4_offset.into()..headers.payload_offset.into());
        let is_signed = options.is_some_and(|header| SegmentOptions::read(header).is_signed);
        let payload_bytes_max = payload_bytes_max(packet, self.packet_bytes_max);
        let holding = Holding { frame: packet.frame.bytes(), headers, segment, payload_bytes_max, is_signed };
        let is_held = if self.sides[at].held == NONE {
            self.make_room(now, table, counters);
            self.sides[at].held = self.held.insert(now, at as u32, holding).unwrap_or(NONE);
            self.sides[at].held != NONE
        } else {
            let held = self.held.get(self.sides[at].held);
            let unacknowledged = table
                .get(slot)
                .and_then(|connection| unacknowledged(connection, direction))
                .unwrap_or(segment.sequence);
            if !is_replaced((held.sequence(), held.end()), unacknowledged, segment.sequence) {
                return;
            }
            self.held.replace(now, self.sides[at].held, holding)
        };
        counters.held += u64::from(is_held);
        counters.unholdable += u64::from(!is_held);
        if is_held && !self.sides[at].is_queued {
            self.sides[at].is_queued = true;
            self.queue.push_back(at as u32);
        }
    }

    /// Evicts the segment that was held first if there is no room for another.
    fn make_room(&mut self, now: Instant, table: &Table, counters: &mut SegmentCounters) {
        let Some(victim) = self.held.victim() else { return };
        let side = self.held.get(victim).connection;
        let (slot, direction) = (Slot(side / 2), DIRECTIONS[side as usize % 2]);
        counters.evicted += 1;
        match table.get(slot) {
            Some(connection) => self.release(now, slot, direction, connection, false),
            None => self.note_dropped(slot, direction),
        }
    }

    /// Empties a side; its peers learn of it if they have a segment.
    fn release(&mut self, now: Instant, slot: Slot, direction: Direction, connection: &Connection, has_ended: bool) {
        let at = side_of(slot, direction);
        let Some(side) = self.sides.get_mut(at) else { return };
        let held = core::mem::replace(&mut side.held, NONE);
        let was_sent = core::mem::take(&mut side.is_sent);
        let number = if held == NONE { 0 } else { self.held.get(held).end() };
        if held != NONE {
            self.held.remove(held);
        }
        // What was sent last and is not held any more was acknowledged before, which was reported.
        if was_sent && (held != NONE || has_ended) && self.releases.len() < ACKNOWLEDGED_WAITING_MAX {
            let message = Acknowledged { tuple: *connection.tuple(direction), number, has_ended };
            self.releases.push_back(Release { due: now + ACKNOWLEDGED_DELAY, side: at, message });
        }
    }

    /// See [`super::Segments::note_dropped`].
    pub(super) fn note_dropped(&mut self, slot: Slot, direction: Direction) {
        let Some(side) = self.sides.get_mut(side_of(slot, direction)) else { return };
        let held = core::mem::replace(&mut side.held, NONE);
        if held != NONE {
            self.held.remove(held);
        }
    }

    /// See [`super::Segments::note_removed`]. The message about it is due like every other.
    pub(super) fn note_removed(&mut self, slot: Slot, removed: &Connection) {
        for direction in DIRECTIONS {
            // The time is that of the last message; none is due before.
            let due = self.releases.back().map_or(Instant::ZERO, |release| release.due);
            let at = Instant::from_nanos(due.as_nanos().saturating_sub(ACKNOWLEDGED_DELAY.as_nanos() as u64));
            self.release(at, slot, direction, removed, true);
        }
    }

    /// See [`super::Segments::poll_messages`].
    pub(super) fn poll_messages(
        &mut self,
        now: Instant,
        table: &Table,
        node: NodeId,
        room_bytes: usize,
        out: &mut Vec<u8>,
        counters: &mut SegmentCounters,
    ) -> bool {
        let begin = out.len();
        while let Some(release) = self.releases.front()
            && release.due <= now
            && self.may_send(now)
        {
            if room_bytes < out.len() - begin + SegmentMessage::ACKNOWLEDGED_BYTES_MAX {
                break;
            }
            let Some(Release { side, message, .. }) = self.releases.pop_front() else { break };
            // A newer segment has taken the place of the one that was acknowledged.
            let is_needless = !message.has_ended && self.sides.get(side).is_some_and(|side| side.is_sent);
            if !is_needless {
                self.send(now, &SegmentMessage::Acknowledged(message), out, counters);
            }
        }
        while let Some(at) = self.queue.front().copied()
            && self.may_send(now)
        {
            let (slot, direction) = (Slot(at / 2), DIRECTIONS[at as usize % 2]);
            let is_own = |connection: &&Connection| connection.owner == node;
            let held = self.sides[at as usize].held;
            let tuple = table.get(slot).filter(is_own).map(|connection| *connection.tuple(direction));
            if let Some(tuple) = tuple.filter(|_| held != NONE) {
                let message_bytes = SegmentMessage::held_bytes(self.held.get(held).packet_bytes());
                debug_assert!(message_bytes <= room_bytes, "packets are cut when they are held");
                if out.len() > begin && room_bytes < out.len() - begin + message_bytes {
                    break;
                }
                self.send_held(now, held, &tuple, out, counters);
                self.sides[at as usize].is_sent = true;
            }
            self.sides[at as usize].is_queued = false;
            self.queue.pop_front();
        }
        out.len() > begin
    }

    fn send_held(&mut self, now: Instant, held: u32, tuple: &Tuple, out: &mut Vec<u8>, counters: &mut SegmentCounters) {
        let mut scratch = core::mem::take(&mut self.scratch);
        self.held.write(held, tuple, Resending::default(), &mut scratch);
        let l3_offset = self.held.get(held).l3_offset();
        self.send(now, &SegmentMessage::Held(&scratch[l3_offset..]), out, counters);
        self.scratch = scratch;
    }

    fn send(&mut self, now: Instant, message: &SegmentMessage<'_>, out: &mut Vec<u8>, counters: &mut SegmentCounters) {
        let begin = out.len();
        message.emit(out);
        let bytes = (out.len() - begin) as u64;
        let time_of = |bytes: u64| Duration::from_nanos(bytes * 1_000_000_000 / self.bytes_per_s);
        let earliest = now.as_nanos().saturating_sub(time_of(BURST_BYTES_MAX).as_nanos() as u64);
        self.next_at = self.next_at.max(Instant::from_nanos(earliest)) + time_of(bytes);
        counters.sent += 1;
        counters.sent_bytes += bytes;
    }

    fn may_send(&self, now: Instant) -> bool {
        self.next_at <= now
    }

    /// See [`super::Segments::messages_at`].
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let release = self.releases.front().map(|release| release.due);
        let segment = self.queue.front().map(|_| Instant::ZERO);
        let first = release.into_iter().chain(segment).min()?;
        Some(first.max(self.next_at))
    }
}

fn is_unacknowledged(connection: &Connection, direction: Direction, segment: &TcpSegment) -> bool {
    let end = segment.end();
    end != segment.sequence && unacknowledged(connection, direction).is_none_or(|number| is_after(end, number))
}

/// Bytes of payload of a segment that is held: as much as a message has room for, and one segment of a frame that stands for several.
fn payload_bytes_max(packet: &Packet<'_, '_>, packet_bytes_max: usize) -> usize {
    let headers = &*packet.headers;
    let room_bytes = packet_bytes_max.saturating_sub(usize::from(headers.payload_offset - headers.l3_offset));
    let options_bytes = usize::from(headers.payload_offset - headers.l4_offset).saturating_sub(TCP_HEADER_BYTES);
    let segment_bytes = match (packet.frame.segmentation.kind, packet.frame.segmentation.size_bytes) {
        (SegmentationKind::None, _) => usize::MAX,
        (_, 0) => PAYLOAD_BYTES_DEFAULT - options_bytes,
        (_, size_bytes) => size_bytes.into(),
    };
    room_bytes.min(segment_bytes).max(1)
}
