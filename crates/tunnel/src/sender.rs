//! The sending end of a session's stream: gathers records into datagrams, keeps those until they are acknowledged, and
//! retransmits those that were lost, within bounds of time and share.
//!
//! Losses are recovered here so that end points' TCP does not take them for congestion. So that real congestion still shows,
//! retransmissions are limited to a share of what is sent; a loss beyond it stays a loss. A datagram is retransmitted under its old
//! number, because its number is its place in the stream. Where the rate of the path is known,
//! datagrams leave at that rate, and what would have to wait too long is refused.
//!
//! What encoding saved pays for copies: on a path that has lost something of late, each datagram is followed by a copy, a
//! moment later, so that most losses cost no round trip. Copies never double the traffic, and all else is sent before
//! them.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use flow::Instant;
use replication::loss_recovery::RttEstimator;

use super::datagram::{DATA_HEADER_BYTES, Datagram};
use super::limits::{
    ACK_DELAY, BACKLOG_BYTES_MAX, BACKLOG_MAX, COPIES_AFTER_LOSS, COPY_AFTER, COPY_BYTES_MAX, KEPT_DATAGRAMS_MAX,
    MARKS_MAX, PLAIN_BYTES_MIN, RECOVERY_BYTES_MAX, SILENCE_MAX,
};

/// The round trip that is assumed until one was measured.
const ROUND_TRIP_FIRST: Duration = Duration::from_millis(100);

/// How a stream is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SenderConfig {
    /// Records wait so long for others to share a datagram with.
    pub gather: Duration,
    /// A lost datagram is retransmitted within this time of its first transmission.
    pub recover_within: Duration,
    /// Bytes that may be retransmitted for each thousand that are sent.
    pub recovery_per_mille: u16,
    /// Bytes of copies for each thousand that encoding saved; zero: no copies.
    pub copies_per_mille: u16,
    /// The path's rate, if it is known.
    pub bits_per_second: Option<u64>,
}

/// What a sender did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SenderCounters {
    /// Datagrams sent, retransmissions included.
    pub datagrams: u64,
    /// Datagrams retransmitted.
    pub datagrams_retransmitted: u64,
    /// Copies of datagrams sent, in case that the first is lost.
    pub datagrams_copied: u64,
    /// Datagrams that were lost for good: their time was over, or the share for retransmissions was used up.
    pub datagrams_given_up: u64,
}

#[derive(Clone, Debug, Default)]
struct Kept {
    body: Vec<u8>,
    first_record: Option<u16>,
    first_sent_at: Instant,
    last_sent_at: Instant,
    /// How often it was sent, copies not counted.
    sent: u32,
    /// A copy follows, or has followed.
    is_copied: bool,
    /// Acknowledged or given up: it only waits for those before it.
    is_done: bool,
}

/// A record whose arrival somebody wants to know of.
#[derive(Clone, Copy, Debug)]
struct Mark {
    token: u64,
    /// The datagrams that it lies in.
    first: u64,
    last: u64,
    /// How many of them are not acknowledged.
    waiting: u64,
}

/// The sending end.
#[derive(Clone, Debug)]
pub(super) struct Sender {
    config: SenderConfig,
    /// Bytes around a datagram that count for the path's rate.
    envelope_bytes: u64,
    body_bytes_max: usize,
    /// The record that is gathered into the datagram that comes next.
    gathering: Vec<u8>,
    gathering_first: Option<u16>,
    gathering_due: Option<Instant>,
    /// From number `base` on.
    kept: VecDeque<Kept>,
    base: u64,
    /// Numbers that were not sent yet begin here.
    unsent: u64,
    unsent_bytes: usize,
    retransmit_queue: VecDeque<u64>,
    recovery_bytes: u64,
    /// What is to be sent once more, by when, in rising order.
    copies: VecDeque<(Instant, u64)>,
    copy_bytes: u64,
    /// When the last loss was reported.
    lost_at: Option<Instant>,
    marks: Vec<Mark>,
    settled: VecDeque<(u64, bool)>,
    closed_at: Instant,
    may_send_at: Instant,
    rtt: RttEstimator,
    /// When the first datagram was sent since the last acknowledgement.
    unanswered_since: Option<Instant>,
    probe_at: Option<Instant>,
    probes: u32,
    counters: SenderCounters,
}

