//! A rate limit for each source.
//!
//! Each source has a token bucket, stored as the time at which it will be full (the generic cell rate algorithm, ITU-T
//! I.371). The buckets lie in the sets of a fixed-size table. When a set is full, the source closest to a full bucket
//! is evicted.
//!
//! A flood from more sources than the table holds is thus not fully limited, but no source is refused for the traffic
//! of others.

use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use crate::source_counts::SourcePrefixes;
use crate::{HashKey, Instant, Tuple};

/// The number of sources in the table.
pub const RATED_SOURCES_MAX: usize = SETS * WAYS;
const SETS: usize = 8192;
const WAYS: usize = 8;

/// A source's bucket.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// The keyed hash that identifies the source; two sources collide with probability 2^-64.
    source: u64,
    /// When it will be full again, in nanoseconds of [`Instant`].
    full_at_nanos: u64,
}

/// The buckets of all sources.
#[derive(Clone, Debug)]
pub struct SourceRates {
    key: HashKey,
    prefixes: SourcePrefixes,
    cost_nanos: u64,
    buckets: Vec<Bucket>,
}

impl SourceRates {
    /// Limits every source to `per_second_max` (1 at least) a second, with bursts of the same size.
    #[must_use]
    pub fn new(key: HashKey, prefixes: SourcePrefixes, per_second_max: u32) -> Self {
        let cost_nanos = (Duration::from_secs(1).as_nanos() as u64 / u64::from(per_second_max.max(1))).max(1);
        Self { key, prefixes, cost_nanos, buckets: vec![Bucket { source: 0, full_at_nanos: 0 }; RATED_SOURCES_MAX] }
    }

    /// Whether the source of `tuple` is below its limit now.
    #[must_use]
    pub fn may_begin(&self, now: Instant, tuple: &Tuple) -> bool {
        let (source, set) = self.place(tuple);
        let known = self.buckets[set..set + WAYS].iter().find(|bucket| bucket.source == source);
        let full_at_nanos = known.map_or(0, |bucket| bucket.full_at_nanos).max(now.as_nanos());
        full_at_nanos + self.cost_nanos <= now.as_nanos() + Duration::from_secs(1).as_nanos() as u64
    }

    /// Counts an event of the source of `tuple`.
    pub fn note_begun(&mut self, now: Instant, tuple: &Tuple) {
        self.note_begun_many(now, tuple, 1);
    }

    /// Counts `count` events of the source of `tuple`, possibly beyond its limit: it is then blocked until the excess
    /// is paid off.
    pub fn note_begun_many(&mut self, now: Instant, tuple: &Tuple, count: u32) {
        let (source, set) = self.place(tuple);
        let ways = &mut self.buckets[set..set + WAYS];
        let way = ways.iter().position(|bucket| bucket.source == source).unwrap_or_else(|| {
            let nearest_to_full = ways.iter().enumerate().min_by_key(|(_, bucket)| bucket.full_at_nanos);
            nearest_to_full.map_or(0, |(way, _)| way)
        });
        let cost_nanos = self.cost_nanos.saturating_mul(count.into());
        let bucket = &mut ways[way];
        let full_at_nanos = if bucket.source == source { bucket.full_at_nanos } else { 0 };
        *bucket = Bucket { source, full_at_nanos: full_at_nanos.max(now.as_nanos()) + cost_nanos };
    }

    /// The source's identifying hash, and the first index of its set.
    fn place(&self, tuple: &Tuple) -> (u64, usize) {
        let source = self.key.hash(&self.prefixes.of(tuple));
        (source, (source >> 32) as usize % SETS * WAYS)
    }
}

#[cfg(test)]
mod tests {
    use core::net::Ipv4Addr;

    use super::*;

    fn from(host: u32) -> Tuple {
        Tuple::v4(6, (Ipv4Addr::from_bits(0x0a00_0000 + host), 1000), (Ipv4Addr::new(192, 0, 2, 1), 80))
    }

    fn begin(rates: &mut SourceRates, now: Instant, host: u32) -> bool {
        let may = rates.may_begin(now, &from(host));
        if may {
            rates.note_begun(now, &from(host));
        }
        may
    }

    #[test]
    fn a_source_gets_a_burst_of_one_second_and_then_its_rate() {
        let mut rates = SourceRates::new(HashKey([1, 2]), SourcePrefixes::default(), 10);
        let start = Instant::from_millis(5000);
        let at_once = (0..50).filter(|_| begin(&mut rates, start, 1)).count();
        assert_eq!(at_once, 10);
        assert!(begin(&mut rates, start, 2));
        let later = (1..=1000).filter(|ms| begin(&mut rates, start + Duration::from_millis(*ms), 1)).count();
        assert_eq!(later, 10, "ten in the next second");
        let rested = start + Duration::from_secs(60);
        assert_eq!((0..50).filter(|_| begin(&mut rates, rested, 1)).count(), 10, "no more however long it rested");
    }

    #[test]
    fn a_source_over_its_limit_is_blocked_until_the_excess_is_paid_off() {
        let mut rates = SourceRates::new(HashKey([1, 2]), SourcePrefixes::default(), 10);
        let start = Instant::from_millis(5000);
        rates.note_begun_many(start, &from(1), 35);
        assert!(rates.may_begin(start, &from(2)), "other sources are unaffected");
        let may_begin = |ms| rates.may_begin(start + Duration::from_millis(ms), &from(1));
        assert_eq!([0, 2599, 2600].map(may_begin), [false, false, true]);
    }

    #[test]
    fn a_flood_from_many_sources_does_not_limit_a_new_source() {
        let mut rates = SourceRates::new(HashKey([1, 2]), SourcePrefixes::default(), 1);
        let now = Instant::from_millis(5000);
        for host in 0..3 * RATED_SOURCES_MAX as u32 {
            assert!(begin(&mut rates, now, host), "host {host}");
        }
    }
}
