//! Completion of short flows: the recursion of \[HALR\] section 5.2, after Mellia and Zhang (2002).

use super::schedule::Backoff;

/// Segments behind a lost one that make the sender retransmit it without a timeout (RFC 5681 section 3.2).
const DUPLICATE_ACKS: usize = 3;

/// A short flow in slow start: C<sub>n</sub><sup>w</sup>, the mean time to send `n` segments with a congestion window of `w`.
///
/// A window without losses costs a round trip and doubles. The paper gives the terms of losses for windows of up to two segments. Here
/// larger windows follow the same rule. What arrives before the first loss costs a round trip. Then three segments that arrive
/// behind it cause a fast retransmission after a round trip, fewer a timeout. The rest is sent from half the window, or from one segment.
#[derive(Clone, Debug)]
pub struct ShortFlow {
    rtt_s: f64,
    loss: f64,
    /// The first retransmission of a segment that was lost, in seconds.
    first_retransmission_s: f64,
    /// What the losses of a single segment cost, in seconds.
    single_delay_s: f64,
    /// C<sub>n</sub><sup>w</sup> in seconds, by segments and window. It needs those of fewer segments, and of a window of one.
    known: Vec<Vec<f64>>,
}

impl ShortFlow {
    /// Flows of up to `segments_max` segments, with a round-trip time in seconds, a loss rate from 0 to 0.2 and a largest window.
    ///
    /// The work grows with the product of the squares of segments and window.
    #[must_use]
    pub fn new(rtt_s: f64, loss: f64, backoff: &Backoff, window_max: u32, segments_max: u32) -> Self {
        let columns = window_max.min(segments_max).max(1) as usize + 1;
        let mut flow = Self {
            rtt_s,
            loss,
            first_retransmission_s: backoff.times_s().next().unwrap_or_default(),
            single_delay_s: backoff.expected_delay_s(loss),
            known: vec![vec![0.0; columns]],
        };
        for left in 1..=segments_max as usize {
            flow.known.push(vec![0.0; columns]);
            for window in 1..columns {
                flow.known[left][window] = flow.step(left, window);
            }
        }
        flow
    }

    /// C<sub>n</sub><sup>w</sup> in seconds: `segments`, at most those of [`new`](Self::new), with a first window of `window`, at least 1.
    ///
    /// # Panics
    ///
    /// If there are more segments: the caller's mistake.
    #[must_use]
    pub fn completion_s(&self, segments: u32, window: u32) -> f64 {
        self.known(segments as usize, window as usize)
    }

    /// What is known of so many segments. A window beyond the largest, or beyond all segments, sends no more than that.
    fn known(&self, segments: usize, window: usize) -> f64 {
        let row = &self.known[segments];
        row[window.clamp(1, row.len() - 1)]
    }

    fn step(&self, left: usize, window: usize) -> f64 {
        let sent = window.min(left);
        if sent == 1 {
            // Its losses are a series of timeouts, as in C₁¹.
            return self.rtt_s + self.single_delay_s + self.known(left - 1, window * 2);
        }
        let delivered = 1.0 - self.loss;
        let lossless = delivered.powi(sent as i32) * (self.rtt_s + self.known(left - sent, window + sent));
        (0..sent).map(|first_lost| self.with_loss(left, sent, first_lost)).sum::<f64>() + lossless
    }

    /// The share of a window whose first loss is at a place in it, times its duration in seconds.
    fn with_loss(&self, left: usize, sent: usize, first_lost: usize) -> f64 {
        let delivered = 1.0 - self.loss;
        let behind = sent - first_lost - 1;
        let before_s = if first_lost > 0 { self.rtt_s } else { 0.0 };
        // The binomial share of each number that arrives behind the loss, from all of them down.
        let mut share = self.loss * delivered.powi((first_lost + behind) as i32);
        let mut mean = 0.0;
        for arrived in (0..=behind).rev() {
            let rest = left - first_lost - arrived;
            let duration_s = if arrived >= DUPLICATE_ACKS {
                // The duplicates come with the acknowledgements of what arrived before.
                self.rtt_s + self.known(rest, (sent / 2).max(1))
            } else {
                before_s + self.first_retransmission_s + self.known(rest, 1)
            };
            mean += share * duration_s;
            share *= self.loss / delivered * arrived as f64 / (behind - arrived + 1) as f64;
        }
        mean
    }
}
