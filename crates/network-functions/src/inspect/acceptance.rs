//! Which segments the receiver of a stream takes, as far as its handshake shows it.
//!
//! A receiver ignores segments that lie outside what it expects. A sender that knows so can send segments which an observer reads, and the receiver does
//! not. So a reader takes those alone which any receiver takes.

use flow::serial::is_before;

/// What the receiver of a stream expects of its segments. What is not known yet is taken from the first segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Acceptance {
    /// What the sender may acknowledge: from what it acknowledged last, to what the receiver has sent. RFC 5961 section 5.2 has receivers also take older
    /// numbers, within the largest window of the sender, which sends none unless segments overtake each other.
    acknowledged: Option<(u32, u32)>,
    /// The sender's latest timestamp, if both sides use them (RFC 7323 section 5.3).
    timestamp: Timestamp,
}

/// A sender's timestamps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Timestamp {
    #[default]
    NotKnown,
    /// Receivers do not look at them.
    NotUsed,
    Latest(u32),
}

impl Acceptance {
    /// After a handshake: the receiver's next sequence number, and the sender's timestamp that it has echoed.
    #[must_use]
    pub const fn new(next: u32, echoed: Option<u32>) -> Self {
        let timestamp = match echoed {
            Some(latest) => Timestamp::Latest(latest),
            None => Timestamp::NotUsed,
        };
        Self { acknowledged: Some((next, next)), timestamp }
    }

    /// The receiver has sent up to this number.
    pub const fn note_sent(&mut self, next: u32) {
        if let Some((_, last)) = &mut self.acknowledged
            && is_before(*last, next)
        {
            *last = next;
        }
    }

    /// Whether every receiver takes a segment with this acknowledgement and timestamp. Later ones are to have no older timestamp.
    pub fn accepts(&mut self, acknowledgement: u32, timestamp: Option<u32>) -> bool {
        let (first, last) = *self.acknowledged.get_or_insert((acknowledgement, acknowledgement));
        if is_before(acknowledgement, first) || is_before(last, acknowledgement) {
            return false;
        }
        self.acknowledged = Some((acknowledgement, last));
        match (self.timestamp, timestamp) {
            (Timestamp::NotUsed, _) => {}
            (Timestamp::NotKnown, None) => self.timestamp = Timestamp::NotUsed,
            (Timestamp::NotKnown, Some(first)) => self.timestamp = Timestamp::Latest(first),
            (Timestamp::Latest(latest), Some(timestamp)) if !is_before(timestamp, latest) => {
                self.timestamp = Timestamp::Latest(timestamp);
            }
            (Timestamp::Latest(_), _) => return false,
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledgements_and_timestamps_are_those_that_every_receiver_takes() {
        let mut acceptance = Acceptance::new(100, Some(u32::MAX));
        assert!(acceptance.accepts(100, Some(u32::MAX)));
        for (acknowledgement, timestamp) in [
            (99, Some(3)),
            (101, Some(3)),
            (100_u32.wrapping_sub(60_000), Some(3)),
            (100, None),
            (100, Some(u32::MAX - 1)),
        ] {
            assert!(!acceptance.accepts(acknowledgement, timestamp), "{acknowledgement} {timestamp:?}");
        }
        assert!(acceptance.accepts(100, Some(3)), "over the end of the numbers");
        acceptance.note_sent(101);
        assert!(acceptance.accepts(100, Some(3)) && acceptance.accepts(101, Some(3)));
        assert!(!acceptance.accepts(101, Some(2)) && !acceptance.accepts(100, Some(3)), "older than the last one");
    }

    #[test]
    fn what_the_handshake_did_not_show_is_taken_from_the_first_segment() {
        let mut acceptance = Acceptance::default();
        assert!(acceptance.accepts(7, None) && acceptance.accepts(7, Some(1)) && !acceptance.accepts(8, None));
        let mut plain = Acceptance::new(7, None);
        assert!(plain.accepts(7, Some(9)) && plain.accepts(7, Some(1)), "timestamps that receivers ignore");
    }
}
