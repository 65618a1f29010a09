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
        let budget = Self { bytes_per_second: bytes_per_second.max(1), burst: BURST, full_at: Instant::ZERO };
        Self { burst: BURST.max(budget.time_of(2 * datagram_bytes_max)), ..budget }
    }

    /// How long the rate takes for so many bytes, rounded up: at a gigabyte a second a byte is a nanosecond, and faster ones must not
    /// come to none.
    fn time_of(&self, bytes: usize) -> Duration {
        let nanos = (bytes as u128 * 1_000_000_000).div_ceil(self.bytes_per_second.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }

    /// When a datagram may be sent next: perhaps in the past.
    pub(super) fn may_send_at(&self) -> Instant {
        Instant::from_nanos(self.full_at.as_nanos().saturating_sub(self.burst.as_nanos() as u64))
    }

    /// These bytes were sent.
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        self.full_at = self.full_at.max(now) + self.time_of(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes sent within so many seconds by a sender that sends whenever it may.
    fn sent_within(seconds: u64, bytes_per_second: u64, datagram_bytes: usize) -> u64 {
        let mut budget = Budget::new(bytes_per_second, datagram_bytes);
        let mut sent = 0;
        for millis in 1000..1000 + seconds * 1000 {
            let now = Instant::from_millis(millis);
            while budget.may_send_at() <= now {
                budget.spend(now, datagram_bytes);
                sent += datagram_bytes as u64;
            }
        }
        sent
    }

    #[test]
    fn no_more_is_sent_than_the_rate_and_a_burst() {
        let sent = sent_within(10, 100_000, 700);
        assert!((1_000_000..1_000_000 + 10_000 + 2 * 700).contains(&sent), "{sent}");
    }

    #[test]
    fn rates_whose_byte_takes_no_whole_nanoseconds_are_kept_as_well() {
        for rate in [300_000_000, 700_000_000, 3_000_000_000] {
            let sent = sent_within(2, rate, 1400);
            assert!((2 * rate..2 * rate + rate / 8).contains(&(sent + rate / 500)), "{sent} of {rate} a second");
        }
    }
}
