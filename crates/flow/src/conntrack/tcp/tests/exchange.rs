//! Two real end points in miniature: all of their segments are valid and must pass, under loss, reordering,
//! duplication, and while another node is the owner.

use std::collections::{BTreeMap, VecDeque};
use std::vec;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::conntrack::{decode_protocol_state, encode_protocol_state};

/// Bytes that one frame may carry (generic segmentation offload).
const FRAME_BYTES_MAX: u32 = 65_226;

/// A TCP end point: sent data, received data, and its free window.
#[derive(Clone, Debug)]
struct EndPoint {
    initial: u32,
    scale: Option<u8>,
    /// Shifts of the own and the other's windows, once both sides have offered scaling.
    shifts: [u8; 2],
    has_sack: bool,
    /// Sent but unacknowledged segments: start, length, whether it is a FIN. Offsets count from `initial`.
    unacknowledged: BTreeMap<u64, (u32, bool)>,
    next: u64,
    may_send_to: u64,
    received: u64,
    /// Received out of order: beginning and end of each segment, offsets from the other's initial number.
    ahead: BTreeMap<u64, u64>,
    other_initial: Option<u32>,
    /// The right edge of the window never moves back (RFC 9293 section 3.8.6).
    offered: u64,
    fin_sent: bool,
    buffer_bytes: u32,
}

impl EndPoint {
    fn new(initial: u32, scale: Option<u8>, has_sack: bool, buffer_bytes: u32) -> Self {
        Self {
            initial,
            scale,
            shifts: [0; 2],
            has_sack,
            unacknowledged: BTreeMap::from([(0, (1, false))]),
            next: 1,
            may_send_to: 1,
            received: 0,
            ahead: BTreeMap::new(),
            other_initial: None,
            offered: 0,
            fin_sent: false,
            buffer_bytes,
        }
    }

    fn is_open(&self) -> bool {
        self.received > 0 && !self.unacknowledged.contains_key(&0)
    }

    fn segment(&mut self, begin: u64, payload_bytes: u32, flags: u8) -> TcpSegment {
        let mut segment = TcpSegment {
            sequence: self.initial.wrapping_add(begin as u32),
            flags,
            payload_bytes,
            ..TcpSegment::default()
        };
        let is_syn = flags & tcp_flags::SYN != 0;
        if is_syn {
            segment.window_scale = self.scale;
            segment.sack_permitted = self.has_sack;
        }
        let shift = if is_syn { 0 } else { self.shifts[0] };
        let free = (self.received + u64::from(self.buffer_bytes)).max(self.offered) - self.received;
        // Rounded up, so that the edge does not move back.
        segment.window = free.div_ceil(1 << shift).min(0xffff) as u16;
        if let Some(other) = self.other_initial {
            segment.flags |= tcp_flags::ACK;
            segment.acknowledgement = other.wrapping_add(self.received as u32);
            let highest = self.ahead.values().max().copied().unwrap_or(self.received);
            segment.sack_end = other.wrapping_add(highest as u32);
            self.offered = self.offered.max(self.received + (u64::from(segment.window) << shift));
        }
        segment
    }

    fn syn(&mut self) -> TcpSegment {
        self.segment(0, 0, tcp_flags::SYN)
    }

    fn acknowledge(&mut self) -> TcpSegment {
        self.segment(self.next, 0, 0)
    }

    /// A keep-alive (RFC 1122 section 4.2.3.6).
    fn keep_alive(&mut self) -> TcpSegment {
        self.segment(self.next - 1, 0, 0)
    }

    fn send(&mut self, wanted: u32) -> Option<TcpSegment> {
        let room = self.may_send_to.saturating_sub(self.next).min(u64::from(wanted.min(FRAME_BYTES_MAX))) as u32;
        if room == 0 || self.fin_sent {
            return None;
        }
        let begin = self.next;
        self.unacknowledged.insert(begin, (room, false));
        self.next += u64::from(room);
        Some(self.segment(begin, room, tcp_flags::PSH))
    }

    fn finish(&mut self) -> Option<TcpSegment> {
        if self.fin_sent || self.may_send_to <= self.next {
            return None;
        }
        self.fin_sent = true;
        self.unacknowledged.insert(self.next, (1, true));
        self.next += 1;
        Some(self.segment(self.next - 1, 0, tcp_flags::FIN))
    }

    /// Retransmits the oldest unacknowledged segment.
    fn repeat(&mut self) -> Option<TcpSegment> {
        let (begin, (length, is_fin)) = self.unacknowledged.first_key_value().map(|(begin, what)| (*begin, *what))?;
        Some(match begin {
            0 => self.syn(),
            _ if is_fin => self.segment(begin, 0, tcp_flags::FIN),
            _ => self.segment(begin, length, 0),
        })
    }

