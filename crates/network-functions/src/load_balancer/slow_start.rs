//! Slow start: a backend that returns, or is added, first gets a part of its weight, which grows in equal steps.
//!
//! ```text
//!   share   1/16   2/16   3/16  ...  15/16   1
//!   after    0     1/15   2/15  ...  14/15   the whole time
//! ```
//!
//! Steps are few, because each has the table of a service computed anew. Shares change new connections only.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use core::time::Duration;

use flow::Instant;

/// The whole share. A backend that starts has less, at least 1.
pub const SHARES: u8 = 16;

/// How far a backend has started. The default has its whole share.
#[derive(Debug, Default)]
pub(super) struct SlowStart {
    /// What its share lacks.
    lacking: AtomicU8,
    /// When it began, in nanoseconds of [`Instant`]; 0 until the first [`SlowStart::advance`].
    began_ns: AtomicU64,
}

impl SlowStart {
    /// Begins at the next [`SlowStart::advance`].
    pub(super) fn begin(&self) {
        self.began_ns.store(0, Ordering::Relaxed);
        self.lacking.store(SHARES - 1, Ordering::Relaxed);
    }

    /// Its share of [`SHARES`], at least 1.
    pub(super) fn share(&self) -> u8 {
        SHARES - self.lacking.load(Ordering::Relaxed).min(SHARES - 1)
    }

    pub(super) fn is_over(&self) -> bool {
        self.share() == SHARES
    }

    /// Time has passed. True if the share has changed. `None` for `lasts`: it ends at once.
    pub(super) fn advance(&self, now: Instant, lasts: Option<Duration>) -> bool {
        if self.is_over() {
            return false;
        }
        let began = match self.began_ns.load(Ordering::Relaxed) {
            0 => now,
            began_ns => Instant::from_nanos(began_ns),
        };
        self.began_ns.store(began.as_nanos().max(1), Ordering::Relaxed);
        let elapsed = now.saturating_since(began).as_nanos();
        let lasts = lasts.unwrap_or_default().as_nanos();
        let steps = u128::from(SHARES - 1);
        let passed = (elapsed * steps).checked_div(lasts).unwrap_or(steps).min(steps) as u8;
        let before = self.lacking.swap(SHARES - 1 - passed, Ordering::Relaxed);
        before != SHARES - 1 - passed
    }

    /// When the share changes next. `None`: it does not.
    pub(super) fn due(&self, lasts: Option<Duration>) -> Option<Instant> {
        let began_ns = self.began_ns.load(Ordering::Relaxed);
        match (self.is_over(), began_ns) {
            (true, _) => None,
            (false, 0) => Some(Instant::ZERO),
            (false, _) => {
                let after = lasts.unwrap_or_default() * u32::from(self.share()) / u32::from(SHARES - 1);
                Some(Instant::from_nanos(began_ns) + after + Duration::from_nanos(1))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const LASTS: Option<Duration> = Some(Duration::from_secs(30));

    #[test]
    fn the_share_grows_in_equal_steps_at_the_times_that_are_announced() {
        let start = SlowStart::default();
        assert_eq!((start.share(), start.due(LASTS)), (SHARES, None));
        start.begin();
        let mut now = Instant::from_millis(5_000);
        assert_eq!((start.share(), start.due(LASTS)), (1, Some(Instant::ZERO)));
        assert!(!start.advance(now, LASTS), "it begins now");
        let mut shares = Vec::new();
        while let Some(due) = start.due(LASTS) {
            assert!(due > now, "the time passes");
            now = due;
            assert!(start.advance(now, LASTS), "it changes when it is due");
            shares.push((start.share(), now.saturating_since(Instant::from_millis(5_000)).as_secs()));
        }
        let expected: Vec<_> = (2..=SHARES).map(|share| (share, 2 * u64::from(share - 1))).collect();
        assert_eq!(shares, expected);
    }

    #[test]
    fn a_start_that_is_looked_at_late_is_over() {
        let start = SlowStart::default();
        start.begin();
        start.advance(Instant::from_millis(1), LASTS);
        assert!(start.advance(Instant::from_millis(60_000), LASTS) && start.is_over());
    }

    #[test]
    fn a_reload_without_slow_start_ends_it() {
        let start = SlowStart::default();
        start.begin();
        assert!(start.advance(Instant::from_millis(1), None) && start.is_over());
    }
}
