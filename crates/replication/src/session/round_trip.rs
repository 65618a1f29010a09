//! How long an answer takes, and so how long to wait for one.

use core::time::Duration;

/// The smoothed round trip (RFC 6298's estimator, without its variance: a probe too early costs one small datagram).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RoundTrip {
    smoothed: Option<Duration>,
}

impl RoundTrip {
    pub(crate) fn measured(&mut self, sample: Duration) {
        self.smoothed = Some(match self.smoothed {
            Some(smoothed) => (smoothed * 7 + sample) / 8,
            None => sample,
        });
    }

    /// Twice the round trip, within `min..=max`.
    pub(crate) fn probe_timeout(&self, min: Duration, max: Duration) -> Duration {
        self.smoothed.map_or(min, |smoothed| smoothed * 2).clamp(min, max)
    }
}