    /// Processes a segment; returns whether it requires an answer.
    fn receive(&mut self, segment: &TcpSegment) -> bool {
        if segment.has(tcp_flags::SYN) && self.other_initial.is_none() {
            self.other_initial = Some(segment.sequence);
            if let (Some(own), Some(other)) = (self.scale, segment.window_scale) {
                self.shifts = [own, other];
            }
            self.received = 1;
        }
        let Some(other) = self.other_initial else { return false };
        if segment.has(tcp_flags::ACK) {
            self.note_acknowledgement(segment);
        }
        let length = u64::from(segment.end().wrapping_sub(segment.sequence));
        if length > 0 {
            let distance = segment.sequence.wrapping_sub(other.wrapping_add(self.received as u32)) as i32;
            let begin = self.received.saturating_add_signed(i64::from(distance));
            let end = self.ahead.entry(begin).or_default();
            *end = (*end).max(begin + length);
        }
        while let Some((begin, end)) = self.ahead.first_key_value().map(|(begin, end)| (*begin, *end)) {
            if begin > self.received {
                break;
            }
            self.ahead.remove(&begin);
            self.received = self.received.max(end);
        }
        length > 0
    }

    fn note_acknowledgement(&mut self, segment: &TcpSegment) {
        let distance = segment.acknowledgement.wrapping_sub(self.initial.wrapping_add(self.next as u32)) as i32;
        let acknowledged = self.next.saturating_add_signed(i64::from(distance));
        self.unacknowledged.retain(|begin, (length, _)| begin + u64::from(*length) > acknowledged);
        let shift = if segment.has(tcp_flags::SYN) { 0 } else { self.shifts[1] };
        self.may_send_to = self.may_send_to.max(acknowledged + (u64::from(segment.window) << shift));
    }
}

/// The next step. The direction names the sender.
#[derive(Clone, Copy, Debug)]
enum Event {
    Send(usize, u32),
    Acknowledge(usize),
    KeepAlive(usize),
    Repeat(usize),
    Resize(usize, u32),
    Finish(usize),
    /// A segment reaches the node and passes.
    Pass(usize),
    /// The next segment to the node is overtaken by the one behind it.
    Overtake(usize),
    Duplicate(usize),
    /// A segment arrives at the other end point.
    Arrive(usize),
    LoseBefore(usize),
    LoseBehind(usize),
    /// Another node takes over from a replica that lacks so many of the changes.
    TakeOver(usize),
}

/// Two end points, the segments in flight between them, and the node in the middle.
struct Exchange {
    ends: [EndPoint; 2],
    /// Segments that have not reached the node, and whether they were overtaken.
    before: [VecDeque<(TcpSegment, bool)>; 2],
    behind: [VecDeque<TcpSegment>; 2],
    tracker: Tracker,
    connection: Option<(ProtocolState, u8)>,
    /// Every replicated change, encoded.
    replicas: Vec<(Vec<u8>, u8)>,
}

impl Exchange {
    fn new(ends: [EndPoint; 2]) -> Self {
        let mut exchange = Self {
            ends,
            before: Default::default(),
            behind: Default::default(),
            tracker: Tracker::default(),
            connection: None,
            replicas: Vec::new(),
        };
        let syn = exchange.ends[0].syn();
        exchange.emit(0, Some(syn));
        exchange
    }

    fn emit(&mut self, side: usize, segment: Option<TcpSegment>) {
        self.before[side].extend(segment.map(|segment| (segment, false)));
    }

