//! The sender's part.

use alloc::collections::VecDeque;
#[cfg(test)]
use alloc::vec::Vec;
use core::time::Duration;

use flow::Instant;
use flow::serial::is_before;

use super::RttEstimator;

/// How long a sender waits for acknowledgements before it probes.
#[derive(Clone, Copy, Debug)]
pub struct ProbeTimeouts {
    /// The shortest timeout; otherwise it is two round trips.
    pub min: Duration,
    /// The longest timeout: it doubles with each probe.
    pub max: Duration,
    /// How long the receiver may delay an acknowledgement that no probe asks for.
    pub ack_delay: Duration,
}

/// The peer acknowledges a number that was never sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NeverSent;

/// What is in flight, under consecutive numbers, and when to probe for its acknowledgement.
///
/// An acknowledgement settles every number below one: each was received or is lost. Nothing is retransmitted under its old
/// number, as newer state replaces what was lost. So the receiver decides what is lost, and a probe asks for its decision.
///
/// ```text
///             base = oldest in flight          next
///   settled   | in flight                      | to be sent
///  -----------+--------------------------------+-----------> numbers, which wrap round
/// ```
#[derive(Clone, Debug)]
pub struct LossRecovery<T> {
    in_flight: VecDeque<(Instant, T)>,
    next: u32,
    rtt: RttEstimator,
    timeouts: ProbeTimeouts,
    probe_at: Option<Instant>,
    /// Probes since the last acknowledgement.
    probes: u32,
}

impl<T> LossRecovery<T> {
    /// Nothing is in flight, and `first` is the number to be sent first.
    #[must_use]
    pub fn new(first: u32, timeouts: ProbeTimeouts) -> Self {
        let (in_flight, rtt) = (VecDeque::new(), RttEstimator::default());
        Self { in_flight, next: first, rtt, timeouts, probe_at: None, probes: 0 }
    }

    /// Forgets what is in flight and the round trip, and numbers from `first` on.
    pub fn renumber(&mut self, first: u32) {
        *self = Self::new(first, self.timeouts);
    }

    /// The number to be sent next.
    #[must_use]
    pub const fn next(&self) -> u32 {
        self.next
    }

    /// The oldest number in flight, or [`LossRecovery::next`].
    #[must_use]
    pub fn base(&self) -> u32 {
        self.next.wrapping_sub(self.in_flight.len() as u32)
    }

    /// How many numbers are in flight.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// When the oldest number in flight was sent.
    #[must_use]
    pub fn oldest_at(&self) -> Option<Instant> {
        self.in_flight.front().map(|(at, _)| *at)
    }

    /// The smoothed round trip.
    #[must_use]
    pub const fn round_trip(&self) -> Option<Duration> {
        self.rtt.smoothed()
    }

    /// `item` was sent under the next number.
    pub fn on_sent(&mut self, now: Instant, item: T) {
        self.in_flight.push_back((now, item));
        self.next = self.next.wrapping_add(1);
        self.probe_at = self.probe_at.or_else(|| Some(self.first_probe_at(now)));
    }

    /// Every number below `next` is settled, of which [`LossRecovery::pop_settled`] is to be asked. The receiver `held` the acknowledgement
    /// back for so long since the highest number came. An acknowledgement older than another one changes nothing.
    ///
    /// # Errors
    /// The peer's fault: `next` was never sent.
    pub fn on_ack(&mut self, now: Instant, next: u32, held: Duration) -> Result<(), NeverSent> {
        if is_before(self.next, next) {
            return Err(NeverSent);
        }
        if is_before(self.base(), next) || self.in_flight.is_empty() {
            if let Some(at) = self.sent_at(next.wrapping_sub(1)) {
                self.rtt.on_sample(now.saturating_since(at).saturating_sub(held));
            }
            self.probes = 0;
            self.probe_at = self.sent_at(next).map(|oldest_at| self.first_probe_at(oldest_at));
        }
        Ok(())
    }

    /// Takes the oldest number in flight, with what was sent under it, if it lies below `next`.
    pub fn pop_settled(&mut self, next: u32) -> Option<(u32, T)> {
        let number = self.base();
        let (_, item) = is_before(number, next).then(|| self.in_flight.pop_front())??;
        Some((number, item))
    }

    fn sent_at(&self, number: u32) -> Option<Instant> {
        let (at, _) = self.in_flight.get(number.wrapping_sub(self.base()) as usize)?;
        Some(*at)
    }

    /// When a probe is to be sent; `None` while nothing is in flight.
    #[must_use]
    pub const fn probe_at(&self) -> Option<Instant> {
        self.probe_at
    }

    /// Whether a probe is to be sent now. If so it counts as sent, and the next one is due after twice the time.
    pub fn takes_probe(&mut self, now: Instant) -> bool {
        let is_due = self.probe_at.is_some_and(|at| at <= now);
        if is_due {
            self.probes = self.probes.saturating_add(1);
            let timeout = self.probe_timeout().saturating_mul(1 << self.probes.min(10));
            self.probe_at = Some(now + timeout.min(self.timeouts.max));
        }
        is_due
    }

