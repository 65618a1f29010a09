//! The content of the messages in flight.

use alloc::collections::VecDeque;

use flow::Instant;
use flow::serial::is_before;

use super::endings::EndId;
use crate::conntrackd::message::Range;
use crate::session::Handle;

/// The content of a message in flight. Its bytes are not kept: a retransmission carries the current state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sent {
    /// Nothing that would be missed.
    Nothing,
    Connection(Handle),
    ConnectionEnd(EndId),
    Expectation(Handle),
    ExpectationEnd(EndId),
    Ack(Range),
    Nack(Range),
    Resync,
}

impl Sent {
    /// Whether it carries a connection or an expectation.
    const fn is_object(self) -> bool {
        matches!(self, Self::Connection(_) | Self::ConnectionEnd(_) | Self::Expectation(_) | Self::ExpectationEnd(_))
    }

    /// Whether the peer must be made to acknowledge it.
    const fn is_awaited(self) -> bool {
        self.is_object() || matches!(self, Self::Nack(_) | Self::Resync)
    }
}

/// Numbers sent at one time.
#[derive(Clone, Copy)]
struct Batch {
    /// The number behind the last.
    end: u32,
    at: Instant,
}

/// One place for each number from the oldest that is not acknowledged to the newest.
pub(super) struct Log {
    sent: VecDeque<Sent>,
    batches: VecDeque<Batch>,
    next: u32,
    objects: usize,
    awaited: usize,
}

impl Log {
    pub(super) const fn new(first: u32) -> Self {
        Self { sent: VecDeque::new(), batches: VecDeque::new(), next: first, objects: 0, awaited: 0 }
    }

    /// The number of the next message.
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.sent.len()
    }

    /// Messages about connections and expectations in flight.
    pub(super) const fn objects(&self) -> usize {
        self.objects
    }

    /// Messages in flight that the peer must be brought to acknowledge.
    pub(super) const fn awaited(&self) -> usize {
        self.awaited
    }

    /// When the oldest message in flight was sent.
    pub(super) fn oldest_at(&self) -> Option<Instant> {
        self.batches.front().map(|batch| batch.at)
    }

    /// A message with the next number was sent.
    pub(super) fn push(&mut self, now: Instant, sent: Sent) {
        self.next = self.next.wrapping_add(1);
        if sent == Sent::Nothing && self.sent.is_empty() {
            return;
        }
        self.sent.push_back(sent);
        self.objects += usize::from(sent.is_object());
        self.awaited += usize::from(sent.is_awaited());
        match self.batches.back_mut() {
            Some(batch) if batch.at == now => batch.end = self.next,
            _ => self.batches.push_back(Batch { end: self.next, at: now }),
        }
    }

    /// The part of `range` that is in flight; `None` if it reaches beyond what was sent, or ends before it begins.
    pub(super) fn in_flight(&self, range: Range) -> Option<core::ops::Range<u32>> {
        if !is_before(range.to, self.next) || is_before(range.to, range.from) {
            return None;
        }
        let base = self.base();
        let offset_of = |number: u32| if is_before(number, base) { 0 } else { number.wrapping_sub(base) };
        let end = offset_of(range.to.wrapping_add(1));
        Some(offset_of(range.from)..end)
    }

    fn base(&self) -> u32 {
        self.next.wrapping_sub(self.sent.len() as u32)
    }

    /// What the message so far behind the oldest in flight said.
    pub(super) fn get(&self, offset: u32) -> Sent {
        self.sent.get(offset as usize).copied().unwrap_or(Sent::Nothing)
    }

    /// What the message so far behind the oldest in flight said, and its number. It is not in flight any more.
    pub(super) fn take(&mut self, offset: u32) -> (Sent, u32) {
        let number = self.base().wrapping_add(offset);
        let place = self.sent.get_mut(offset as usize);
        let sent = place.map_or(Sent::Nothing, |place| core::mem::replace(place, Sent::Nothing));
        self.objects -= usize::from(sent.is_object());
        self.awaited -= usize::from(sent.is_awaited());
        (sent, number)
    }

    /// Lets go of what is done with at the old end.
    pub(super) fn trim(&mut self) {
        while self.sent.front() == Some(&Sent::Nothing) {
            self.sent.pop_front();
        }
        let base = self.base();
        while self.batches.front().is_some_and(|batch| !is_before(base, batch.end)) {
            self.batches.pop_front();
        }
    }

    /// How many of the oldest messages were sent at `at` or before.
    pub(super) fn sent_by(&self, at: Instant) -> u32 {
        let old = self.batches.iter().take_while(|batch| batch.at <= at).last();
        old.map_or(0, |batch| batch.end.wrapping_sub(self.base()))
    }

    /// Lets go of everything, the oldest first.
    pub(super) fn drain(&mut self, mut each: impl FnMut(Sent)) {
        self.sent.drain(..).for_each(&mut each);
        self.batches.clear();
        (self.objects, self.awaited) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn what_is_acknowledged_is_let_go_of_and_the_rest_keeps_its_number() {
        let mut log = Log::new(u32::MAX - 1);
        for slot in 0..4 {
            log.push(now(u64::from(slot)), Sent::Connection(Handle(slot)));
        }
        assert_eq!((log.next(), log.objects(), log.oldest_at()), (2, 4, Some(now(0))));
        let range = Range { from: u32::MAX - 1, to: 0 };
        assert_eq!(log.in_flight(range), Some(0..3));
        assert_eq!(log.take(1), (Sent::Connection(Handle(1)), u32::MAX));
        assert_eq!(log.take(0), (Sent::Connection(Handle(0)), u32::MAX - 1));
        log.trim();
        assert_eq!((log.len(), log.objects(), log.oldest_at()), (2, 2, Some(now(2))));
        assert_eq!(log.in_flight(range), Some(0..1));
        assert_eq!(log.take(0), (Sent::Connection(Handle(2)), 0));
        assert_eq!((log.sent_by(now(1)), log.sent_by(now(2)), log.sent_by(now(9))), (0, 1, 2));
    }

    #[test]
    fn ranges_that_were_never_sent_are_none() {
        let mut log = Log::new(100);
        log.push(now(0), Sent::Resync);
        assert_eq!(log.in_flight(Range { from: 100, to: 101 }), None);
        assert_eq!(log.in_flight(Range { from: 100, to: 99 }), None);
        assert_eq!(log.in_flight(Range { from: 50, to: 99 }), Some(0..0));
        assert_eq!(log.in_flight(Range { from: 50, to: 100 }), Some(0..1));
    }

    #[test]
    fn keep_alives_take_no_place_when_nothing_is_in_flight() {
        let mut log = Log::new(0);
        log.push(now(0), Sent::Nothing);
        assert_eq!((log.len(), log.next()), (0, 1));
    }
}
