//! How much went over the link when (seed, figures 2.3 and 2.4).

use flow::Instant;
use serde::{Deserialize, Serialize};

use crate::redundancy_study::limits::TIMELINE_BINS_MAX;
use crate::redundancy_study::tally::rounded;

const NANOS_PER_SECOND: u64 = 1_000_000_000;
/// The times that usage is taken over (the seed: from 1 second to 5 hours).
pub(super) const BUCKETS_SECONDS: [u64; 13] = [1, 2, 5, 10, 30, 60, 100, 300, 600, 1800, 3600, 7200, 18_000];
/// Of fewer buckets there is no percentile.
const BUCKETS_MIN: usize = 2;

/// Bytes by time, without and with redundancy elimination.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Timeline {
    begin_nanos: u64,
    /// How long a bin lasts: a second, and twice as long whenever there would be too many.
    pub bin_seconds: u64,
    /// The bins.
    pub bins: Vec<[u64; 2]>,
}

impl Default for Timeline {
    fn default() -> Self {
        Self { begin_nanos: 0, bin_seconds: 1, bins: Vec::new() }
    }
}

/// How much less is used, for one length of buckets.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct UsageSaved {
    /// Usage is taken over so long.
    pub bucket_seconds: u64,
    /// How many buckets there were.
    pub buckets: usize,
    /// By how much the mean is less.
    pub mean: f64,
    /// The median.
    pub median: f64,
    /// The 95th percentile, by which links are often paid for.
    pub percentile_95: f64,
    /// The peak.
    pub peak: f64,
}

impl Timeline {
    /// Adds bytes. What is older than the first belongs to the first.
    pub(super) fn add(&mut self, at: Instant, volumes: [u64; 2]) {
        if self.bins.is_empty() {
            self.begin_nanos = at.as_nanos() / NANOS_PER_SECOND * NANOS_PER_SECOND;
        }
        let since = at.as_nanos().saturating_sub(self.begin_nanos) / NANOS_PER_SECOND;
        while since / self.bin_seconds >= TIMELINE_BINS_MAX as u64 {
            self.bins = self.bins.chunks(2).map(sum).collect();
            self.bin_seconds *= 2;
        }
        let bin = (since / self.bin_seconds) as usize;
        if bin >= self.bins.len() {
            self.bins.resize(bin + 1, [0; 2]);
        }
        self.bins[bin] = sum(&[self.bins[bin], volumes]);
    }

    /// The volume in at most so many steps: seconds from the beginning and bytes a second.
    #[must_use]
    pub(crate) fn steps(&self, steps_max: usize) -> Vec<(u64, [f64; 2])> {
        let together = self.bins.len().div_ceil(steps_max).max(1);
        let seconds = together as u64 * self.bin_seconds;
        let step = |(at, bins): (usize, &[[u64; 2]])| {
            let lasted = bins.len() as f64 * self.bin_seconds as f64;
            (at as u64 * seconds, sum(bins).map(|bytes| bytes as f64 / lasted))
        };
        self.bins.chunks(together).enumerate().map(step).collect()
    }

    /// What is saved of mean, median, 95th percentile and peak, for all lengths of which there are buckets enough.
    #[must_use]
    pub(crate) fn usage_saved(&self) -> Vec<UsageSaved> {
        let lengths = BUCKETS_SECONDS.iter().filter(|seconds| seconds.is_multiple_of(self.bin_seconds));
        lengths.filter_map(|seconds| self.usage_saved_over(*seconds)).collect()
    }

    fn usage_saved_over(&self, bucket_seconds: u64) -> Option<UsageSaved> {
        let together = (bucket_seconds / self.bin_seconds) as usize;
        // The last bucket counts only if it is whole, or it would be less for lack of time.
        let buckets: Vec<[u64; 2]> = self.bins.chunks_exact(together).map(sum).collect();
        if buckets.len() < BUCKETS_MIN {
            return None;
        }
        let sorted: [Vec<u64>; 2] = [0, 1].map(|which| {
            let mut volumes: Vec<u64> = buckets.iter().map(|volumes| volumes[which]).collect();
            volumes.sort_unstable();
            volumes
        });
        let less = |of: &dyn Fn(&[u64]) -> u64| {
            let [before, after] = [of(&sorted[0]), of(&sorted[1])].map(|bytes| bytes as f64);
            if before > 0.0 { rounded(1.0 - after / before) } else { 0.0 }
        };
        let rank = |per_cent: usize| move |sorted: &[u64]| sorted[(sorted.len() * per_cent).div_ceil(100) - 1];
        Some(UsageSaved {
            bucket_seconds,
            buckets: buckets.len(),
            mean: less(&|sorted| sorted.iter().sum()),
            median: less(&rank(50)),
            percentile_95: less(&rank(95)),
            peak: less(&rank(100)),
        })
    }
}

fn sum(bins: &[[u64; 2]]) -> [u64; 2] {
    bins.iter().fold([0; 2], |sum, bin| [sum[0] + bin[0], sum[1] + bin[1]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_without_redundancy_stay_while_the_median_falls() {
        let mut timeline = Timeline::default();
        for second in 0..100 {
            let volumes = if second % 10 == 9 { [1000, 1000] } else { [100, 50] };
            timeline.add(Instant::from_millis(5_000_700 + second * 1000), volumes);
        }
        let saved = timeline.usage_saved();
        let first = saved[0];
        assert_eq!((first.bucket_seconds, first.buckets), (1, 100));
        assert_eq!((first.median, first.percentile_95, first.peak), (0.5, 0.0, 0.0));
        assert_eq!(first.mean, rounded(1.0 - 14_500.0 / 19_000.0));
        let ten = saved.iter().find(|saved| saved.bucket_seconds == 10).expect("a hundred seconds have ten of ten");
        assert_eq!(ten.peak, ten.mean, "all buckets are alike");
        assert!(saved.iter().all(|saved| saved.bucket_seconds < 100));
        assert_eq!(timeline.steps(10)[3], (30, [190.0, 145.0]));
    }

    #[test]
    fn years_take_no_more_memory_than_days_and_nothing_is_lost() {
        let mut timeline = Timeline::default();
        for day in 0..4000 {
            timeline.add(Instant::from_millis(day * 86_400_000), [10, 7]);
        }
        timeline.add(Instant::from_millis(0), [1, 1]);
        assert!(timeline.bins.len() <= TIMELINE_BINS_MAX);
        assert_eq!(sum(&timeline.bins), [40_001, 28_001]);
    }
}
