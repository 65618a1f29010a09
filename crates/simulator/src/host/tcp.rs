//! One end of a TCP connection: a compact but complete model. It retransmits with back-off, respects the other side's
//! window (scaled if both offered it), acknowledges cumulatively, reassembles, half-closes, and checks every byte.
//!
//! ```text
//!   client: SynSent ──────► Established ──┬─ both FINs acknowledged ──► Closed
//!   server: SynReceived ──────► ▲         └─ RST sent or received ────► Reset
//! ```

use std::collections::BTreeMap;
use std::time::Duration;

use flow::wire::{TcpSegment, build, tcp_flags};
use flow::{Instant, Tuple};

use super::sender::Sender;
use crate::scenario::{Closing, Transfer};
use crate::stream::{self, HEADER_BYTES, StreamDirection};

/// The maximum number of out-of-order segments; further ones are dropped and retransmitted.
const REASSEMBLY_SEGMENTS_MAX: usize = 256;
/// The maximum number of segments sent at once, so that no end point starves the others.
const BURST_SEGMENTS_MAX: usize = 16;

/// The minimum interval of answers to out-of-window segments without data, as in Linux (`tcp_invalid_ratelimit`): two
/// disagreeing ends would otherwise answer each other endlessly.
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(500);

/// A server abandons a connection whose SYN/ACKs stay unanswered for this time (Linux: `tcp_synack_retries` of 5).
const HANDSHAKE_MAX: Duration = Duration::from_secs(63);

/// The state of an end point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum State {
    SynSent,
    SynReceived,
    Established,
    Closed,
    Reset,
}

/// An error that an end point detects.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Violation {
    /// A byte of the stream differs from the one that was sent.
    WrongByte { transfer: u32, offset: u64 },
    /// A connection's first bytes identify no transfer.
    NoHeader,
    /// The other end reset the connection while it was in use.
    Reset { transfer: u32, got_bytes: u64 },
}

/// One end of a TCP connection.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// From this end to the other.
    pub(crate) tuple: Tuple,
    pub(crate) state: State,
    pub(crate) transfer: Option<Transfer>,
    pub(crate) violations: Vec<Violation>,
    way: StreamDirection,
    sender: Sender,
    initial_sequence: u32,
    initial_sequence_theirs: u32,
    segment_bytes: u16,
    window: WindowConfig,
    /// Shift of the windows that come in; both are 0 unless both sides offered scaling.
    shift_theirs: u8,
    shift_ours: u8,
    /// When it was established (server: when its data was assigned; until then, when the first SYN arrived).
    pub(crate) opened_at: Instant,
    received: u64,
    /// The acknowledgement of the last segment sent.
    last_acknowledged: u64,
    pending: BTreeMap<u64, Vec<u8>>,
    fin_at: Option<u64>,
    header: Vec<u8>,
    /// When an out-of-window segment without data was last answered.
    challenged_at: Option<Instant>,
    /// A server whose SYN/ACKs were never answered: it has discarded the connection.
    pub(crate) has_given_up: bool,
    ack_due: bool,
    syn_due: bool,
    reset_due: bool,
    /// A segment without a connection is to be answered with a reset of this number.
    refusal_due: Option<u32>,
}

/// The window that an end point offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowConfig {
    pub(crate) bytes: u32,
    pub(crate) shift: u8,
}

/// A segment to send: its header and its payload.
pub(crate) struct OutSegment {
    pub(crate) header: build::Tcp<'static>,
    pub(crate) payload: Vec<u8>,
}

impl Endpoint {
    /// A client that is about to send its SYN.
    pub(crate) fn connect(now: Instant, tuple: Tuple, transfer: Transfer, initial_sequence: u32) -> Self {
        let window = WindowConfig { bytes: transfer.window_bytes, shift: transfer.window_shift };
        let segment_bytes = transfer.segment_bytes;
        let own = Self::new(now, tuple, StreamDirection::Up, State::SynSent, window, segment_bytes, initial_sequence);
        Self { transfer: Some(transfer), ..own }
    }

    /// A server that has got a SYN.
    pub(crate) fn accept(now: Instant, tuple: Tuple, syn: &TcpSegment, window: WindowConfig, initial: u32) -> Self {
        let segment_bytes = syn.maximum_segment_bytes.unwrap_or(536);
        let mut own = Self::new(now, tuple, StreamDirection::Down, State::SynReceived, window, segment_bytes, initial);
        own.learn_syn(syn);
        own
    }

