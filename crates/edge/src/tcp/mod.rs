//! What an edge knows of a TCP connection: enough to hold a segment, to measure the round trip, and to read windows.
//!
//! An edge drops no segment. But packets of the near side arrive unchecked, and anyone can forge them. So a segment changes the
//! state only if it fits the numbers that both ends have used:
//!
//! - It ends within the window that was advertised to its sender.
//! - It acknowledges nothing that the other end has not sent.
//! - A SYN begins a connection only where none is open.
//!
//! Packets of the far side have passed a node, which checks them. A SYN/ACK from there that contradicts the state replaces it.

mod below;
mod round_trip;
#[cfg(test)]
mod tests;

use core::time::Duration;

use flow::serial::{is_after, is_before, later};
use flow::wire::tcp::WINDOW_SCALE_MAX;
use flow::wire::{TcpSegment, tcp_flags};

use round_trip::RoundTrip;

/// The largest window that TCP can advertise, in bytes (RFC 7323 section 2.3).
pub(crate) const WINDOW_BYTES_MAX: u32 = (u16::MAX as u32) << WINDOW_SCALE_MAX;
/// The window of a connection whose first acknowledgement has not passed yet, in bytes.
const WINDOW_BYTES_FIRST: u32 = u16::MAX as u32;
/// The shortest retransmission timeout that senders use: Linux's. RFC 6298 asks for a second.
const RETRANSMISSION_TIMEOUT_MIN: Duration = Duration::from_millis(200);
/// The retransmission timeout before the first sample (RFC 6298 section 2).
const RETRANSMISSION_TIMEOUT_FIRST: Duration = Duration::from_secs(1);
/// The maximum segment size of a sender that was given none, in bytes (RFC 9293 section 3.7.1).
const SEGMENT_BYTES_DEFAULT: u16 = 536;

/// The end point that a segment comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The host on this edge's side: its segments enter the cluster here.
    Near = 0,
    /// The host on the other side: its segments leave the cluster here.
    Far = 1,
}

mod flag {
    /// Its numbers are known.
    pub(super) const KNOWN: u8 = 1;
    /// Its SYN was seen.
    pub(super) const SYN: u8 = 2;
    /// Its FIN was seen, which is the last of what it has sent.
    pub(super) const FIN: u8 = 4;
    /// Its SYN permitted SACK, or it has sent SACK blocks.
    pub(super) const SACK: u8 = 8;
    /// Its SYN had a window scale.
    pub(super) const SCALED: u8 = 16;
    /// It has retransmitted since data of it was last acknowledged.
    pub(super) const RETRANSMITTED: u8 = 32;
    /// A valid segment of it was seen.
    pub(super) const SEEN: u8 = 64;
    /// The connection is closed. A flag of the near end stands for both.
    pub(super) const CLOSED: u8 = 128;
}

/// One end point as a sender.
#[derive(Clone, Copy, Debug)]
struct Sender {
    /// The lowest number that is not acknowledged (SND.UNA).
    unacknowledged: u32,
    /// The number behind the highest that it has sent (SND.NXT).
    next: u32,
    /// The number behind the last that it may send: the highest right edge of a window that was advertised to it.
    edge: u32,
    round_trip: RoundTrip,
    /// The largest payload that its peer accepts, in bytes; 0: unknown.
    segment_bytes_max: u16,
    flags: u8,
    /// The shift of the windows that it advertises.
    scale: u8,
}

impl Sender {
    const NEW: Self = Self {
        unacknowledged: 0,
        next: 0,
        edge: 0,
        round_trip: RoundTrip::NEW,
        segment_bytes_max: 0,
        flags: 0,
        scale: 0,
    };

    const fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Begins with `first` as the next number.
    const fn begin(&mut self, first: u32, window_bytes: u32) {
        self.unacknowledged = first;
        self.next = first;
        self.edge = first.wrapping_add(window_bytes);
        self.flags |= flag::KNOWN;
    }

    /// Whether a segment is near the numbers in use: it ends within the window, and is no older than a window.
    const fn is_near(&self, segment: &TcpSegment) -> bool {
        let oldest = self.unacknowledged.wrapping_sub(WINDOW_BYTES_MAX);
        let ends_before_fin = !self.has(flag::FIN) || !is_after(segment.end(), self.next);
        !is_before(segment.sequence, oldest) && !is_after(segment.end(), self.edge) && ends_before_fin
    }

