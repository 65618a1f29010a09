//! A budget of bytes a second.

use core::time::Duration;

use flow::Instant;

/// How much may be saved up, as time at the rate of the budget.
const BURST: Duration = Duration::from_millis(100);

/// A bucket of bytes: full at first, it is refilled at its rate and may be overdrawn by one datagram. It is one number: when
/// it will be full again.
pub(super) struct Budget {
    bytes_per_second: u64,
    burst: Duration,
    full_at: Instant,
}

impl Budget {
    /// So many bytes a second; what a few datagrams need may come at once.
    pub(super) fn new(bytes_per_second: u64, datagram_bytes_max: usize) -> Self {
        let mut budget = Self { bytes_per_second: bytes_per_second.max(1), burst: BURST, full_at: Instant::ZERO };
        budget.burst = BURST.max(budget.time_for(2 * datagram_bytes_max));
        budget
    }

    /// How long the rate takes for so many bytes.
    fn time_for(&self, bytes: usize) -> Duration {
        let nanos = bytes as u128 * 1_000_000_000 / u128::from(self.bytes_per_second);
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When a datagram may be sent next: perhaps in the past.
    pub(super) fn may_send_at(&self) -> Instant {
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(self.burst.as_nanos() as u64))
    }

    /// These bytes were sent.
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        self.full_at = self.full_at.max(now) + self.time_for(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_the_rate_and_a_burst() {
        // Also where a nanosecond is more than a byte takes.
        for rate in [100_000, 3_000_000, 700_000_000, 3_000_000_000_u64] {
            let mut budget = Budget::new(rate, 1000);
            let mut sent = 0;
            for millis in 1000..2000 {
                let now = Instant::from_millis(millis);
                while budget.may_send_at() <= now {
                    budget.spend(now, 700);
                    sent += 700;
                }
            }
            // A second, and what was saved up in a tenth of one; a part of a nanosecond is lost for each datagram.
            let most = rate + rate / 10 + rate / 100 + 2 * 700;
            assert!((rate..most).contains(&sent), "{sent} of {rate}");
        }
    }
}