    fn new(
        now: Instant,
        tuple: Tuple,
        way: StreamDirection,
        state: State,
        window: WindowConfig,
        segment_bytes: u16,
        initial: u32,
    ) -> Self {
        Self {
            tuple,
            state,
            transfer: None,
            violations: Vec::new(),
            way,
            sender: Sender::new(segment_bytes),
            initial_sequence: initial,
            initial_sequence_theirs: 0,
            segment_bytes,
            window,
            shift_theirs: 0,
            shift_ours: 0,
            opened_at: now,
            received: 0,
            last_acknowledged: 0,
            has_given_up: false,
            pending: BTreeMap::new(),
            fin_at: None,
            header: Vec::new(),
            challenged_at: None,
            ack_due: false,
            syn_due: true,
            reset_due: false,
            refusal_due: None,
        }
    }

    fn learn_syn(&mut self, syn: &TcpSegment) {
        self.initial_sequence_theirs = syn.sequence;
        self.received = 1;
        if let Some(shift) = syn.window_scale {
            (self.shift_theirs, self.shift_ours) = (shift, self.window.shift);
        }
        self.sender.window_bytes = u64::from(syn.window);
    }

    /// Whether all data of the other side has arrived and all of this side's is acknowledged.
    pub(crate) fn is_finished(&self) -> bool {
        let Some(transfer) = &self.transfer else { return false };
        let (ours, theirs) = transfer.lengths(self.way);
        self.received > theirs && self.sender.unacknowledged > ours
    }

    /// Whether this SYN begins another connection: this one is over, and it is not a late copy of its own.
    pub(crate) fn may_be_followed_by(&self, syn: &TcpSegment) -> bool {
        matches!(self.state, State::Closed | State::Reset) && syn.sequence != self.initial_sequence_theirs
    }

    /// The direction in which this end sends.
    pub(crate) const fn direction(&self) -> StreamDirection {
        self.way
    }

    /// Bytes of data that arrived in order.
    pub(crate) const fn received_bytes(&self) -> u64 {
        self.received.saturating_sub(1)
    }

    /// Processes a segment for this end.
    pub(crate) fn handle_segment(&mut self, now: Instant, segment: &TcpSegment, payload: &[u8]) {
        match self.state {
            State::SynSent => return self.handle_in_syn_sent(now, segment),
            State::Reset => return self.handle_closed(segment),
            State::SynReceived | State::Established | State::Closed => {}
        }
        if segment.has(tcp_flags::RST) {
            return self.handle_reset(now, segment);
        }
        if segment.has(tcp_flags::SYN) {
            // The other side lacks the answer to its SYN.
            self.syn_due = self.state == State::SynReceived;
            self.ack_due = !self.syn_due;
            return;
        }
        let offset = offset_near(self.received, segment.sequence.wrapping_sub(self.initial_sequence_theirs));
        let fin = segment.has(tcp_flags::FIN);
        if !self.is_acceptable(offset, payload.len() as u64 + u64::from(fin)) {
            if payload.is_empty() && !fin {
                self.challenge(now);
            } else {
                self.ack_due = true;
            }
            return;
        }
        if segment.has(tcp_flags::ACK) {
            self.handle_ack(now, segment);
        }
        if !payload.is_empty() || fin {
            self.ack_due = true;
            self.take_data(offset, payload, fin);
        } else if offset != self.received {
            self.challenge(now);
        }
        self.move_on();
    }

    /// RFC 9293 section 3.10.7.4, first check: neither data nor acknowledgement of an out-of-window segment counts.
    /// Reordered segments count, as in Linux: those from behind the last acknowledgement.
    fn is_acceptable(&self, offset: u64, length: u64) -> bool {
        offset + length >= self.last_acknowledged && offset <= self.received + u64::from(self.window.bytes)
    }

    /// Answers an out-of-window segment, at most once an interval.
    fn challenge(&mut self, now: Instant) {
        if self.challenged_at.is_none_or(|at| at + CHALLENGE_INTERVAL <= now) {
            self.challenged_at = Some(now);
            self.ack_due = true;
        }
    }

