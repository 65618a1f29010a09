//! How long packets may have waited before they were read: this time has no stamp.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use flow::Instant;

/// Where the kernel reports how long the thread was ready to run and did not (Documentation/scheduler/sched-stats.rst).
const STATISTICS: &str = "/proc/thread-self/schedstat";

/// Who was back sooner had no reason to sleep.
const SLEEP_MIN: Duration = Duration::from_micros(20);

/// Knows since when a packet that is read now can have been waiting, at most.
///
/// A packet wakes the process, if it sleeps, at once; so it has waited for a processor no longer than the process has. If
/// the process did not sleep, it has waited no longer than since its device was last found empty.
#[derive(Debug)]
pub(super) struct Tardiness {
    /// Nothing where the kernel does not report it: then waiting for a processor goes unseen.
    statistics: Option<File>,
    delayed_ns: u64,
    waiting_since: Instant,
}

impl Tardiness {
    /// For the calling thread.
    pub(super) fn new(now: Instant) -> Self {
        let mut tardiness = Self { statistics: File::open(STATISTICS).ok(), delayed_ns: 0, waiting_since: now };
        tardiness.delayed_ns = tardiness.read_delayed_ns();
        tardiness
    }

    /// The process meant to sleep from `from` on, and runs again now.
    pub(super) fn note_woken(&mut self, from: Instant, now: Instant) {
        let before = std::mem::replace(&mut self.delayed_ns, 0);
        self.delayed_ns = self.read_delayed_ns();
        let delayed_ns = self.delayed_ns.saturating_sub(before);
        // What was there before it could sleep has waited since the last look.
        if now.saturating_since(from) >= SLEEP_MIN {
            self.waiting_since = Instant::from_nanos(now.as_nanos().saturating_sub(delayed_ns));
        }
    }

    /// All devices were looked at from `now` on, and found empty.
    pub(super) const fn note_looked(&mut self, now: Instant) {
        self.waiting_since = now;
    }

    /// Nanoseconds that a packet read now can have waited.
    pub(super) const fn waited_ns(&self, now: Instant) -> u64 {
        now.as_nanos().saturating_sub(self.waiting_since.as_nanos())
    }

    fn read_delayed_ns(&self) -> u64 {
        let mut text = [0; 96];
        let length = self.statistics.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        // Time on a processor, time waiting for one, how often it was given one.
        let delayed = std::str::from_utf8(&text[..length]).ok().and_then(|text| text.split_ascii_whitespace().nth(1));
        delayed.and_then(|delayed| delayed.parse().ok()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_sleep_counts_from_the_last_look() {
        let at = Instant::from_millis;
        let mut tardiness = Tardiness::new(at(1));
        assert_eq!(tardiness.waited_ns(at(4)), 3_000_000);
        tardiness.note_looked(at(5));
        assert_eq!(tardiness.waited_ns(at(5) + Duration::from_nanos(70)), 70);
    }

    #[test]
    fn who_slept_counts_from_when_it_could_have_run() {
        let mut tardiness = Tardiness::new(Instant::ZERO);
        let woken_at = Instant::from_millis(3_600_000);
        tardiness.note_woken(Instant::from_millis(1), woken_at);
        // However long this thread has waited for a processor between the two readings, it was not an hour.
        assert!(tardiness.waited_ns(woken_at) < 3_600_000_000_000);
        assert!(tardiness.waited_ns(woken_at + Duration::from_millis(1)) >= 1_000_000);
    }

    #[test]
    fn who_did_not_get_to_sleep_counts_from_the_last_look() {
        let mut tardiness = Tardiness::new(Instant::ZERO);
        let (looked_at, asleep_at) = (Instant::from_millis(10), Instant::from_millis(12));
        tardiness.note_looked(looked_at);
        tardiness.note_woken(asleep_at, asleep_at + Duration::from_micros(5));
        assert_eq!(tardiness.waited_ns(asleep_at + Duration::from_micros(5)), 2_005_000);
    }
}
