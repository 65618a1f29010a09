//! A budget of bytes a second.

use core::time::Duration;

use flow::Instant;

/// How much may be saved up, as time at the rate of the budget.
const BURST: Duration = Duration::from_millis(100);

/// A bucket of bytes: full at first, it is refilled at its rate and may be overdrawn by one datagram. It is one number: when
/// it will be full again.
pub(super) struct Budget {
    nanos_per_byte: u64,
    burst: Duration,
    full_at: Instant,
}

impl Budget {
    /// So many bytes a second; what a few datagrams need may come at once.
    pub(super) fn new(bytes_per_second: u64, datagram_bytes_max: usize) -> Self {
        let nanos_per_byte = (1_000_000_000 / bytes_per_second.max(1)).max(1);
        let burst = BURST.max(Duration::from_nanos(nanos_per_byte.saturating_mul(2 * datagram_bytes_max as u64)));
        Self { nanos_per_byte, burst, full_at: Instant::ZERO }
    }

    /// When a datagram may be sent next: perhaps in the past.
    pub(super) fn may_send_at(&self) -> Instant {
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(self.burst.as_nanos() as u64))
    }

    /// These bytes were sent.
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        self.full_at = self.full_at.max(now) + Duration::from_nanos(self.nanos_per_byte.saturating_mul(bytes as u64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_sent_than_the_rate_and_a_burst() {
        let mut budget = Budget::new(100_000, 1000);
        let mut sent = 0;
        for millis in 1000..11_000 {
            let now = Instant::from_millis(millis);
            while budget.may_send_at() <= now {
                budget.spend(now, 700);
                sent += 700;
            }
        }
        assert!((1_000_000..1_000_000 + 10_000 + 2 * 700).contains(&sent), "{sent}");
    }
}
