//! The congestion window after an interruption, a round trip at a time.

/// A congestion window that grows by slow start below its threshold, and above it as its schedule states (RFC 5681 section 3.1).
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Window {
    /// Segments that one round trip carries.
    pub(super) segments: f64,
    /// Where slow start ends, in segments.
    pub(super) threshold: f64,
    /// The largest window in segments.
    pub(super) max: f64,
    /// Segments that fast recovery still has to retransmit. The window does not grow meanwhile.
    pub(super) recovering: f64,
    /// Above the threshold it grows by one segment in a round trip. Otherwise each acknowledgement adds its reciprocal, which is less in a
    /// round trip: see [`RetransmissionSchedule::counts_acknowledgements`](super::RetransmissionSchedule).
    pub(super) counts: bool,
}

/// The least slow-start threshold, in segments (RFC 5681 section 3.1, equation 4).
pub(super) const THRESHOLD_MIN: f64 = 2.0;

impl Window {
    /// A window in slow start without a threshold.
    pub(super) fn slow_start(segments: u32, max: u32, counts: bool) -> Self {
        Self { segments: segments.into(), threshold: f64::INFINITY, max: max.into(), recovering: 0.0, counts }
    }

    /// The window after a round trip, all of whose segments were acknowledged.
    pub(super) fn grown(self) -> Self {
        if self.recovering > 0.0 {
            return Self { recovering: self.recovering - self.segments, ..self };
        }
        if self.segments < self.threshold {
            return Self { segments: (self.segments * 2.0).min(self.threshold).min(self.max), ..self };
        }
        if self.counts {
            return Self { segments: (self.segments + 1.0).min(self.max), ..self };
        }
        self.acknowledged(self.segments)
    }

    /// The window of a flow that has delivered so many segments without a loss.
    pub(super) fn after(mut self, delivered: u32) -> Self {
        let mut left = f64::from(delivered);
        while left >= self.segments && self.segments < self.max {
            left -= self.segments;
            self = self.grown();
        }
        self
    }

    /// The window after so many timeouts, at least one; `collapses` as in the schedule.
    pub(super) fn timed_out(self, timeouts: usize, collapses: bool) -> Self {
        let threshold =
            if timeouts > 1 && collapses { THRESHOLD_MIN } else { (self.segments / 2.0).max(THRESHOLD_MIN) };
        Self { segments: 1.0, threshold, ..self }
    }

    /// The window of a fast recovery of all that was in flight: half of it.
    pub(super) fn halved(self) -> Self {
        let half = (self.segments / 2.0).max(THRESHOLD_MIN);
        Self { segments: half, threshold: half, recovering: self.segments, ..self }
    }

    /// The window after so many acknowledgements, one by one: above the threshold its square grows by two with each.
    pub(super) fn acknowledged(self, acknowledgements: f64) -> Self {
        let slow = (self.threshold - self.segments).max(0.0);
        let segments = if acknowledgements <= slow {
            self.segments + acknowledgements
        } else {
            let begins = self.segments.max(self.threshold);
            begins.mul_add(begins, 2.0 * (acknowledgements - slow)).sqrt()
        };
        Self { segments: segments.min(self.max), ..self }
    }

    /// Round trips until `left` segments are sent or the window reaches `steady`, and the segments that are left then.
    pub(super) fn round_trips(mut self, mut left: f64, steady: f64) -> (f64, f64) {
        let mut round_trips = 0.0;
        while left > 0.0 && self.segments < steady {
            left -= self.segments;
            round_trips += 1.0;
            self = self.grown();
        }
        (round_trips, left.max(0.0))
    }
}