    /// Whether an acknowledgement is of something that was sent.
    const fn has_sent(&self, acknowledgement: u32) -> bool {
        let oldest = self.unacknowledged.wrapping_sub(WINDOW_BYTES_MAX);
        !is_after(acknowledgement, self.next) && !is_before(acknowledgement, oldest)
    }

    const fn is_finished(&self) -> bool {
        self.has(flag::FIN) && self.unacknowledged == self.next
    }
}

/// What a segment means for the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Observed {
    /// It carries data, SYN or FIN that are within the window and not acknowledged.
    pub(crate) has_unacknowledged: bool,
    /// Bytes of the other end that it acknowledges and no earlier segment did.
    pub(crate) acknowledged_bytes: u32,
    /// It begins another connection than the one before.
    pub(crate) is_reopened: bool,
}

/// The state of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpConnection {
    ends: [Sender; 2],
    /// When data of the near end was last acknowledged, or sent with nothing else unacknowledged.
    progress_at_us: u32,
}

impl TcpConnection {
    pub(crate) const NEW: Self = Self { ends: [Sender::NEW; 2], progress_at_us: 0 };

    /// Observes a segment that passes. The window field must be the one that its receiver gets.
    pub(crate) fn observe(
        &mut self,
        now_us: u32,
        from: End,
        segment: &TcpSegment,
        timestamps: Option<(u32, u32)>,
    ) -> Observed {
        if segment.has(tcp_flags::RST) {
            if self.is_valid_reset(from, segment) {
                self.set_closed();
            }
            return Observed::default();
        }
        let mut observed = Observed::default();
        if segment.has(tcp_flags::SYN) && self.is_closed() && !segment.has(tcp_flags::ACK) {
            *self = Self::NEW;
            observed.is_reopened = true;
        }
        let is_valid = if !segment.has(tcp_flags::SYN) {
            self.pick_up(from, segment)
        } else if self.is_contradicted(from, segment) {
            observed.is_reopened = true;
            self.replace(from, segment);
            true
        } else {
            self.begin(from, segment)
        };
        if self.is_closed() || !is_valid {
            return observed;
        }
        self.ends[from as usize].flags |= flag::SEEN;
        if segment.has(tcp_flags::ACK) {
            observed.acknowledged_bytes = self.acknowledge(now_us, from, segment, timestamps.map(|(_, echo)| echo));
        }
        observed.has_unacknowledged = self.send(now_us, from, segment, timestamps.map(|(value, _)| value));
        if self.ends.iter().all(Sender::is_finished) {
            self.set_closed();
        }
        observed
    }

    /// A reset is valid within its sender's window, or if it refuses the other end's SYN (RFC 9293 section 3.5.2).
    fn is_valid_reset(&self, from: End, segment: &TcpSegment) -> bool {
        let (sender, receiver) = (&self.ends[from as usize], &self.ends[1 - from as usize]);
        if !sender.has(flag::KNOWN) {
            return receiver.has(flag::SYN) && segment.has(tcp_flags::ACK) && segment.acknowledgement == receiver.next;
        }
        !is_before(segment.sequence, sender.unacknowledged) && !is_after(segment.sequence, sender.edge)
    }

    /// A SYN: the sender's numbers begin, unless that contradicts what is known. Returns whether the segment is valid.
    const fn begin(&mut self, from: End, segment: &TcpSegment) -> bool {
        let fits = self.fits_begin(from, segment);
        if fits {
            self.note_begin(from, segment);
        }
        fits
    }

    /// Whether a SYN/ACK that a node let pass is of another connection than the state. An old one is not.
    const fn is_contradicted(&self, from: End, segment: &TcpSegment) -> bool {
        let (sender, receiver) = (&self.ends[from as usize], &self.ends[1 - from as usize]);
        let is_old = sender.has(flag::SYN) && sender.is_near(segment) && receiver.has_sent(segment.acknowledgement);
        matches!(from, End::Far) && segment.has(tcp_flags::ACK) && !is_old && !self.fits_begin(from, segment)
    }

    /// The state becomes that of the connection which this SYN/ACK begins. The SYN of the near end is unknown.
    const fn replace(&mut self, from: End, segment: &TcpSegment) {
        *self = Self::NEW;
        self.note_begin(from, segment);
    }

