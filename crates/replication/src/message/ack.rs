//! Acknowledgements: positive and negative in one message (Ack and Nack of FT-FW, section 5.2).

use alloc::vec::Vec;
use core::time::Duration;

use arrayvec::ArrayVec;

use super::{ACK, begin, finish};

/// The most ranges of missing numbers in an Ack.
pub const ACK_RANGES_MAX: usize = 64;

const FIXED_BYTES: usize = 8;
const RANGE_BYTES: usize = 8;

/// Numbers `start`, `start + 1`, … `end - 1`, counted round the end of the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NumberRange {
    /// The first.
    pub start: u32,
    /// The one behind the last.
    pub end: u32,
}

impl NumberRange {
    /// Whether `number` is one of them.
    #[must_use]
    pub const fn contains(&self, number: u32) -> bool {
        number.wrapping_sub(self.start) < self.end.wrapping_sub(self.start)
    }
}

/// What a node received: everything before `next` but what is `missing`.
///
/// An Ack lists all that is missing since the sender's base, so that a later Ack makes up for a lost one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The number behind the highest that was received.
    pub next: u32,
    /// How long the highest number has been there: what the round trip is to be measured without. Microseconds on the wire.
    pub held: Duration,
    /// What was not received, ascending.
    pub missing: ArrayVec<NumberRange, ACK_RANGES_MAX>,
}

impl Ack {
    /// Appends the message to a datagram.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let at = begin(out, ACK);
        out.extend_from_slice(&self.next.to_be_bytes());
        let held_micros = u32::try_from(self.held.as_micros()).unwrap_or(u32::MAX);
        out.extend_from_slice(&held_micros.to_be_bytes());
        for range in &self.missing {
            out.extend_from_slice(&range.start.to_be_bytes());
            out.extend_from_slice(&range.end.to_be_bytes());
        }
        let fits = finish(out, at);
        debug_assert!(fits, "the ranges are bounded");
    }
}

/// An Ack's body, checked for its size, read in place.
#[derive(Clone, Copy, Debug)]
pub struct AckView<'a> {
    /// As [`Ack::next`].
    pub next: u32,
    /// As [`Ack::held`].
    pub held: Duration,
    ranges: &'a [u8],
}

impl<'a> AckView<'a> {
    /// Reads the body of an Ack; `None` if its size is not that of one.
    #[must_use]
    pub fn parse(body: &'a [u8]) -> Option<Self> {
        let (fixed, ranges) = body.split_first_chunk::<FIXED_BYTES>()?;
        if !ranges.len().is_multiple_of(RANGE_BYTES) || ranges.len() / RANGE_BYTES > ACK_RANGES_MAX {
            return None;
        }
        let word = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        Some(Self { next: word(0), held: Duration::from_micros(word(4).into()), ranges })
    }

    /// What is missing, in the order sent.
    pub fn missing(&self) -> impl Iterator<Item = NumberRange> + 'a {
        let word = |bytes: &[u8]| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        self.ranges
            .chunks_exact(RANGE_BYTES)
            .map(move |bytes| NumberRange { start: word(&bytes[..4]), end: word(&bytes[4..]) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::wire::tlv;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn an_ack_comes_back_as_it_was_sent(
            next: u32,
            micros: u32,
            ranges in proptest::collection::vec(any::<(u32, u32)>(), 0..=ACK_RANGES_MAX),
        ) {
            let missing = ranges.iter().map(|(start, end)| NumberRange { start: *start, end: *end }).collect();
            let ack = Ack { next, held: Duration::from_micros(micros.into()), missing };
            let mut bytes = Vec::new();
            ack.emit(&mut bytes);
            let (kind, body) = tlv::read(&bytes).next().unwrap().unwrap();
            let view = AckView::parse(body).unwrap();
            prop_assert_eq!(kind, ACK);
            prop_assert_eq!(Ack { next: view.next, held: view.held, missing: view.missing().collect() }, ack);
        }
    }

    #[test]
    fn bodies_of_a_wrong_size_are_refused() {
        for size in [0, 7, 9, 15, 17, FIXED_BYTES + (ACK_RANGES_MAX + 1) * RANGE_BYTES] {
            assert!(AckView::parse(&std::vec![0; size]).is_none(), "{size}");
        }
    }

    #[test]
    fn a_range_goes_round_the_end_of_the_numbers() {
        let range = NumberRange { start: u32::MAX, end: 1 };
        assert!(range.contains(u32::MAX) && range.contains(0));
        assert!(!range.contains(1) && !range.contains(u32::MAX - 1));
        assert!(!NumberRange { start: 5, end: 5 }.contains(5));
    }
}
