//! The receiving end of a session's stream: puts datagrams in order, waits for missing ones, within bounds, and
//! acknowledges.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use replication::loss_recovery::AckTimer;

use super::datagram::{Datagram, MISSING_RANGES_MAX};
use super::limits::{ACK_DELAY, ACK_EVERY, ACK_REPEAT_INTERVAL, HELD_DATAGRAMS_MAX, REORDER_WAIT};
use super::record::Reassembly;

/// What a receiver did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReceiverCounters {
    /// Datagrams that came.
    pub datagrams: u64,
    /// Of those, the ones that had come before, or too late.
    pub datagrams_useless: u64,
    /// Datagrams that came after later ones: retransmitted, or overtaken.
    pub datagrams_recovered: u64,
    /// Datagrams that were waited for in vain.
    pub datagrams_lost: u64,
}

#[derive(Clone, Debug)]
struct Held {
    arrived_at: Instant,
    first_record: Option<u16>,
    body: Vec<u8>,
}

/// The receiving end.
#[derive(Clone, Debug)]
pub(super) struct Receiver {
    wait_max: Duration,
    next: u64,
    /// What is missing before this number is not waited for.
    given_up: u64,
    /// The number after the highest that came.
    end: u64,
    held: BTreeMap<u64, Held>,
    /// Since when `next` is missing although later ones came. Of several gaps each counts from what showed it.
    waiting_since: Option<Instant>,
    ack_timer: AckTimer,
    counters: ReceiverCounters,
}

impl Receiver {
    /// The receiving end of a session that begins now, which waits so long for what is missing.
    #[must_use]
    pub(super) fn new(wait_max: Duration) -> Self {
        Self {
            wait_max,
            next: 0,
            given_up: 0,
            end: 0,
            held: BTreeMap::new(),
            waiting_since: None,
            ack_timer: AckTimer::default(),
            counters: ReceiverCounters::default(),
        }
    }

    /// A datagram of kind Data. What is in order now comes out of [`Receiver::poll`], which is to be called until nothing
    /// does.
    pub(super) fn handle_data(
        &mut self,
        now: Instant,
        (number, base): (u64, u64),
        first_record: Option<u16>,
        body: &[u8],
    ) {
        self.counters.datagrams += 1;
        if number < self.next || self.held.contains_key(&number) {
            self.counters.datagrams_useless += 1;
            self.ack_timer.on_received(now, u32::MAX, REORDER_WAIT);
            return;
        }
        let is_in_order = number == self.next && self.held.is_empty();
        self.counters.datagrams_recovered += u64::from(number < self.end);
        self.end = self.end.max(number + 1);
        self.held.insert(number, Held { arrived_at: now, first_record, body: body.to_vec() });
        self.given_up = self.given_up.max(base).max(number.saturating_sub(HELD_DATAGRAMS_MAX as u64));
        let (every, delay) = if is_in_order { (ACK_EVERY, ACK_DELAY) } else { (u32::MAX, REORDER_WAIT) };
        self.ack_timer.on_received(now, every, delay);
    }

    /// Hands on the next datagram, if it is in order or what is before it is given up. Returns whether it did.
    pub(super) fn poll(&mut self, reassembly: &mut Reassembly) -> bool {
        loop {
            if let Some(held) = self.held.remove(&self.next) {
                self.next += 1;
                reassembly.handle_body(held.first_record, &held.body);
                return true;
            }
            if self.next >= self.given_up {
                self.waiting_since = self.held.values().next().map(|held| held.arrived_at);
                return false;
            }
            let first = self.held.first_key_value().map_or(self.given_up, |(first, _)| *first);
            let passed = first.min(self.given_up);
            self.counters.datagrams_lost += passed - self.next;
            self.next = passed;
            self.end = self.end.max(passed);
            reassembly.tear();
        }
    }