    /// Whether a SYN is the first of its sender or its retransmission, and acknowledges the SYN of the other end if any.
    const fn fits_begin(&self, from: End, segment: &TcpSegment) -> bool {
        let (sender, receiver) = (&self.ends[from as usize], &self.ends[1 - from as usize]);
        let is_first = !sender.has(flag::KNOWN);
        let is_same = sender.has(flag::SYN) && sender.unacknowledged == segment.sequence;
        let fits_other = match (segment.has(tcp_flags::ACK), receiver.has(flag::KNOWN)) {
            (true, true) => {
                let acknowledgement = segment.acknowledgement;
                is_after(acknowledgement, receiver.unacknowledged) && !is_after(acknowledgement, receiver.next)
            }
            (true, false) => matches!(from, End::Far),
            // The SYN of a simultaneous open.
            (false, true) => receiver.has(flag::SYN),
            (false, false) => true,
        };
        (is_first || is_same) && fits_other
    }

    const fn note_begin(&mut self, from: End, segment: &TcpSegment) {
        let (sender, receiver) = (from as usize, 1 - from as usize);
        if segment.has(tcp_flags::ACK) && !self.ends[receiver].has(flag::KNOWN) {
            self.ends[receiver].begin(segment.acknowledgement, WINDOW_BYTES_FIRST);
        }
        self.ends[receiver].segment_bytes_max = match segment.maximum_segment_bytes {
            Some(bytes) => bytes,
            None => SEGMENT_BYTES_DEFAULT,
        };
        let sender = &mut self.ends[sender];
        if !sender.has(flag::KNOWN) {
            sender.begin(segment.sequence, segment.payload_bytes.saturating_add(1 + WINDOW_BYTES_FIRST));
            sender.flags |= flag::SYN;
            if segment.sack_permitted {
                sender.flags |= flag::SACK;
            }
            if let Some(shift) = segment.window_scale {
                sender.flags |= flag::SCALED;
                sender.scale = shift;
            }
        }
    }

    /// A segment without SYN: a connection whose SYN was not seen begins with it. Returns whether the segment is valid.
    fn pick_up(&mut self, from: End, segment: &TcpSegment) -> bool {
        let (sender, receiver) = (from as usize, 1 - from as usize);
        if !self.ends[sender].has(flag::KNOWN) {
            // The answer to a SYN is a SYN.
            if self.ends[receiver].has(flag::SYN) {
                return false;
            }
            self.ends[sender].begin(segment.sequence, WINDOW_BYTES_MAX);
        }
        if segment.has(tcp_flags::ACK) && !self.ends[receiver].has(flag::KNOWN) {
            self.ends[receiver].begin(segment.acknowledgement, WINDOW_BYTES_MAX);
        }
        let acknowledges_sent = !segment.has(tcp_flags::ACK) || self.ends[receiver].has_sent(segment.acknowledgement);
        self.ends[sender].is_near(segment) && acknowledges_sent
    }

    /// Advances the other end's numbers. Returns the newly acknowledged bytes.
    fn acknowledge(&mut self, now_us: u32, from: End, segment: &TcpSegment, echo: Option<u32>) -> u32 {
        let shift = if segment.has(tcp_flags::SYN) { Some(0) } else { self.window_shift(from) };
        let acknowledgement = segment.acknowledgement;
        if segment.sack_end != acknowledgement {
            self.ends[from as usize].flags |= flag::SACK;
        }
        let receiver = &mut self.ends[1 - from as usize];
        let window_bytes = u32::from(segment.window) << shift.unwrap_or(WINDOW_SCALE_MAX);
        let edge = acknowledgement.wrapping_add(window_bytes);
        receiver.edge = if segment.has(tcp_flags::SYN) { edge } else { later(receiver.edge, edge) };
        if !is_after(acknowledgement, receiver.unacknowledged) {
            return 0;
        }
        let bytes = acknowledgement.wrapping_sub(receiver.unacknowledged);
        receiver.unacknowledged = acknowledgement;
        receiver.flags &= !flag::RETRANSMITTED;
        receiver.round_trip.on_acknowledgement(now_us, acknowledgement, echo);
        if from == End::Far {
            self.progress_at_us = now_us;
        }
        bytes
    }

    /// Advances the sender's own numbers. Returns whether the segment carries something that is not acknowledged.
    fn send(&mut self, now_us: u32, from: End, segment: &TcpSegment, timestamp: Option<u32>) -> bool {
        let sender = &mut self.ends[from as usize];
        let end = segment.end();
        let is_early_fin = segment.has(tcp_flags::FIN) && is_before(end, sender.next);
        if end == segment.sequence || !is_after(end, sender.unacknowledged) || is_early_fin {
            return false;
        }
        let is_retransmission = is_before(segment.sequence, sender.next);
        if is_retransmission {
            sender.flags |= flag::RETRANSMITTED;
        }
        let was_idle = sender.unacknowledged == sender.next;
        sender.next = later(sender.next, end);
        if segment.has(tcp_flags::FIN) {
            sender.flags |= flag::FIN;
        }
        sender.round_trip.on_segment(now_us, end, timestamp, is_retransmission);
        if from == End::Near && was_idle {
            self.progress_at_us = now_us;
        }
        true
    }

