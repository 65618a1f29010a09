//! Token buckets that workers share, and a table of them by source.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use flow::source_counts::SourcePrefixes;
use flow::{HashKey, Instant, Tuple};

use super::quota::Usage;

const NANOS_PER_S: u64 = 1_000_000_000;
/// Entries among which a new source finds its victim.
const WAYS: usize = 8;

/// Memory of a source in a table, in bytes.
pub const SOURCE_BYTES: usize = size_of::<Entry>();

/// A rate and the amount that may pass at once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Rate {
    /// Amount per second; 0 counts as 1.
    pub per_s: u64,
    /// Amount that may pass at once; 0 counts as 1.
    pub burst: u64,
}

impl Rate {
    /// The time in which the rate yields `amount`, to the nearest nanosecond.
    const fn time_ns(&self, amount: u64) -> u64 {
        let per_s = if self.per_s == 0 { 1 } else { self.per_s };
        amount.saturating_mul(NANOS_PER_S).saturating_add(per_s / 2) / per_s
    }

    /// The time in which an empty bucket fills, in nanoseconds.
    const fn burst_ns(&self) -> u64 {
        // A burst is larger than a packet: in 64 bits the product could overflow.
        let (per_s, burst) = (self.per_s as u128, self.burst as u128);
        let (per_s, burst) = (if per_s == 0 { 1 } else { per_s }, if burst == 0 { 1 } else { burst });
        let time = burst * NANOS_PER_S as u128 / per_s;
        if time == 0 {
            1
        } else if time > u64::MAX as u128 {
            u64::MAX
        } else {
            time as u64
        }
    }
}

/// A rate with its derived times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meter {
    rate: Rate,
    burst_ns: u64,
}

impl Meter {
    pub(super) const fn new(rate: Rate) -> Self {
        Self { rate, burst_ns: rate.burst_ns() }
    }
}

/// A token bucket: the time at which it will be full, in nanoseconds of [`Instant`]. Full at first.
#[derive(Debug, Default)]
pub(super) struct Bucket(AtomicU64);

impl Bucket {
    /// Whether it is not empty.
    pub(super) fn has_tokens(&self, now: Instant, meter: &Meter) -> bool {
        self.0.load(Ordering::Relaxed).saturating_sub(now.as_nanos()) < meter.burst_ns
    }

    /// Takes tokens, of which it may have fewer.
    pub(super) fn take(&self, now: Instant, meter: &Meter, amount: u64) {
        let time_ns = meter.rate.time_ns(amount);
        let later = |full_at: u64| Some(full_at.max(now.as_nanos()).saturating_add(time_ns));
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, later);
    }

    fn full_at_ns(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn fill(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The buckets of one source, class or rule, and its use of a quota.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    pub(super) packets: Bucket,
    pub(super) bytes: Bucket,
    pub(super) connections: Bucket,
    pub(super) usage: Usage,
}

impl Buckets {
    /// When all of them are full.
    fn full_at_ns(&self) -> u64 {
        self.packets.full_at_ns().max(self.bytes.full_at_ns()).max(self.connections.full_at_ns())
    }

    fn fill(&self) {
        [&self.packets, &self.bytes, &self.connections].into_iter().for_each(Bucket::fill);
        self.usage.forget();
    }
}

/// A source and its buckets.
#[derive(Debug, Default)]
struct Entry {
    /// The keyed hash that identifies the source; two sources collide with probability 2^-64. 0: no source.
    source: AtomicU64,
    buckets: Buckets,
}

/// The buckets of sources: a table of fixed size, without a lock.
///
/// Workers that enter two sources into one entry at the same time share its buckets for a packet.
#[derive(Debug)]
pub(super) struct Sources {
    key: HashKey,
    prefixes: SourcePrefixes,
    entries: Vec<Entry>,
    /// Entries that have a source.
    known: AtomicU64,
    evicted: AtomicU64,
}

impl Sources {
    /// Room for `sources_max` sources, rounded up to whole sets.
    pub(super) fn new(key: HashKey, prefixes: SourcePrefixes, sources_max: u32) -> Self {
        let entries = (sources_max as usize).max(1).next_multiple_of(WAYS);
        Self {
            key,
            prefixes,
            entries: core::iter::repeat_with(Entry::default).take(entries).collect(),
            known: AtomicU64::new(0),
            evicted: AtomicU64::new(0),
        }
    }

    /// The buckets of the source of `original`, if it is known.
    pub(super) fn find(&self, original: &Tuple) -> Option<&Buckets> {
        let source = self.source(original);
        let known = self.set(source).iter().find(|entry| entry.source.load(Ordering::Relaxed) == source);
        known.map(|entry| &entry.buckets)
    }

    /// What identifies the source of `original`.
    fn source(&self, original: &Tuple) -> u64 {
        self.key.hash(&self.prefixes.of(original)).max(1)
    }

    /// The entries that a source may be in.
    fn set(&self, source: u64) -> &[Entry] {
        let set = (source >> 32) as usize % (self.entries.len() / WAYS) * WAYS;
        &self.entries[set..set + WAYS]
    }

    /// The buckets of the source of `original`. A source that is not known gets full ones, and evicts the source that loses least: the one
    /// that has used least in `period` of a quota, or else the one that is closest to full buckets.
    pub(super) fn buckets(&self, now: Instant, period: Option<u64>, original: &Tuple) -> &Buckets {
        let source = self.source(original);
        let ways = self.set(source);
        let id = |entry: &Entry| entry.source.load(Ordering::Relaxed);
        if let Some(known) = ways.iter().find(|entry| id(entry) == source) {
            return &known.buckets;
        }
        // An entry without a source has full buckets, and has used nothing.
        let loss = |entry: &Entry| {
            let used = period.map_or(0, |period| entry.buckets.usage.used_in(period));
            (used, entry.buckets.full_at_ns().saturating_sub(now.as_nanos()), entry.buckets.full_at_ns())
        };
        let Some(victim) = ways.iter().min_by_key(|entry| loss(entry)) else { unreachable!("a set has entries") };
        let (used, until_full_ns, _) = loss(victim);
        match victim.source.swap(source, Ordering::Relaxed) {
            0 => {
                self.known.fetch_add(1, Ordering::Relaxed);
            }
            _ if used > 0 || until_full_ns > 0 => {
                self.evicted.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        victim.buckets.fill();
        &victim.buckets
    }

    /// Sources in the table, those with full buckets included.
    pub(super) fn known(&self) -> u64 {
        self.known.load(Ordering::Relaxed)
    }

    /// Sources that were evicted while their buckets were not full, or while they had used of their quota.
    pub(super) fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }
}