impl Sender {
    /// The sending end of a session that begins now, with so many bytes around each datagram.
    #[must_use]
    pub(super) fn new(config: SenderConfig, envelope_bytes: u16) -> Self {
        Self {
            config,
            envelope_bytes: envelope_bytes.into(),
            body_bytes_max: usize::from(PLAIN_BYTES_MIN) - DATA_HEADER_BYTES,
            gathering: Vec::new(),
            gathering_first: None,
            gathering_due: None,
            kept: VecDeque::new(),
            base: 0,
            unsent: 0,
            unsent_bytes: 0,
            retransmit_queue: VecDeque::new(),
            recovery_bytes: RECOVERY_BYTES_MAX / 4,
            copies: VecDeque::new(),
            copy_bytes: 0,
            lost_at: None,
            marks: Vec::new(),
            settled: VecDeque::new(),
            closed_at: Instant::ZERO,
            may_send_at: Instant::ZERO,
            rtt: RttEstimator::default(),
            unanswered_since: None,
            probe_at: None,
            probes: 0,
            counters: SenderCounters::default(),
        }
    }

    /// From the next datagram on, at most so many bytes each, from behind the UDP header on.
    pub(super) fn set_datagram_bytes_max(&mut self, bytes: u16) {
        self.body_bytes_max = usize::from(bytes.max(PLAIN_BYTES_MIN)) - DATA_HEADER_BYTES;
    }

    /// Whether there is room for more packets now. Messages between the two ends are not refused.
    #[must_use]
    pub(super) fn has_room(&self) -> bool {
        let waiting = self.unsent_bytes + self.gathering.len();
        let room = self.config.bits_per_second.map_or(BACKLOG_BYTES_MAX, |rate| {
            let bytes = u128::from(rate / 8) * BACKLOG_MAX.as_millis() / 1000;
            // One large packet always fits.
            usize::try_from(bytes).unwrap_or(BACKLOG_BYTES_MAX).clamp(1 << 16, BACKLOG_BYTES_MAX)
        });
        waiting < room
    }

    /// Encoding made so many bytes less of a packet: a share of them may be spent on copies.
    pub(super) fn note_saved(&mut self, bytes: usize) {
        let earned = bytes as u64 * u64::from(self.config.copies_per_mille) / 1000;
        self.copy_bytes = (self.copy_bytes + earned).min(COPY_BYTES_MAX);
    }

    /// Adds a record whose arrival [`Sender::poll_mark`] reports with each of these tokens. Tokens beyond the limit are
    /// reported as lost at once.
    pub(super) fn push_marked(&mut self, now: Instant, record: &[u8], tokens: impl IntoIterator<Item = u64>) {
        let next = |sender: &Self| sender.base + sender.kept.len() as u64;
        let first = next(self);
        self.push(now, record);
        // If the last byte closed a datagram, the next one holds nothing of it.
        let last = if self.gathering.is_empty() { next(self) - 1 } else { next(self) };
        for token in tokens {
            if self.marks.len() < MARKS_MAX {
                self.marks.push(Mark { token, first, last, waiting: last + 1 - first });
            } else {
                self.settled.push_back((token, false));
            }
        }
    }

    /// Of a record that was marked: its token, and whether it has arrived. If not, it was lost for good.
    pub(super) fn poll_mark(&mut self) -> Option<(u64, bool)> {
        self.settled.pop_front()
    }

    /// A datagram was acknowledged or given up.
    fn settle(&mut self, number: u64, has_arrived: bool) {
        let settled = &mut self.settled;
        self.marks.retain_mut(|mark| {
            if !(mark.first..=mark.last).contains(&number) {
                return true;
            }
            mark.waiting -= 1;
            let is_settled = !has_arrived || mark.waiting == 0;
            if is_settled {
                settled.push_back((mark.token, has_arrived));
            }
            !is_settled
        });
    }

