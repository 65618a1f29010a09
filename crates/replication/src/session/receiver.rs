//! The receiving half: which of the peer's numbers have come, and when to acknowledge them.

use arrayvec::ArrayVec;
use flow::Instant;
use flow::serial::{is_before, later};

use super::SessionConfig;
use crate::loss_recovery::AckTimer;
use crate::message::{ACK_RANGES_MAX, Ack, NumberRange};

/// How far a number may be from what was expected before the two nodes are held to be out of sync: more than a peer
/// can have in flight ([`SessionConfig::in_flight_messages_max`] is a `u16`) twice over.
pub(crate) const NUMBERS_APART_MAX: u32 = 1 << 17;

/// The peer's numbers cannot follow those that were seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OutOfSync;

/// How the peer's resynchronisation stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PeerRound {
    /// None has begun since the peer's session began.
    None,
    /// This one is in progress.
    Started(u8),
    /// This one is complete.
    Completed(u8),
}

/// Which of the peer's numbers have come.
///
/// ```text
///            base                     next
///   done with | received, or missing   | expected
///  -----------+---##----####-----------+----------> numbers
/// ```
///
/// A number that comes when it is below `next` is either a duplicate or was counted missing, and the sender sends its content
/// again under a new number; it is not used. So what is used is used in the order of its numbers.
#[derive(Debug)]
#[cfg_attr(test, derive(Clone))]
pub(crate) struct Receiver {
    base: u32,
    next: u32,
    missing: ArrayVec<NumberRange, ACK_RANGES_MAX>,
    next_since: Instant,
    pub(crate) ack_timer: AckTimer,
    pub(crate) round: PeerRound,
    /// Numbers found missing.
    pub(crate) missed: u64,
    /// Messages not used: duplicates, and those that came when they had been counted missing.
    pub(crate) late: u64,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        Self {
            base: 0,
            next: 0,
            missing: ArrayVec::new(),
            next_since: Instant::ZERO,
            ack_timer: AckTimer::default(),
            round: PeerRound::None,
            missed: 0,
            late: 0,
        }
    }

    /// The peer begins a session whose oldest unresolved number is `base`.
    pub(crate) fn reset(&mut self, base: u32) {
        *self = Self { base, next: base, missed: self.missed, late: self.late, ..Self::new() };
    }

    /// A header states that everything before `first` was sent, and everything before `base` is settled.
    pub(crate) fn observe(&mut self, now: Instant, first: u32, base: u32) -> Result<(), OutOfSync> {
        let ahead = first.wrapping_sub(self.next);
        if ahead > NUMBERS_APART_MAX && ahead.wrapping_neg() > NUMBERS_APART_MAX {
            return Err(OutOfSync);
        }
        self.advance_base(base);
        if is_before(self.next, first) {
            self.note_gap(NumberRange { start: self.next, end: first });
            self.next = first;
            self.next_since = now;
            self.ack_timer.set_due(now);
        }
        Ok(())
    }

    fn advance_base(&mut self, base: u32) {
        if !is_before(self.base, base) {
            return;
        }
        self.base = base;
        self.next = later(self.next, base);
        self.missing.retain(|range| {
            range.start = later(range.start, base);
            is_before(range.start, range.end)
        });
    }

    /// When no further range fits, the last one grows over what was received in between: that is retransmitted needlessly.
    fn note_gap(&mut self, gap: NumberRange) {
        self.missed += u64::from(gap.end.wrapping_sub(gap.start));
        if let Err(full) = self.missing.try_push(gap)
            && let Some(last) = self.missing.last_mut()
        {
            last.end = full.element().end;
        }
    }

    /// Nothing was received that was sent after what has the number before this one.
    pub(crate) const fn is_at(&self, number: u32) -> bool {
        self.next == number
    }

    /// A message has come. True if it is to be used.
    pub(crate) fn accept(&mut self, now: Instant, number: u32, config: &SessionConfig) -> bool {
        if number != self.next {
            self.late += 1;
            return false;
        }
        self.next = number.wrapping_add(1);
        self.next_since = now;
        self.ack_timer.on_received(now, config.ack_every_messages.into(), config.ack_delay);
        true
    }

    /// The acknowledgement, if there is anything to acknowledge: worth its bytes on a datagram that goes anyway.
    pub(crate) fn ack(&self, now: Instant) -> Option<Ack> {
        self.ack_timer.due_at()?;
        Some(Ack { next: self.next, held: now.saturating_since(self.next_since), missing: self.missing.clone() })
    }
}

