//! The sending half of a TCP end point: RFC 9293 section 3.8, RFC 6298 (timeouts), RFC 5681 and RFC 6582 (congestion,
//! fast retransmission). Offsets count the SYN as 0 and the first byte of data as 1.

use std::time::Duration;

use flow::Instant;

/// The timeout before the round trip is known (RFC 6298 section 2.1).
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Linux's `TCP_RTO_MIN`.
const RTO_MIN: Duration = Duration::from_millis(200);
/// Far below RFC 6298's minute: a run is short, and a longer stall would look like a loss.
const RTO_MAX: Duration = Duration::from_secs(4);
/// Segments that may be sent before the first acknowledgement (RFC 6928).
const INITIAL_WINDOW_SEGMENTS: u64 = 10;

/// Sent and acknowledged data.
#[derive(Debug)]
pub(super) struct Sender {
    pub(super) unacknowledged: u64,
    pub(super) next: u64,
    /// The offset behind all data ever sent.
    pub(super) highest: u64,
    /// The other side's window, in bytes from `unacknowledged` on.
    pub(super) window_bytes: u64,
    segment_bytes: u64,
    congestion_window: u64,
    slow_start_threshold: u64,
    duplicates: u32,
    /// The offset whose acknowledgement ends fast recovery.
    recover: Option<u64>,
    pub(super) resend_first: bool,
    smoothed: Option<(Duration, Duration)>,
    timeout: Duration,
    /// An offset whose acknowledgement measures the round trip, and its sending time.
    timed: Option<(u64, Instant)>,
    pub(super) timer: Option<Instant>,
}

impl Sender {
    pub(super) const fn new(segment_bytes: u16) -> Self {
        Self {
            unacknowledged: 0,
            next: 0,
            highest: 0,
            window_bytes: 1,
            segment_bytes: segment_bytes as u64,
            congestion_window: INITIAL_WINDOW_SEGMENTS * segment_bytes as u64,
            slow_start_threshold: u64::MAX,
            duplicates: 0,
            recover: None,
            resend_first: false,
            smoothed: None,
            timeout: RTO_INITIAL,
            timed: None,
            timer: None,
        }
    }

    /// The offset up to which the windows permit data.
    pub(super) fn limit(&self) -> u64 {
        self.unacknowledged + self.window_bytes.min(self.congestion_window)
    }

    /// Data that ends before offset `end` was sent.
    pub(super) fn note_sent(&mut self, now: Instant, end: u64) {
        if end > self.highest {
            self.timed = self.timed.or(Some((end, now)));
        } else {
            // Retransmissions cannot measure the round trip (Karn).
            self.timed = None;
        }
        self.highest = self.highest.max(end);
        self.timer = self.timer.or(Some(now + self.timeout));
    }

    /// An acknowledgement of everything before `offset`; `is_bare` if it carried neither data nor a new window.
    pub(super) fn handle_ack(&mut self, now: Instant, offset: u64, is_bare: bool) {
        if offset > self.highest {
            return;
        }
        if offset > self.unacknowledged {
            self.handle_new_ack(now, offset);
        } else if offset == self.unacknowledged && is_bare && self.highest > self.unacknowledged {
            self.duplicates += 1;
            if self.duplicates == 3 && self.recover.is_none() {
                self.slow_start_threshold = self.half_flight();
                self.congestion_window = self.slow_start_threshold;
                self.recover = Some(self.highest);
                self.resend_first = true;
            }
        }
    }

    fn handle_new_ack(&mut self, now: Instant, offset: u64) {
        if let Some((end, sent_at)) = self.timed.filter(|(end, _)| *end <= offset) {
            let _ = end;
            self.note_round_trip(now.saturating_since(sent_at));
            self.timed = None;
        }
        let acknowledged = offset - self.unacknowledged;
        self.unacknowledged = offset;
        self.next = self.next.max(offset);
        self.duplicates = 0;
        match self.recover {
            Some(recover) if offset < recover => self.resend_first = true,
            Some(_) => self.recover = None,
            None if self.congestion_window < self.slow_start_threshold => {
                self.congestion_window += acknowledged.min(2 * self.segment_bytes);
            }
            None => {
                self.congestion_window += (self.segment_bytes * self.segment_bytes / self.congestion_window).max(1);
            }
        }
        self.timer = (self.highest > offset).then(|| now + self.timeout);
    }

    fn note_round_trip(&mut self, sample: Duration) {
        let (mean, variation) = match self.smoothed {
            None => (sample, sample / 2),
            Some((mean, variation)) => (mean * 7 / 8 + sample / 8, variation * 3 / 4 + mean.abs_diff(sample) / 4),
        };
        self.smoothed = Some((mean, variation));
        self.timeout = (mean + variation * 4).clamp(RTO_MIN, RTO_MAX);
    }

    fn half_flight(&self) -> u64 {
        ((self.highest - self.unacknowledged) / 2).max(2 * self.segment_bytes)
    }

    /// Retransmission timeout: everything is sent again from the first unacknowledged byte on, in slow start.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.slow_start_threshold = self.half_flight();
        self.congestion_window = self.segment_bytes;
        self.recover = None;
        self.duplicates = 0;
        self.timed = None;
        self.next = self.unacknowledged;
        self.timeout = (self.timeout * 2).min(RTO_MAX);
        self.timer = Some(now + self.timeout);
    }
}
