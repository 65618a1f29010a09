//! Round trips as an edge sees them: from a passing segment to its passing acknowledgement.
//!
//! An edge sees the part of the round trip that lies beyond it. The parts beyond on both sides together are the round trip of
//! the end points. A sample is the echo of the segment's timestamp (RFC 7323 section 3) or, without timestamps, the
//! acknowledgement of a segment that was sent once (Karn's rule, RFC 6298 section 3).

use flow::serial::{is_after, is_before};

/// Samples beyond this are not used, in microseconds: the path was interrupted.
const SAMPLE_US_MAX: u32 = 60_000_000;

/// The lowest sample is kept in units of 64 µs, and the variation in units of 1024 µs, so that they fit.
const LEAST_SHIFT: u32 = 6;
/// As above.
const VARIATION_SHIFT: u32 = 10;

/// What an acknowledgement must contain to end the measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Awaited {
    Nothing,
    /// An acknowledgement number at or behind this one.
    Acknowledgement,
    /// This timestamp echoed.
    Echo,
}

/// The estimate for the segments of one end point (RFC 6298 section 2).
#[derive(Clone, Copy, Debug)]
pub(super) struct RoundTrip {
    /// The acknowledgement number or timestamp that is awaited.
    mark: u32,
    sent_at_us: u32,
    smoothed_us: u32,
    variation: u8,
    /// The lowest sample.
    least: u16,
    awaited: Awaited,
}

impl RoundTrip {
    pub(super) const NEW: Self =
        Self { mark: 0, sent_at_us: 0, smoothed_us: 0, variation: 0, least: u16::MAX, awaited: Awaited::Nothing };

    /// The smoothed round trip and its variation, in microseconds. `None` before the first sample.
    pub(super) const fn estimate_us(&self) -> Option<(u32, u32)> {
        if self.smoothed_us == 0 { None } else { Some((self.smoothed_us, (self.variation as u32) << VARIATION_SHIFT)) }
    }

    /// The lowest round trip, in microseconds: without queues, if there ever were none. `None` before the first sample.
    pub(super) const fn least_us(&self) -> Option<u32> {
        if self.smoothed_us == 0 { None } else { Some((self.least as u32) << LEAST_SHIFT) }
    }

    /// A segment with data up to `end` passes.
    pub(super) fn on_segment(&mut self, now_us: u32, end: u32, timestamp: Option<u32>, is_retransmission: bool) {
        match (self.awaited, timestamp) {
            (Awaited::Nothing, Some(value)) => self.start(Awaited::Echo, value, now_us),
            (Awaited::Nothing, None) if !is_retransmission => self.start(Awaited::Acknowledgement, end, now_us),
            (Awaited::Acknowledgement, _) if is_retransmission && !is_after(end, self.mark) => {
                self.awaited = Awaited::Nothing;
            }
            _ => {}
        }
    }

    const fn start(&mut self, awaited: Awaited, mark: u32, now_us: u32) {
        (self.awaited, self.mark, self.sent_at_us) = (awaited, mark, now_us);
    }

    /// Segments and acknowledgements have passed unseen: the measurement ends without a sample.
    pub(super) const fn abandon(&mut self) {
        self.awaited = Awaited::Nothing;
    }

    /// An acknowledgement of new data passes in the other direction.
    pub(super) fn on_acknowledgement(&mut self, now_us: u32, acknowledgement: u32, echo: Option<u32>) {
        let is_sample = match (self.awaited, echo) {
            (Awaited::Nothing, _) => return,
            (Awaited::Acknowledgement, _) => !is_before(acknowledgement, self.mark),
            (Awaited::Echo, Some(echo)) if is_before(echo, self.mark) => return,
            (Awaited::Echo, echo) => echo == Some(self.mark),
        };
        // The echo of a later timestamp ends the measurement without a sample.
        if is_sample {
            self.add_sample(now_us.wrapping_sub(self.sent_at_us));
        }
        if is_sample || self.awaited == Awaited::Echo {
            self.awaited = Awaited::Nothing;
        }
    }

    fn add_sample(&mut self, sample_us: u32) {
        let sample_us = sample_us.max(1);
        if sample_us > SAMPLE_US_MAX {
            return;
        }
        let (smoothed_us, variation_us) = match self.estimate_us() {
            None => (sample_us, sample_us / 2),
            Some((smoothed_us, variation_us)) => {
                let deviation_us = smoothed_us.abs_diff(sample_us);
                let variation_us = variation_us - variation_us / 4 + deviation_us / 4;
                (smoothed_us - smoothed_us / 8 + sample_us / 8, variation_us)
            }
        };
        self.smoothed_us = smoothed_us.max(1);
        self.variation = u8::try_from(variation_us.div_ceil(1 << VARIATION_SHIFT)).unwrap_or(u8::MAX);
        self.least = self.least.min(u16::try_from(sample_us.div_ceil(1 << LEAST_SHIFT)).unwrap_or(u16::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_and_its_acknowledgement_are_a_sample() {
        let mut round_trip = RoundTrip::NEW;
        round_trip.on_segment(u32::MAX - 999, 100, None, false);
        round_trip.on_acknowledgement(0, 99, None);
        assert_eq!(round_trip.estimate_us(), None, "the segment is not acknowledged yet");
        round_trip.on_acknowledgement(19_000, 100, None);
        assert_eq!(round_trip.estimate_us(), Some((20_000, 10 << 10)));
    }

    #[test]
    fn a_retransmitted_segment_is_no_sample() {
        let mut round_trip = RoundTrip::NEW;
        round_trip.on_segment(0, 100, None, false);
        round_trip.on_segment(500_000, 100, None, true);
        round_trip.on_acknowledgement(510_000, 100, None);
        assert_eq!(round_trip.estimate_us(), None);
    }

    #[test]
    fn a_timestamp_echo_is_a_sample_and_a_later_one_is_not() {
        let mut round_trip = RoundTrip::NEW;
        round_trip.on_segment(0, 100, Some(7), false);
        round_trip.on_segment(300_000, 100, Some(307), true);
        round_trip.on_acknowledgement(310_000, 100, Some(307));
        assert_eq!(round_trip.estimate_us(), None);
        round_trip.on_segment(400_000, 200, Some(407), false);
        round_trip.on_acknowledgement(410_000, 150, Some(307));
        round_trip.on_acknowledgement(420_000, 200, Some(407));
        assert_eq!(round_trip.estimate_us(), Some((20_000, 10 << 10)));
    }

    #[test]
    fn samples_beyond_the_limit_are_not_used() {
        let mut round_trip = RoundTrip::NEW;
        round_trip.on_segment(0, 100, None, false);
        round_trip.on_acknowledgement(SAMPLE_US_MAX + 1, 100, None);
        assert_eq!(round_trip.estimate_us(), None);
    }
}