    /// RFC 9293 section 3.10.7.1: the reset has the number that the other end expects.
    fn handle_closed(&mut self, segment: &TcpSegment) {
        let answers = !segment.has(tcp_flags::RST);
        self.refusal_due = (answers && segment.has(tcp_flags::ACK)).then_some(segment.acknowledgement);
        self.reset_due = answers && !segment.has(tcp_flags::ACK);
    }

    fn handle_in_syn_sent(&mut self, now: Instant, segment: &TcpSegment) {
        let acknowledges = segment.has(tcp_flags::ACK)
            && segment.acknowledgement == self.initial_sequence.wrapping_add(1)
            && self.sender.highest > 0;
        if !acknowledges {
            if segment.has(tcp_flags::ACK) && !segment.has(tcp_flags::RST) {
                // RFC 9293 section 3.10.7.3: the other end holds an earlier connection, which this ends.
                self.refusal_due = Some(segment.acknowledgement);
            }
            return;
        }
        if segment.has(tcp_flags::RST) {
            self.note_reset();
        } else if segment.has(tcp_flags::SYN) {
            self.learn_syn(segment);
            self.sender.handle_ack(now, 1, false);
            self.state = State::Established;
            self.opened_at = now;
            self.ack_due = true;
        }
    }

    /// RFC 5961 section 3. The segment's acknowledgement counts: an end that resets after finishing confirms its data
    /// with it.
    fn handle_reset(&mut self, now: Instant, segment: &TcpSegment) {
        let offset = offset_near(self.received, segment.sequence.wrapping_sub(self.initial_sequence_theirs));
        if offset == self.received {
            if segment.has(tcp_flags::ACK) {
                self.handle_ack(now, segment);
            }
            self.note_reset();
        } else if offset > self.received && offset < self.received + u64::from(self.window.bytes) {
            self.challenge(now);
        }
    }

    fn note_reset(&mut self) {
        if !self.is_finished() && self.state != State::Closed {
            let transfer = self.transfer.as_ref().map_or(u32::MAX, |transfer| transfer.number);
            self.violations.push(Violation::Reset { transfer, got_bytes: self.received_bytes() });
        }
        self.state = State::Reset;
        self.sender.timer = None;
    }

    fn handle_ack(&mut self, now: Instant, segment: &TcpSegment) {
        let base = self.sender.unacknowledged;
        let offset = offset_near(base, segment.acknowledgement.wrapping_sub(self.initial_sequence));
        let window_bytes = u64::from(segment.window) << self.shift_theirs;
        let is_bare =
            segment.payload_bytes == 0 && !segment.has(tcp_flags::FIN) && window_bytes == self.sender.window_bytes;
        if offset >= base && offset <= self.sender.highest {
            self.sender.window_bytes = window_bytes;
        }
        self.sender.handle_ack(now, offset, is_bare);
        if self.state == State::SynReceived && self.sender.unacknowledged > 0 {
            self.state = State::Established;
            self.opened_at = now;
        }
    }

    fn take_data(&mut self, offset: u64, payload: &[u8], fin: bool) {
        let window_end = self.received + u64::from(self.window.bytes);
        if offset > window_end {
            return;
        }
        if fin {
            self.fin_at = Some(offset + payload.len() as u64);
        }
        if !payload.is_empty() && offset + payload.len() as u64 > self.received {
            if offset > self.received {
                if self.pending.len() < REASSEMBLY_SEGMENTS_MAX {
                    self.pending.entry(offset).or_insert_with(|| payload.to_vec());
                }
                return;
            }
            self.deliver(offset, payload);
            while let Some(first) = self.pending.first_entry().filter(|entry| *entry.key() <= self.received) {
                let (offset, bytes) = first.remove_entry();
                self.deliver(offset, &bytes);
            }
        }
        if self.fin_at == Some(self.received) {
            self.received += 1;
        }
    }

    fn deliver(&mut self, offset: u64, payload: &[u8]) {
        let Some(fresh) = payload.get((self.received - offset) as usize..).filter(|fresh| !fresh.is_empty()) else {
            return;
        };
        let at = self.received - 1;
        self.received += fresh.len() as u64;
        if self.way == StreamDirection::Down && self.header.len() < HEADER_BYTES {
            let room = HEADER_BYTES - self.header.len();
            self.header.extend_from_slice(&fresh[..fresh.len().min(room)]);
        }
        let number = match (&self.transfer, self.header.first_chunk()) {
            (Some(transfer), _) => Some(transfer.number),
            (None, Some(header)) => stream::transfer(*header),
            (None, None) => return,
        };
        let Some(number) = number else {
            self.violations.push(Violation::NoHeader);
            return;
        };
        let theirs = if self.way == StreamDirection::Up { StreamDirection::Down } else { StreamDirection::Up };
        if let Some(offset) = stream::first_wrong(number, theirs, at, fresh) {
            self.violations.push(Violation::WrongByte { transfer: number, offset });
        }
    }