    /// Does what is due: what was waited for too long is given up, up to what is here.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        let is_over = self.waiting_since.is_some_and(|since| now.saturating_since(since) >= self.wait_max);
        if is_over && let Some((first, _)) = self.held.first_key_value() {
            self.given_up = self.given_up.max(*first);
        }
    }

    /// When [`Receiver::handle_timeout`] or [`Receiver::poll_ack`] has something to do.
    #[must_use]
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        [self.waiting_since.map(|since| since + self.wait_max), self.ack_timer.due_at()].into_iter().flatten().min()
    }

    /// The acknowledgement, if one is due.
    pub(super) fn poll_ack(&mut self, now: Instant) -> Option<Datagram<'static>> {
        if !self.ack_timer.is_due(now) {
            return None;
        }
        self.ack_timer.on_ack_sent();
        let mut missing = Vec::new();
        let (mut at, mut end) = (self.next, self.end);
        for number in self.held.keys() {
            if *number > at {
                if missing.len() == MISSING_RANGES_MAX {
                    end = at;
                    break;
                }
                missing.push(at..*number);
            }
            at = number + 1;
        }
        // The acknowledgement is repeated until what is missing comes or is given up.
        if !self.held.is_empty() {
            self.ack_timer.set_due(now + ACK_REPEAT_INTERVAL);
        }
        Some(Datagram::Ack { next: self.next, end, missing })
    }

    /// What it did so far.
    #[must_use]
    pub(super) const fn counters(&self) -> ReceiverCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::record::Record;

    const WAIT: Duration = Duration::from_millis(100);

    fn body(name: &[u8]) -> Vec<u8> {
        let mut body = Vec::new();
        Record::FromEncoder(name).write(&mut body);
        body
    }

    /// What comes out now.
    fn taken(receiver: &mut Receiver) -> Vec<Vec<u8>> {
        let (mut reassembly, mut names) = (Reassembly::default(), Vec::new());
        while receiver.poll(&mut reassembly) {
            while let Some(Record::FromEncoder(name)) = reassembly.poll() {
                names.push(name.to_vec());
            }
        }
        names
    }

    #[test]
    fn datagrams_come_out_in_order_whatever_order_they_came_in() {
        let at = Instant::from_millis;
        let mut receiver = Receiver::new(WAIT);
        receiver.handle_data(at(0), (1, 0), Some(0), &body(b"b"));
        assert!(taken(&mut receiver).is_empty());
        assert_eq!(receiver.poll_ack(at(0)), None, "they may only have overtaken each other");
        let ack = Datagram::Ack { next: 0, end: 2, missing: core::iter::once(0..1).collect() };
        assert_eq!(receiver.poll_ack(at(3)), Some(ack.clone()));
        assert_eq!(receiver.poll_ack(at(17)), None);
        assert_eq!(receiver.poll_ack(at(18)), Some(ack), "and again");
        receiver.handle_data(at(20), (0, 0), Some(0), &body(b"a"));
        receiver.handle_data(at(20), (1, 0), Some(0), &body(b"b"));
        assert_eq!(taken(&mut receiver), [b"a", b"b"]);
        let counters = receiver.counters();
        assert_eq!((counters.datagrams_recovered, counters.datagrams_useless, counters.datagrams_lost), (1, 1, 0));
        assert_eq!(receiver.poll_ack(at(40)), Some(Datagram::Ack { next: 2, end: 2, missing: vec![] }));
        assert_eq!(receiver.poll_timeout(), None);
    }

    #[test]
    fn what_does_not_come_in_time_is_passed_over_and_so_is_what_the_sender_gave_up() {
        let at = Instant::from_millis;
        let mut receiver = Receiver::new(WAIT);
        receiver.handle_data(at(0), (2, 0), Some(0), &body(b"c"));
        assert!(taken(&mut receiver).is_empty());
        receiver.handle_timeout(at(99));
        assert!(taken(&mut receiver).is_empty());
        receiver.handle_timeout(at(100));
        assert_eq!(taken(&mut receiver), [b"c"]);
        receiver.handle_data(at(101), (9, 8), Some(0), &body(b"j"));
        assert!(taken(&mut receiver).is_empty(), "number 8 may come");
        receiver.handle_data(at(102), (11, 11), Some(0), &body(b"l"));
        assert_eq!(taken(&mut receiver), [b"j", b"l"]);
        assert_eq!(receiver.counters().datagrams_lost, 2 + 6 + 1);
    }

    #[test]
    fn more_gaps_than_an_acknowledgement_lists_are_reported_in_turn() {
        let at = Instant::from_millis;
        let mut receiver = Receiver::new(WAIT);
        for number in 0..100 {
            receiver.handle_data(at(0), (2 * number + 1, 0), Some(0), &body(b"x"));
        }
        assert!(taken(&mut receiver).is_empty());
        let Some(Datagram::Ack { next, end, missing }) = receiver.poll_ack(at(5)) else { panic!("it is due") };
        assert_eq!((next, end, missing.len()), (0, 128, MISSING_RANGES_MAX));
    }
}
