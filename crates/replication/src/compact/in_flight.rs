//! Datagrams in flight and the words in them. No word is in two datagrams in flight, so it does not matter in which order they
//! arrive.

use alloc::vec;
use alloc::vec::Vec;

use filters::Change;

/// A datagram in flight.
pub(super) struct Sent {
    /// The words in it, as they were.
    pub(super) changes: Vec<Change>,
    pub(super) purpose: Purpose,
}

/// What a datagram is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Words that differ from what the peer has.
    Changes,
    /// Words, whatever the peer has.
    Raw,
    /// The peer has the whole filter.
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
    pub(super) fn has(&self, number: u32) -> bool {
        let back = self.next.wrapping_sub(1).wrapping_sub(number);
        let word = self.received.get((back / 64) as usize);
        word.is_some_and(|word| word << (back % 64) >> 63 == 1)
    }
}

/// Which words are in flight, a bit each.
pub(super) struct WordsInFlight(Vec<u64>);

impl WordsInFlight {
    pub(super) fn new(words: u32) -> Self {
        Self(vec![0; words.div_ceil(64) as usize])
    }

    pub(super) fn has(&self, index: u32) -> bool {
        self.0[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// Whether any of these words is in flight. The range begins and ends at multiples of 64, or with the filter.
    pub(super) fn has_any(&self, words: core::ops::Range<u32>) -> bool {
        let bits = self.0.get((words.start / 64) as usize..words.end.div_ceil(64) as usize);
        bits.unwrap_or_default().iter().any(|bits| *bits != 0)
    }

    /// These words are sent.
    pub(super) fn insert(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.0[(change.index / 64) as usize] |= 1 << (change.index % 64));
    }

    /// The datagram with these words is settled.
    pub(super) fn remove(&mut self, changes: &[Change]) {
        changes.iter().for_each(|change| self.0[(change.index / 64) as usize] &= !(1 << (change.index % 64)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compact::wire::ACK_NUMBERS;

    #[test]
    fn an_acknowledgement_states_of_each_number_whether_it_was_received() {
        // 3 and 1 were received, 0 and 2 were not; and the oldest number that fits was.
        let ack = Ack { next: 4, received: [0b1010 << 60, 0, 0, 1] };
        assert_eq!([0, 1, 2, 3].map(|number| ack.has(number)), [false, true, false, true]);
        assert!(ack.has(4_u32.wrapping_sub(ACK_NUMBERS)) && !ack.has(3_u32.wrapping_sub(ACK_NUMBERS)));
    }

    #[test]
    fn words_are_in_flight_until_their_datagram_is_settled() {
        let mut words = WordsInFlight::new(1000);
        let changes = |indices: [u32; 2]| indices.map(|index| Change { index, word: 1 });
        words.insert(&changes([300, 400]));
        words.insert(&changes([511, 0]));
        assert!(words.has(300) && words.has_any(256..512) && !words.has_any(512..1000));
        words.remove(&changes([300, 400]));
        assert!(!words.has(300) && words.has(511) && words.has_any(448..512));
    }
}
