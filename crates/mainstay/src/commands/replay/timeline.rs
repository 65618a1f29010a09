//! The clock of a replay: it follows the packets' time stamps, but not leaps that no capture of one piece has.

use std::time::Duration;

use flow::Instant;

/// Longer than a connection lives without a packet (five days). A distance beyond it between two packets is a clock that was
/// set, a damaged record or another capture: the replay goes on at the time that it has.
pub(super) const LEAP: Duration = Duration::from_secs(7 * 86_400);
/// The latest time that a replay begins at (in the year 2262), so that the nanoseconds of what follows have room.
const BEGIN_MAX: Instant = Instant::from_nanos(u64::MAX / 2);

/// How a packet's time stamp is to those before it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stamp {
    /// At or after the latest.
    InOrder,
    /// Before the latest: the packet is played without delay.
    Earlier,
    /// Further from the latest than [`LEAP`]: the packet is played without delay, and time goes on from its stamp.
    Leap,
}

/// The clock of a replay.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timeline {
    now: Instant,
    /// The latest time stamp.
    stamp: Instant,
    /// The latest before a leap: a packet that goes on from there shows that the leap was one packet's.
    before_leap: Option<Instant>,
}

impl Timeline {
    /// Begins with the first packet.
    pub(super) fn new(first: Instant) -> Self {
        Self { now: first.min(BEGIN_MAX), stamp: first, before_leap: None }
    }

    /// The time that the clock shows.
    pub(super) const fn now(&self) -> Instant {
        self.now
    }

    /// Goes on to a packet.
    pub(super) fn advance(&mut self, stamp: Instant) -> Stamp {
        let follows = |before: Instant| stamp >= before && stamp.saturating_since(before) <= LEAP;
        let base = [Some(self.stamp), self.before_leap].into_iter().flatten().find(|base| follows(*base));
        if let Some(base) = base {
            if base != self.stamp {
                self.before_leap = None;
            }
            self.now = self.now + stamp.saturating_since(base);
            self.stamp = stamp;
            return Stamp::InOrder;
        }
        if stamp < self.stamp && self.stamp.saturating_since(stamp) <= LEAP {
            return Stamp::Earlier;
        }
        self.before_leap = Some(self.stamp);
        self.stamp = stamp;
        Stamp::Leap
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn seconds(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn one_packet_with_an_absurd_stamp_does_not_move_the_clock() {
        let mut timeline = Timeline::new(seconds(100));
        let absurd = Instant::from_nanos(u64::MAX);
        let stamps = [seconds(110), absurd, seconds(120), seconds(115), seconds(130)];
        let seen: Vec<_> = stamps.map(|stamp| (timeline.advance(stamp), timeline.now())).into();
        let expected = [
            (Stamp::InOrder, seconds(110)),
            (Stamp::Leap, seconds(110)),
            (Stamp::InOrder, seconds(120)),
            (Stamp::Earlier, seconds(120)),
            (Stamp::InOrder, seconds(130)),
        ];
        assert_eq!(seen, expected);
    }

    #[test]
    fn time_goes_on_from_where_a_clock_was_set_to() {
        let mut timeline = Timeline::new(seconds(100_000_000));
        for (stamp, expected) in [(1, 0), (6, 5), (200_000_000, 5), (200_000_007, 12)] {
            timeline.advance(seconds(stamp));
            assert_eq!(timeline.now(), seconds(100_000_000 + expected));
        }
    }

    proptest! {
        /// Whatever the stamps, the clock never goes back, and no step of it is longer than a leap.
        #[test]
        fn the_clock_goes_on_in_steps(stamps in prop::collection::vec(any::<u64>(), 1..50)) {
            let mut timeline = Timeline::new(Instant::from_nanos(stamps[0]));
            for stamp in stamps {
                let before = timeline.now();
                timeline.advance(Instant::from_nanos(stamp));
                prop_assert!(timeline.now() >= before && timeline.now().saturating_since(before) <= LEAP);
            }
        }
    }
}
