//! Rate limits.

use core::time::Duration;

use crate::Instant;

/// A rate limit: `burst` events at once, and `per_s` a second in the long run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RateLimit {
    cost_nanos: u64,
    burst_nanos: u64,
}

impl RateLimit {
    /// The limit. Both numbers must be at least 1.
    #[must_use]
    pub const fn new(per_s: u32, burst: u32) -> Self {
        let per_s = if per_s == 0 { 1 } else { per_s };
        let burst = if burst == 0 { 1 } else { burst };
        let cost_nanos = 1_000_000_000 / per_s as u64;
        Self { cost_nanos, burst_nanos: cost_nanos.saturating_mul(burst as u64) }
    }

    /// The time to refill an empty bucket.
    #[must_use]
    pub const fn refill_time(&self) -> Duration {
        Duration::from_nanos(self.burst_nanos)
    }
}

/// A token bucket, full at first, refilled at its [`RateLimit`]. It is stored as one number: the time at which it will
/// be full.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TokenBucket {
    full_at: Instant,
}

impl TokenBucket {
    /// Takes a token. Returns false when there is none.
    #[must_use]
    pub fn take(&mut self, now: Instant, limit: &RateLimit) -> bool {
        let full_at = self.full_at.max(now) + Duration::from_nanos(limit.cost_nanos);
        let may = full_at.saturating_since(now) <= limit.refill_time();
        if may {
            self.full_at = full_at;
        }
        may
    }

    /// Whether the bucket is full and thus equal to a new one.
    #[must_use]
    pub fn is_full(&self, now: Instant) -> bool {
        self.full_at <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(bucket: &mut TokenBucket, limit: &RateLimit, at_ms: u64, wanted: usize) -> usize {
        (0..wanted).filter(|_| bucket.take(Instant::from_millis(at_ms), limit)).count()
    }

    #[test]
    fn a_burst_passes_at_once_and_then_the_rate_applies() {
        let (limit, mut bucket) = (RateLimit::new(10, 50), TokenBucket::default());
        assert_eq!(taken(&mut bucket, &limit, 1000, 60), 50);
        assert_eq!(taken(&mut bucket, &limit, 1099, 5), 0);
        assert_eq!(taken(&mut bucket, &limit, 1100, 5), 1);
        assert_eq!(taken(&mut bucket, &limit, 3100, 60), 20);
        assert!(bucket.is_full(Instant::from_millis(60_000)));
        assert_eq!(taken(&mut bucket, &limit, 60_000, 60), 50, "it never holds more than its burst");
        assert!(!bucket.is_full(Instant::from_millis(64_999)) && bucket.is_full(Instant::from_millis(65_000)));
    }

    #[test]
    fn a_clock_that_stops_or_runs_backwards_refills_nothing() {
        let (limit, mut bucket) = (RateLimit::new(1000, 2), TokenBucket::default());
        assert_eq!(taken(&mut bucket, &limit, 5000, 3), 2);
        assert_eq!(taken(&mut bucket, &limit, 4000, 3), 0);
        assert_eq!(taken(&mut bucket, &limit, 5001, 3), 1);
    }

    #[test]
    fn the_least_limit_is_one_a_second() {
        let (limit, mut bucket) = (RateLimit::new(0, 0), TokenBucket::default());
        assert_eq!(taken(&mut bucket, &limit, 0, 3), 1);
        assert_eq!(taken(&mut bucket, &limit, 1000, 3), 1);
    }
}
