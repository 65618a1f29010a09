//! Times of different sources on one scale.

use std::time::{Duration, Instant};

/// A moment read on both clocks: the standard library's, which has no number, and the monotonic nanoseconds that nodes
/// put on their events.
#[derive(Clone, Copy, Debug)]
pub struct Epoch {
    instant: Instant,
    monotonic_ns: u64,
}

impl Epoch {
    /// This moment.
    #[must_use]
    pub fn now() -> Self {
        Self { instant: Instant::now(), monotonic_ns: packet_io::clock::now().as_nanos() }
    }

    /// The moment of the standard library's clock.
    #[must_use]
    pub const fn instant(self) -> Instant {
        self.instant
    }

    /// Milliseconds from this moment to a node's event; negative for earlier ones.
    #[must_use]
    #[allow(clippy::cast_precision_loss, reason = "demos take seconds, which a double holds to the nanosecond")]
    pub fn ms_to_event(self, monotonic_ns: u64) -> f64 {
        (i128::from(monotonic_ns) - i128::from(self.monotonic_ns)) as f64 / 1e6
    }

    /// Milliseconds from this moment to another; negative for earlier ones.
    #[must_use]
    pub fn ms_to(self, instant: Instant) -> f64 {
        let ahead = instant.saturating_duration_since(self.instant).as_secs_f64();
        let behind = self.instant.saturating_duration_since(instant).as_secs_f64();
        (ahead - behind) * 1e3
    }

    /// The moment so many milliseconds after this one.
    #[must_use]
    pub fn after_ms(self, ms: f64) -> Instant {
        self.instant + Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_give_the_same_distance() {
        let epoch = Epoch::now();
        let later = epoch.instant() + Duration::from_millis(250);
        assert!((epoch.ms_to(later) - 250.0).abs() < 1e-6);
        assert!((epoch.ms_to_event(epoch.monotonic_ns + 250_000_000) - 250.0).abs() < 1e-6);
        assert!((epoch.ms_to_event(epoch.monotonic_ns - 1_000_000) + 1.0).abs() < 1e-6);
        assert_eq!(epoch.after_ms(-5.0), epoch.instant());
    }
}