#[cfg(test)]
impl Receiver {
    /// The number that is expected next, and the round: the origin of a normal form when the peer's is unknown.
    pub(crate) const fn origin(&self) -> (u32, u8) {
        match self.round {
            PeerRound::None => (self.next, 0),
            PeerRound::Started(round) | PeerRound::Completed(round) => (self.next, round),
        }
    }

    /// Appends what its future depends on: times as seen from `now`, numbers from `number`, rounds from `round`.
    pub(crate) fn normal_form(&self, now: Instant, (number, round): (u32, u8), out: &mut std::vec::Vec<u64>) {
        let Self { base, next, missing, next_since: _, ack_timer, round: own, missed: _, late: _ } = self;
        let behind = |of: u32| u64::from(number.wrapping_sub(of));
        out.extend([behind(*base), behind(*next), missing.len() as u64]);
        out.extend(missing.iter().map(|range| behind(range.start) << 32 | behind(range.end)));
        ack_timer.normal_form(now, out);
        out.push(match own {
            PeerRound::None => 0,
            PeerRound::Started(own) => 1 << 8 | u64::from(round.wrapping_sub(*own)),
            PeerRound::Completed(own) => 2 << 8 | u64::from(round.wrapping_sub(*own)),
        });
    }

    /// Forgets that numbers from `number` on were received (sabotage).
    pub(crate) const fn rewind(&mut self, number: u32) {
        self.next = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use std::vec::Vec;

    const NOW: Instant = Instant::from_millis(5);

    fn receive(receiver: &mut Receiver, base: u32, number: u32) -> bool {
        receiver.observe(NOW, number, base).unwrap();
        receiver.accept(NOW, number, &SessionConfig::default())
    }

    fn missing(receiver: &Receiver) -> Vec<(u32, u32)> {
        receiver.missing.iter().map(|range| (range.start, range.end)).collect()
    }

    #[test]
    fn what_comes_behind_a_gap_is_used_at_once_and_what_comes_late_is_not() {
        let mut receiver = Receiver::new();
        receiver.reset(u32::MAX);
        assert!(receive(&mut receiver, u32::MAX, u32::MAX));
        assert!(receive(&mut receiver, u32::MAX, 3));
        assert_eq!(missing(&receiver), vec![(0, 3)]);
        assert!(receiver.ack_timer.is_due(NOW));
        assert!(!receive(&mut receiver, u32::MAX, 1), "1 was counted missing");
        assert!(!receive(&mut receiver, u32::MAX, 3), "3 is a duplicate");
        assert_eq!(missing(&receiver), vec![(0, 3)]);
    }

    #[test]
    fn the_senders_base_puts_an_end_to_what_is_missing() {
        let mut receiver = Receiver::new();
        receiver.reset(0);
        for number in [1, 5, 9] {
            assert!(receive(&mut receiver, 0, number));
        }
        assert_eq!(missing(&receiver), vec![(0, 1), (2, 5), (6, 9)]);
        receiver.observe(NOW, 10, 4).unwrap();
        assert_eq!(missing(&receiver), vec![(4, 5), (6, 9)]);
        receiver.observe(NOW, 40, 40).unwrap();
        assert_eq!(missing(&receiver), vec![]);
        assert!(receiver.accept(NOW, 40, &SessionConfig::default()));
    }

    #[test]
    fn ranges_beyond_the_limit_melt_into_the_last() {
        let mut receiver = Receiver::new();
        receiver.reset(0);
        let numbers = ACK_RANGES_MAX as u32 + 10;
        for number in 0..numbers {
            assert!(receive(&mut receiver, 0, number * 2 + 1));
        }
        assert_eq!(receiver.missing.len(), ACK_RANGES_MAX);
        for number in 0..numbers {
            assert!(receiver.missing.iter().any(|range| range.contains(number * 2)), "{number}");
        }
    }

    #[test]
    fn numbers_that_cannot_follow_are_out_of_sync() {
        let mut receiver = Receiver::new();
        receiver.reset(1000);
        for far in [1000 + NUMBERS_APART_MAX + 1, 1000u32.wrapping_sub(NUMBERS_APART_MAX + 1), 1000 + (1 << 31)] {
            assert_eq!(receiver.observe(NOW, far, far), Err(OutOfSync));
        }
        assert_eq!(receiver.observe(NOW, 1000 + NUMBERS_APART_MAX, 1000), Ok(()));
    }
}