    /// The shift of the windows that an end point advertises. `None`: a SYN was not seen, so it is unknown.
    pub(crate) const fn window_shift(&self, of: End) -> Option<u8> {
        let [near, far] = &self.ends;
        if !near.has(flag::SYN) || !far.has(flag::SYN) {
            None
        } else if near.has(flag::SCALED) && far.has(flag::SCALED) {
            Some(self.ends[of as usize].scale)
        } else {
            Some(0)
        }
    }

    /// Both ends have closed and acknowledged it, or one has reset the connection.
    pub(crate) const fn is_closed(&self) -> bool {
        self.ends[End::Near as usize].has(flag::CLOSED)
    }

    const fn set_closed(&mut self) {
        self.ends[End::Near as usize].flags |= flag::CLOSED;
    }

    /// The handshake is not complete, or only one end has sent segments.
    pub(crate) const fn is_in_handshake(&self) -> bool {
        let [near, far] = &self.ends;
        !near.has(flag::SEEN) || !far.has(flag::SEEN)
    }

    /// Whether a segment of the far end fits the numbers that both ends have used. If data passed unseen, none does.
    pub(crate) const fn is_valid_from_far(&self, segment: &TcpSegment) -> bool {
        let [near, far] = &self.ends;
        far.has(flag::KNOWN) && far.is_near(segment) && near.has_sent(segment.acknowledgement)
    }

    /// The near end's lowest number that is not acknowledged.
    pub(crate) const fn near_unacknowledged(&self) -> u32 {
        self.ends[End::Near as usize].unacknowledged
    }

    /// The number behind the highest that the near end has sent.
    pub(crate) const fn near_next(&self) -> u32 {
        self.ends[End::Near as usize].next
    }

    /// The near end has sent something that is not acknowledged.
    pub(crate) const fn near_is_waiting(&self) -> bool {
        let near = &self.ends[End::Near as usize];
        near.unacknowledged != near.next
    }

    /// The number behind the highest that the far end has sent.
    pub(crate) const fn far_next(&self) -> u32 {
        self.ends[End::Far as usize].next
    }

    /// The largest payload of the near end's segments, in bytes. Unknown sizes count as the default.
    pub(crate) const fn near_segment_bytes_max(&self) -> u16 {
        match self.ends[End::Near as usize].segment_bytes_max {
            0 => SEGMENT_BYTES_DEFAULT,
            bytes => bytes,
        }
    }

    /// It is certain that the connection does not use SACK: both SYNs were seen, and not both permitted it.
    pub(crate) const fn is_without_sack(&self) -> bool {
        let [near, far] = &self.ends;
        near.has(flag::SYN) && far.has(flag::SYN) && !(near.has(flag::SACK) && far.has(flag::SACK))
    }

    /// The lowest round trip of the end points, in microseconds. `None` before the first sample.
    pub(crate) fn least_round_trip_us(&self) -> Option<u32> {
        self.ends.iter().filter_map(|end| end.round_trip.least_us()).reduce(u32::saturating_add)
    }

    /// The sum of the parts on both sides of this edge; a part without a sample counts as zero.
    fn estimate_us(&self) -> Option<(u32, u32)> {
        let parts = self.ends.iter().filter_map(|end| end.round_trip.estimate_us());
        parts.reduce(|one, other| (one.0.saturating_add(other.0), one.1.saturating_add(other.1)))
    }

    /// Whether the near end's first retransmission timeout since its last progress is over, or it has retransmitted already.
    pub(crate) fn near_has_timed_out(&self, now_us: u32) -> bool {
        let timeout = self.estimate_us().map_or(RETRANSMISSION_TIMEOUT_FIRST, |(smoothed, variation)| {
            let timeout_us = u64::from(smoothed) + 4 * u64::from(variation);
            Duration::from_micros(timeout_us).max(RETRANSMISSION_TIMEOUT_MIN)
        });
        let waited = Duration::from_micros(now_us.wrapping_sub(self.progress_at_us).into());
        self.ends[End::Near as usize].has(flag::RETRANSMITTED) || waited >= timeout
    }
}
