//! Completion of long flows: \[HALR\] section 5.3, after Cardwell, Savage and Anderson (2000).
//!
//! Where \[HALR\] names a term and leaves it to its reference, the formula is the reference's. E\[d_ss\], E\[T_ss\] and T_loss are those of
//! Cardwell et al. The steady rate is that of Padhye et al. (2000) in Cardwell's form. Receivers acknowledge every segment, as in
//! the recursion for short flows: the window grows by the factor γ = 2 in each round trip of slow start.

/// γ: the factor of the window's growth in each round trip of slow start.
const GROWTH: f64 = 2.0;

/// A long flow that loses segments at random.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LongFlow {
    /// Round-trip time in seconds.
    pub rtt_s: f64,
    /// Loss rate of segments, 0 to 0.2.
    pub loss: f64,
    /// First retransmission timeout in seconds (T_o).
    pub timeout_s: f64,
    /// Initial congestion window in segments.
    pub initial_window: u32,
    /// Largest congestion window in segments.
    pub window_max: u32,
}

impl LongFlow {
    /// E\[d_ss\]: segments that are sent before the first loss ends slow start, of a flow of so many; at most all of them.
    #[must_use]
    pub fn slow_start_segments(&self, segments: f64) -> f64 {
        if self.loss == 0.0 {
            return segments;
        }
        let delivered = 1.0 - self.loss;
        ((1.0 - delivered.powf(segments)) * delivered / self.loss + 1.0).min(segments)
    }

    /// E\[T_ss\] in seconds for so many segments, with rounds at the largest window once it is reached.
    #[must_use]
    pub fn slow_start_s(&self, segments: f64) -> f64 {
        let (first, most) = (f64::from(self.initial_window), f64::from(self.window_max));
        let reached = segments * (GROWTH - 1.0) / GROWTH + first / GROWTH;
        let round_trips = if reached > most {
            let grown = (GROWTH * most - first) / (GROWTH - 1.0);
            (most / first).log(GROWTH) + 1.0 + (segments - grown) / most
        } else {
            (segments * (GROWTH - 1.0) / first + 1.0).log(GROWTH)
        };
        self.rtt_s * round_trips
    }

    /// T_loss in seconds: what the loss at the end of slow start costs a flow of so many segments, by timeout or fast retransmission.
    #[must_use]
    pub fn first_loss_s(&self, segments: f64) -> f64 {
        if self.loss == 0.0 {
            return 0.0;
        }
        let first = f64::from(self.initial_window);
        let reached = self.slow_start_segments(segments) * (GROWTH - 1.0) / GROWTH + first / GROWTH;
        let window = reached.min(f64::from(self.window_max));
        let has_loss = 1.0 - (1.0 - self.loss).powf(segments);
        let by_timeout = timeout_share(self.loss, window);
        has_loss * (by_timeout * series_s(self.loss, self.timeout_s) + (1.0 - by_timeout) * self.rtt_s)
    }

    /// The steady rate in segments per second.
    #[must_use]
    pub fn rate_per_s(&self) -> f64 {
        throughput_per_s(self.loss, self.rtt_s, self.timeout_s, f64::from(self.window_max))
    }
}

/// The probability that a loss in a window of so many segments is recovered by a timeout (Padhye's Q̂).
fn timeout_share(loss: f64, window: f64) -> f64 {
    let delivered = 1.0 - loss;
    let three = 1.0 - delivered.powi(3);
    let behind = 1.0 + delivered.powi(3) * (1.0 - delivered.powf(window - 3.0));
    (three * behind / (1.0 - delivered.powf(window))).clamp(0.0, 1.0)
}

/// The expected duration of a series of timeouts in seconds (E\[Z^TO\]): they double six times.
fn series_s(loss: f64, timeout_s: f64) -> f64 {
    timeout_s * timeout_growth(loss) / (1.0 - loss)
}

/// G(p) = 1 + p + 2p² + 4p³ + 8p⁴ + 16p⁵ + 32p⁶.
fn timeout_growth(loss: f64) -> f64 {
    1.0 + (1..=6).map(|doubling| 2_f64.powi(doubling - 1) * loss.powi(doubling)).sum::<f64>()
}

/// The steady rate of a flow in segments per second (Padhye et al. 2000, section II, as Cardwell et al. 2000, equation 22).
///
/// `loss` from 0 to 0.2, times in seconds, the largest window in segments. Without losses the window limits the rate.
#[must_use]
pub fn throughput_per_s(loss: f64, rtt_s: f64, timeout_s: f64, window_max: f64) -> f64 {
    if loss == 0.0 {
        return window_max / rtt_s;
    }
    let free = 1.0 + (8.0 * (1.0 - loss) / (3.0 * loss) + 1.0).sqrt();
    let window = free.min(window_max);
    let by_timeout = timeout_share(loss, window);
    let segments = (1.0 - loss) / loss + window / 2.0 + by_timeout;
    let round_trips =
        if free < window_max { window / 2.0 + 1.0 } else { window / 8.0 + (1.0 - loss) / (loss * window) + 2.0 };
    segments / (rtt_s * round_trips + by_timeout * series_s(loss, timeout_s))
}