    /// The number in the client's first bytes, from their arrival until [`Endpoint::recognise`] uses it.
    pub(crate) fn named_transfer(&self) -> Option<u32> {
        let header = self.header.first_chunk().filter(|_| self.transfer.is_none())?;
        stream::transfer(*header)
    }

    /// Assigns the data to send to a server end.
    pub(crate) fn recognise(&mut self, now: Instant, transfer: Transfer) {
        self.transfer = Some(transfer);
        self.opened_at = now;
    }

    fn move_on(&mut self) {
        if self.state != State::Established || !self.is_finished() {
            return;
        }
        let Some(transfer) = &self.transfer else { return };
        if transfer.closing == Closing::Reset && self.way == StreamDirection::Up {
            self.state = State::Reset;
            self.reset_due = true;
            self.sender.timer = None;
            return;
        }
        let (ours, theirs) = transfer.lengths(self.way);
        let both_fins = self.received > theirs + 1 && self.sender.unacknowledged > ours + 1;
        if both_fins {
            self.state = State::Closed;
            self.sender.timer = None;
        }
    }

    /// The offset behind the data that the application has written so far.
    fn available(&self, now: Instant) -> u64 {
        let Some(transfer) = self.transfer.as_ref().filter(|_| self.state == State::Established) else {
            return 1;
        };
        let (ours, _) = transfer.lengths(self.way);
        let elapsed = now.saturating_since(self.opened_at);
        let bursts = elapsed.as_nanos() / transfer.interval.as_nanos().max(1) + 1;
        let released = u64::try_from(bursts).unwrap_or(u64::MAX).saturating_mul(transfer.burst_bytes);
        1 + released.min(ours)
    }

    /// The offset behind the FIN, if it may be sent.
    fn fin_end(&self, available: u64) -> Option<u64> {
        let transfer = self.transfer.as_ref().filter(|_| self.state == State::Established)?;
        let (ours, theirs) = transfer.lengths(self.way);
        let may = match (transfer.closing, self.way) {
            (Closing::Reset, StreamDirection::Up) => false,
            (Closing::HalfClose, StreamDirection::Up) => true,
            (Closing::Fin, StreamDirection::Up) => self.received > theirs,
            (_, StreamDirection::Down) => self.received > theirs,
        };
        (may && available == ours + 1).then_some(ours + 2)
    }

    /// The time of the end point's next timeout.
    pub(crate) fn poll_timeout(&self, now: Instant) -> Option<Instant> {
        if self.ack_due || self.syn_due || self.reset_due {
            return Some(Instant::ZERO);
        }
        let more = self.transfer.as_ref().filter(|_| self.state == State::Established).and_then(|transfer| {
            let (ours, _) = transfer.lengths(self.way);
            let elapsed = now.saturating_since(self.opened_at).as_nanos();
            let interval = transfer.interval.as_nanos().max(1);
            let next = Duration::from_nanos(u64::try_from((elapsed / interval + 1) * interval).ok()?);
            (self.available(now) < ours + 1).then_some(self.opened_at + next)
        });
        [more, self.sender.timer].into_iter().flatten().min()
    }

    /// Appends the segments that are due.
    pub(crate) fn poll_transmit(&mut self, now: Instant, out: &mut Vec<OutSegment>) {
        let (received, before) = (self.received, out.len());
        self.poll_segments(now, out);
        if out.len() > before {
            self.last_acknowledged = received;
        }
    }