    /// Adds a record, as [`super::record::Record::write`] writes it.
    pub(super) fn push(&mut self, now: Instant, record: &[u8]) {
        if self.gathering_first.is_none() {
            // A datagram is closed as soon as it is full, so that there is room for a byte at least.
            self.gathering_first = u16::try_from(self.gathering.len()).ok();
        }
        // Where nothing was sent of late, nothing waits: company is only worth a wait where there is some.
        self.gathering_due.get_or_insert(now.max(self.closed_at + self.config.gather));
        let mut rest = record;
        while !rest.is_empty() {
            let room = self.body_bytes_max.saturating_sub(self.gathering.len()).max(1);
            let (part, after) = rest.split_at(room.min(rest.len()));
            self.gathering.extend_from_slice(part);
            rest = after;
            if self.gathering.len() >= self.body_bytes_max {
                self.close(now);
                // What is left of the record waits for company, too.
                self.gathering_due = (!rest.is_empty()).then(|| now + self.config.gather);
            }
        }
    }

    fn close(&mut self, now: Instant) {
        if self.kept.len() >= KEPT_DATAGRAMS_MAX {
            self.give_up_at(0);
            self.drop_done();
        }
        let body = core::mem::take(&mut self.gathering);
        self.unsent_bytes += body.len();
        let first_record = self.gathering_first.take();
        (self.gathering_due, self.closed_at) = (None, now);
        self.kept.push_back(Kept { body, first_record, ..Kept::default() });
    }

    /// An acknowledgement came.
    pub(super) fn handle_ack(&mut self, now: Instant, next: u64, end: u64, missing: &[Range<u64>]) {
        if next > self.unsent || end > self.unsent {
            return;
        }
        self.unanswered_since = None;
        let mut newest = None;
        let mut has_news = false;
        let is_missing = |number: u64| missing.iter().any(|range| range.contains(&number));
        for number in self.base..end {
            let Some(kept) = self.kept.get_mut((number - self.base) as usize) else { break };
            if kept.is_done || is_missing(number) {
                continue;
            }
            if kept.sent == 1 {
                newest = Some(kept.first_sent_at);
            }
            (kept.is_done, kept.body) = (true, Vec::new());
            has_news = true;
            self.settle(number, true);
        }
        if let Some(sent_at) = newest {
            self.rtt.on_sample(now.saturating_since(sent_at));
        }
        self.retransmit_missing(now, missing);
        if has_news {
            (self.probes, self.probe_at) = (0, None);
        }
        self.drop_done();
        self.set_probe(now);
    }

    /// Retransmits what is reported missing, unless a retransmission or a copy of it is in flight.
    fn retransmit_missing(&mut self, now: Instant, missing: &[Range<u64>]) {
        // The other end cannot acknowledge more than was sent.
        let (base, unsent) = (self.base, self.unsent);
        for number in missing.iter().flat_map(|range| range.start.max(base)..range.end.min(unsent)) {
            let Some(index) = number.checked_sub(self.base).map(|index| index as usize) else { continue };
            let Some(kept) = self.kept.get(index).filter(|kept| !kept.is_done && kept.sent > 0) else { continue };
            self.lost_at = Some(now);
            // A copy leaves so soon that whatever is said to be missing then was said without knowing of it.
            let patience = self.assumed_round_trip() + if kept.sent > 1 { ACK_DELAY * 2 } else { Duration::ZERO };
            let is_repeated = kept.sent > 1 || kept.is_copied;
            let is_in_flight = is_repeated && now.saturating_since(kept.last_sent_at) < patience;
            if !is_in_flight && !self.retransmit_queue.contains(&number) {
                self.retransmit(now, number);
            }
        }
    }

    /// Queues the datagram for retransmission, or gives it up.
    fn retransmit(&mut self, now: Instant, number: u64) {
        let index = (number - self.base) as usize;
        let Some(kept) = self.kept.get(index) else { return };
        let bytes = kept.body.len() as u64;
        let is_in_time = now.saturating_since(kept.first_sent_at) < self.config.recover_within;
        if is_in_time && self.recovery_bytes >= bytes {
            self.recovery_bytes -= bytes;
            self.retransmit_queue.push_back(number);
        } else {
            self.give_up_at(index);
        }
    }

