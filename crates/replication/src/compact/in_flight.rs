//! What a peer was told and has not acknowledged. No word is told twice at a time, so it does not matter in which order
//! datagrams arrive.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;

use filters::Change;
use flow::Instant;
use flow::serial;

use super::wire::ACK_NUMBERS;

/// A datagram that was sent.
pub(super) struct Told {
    pub(super) number: u32,
    pub(super) sent_at: Instant,
    /// The words that it tells, as they were.
    pub(super) changes: Vec<Change>,
    pub(super) purpose: Purpose,
}

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// It tells what is other than what the peer has.
    Changes,
    /// It tells words whatever the peer has.
    Raw,
    /// It says that the filter is whole.
    Whole,
}

/// An acknowledgement.
#[derive(Clone, Copy)]
pub(super) struct Ack {
    /// Behind the highest number that was received.
    pub(super) next: u32,
    /// Which were received, the highest number's in the highest bit of the first word.
    pub(super) received: [u64; 4],
}

impl Ack {
    fn has(&self, number: u32) -> bool {
        let back = self.next.wrapping_sub(1).wrapping_sub(number);
        let word = self.received.get((back / 64) as usize);
        word.is_some_and(|word| word << (back % 64) >> 63 == 1)
    }
}

/// Datagrams under way.
pub(super) struct InFlight {
    told: VecDeque<Told>,
    /// The number of the next one.
    next: u32,
    /// Which words are under way, a bit each.
    words: Vec<u64>,
}

impl InFlight {
    pub(super) fn new(words: u32) -> Self {
        Self { told: VecDeque::new(), next: 0, words: vec![0; words.div_ceil(64) as usize] }
    }

    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    pub(super) fn len(&self) -> usize {
        self.told.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Whether a further one can be told of by an acknowledgement that tells of the oldest, too.
    pub(super) fn has_room(&self) -> bool {
        self.told.front().is_none_or(|oldest| self.next.wrapping_sub(oldest.number) < ACK_NUMBERS)
    }

    pub(super) fn has_word(&self, index: u32) -> bool {
        self.words[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Whether any of these words is under way. The range begins and ends at multiples of 64, or with the filter.
    pub(super) fn has_any(&self, words: core::ops::Range<u32>) -> bool {
        let bits = self.words.get((words.start / 64) as usize..words.end.div_ceil(64) as usize);
        bits.unwrap_or_default().iter().any(|bits| *bits != 0)
    }

    /// A word goes on its way.
    pub(super) fn note(&mut self, index: u32) {
        self.words[(index / 64) as usize] |= 1 << (index % 64);
    }

    /// The datagram with number [`InFlight::next`] was sent.
    pub(super) fn push(&mut self, sent_at: Instant, changes: Vec<Change>, purpose: Purpose) {
        self.told.push_back(Told { number: self.next, sent_at, changes, purpose });
        self.next = self.next.wrapping_add(1);
    }

    /// When the last one was sent, if that is acknowledged.
    pub(super) fn sent_at(&self, number: u32) -> Option<Instant> {
        self.told.iter().rev().find(|told| told.number == number).map(|told| told.sent_at)
    }

    /// The oldest datagram that the acknowledgement settles, and whether it was received: if not, it never will be.
    pub(super) fn settle(&mut self, ack: &Ack) -> Option<(Told, bool)> {
        let oldest = self.told.front()?;
        if !serial::is_before(oldest.number, ack.next) {
            return None;
        }
        let told = self.told.pop_front()?;
        for change in &told.changes {
            self.words[(change.index / 64) as usize] &= !(1 << (change.index % 64));
        }
        let is_received = ack.has(told.number);
        Some((told, is_received))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(in_flight: &mut InFlight, index: u32) {
        in_flight.note(index);
        in_flight.push(Instant::ZERO, vec![Change { index, word: 1 }], Purpose::Changes);
    }

    #[test]
    fn an_acknowledgement_settles_all_below_its_number() {
        let mut in_flight = InFlight::new(1000);
        (0..5).for_each(|index| told(&mut in_flight, index * 100));
        assert!(in_flight.has_word(300) && in_flight.has_any(256..512) && !in_flight.has_any(512..1000));
        // 3 and 1 were received, 0 and 2 were not.
        let ack = Ack { next: 4, received: [0b1010 << 60, 0, 0, 0] };
        let mut settled = Vec::new();
        while let Some((told, is_received)) = in_flight.settle(&ack) {
            settled.push((told.number, is_received));
        }
        assert_eq!(settled, [(0, false), (1, true), (2, false), (3, true)]);
        assert!(!in_flight.has_word(300) && in_flight.has_word(400));
        assert_eq!((in_flight.len(), in_flight.next()), (1, 5));
    }

    #[test]
    fn no_more_are_under_way_than_an_acknowledgement_tells_of() {
        let mut in_flight = InFlight::new(1000);
        while in_flight.has_room() {
            let index = in_flight.next();
            told(&mut in_flight, index);
        }
        assert_eq!(in_flight.len(), ACK_NUMBERS as usize);
        let ack = Ack { next: ACK_NUMBERS, received: [0, 0, 0, 1] };
        assert!(matches!(in_flight.settle(&ack), Some((Told { number: 0, .. }, true))));
        assert!(matches!(in_flight.settle(&ack), Some((Told { number: 1, .. }, false))));
        assert!(in_flight.has_room());
    }
}