    fn handle(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Pass(side) => return self.pass(side),
            Event::Overtake(side) => self.overtake(side),
            Event::Arrive(side) => self.arrive(side),
            Event::TakeOver(lag) => self.take_over(lag),
            Event::LoseBefore(side) => drop(self.before[side].pop_front()),
            Event::LoseBehind(side) => drop(self.behind[side].pop_front()),
            Event::Duplicate(side) => {
                if let Some(first) = self.before[side].front().copied() {
                    self.before[side].insert(1, first);
                }
            }
            Event::Repeat(side) if side == 0 || self.ends[side].other_initial.is_some() => {
                let segment = self.ends[side].repeat();
                self.emit(side, segment);
            }
            Event::Resize(side, buffer_bytes) if self.ends[side].is_open() => {
                self.ends[side].buffer_bytes = buffer_bytes
            }
            Event::Send(side, bytes) if self.ends[side].is_open() => {
                let segment = self.ends[side].send(bytes);
                self.emit(side, segment);
            }
            Event::Finish(side) if self.ends[side].is_open() => {
                let segment = self.ends[side].finish();
                self.emit(side, segment);
            }
            Event::Acknowledge(side) if self.ends[side].is_open() => {
                let segment = self.ends[side].acknowledge();
                self.emit(side, Some(segment));
            }
            Event::KeepAlive(side) if self.ends[side].is_open() => {
                let segment = self.ends[side].keep_alive();
                self.emit(side, Some(segment));
            }
            _ => {}
        }
        Ok(())
    }

    fn pass(&mut self, side: usize) -> Result<(), TestCaseError> {
        let Some((segment, _)) = self.before[side].pop_front() else { return Ok(()) };
        let headers = headers(segment);
        let direction = [Direction::Original, Direction::Reply][side];
        let change = match &mut self.connection {
            None => {
                let (state, _) = self.tracker.begin(&headers).expect("the client begins");
                self.connection = Some((state, 0));
                Change::State
            }
            Some((state, flags)) => {
                let former = *state;
                let advance = self.tracker.advance(Instant::ZERO, state, flags, direction, &headers);
                prop_assert_eq!(advance.verdict, Ok(()), "{:?} {:#?} on {:#?}", direction, segment, former);
                prop_assert_eq!(advance.next, Next::Keep);
                advance.change
            }
        };
        if change != Change::None {
            let (state, flags) = self.connection.as_ref().expect("it has begun");
            let mut replica = Vec::new();
            encode_protocol_state(ip_protocol::TCP, state, &mut replica);
            self.replicas.push((replica, *flags));
        }
        self.behind[side].push_back(segment);
        Ok(())
    }

    fn overtake(&mut self, side: usize) {
        if let [first, second, ..] = self.before[side].make_contiguous()
            && !first.1
            // A SYN after the end of the connection begins another one, which is not replicated here.
            && !first.0.has(tcp_flags::SYN)
        {
            first.1 = true;
            core::mem::swap(first, second);
        }
    }

    fn arrive(&mut self, side: usize) {
        let Some(segment) = self.behind[side].pop_front() else { return };
        let other = &mut self.ends[1 - side];
        if other.receive(&segment) {
            let answer = if other.is_open() { Some(other.acknowledge()) } else { other.repeat() };
            self.emit(1 - side, answer);
        }
    }

    fn take_over(&mut self, lag: usize) {
        let Some((replica, flags)) = self.replicas.iter().rev().nth(lag).or(self.replicas.first()) else { return };
        let mut state = decode_protocol_state(ip_protocol::TCP, replica).expect("encoded by this program");
        self.tracker.take_over(ip_protocol::TCP, &mut state);
        self.connection = Some((state, *flags));
    }
}

prop_compose! {
    fn end_point()(initial in any::<u32>(), near_the_end in any::<bool>(), scale in prop::option::of(0u8..=14),
                   has_sack in any::<bool>(), buffer_bytes in buffer()) -> EndPoint {
        let initial = if near_the_end { u32::MAX - initial % 100_000 } else { initial };
        EndPoint::new(initial, scale, has_sack, buffer_bytes)
    }
}

fn buffer() -> impl Strategy<Value = u32> {
    prop_oneof![0u32..2000, 2000u32..65_536, 65_536u32..8_000_000]
}

fn event() -> impl Strategy<Value = Event> {
    let side = 0..2usize;
    prop_oneof![
        30 => side.clone().prop_map(Event::Pass),
        30 => side.clone().prop_map(Event::Arrive),
        20 => (side.clone(), prop_oneof![Just(1), 1u32..1500, 1500..FRAME_BYTES_MAX])
            .prop_map(|(side, bytes)| Event::Send(side, bytes)),
        4 => side.clone().prop_map(Event::Acknowledge),
        2 => side.clone().prop_map(Event::KeepAlive),
        5 => side.clone().prop_map(Event::Repeat),
        2 => (side.clone(), buffer()).prop_map(|(side, bytes)| Event::Resize(side, bytes)),
        1 => side.clone().prop_map(Event::Finish),
        4 => side.clone().prop_map(Event::Overtake),
        2 => side.clone().prop_map(Event::Duplicate),
        2 => side.clone().prop_map(Event::LoseBefore),
        2 => side.prop_map(Event::LoseBehind),
    ]
}

fn event_or_take_over() -> impl Strategy<Value = Event> {
    prop_oneof![30 => event(), 1 => (0..4usize).prop_map(Event::TakeOver)]
}

fn converse(ends: [EndPoint; 2], events: Vec<Event>) -> Result<(), TestCaseError> {
    let mut exchange = Exchange::new(ends);
    events.into_iter().try_for_each(|event| exchange.handle(event))
}

proptest! {
    #[test]
    fn no_segment_of_a_real_stack_is_dropped(
        client in end_point(), server in end_point(), events in prop::collection::vec(event(), 0..400),
    ) {
        converse([client, server], events)?;
    }

    #[test]
    fn no_segment_of_a_real_stack_is_dropped_after_a_take_over(
        client in end_point(), server in end_point(), events in prop::collection::vec(event_or_take_over(), 0..400),
    ) {
        converse([client, server], events)?;
    }
}