    fn give_up_at(&mut self, index: usize) {
        let Some(kept) = self.kept.get_mut(index).filter(|kept| !kept.is_done) else { return };
        if kept.sent == 0 {
            self.unsent_bytes -= kept.body.len();
        }
        (kept.is_done, kept.body) = (true, Vec::new());
        self.counters.datagrams_given_up += 1;
        self.settle(self.base + index as u64, false);
    }

    fn drop_done(&mut self) {
        while self.kept.front().is_some_and(|kept| kept.is_done) {
            self.kept.pop_front();
            self.base += 1;
        }
        self.unsent = self.unsent.max(self.base);
    }

    fn assumed_round_trip(&self) -> Duration {
        self.rtt.smoothed().unwrap_or(ROUND_TRIP_FIRST)
    }

    /// No later datagram shows that the last ones were lost. So the very last one is retransmitted as a probe: its acknowledgement shows it.
    fn set_probe(&mut self, now: Instant) {
        let is_waiting = self.kept.iter().take((self.unsent - self.base) as usize).any(|kept| !kept.is_done);
        let pause = (self.assumed_round_trip() * 3 / 2 + ACK_DELAY * 3) * (1 << self.probes.min(4));
        self.probe_at = is_waiting.then(|| self.probe_at.unwrap_or(now + pause));
    }