    /// A probe is to be sent now, whether or not something is in flight, until an acknowledgement comes.
    pub const fn probe_now(&mut self, now: Instant) {
        (self.probe_at, self.probes) = (Some(now), 0);
    }

    fn first_probe_at(&self, sent_at: Instant) -> Instant {
        sent_at + self.timeouts.ack_delay + self.probe_timeout()
    }

    fn probe_timeout(&self) -> Duration {
        let ProbeTimeouts { min, max, .. } = self.timeouts;
        self.rtt.smoothed().map_or(min, |round_trip| round_trip * 2).clamp(min, max)
    }
}

#[cfg(test)]
impl<T> LossRecovery<T> {
    /// Appends what its future depends on, with what `name` appends for each item: times as seen from `now`, numbers from the
    /// next one. With the two timeouts equal, that leaves out the measured round trip.
    pub(crate) fn normal_form(&self, now: Instant, out: &mut Vec<u64>, mut name: impl FnMut(&T, &mut Vec<u64>)) {
        // Named one by one, so that a new field does not compile until it is handled here.
        let Self { in_flight, next: _, rtt: _, timeouts, probe_at, probes: _ } = self;
        assert_eq!(timeouts.min, timeouts.max);
        let age_max = timeouts.ack_delay + timeouts.max;
        out.push(in_flight.len() as u64);
        for (at, item) in in_flight {
            out.push(now.saturating_since(*at).min(age_max).as_micros() as u64);
            name(item, out);
        }
        out.push(probe_at.map_or(0, |at| at.saturating_since(now).as_micros() as u64 + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    fn recovery(first: u32) -> LossRecovery<char> {
        let [min, max, ack_delay] = [4, 100, 2].map(Duration::from_millis);
        LossRecovery::new(first, ProbeTimeouts { min, max, ack_delay })
    }

    /// What an acknowledgement that was not held back settles.
    fn settled(recovery: &mut LossRecovery<char>, now: Instant, next: u32) -> Vec<(u32, char)> {
        recovery.on_ack(now, next, Duration::ZERO).unwrap();
        core::iter::from_fn(|| recovery.pop_settled(next)).collect()
    }

    #[test]
    fn an_acknowledgement_settles_all_below_its_number_and_measures_the_round_trip() {
        let mut recovery = recovery(u32::MAX);
        (0..).zip("abcd".chars()).for_each(|(millis, item)| recovery.on_sent(at(millis), item));
        assert_eq!((recovery.base(), recovery.next(), recovery.in_flight()), (u32::MAX, 3, 4));
        assert_eq!(settled(&mut recovery, at(12), 2), [(u32::MAX, 'a'), (0, 'b'), (1, 'c')]);
        assert_eq!(recovery.round_trip(), Some(Duration::from_millis(10)), "of c");
        assert_eq!(settled(&mut recovery, at(90), 1), [], "an older one");
        assert_eq!((recovery.oldest_at(), recovery.round_trip()), (Some(at(3)), Some(Duration::from_millis(10))));
        assert_eq!(recovery.on_ack(at(90), 4, Duration::ZERO), Err(NeverSent));
        recovery.on_ack(at(93), 3, Duration::from_millis(80)).unwrap();
        assert_eq!(recovery.round_trip(), Some(Duration::from_millis(10)), "without the delay");
    }

    #[test]
    fn probes_wait_for_two_round_trips_of_the_oldest_in_flight_and_back_off() {
        let mut recovery = recovery(0);
        recovery.on_sent(at(0), 'a');
        recovery.on_sent(at(5), 'b');
        assert_eq!(recovery.probe_at(), Some(at(6)), "the shortest timeout, and the delay of acknowledgements");
        assert_eq!(settled(&mut recovery, at(20), 1), [(0, 'a')]);
        assert_eq!(recovery.probe_at(), Some(at(5 + 2 + 40)), "two round trips after b");
        assert!(!recovery.takes_probe(at(46)) && recovery.takes_probe(at(47)));
        assert_eq!(recovery.probe_at(), Some(at(47 + 80)));
        assert!(recovery.takes_probe(at(127)));
        assert_eq!(recovery.probe_at(), Some(at(127 + 100)), "the longest timeout");
        assert_eq!(settled(&mut recovery, at(130), 2), [(1, 'b')]);
        assert_eq!(recovery.probe_at(), None);
        recovery.probe_now(at(200));
        assert!(recovery.takes_probe(at(200)) && recovery.probe_at().is_some(), "although nothing is in flight");
        assert_eq!(settled(&mut recovery, at(201), 2), []);
        assert_eq!(recovery.probe_at(), None);
    }
}
