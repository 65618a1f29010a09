//! How long a datagram and its acknowledgement take.

use core::time::Duration;

/// The smoothed round trip (RFC 6298, section 2, without the variance: a probe too early costs one small datagram).
#[derive(Clone, Copy, Debug, Default)]
pub struct RttEstimator {
    smoothed: Option<Duration>,
}

impl RttEstimator {
    /// Takes the round trip of one datagram, without the time that its acknowledgement was held back.
    pub fn on_sample(&mut self, sample: Duration) {
        self.smoothed = Some(self.smoothed.map_or(sample, |smoothed| (smoothed * 7 + sample) / 8));
    }

    /// The smoothed round trip; `None` before the first sample.
    #[must_use]
    pub const fn smoothed(&self) -> Option<Duration> {
        self.smoothed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sample_counts_whole_and_later_ones_an_eighth() {
        let mut rtt = RttEstimator::default();
        assert_eq!(rtt.smoothed(), None);
        rtt.on_sample(Duration::from_millis(80));
        rtt.on_sample(Duration::from_millis(160));
        assert_eq!(rtt.smoothed(), Some(Duration::from_millis(90)));
    }
}