    /// Does what is due.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.gathering_due.is_some_and(|due| due <= now) {
            self.close(now);
        }
        let sent = (self.unsent - self.base) as usize;
        for index in 0..sent {
            let Some(kept) = self.kept.get(index) else { break };
            if !kept.is_done && now.saturating_since(kept.first_sent_at) > self.config.recover_within {
                self.give_up_at(index);
            } else if !kept.is_done {
                break;
            }
        }
        self.drop_done();
        if self.probe_at.is_some_and(|at| at <= now) {
            self.probe_at = None;
            self.probes += 1;
            let last = self.kept.iter().take((self.unsent - self.base) as usize).rposition(|kept| !kept.is_done);
            if let Some(last) = last {
                let number = self.base + last as u64;
                if !self.retransmit_queue.contains(&number) {
                    self.retransmit(now, number);
                }
            }
            self.drop_done();
            self.set_probe(now);
        }
    }

    /// When [`Sender::handle_timeout`] or [`Sender::poll`] has something to do.
    #[must_use]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let has_some = !self.retransmit_queue.is_empty() || self.has_unsent();
        let sending = has_some.then_some(self.may_send_at);
        let copying = self.copies.front().map(|(due, _)| (*due).max(self.may_send_at));
        let oldest = self.kept.front().filter(|kept| kept.sent > 0);
        let giving_up = oldest.map(|kept| kept.first_sent_at + self.config.recover_within + Duration::from_millis(1));
        [sending, copying, self.gathering_due, self.probe_at, giving_up].into_iter().flatten().min()
    }

    /// The next datagram, if there is one to be sent now.
    pub(super) fn poll(&mut self, now: Instant) -> Option<Datagram<'_>> {
        if self.may_send_at > now {
            return None;
        }
        let (number, is_copy) = match self.next_retransmission().or_else(|| self.next_unsent()) {
            Some(number) => (number, false),
            None => (self.next_copy(now)?, true),
        };
        let index = (number - self.base) as usize;
        let bytes = self.kept.get(index)?.body.len();
        if is_copy {
            self.kept.get_mut(index)?.last_sent_at = now;
            self.counters.datagrams += 1;
            self.counters.datagrams_copied += 1;
        } else {
            self.note_sent(now, index, bytes);
            self.plan_copy(now, index, bytes);
        }
        self.keep_pace(now, bytes);
        self.set_probe(now);
        let (base, kept) = (self.base, self.kept.get(index)?);
        Some(Datagram::Data { number, base, first_record: kept.first_record, body: &kept.body })
    }

    /// Whether something is neither acknowledged nor given up.
    fn is_waiting(&self, number: u64) -> bool {
        let index = number.checked_sub(self.base).map(|index| index as usize);
        index.and_then(|index| self.kept.get(index)).is_some_and(|kept| !kept.is_done)
    }

    fn next_retransmission(&mut self) -> Option<u64> {
        while let Some(number) = self.retransmit_queue.pop_front() {
            // It may have come, or been given up, in the meantime.
            if self.is_waiting(number) {
                return Some(number);
            }
        }
        None
    }

    fn next_copy(&mut self, now: Instant) -> Option<u64> {
        while let Some((_, number)) = self.copies.front().copied().filter(|(due, _)| *due <= now) {
            self.copies.pop_front();
            if self.is_waiting(number) {
                return Some(number);
            }
        }
        None
    }

    /// What was sent just now is sent once more in a moment, if the path loses and what encoding saved pays for it.
    fn plan_copy(&mut self, now: Instant, index: usize, bytes: usize) {
        let bytes = bytes as u64 + DATA_HEADER_BYTES as u64 + self.envelope_bytes;
        let is_lossy = self.lost_at.is_some_and(|at| now.saturating_since(at) < COPIES_AFTER_LOSS);
        if is_lossy
            && self.copy_bytes >= bytes
            && self.copies.len() < KEPT_DATAGRAMS_MAX
            && let Some(kept) = self.kept.get_mut(index)
        {
            self.copy_bytes -= bytes;
            kept.is_copied = true;
            self.copies.push_back((now + COPY_AFTER, self.base + index as u64));
        }
    }

    fn has_unsent(&self) -> bool {
        ((self.unsent - self.base) as usize) < self.kept.len()
    }

    fn next_unsent(&mut self) -> Option<u64> {
        while let Some(kept) = self.kept.get((self.unsent - self.base) as usize) {
            let number = self.unsent;
            self.unsent += 1;
            if !kept.is_done {
                return Some(number);
            }
        }
        None
    }

    fn note_sent(&mut self, now: Instant, index: usize, bytes: usize) {
        let Some(kept) = self.kept.get_mut(index) else { return };
        kept.sent += 1;
        kept.last_sent_at = now;
        self.unanswered_since.get_or_insert(now);
        self.counters.datagrams += 1;
        if kept.sent == 1 {
            kept.first_sent_at = now;
            self.unsent_bytes -= bytes;
            let earned = bytes as u64 * u64::from(self.config.recovery_per_mille) / 1000;
            self.recovery_bytes = (self.recovery_bytes + earned).min(RECOVERY_BYTES_MAX);
        } else {
            self.counters.datagrams_retransmitted += 1;
        }
    }

    /// Where the path's rate is known, what comes next leaves when this one has.
    fn keep_pace(&mut self, now: Instant, bytes: usize) {
        if let Some(rate) = self.config.bits_per_second {
            let bits = (bytes + DATA_HEADER_BYTES) as u64 * 8 + self.envelope_bytes * 8;
            let took = Duration::from_nanos(bits.saturating_mul(1_000_000_000) / rate.max(1));
            // A moment's sleep too long is made up for.
            let from = self.may_send_at + Duration::from_millis(2);
            self.may_send_at = if from < now { now } else { self.may_send_at } + took;
        }
    }

    /// Whether acknowledgements that should have come do not.
    #[must_use]
    pub(super) fn is_unheard(&self, now: Instant) -> bool {
        let patience = SILENCE_MAX + self.assumed_round_trip() * 3;
        self.unanswered_since.is_some_and(|since| now.saturating_since(since) > patience)
    }

    /// The other end lives. What it did not acknowledge is forgotten once it was given up.
    pub(super) fn note_alive(&mut self) {
        if self.kept.front().is_none_or(|kept| kept.sent == 0) {
            self.unanswered_since = None;
        }
    }

    /// How long a datagram and its acknowledgement take, smoothed.
    #[must_use]
    pub(super) const fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// What it did so far.
    #[must_use]
    pub(super) const fn counters(&self) -> SenderCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests;