    fn poll_segments(&mut self, now: Instant, out: &mut Vec<OutSegment>) {
        if self.sender.timer.is_some_and(|at| at <= now) {
            self.sender.handle_timeout(now);
            self.syn_due = matches!(self.state, State::SynSent | State::SynReceived);
        }
        if std::mem::take(&mut self.reset_due) {
            out.push(self.segment(tcp_flags::RST | tcp_flags::ACK, self.sender.next, Vec::new()));
        }
        if let Some(sequence) = self.refusal_due.take() {
            // An end with received data acknowledges it, as in its first reset.
            let flags = if self.state == State::Reset && self.received > 1 { tcp_flags::ACK } else { 0 };
            let mut refusal = self.segment(tcp_flags::RST | flags, 0, Vec::new());
            refusal.header.sequence = sequence;
            out.push(refusal);
        }
        if std::mem::take(&mut self.syn_due) {
            self.send_syn(now, out);
        }
        if self.state == State::Established {
            self.send_data(now, out);
        }
        if std::mem::take(&mut self.ack_due) {
            // The next number is unused, also during retransmissions.
            out.push(self.segment(tcp_flags::ACK, self.sender.next.max(self.sender.highest), Vec::new()));
        }
    }

    fn send_syn(&mut self, now: Instant, out: &mut Vec<OutSegment>) {
        let flags = match self.state {
            State::SynSent => tcp_flags::SYN,
            State::SynReceived if now >= self.opened_at + HANDSHAKE_MAX => {
                (self.state, self.has_given_up) = (State::Reset, true);
                self.sender.timer = None;
                return;
            }
            State::SynReceived => tcp_flags::SYN | tcp_flags::ACK,
            State::Established | State::Closed | State::Reset => return,
        };
        let offers_scale = self.state == State::SynSent || self.shift_ours != 0 || self.shift_theirs != 0;
        let mut syn = self.segment(flags, 0, Vec::new());
        syn.header.window = self.window.bytes.min(u32::from(u16::MAX)) as u16;
        syn.header.window_scale = offers_scale.then_some(self.window.shift);
        syn.header.maximum_segment_bytes = Some(self.segment_bytes);
        self.sender.next = 1;
        self.sender.note_sent(now, 1);
        out.push(syn);
    }

    fn send_data(&mut self, now: Instant, out: &mut Vec<OutSegment>) {
        let available = self.available(now);
        let fin_end = self.fin_end(available);
        if std::mem::take(&mut self.sender.resend_first) {
            self.send_segment(now, self.sender.unacknowledged, available, fin_end, out);
        }
        for _ in 0..BURST_SEGMENTS_MAX {
            let data_end = available.min(self.sender.limit());
            let fin_is_next = fin_end.is_some_and(|end| self.sender.next + 1 == end);
            if self.sender.next >= data_end && !fin_is_next {
                break;
            }
            self.sender.next = self.send_segment(now, self.sender.next, data_end, fin_end, out);
        }
    }

    /// Sends one segment from `offset`; returns the offset behind it.
    fn send_segment(
        &mut self,
        now: Instant,
        offset: u64,
        data_end: u64,
        fin_end: Option<u64>,
        out: &mut Vec<OutSegment>,
    ) -> u64 {
        let Some(transfer) = &self.transfer else { return offset };
        let length = data_end.saturating_sub(offset).min(u64::from(self.segment_bytes));
        let mut payload = vec![0; length as usize];
        stream::fill(transfer.number, self.way, offset - 1, &mut payload);
        let mut end = offset + length;
        let mut flags = tcp_flags::ACK;
        if fin_end.is_some_and(|fin_end| end + 1 == fin_end) {
            flags |= tcp_flags::FIN;
            end += 1;
        }
        if end == offset {
            return offset;
        }
        out.push(self.segment(flags, offset, payload));
        self.ack_due = false;
        self.sender.note_sent(now, end);
        end
    }

    fn segment(&self, flags: u8, offset: u64, payload: Vec<u8>) -> OutSegment {
        let acknowledges = flags & tcp_flags::ACK != 0;
        let acknowledgement = self.initial_sequence_theirs.wrapping_add(self.received as u32);
        let header = build::Tcp {
            flags,
            sequence: self.initial_sequence.wrapping_add(offset as u32),
            acknowledgement: if acknowledges { acknowledgement } else { 0 },
            window: (self.window.bytes >> self.shift_ours).min(u32::from(u16::MAX)) as u16,
            ..build::Tcp::default()
        };
        OutSegment { header, payload }
    }
}

/// The offset of a 32-bit difference, near a known one.
fn offset_near(known: u64, difference: u32) -> u64 {
    let distance = difference.wrapping_sub(known as u32) as i32;
    known.saturating_add_signed(i64::from(distance))
}
