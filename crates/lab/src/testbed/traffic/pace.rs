//! Sending at a steady rate.

use std::time::{Duration, Instant};

/// How often paced senders are looked at.
pub const PACE_TICK: Duration = Duration::from_millis(4);
/// The most that a sender may make up for after a pause, so that a failover is not followed by a burst.
const ARREARS_MAX: Duration = Duration::from_millis(20);

/// A rate in bytes a second, and what of it has been used.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    /// Time that may go unused and be made up for.
    arrears_max: Duration,
    /// Up to this point the rate has been used.
    used_until: Instant,
}

impl Pace {
    /// A pace that begins now.
    #[must_use]
    pub const fn new(bytes_per_s: u64, now: Instant) -> Self {
        Self { bytes_per_s, arrears_max: ARREARS_MAX, used_until: now }
    }

    /// A pace that begins now, of what is spent in pieces of so many bytes: one is due in the end however slow it is.
    #[must_use]
    pub fn of_pieces(bytes_per_s: u64, piece_bytes: u64, now: Instant) -> Self {
        let two_pieces = Duration::from_micros(2_000_000 * piece_bytes / bytes_per_s.max(1));
        Self { arrears_max: ARREARS_MAX.max(two_pieces), ..Self::new(bytes_per_s, now) }
    }

    /// Bytes that may be sent now.
    pub fn allowance_bytes(&mut self, now: Instant) -> usize {
        let floor = now.checked_sub(self.arrears_max).unwrap_or(now);
        self.used_until = self.used_until.max(floor);
        let free = now.saturating_duration_since(self.used_until);
        usize::try_from(free.as_micros() * u128::from(self.bytes_per_s) / 1_000_000).unwrap_or(usize::MAX)
    }

    /// `count` bytes were sent.
    pub fn spend(&mut self, count: usize) {
        let micros = count as u128 * 1_000_000 / u128::from(self.bytes_per_s.max(1));
        self.used_until += Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_sent_grows_with_time_up_to_the_arrears_limit() {
        let start = Instant::now();
        let mut pace = Pace::new(1_000_000, start);
        assert_eq!(pace.allowance_bytes(start), 0);
        assert_eq!(pace.allowance_bytes(start + Duration::from_millis(10)), 10_000);
        pace.spend(10_000);
        assert_eq!(pace.allowance_bytes(start + Duration::from_millis(10)), 0);
        assert_eq!(pace.allowance_bytes(start + Duration::from_secs(60)), 20_000);
    }

    #[test]
    fn a_piece_is_due_in_the_end_however_slow_the_pace() {
        let start = Instant::now();
        let mut pace = Pace::of_pieces(1000, 1000, start);
        assert_eq!(pace.allowance_bytes(start + Duration::from_millis(900)), 900);
        assert_eq!(pace.allowance_bytes(start + Duration::from_millis(1000)), 1000);
        assert_eq!(pace.allowance_bytes(start + Duration::from_secs(60)), 2000, "and no more than two at once");
    }
}
