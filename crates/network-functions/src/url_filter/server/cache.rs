//! The cache of a server's answers: a multi-level filter whose cells hold categories (\[MLCBF\] section 4.4.2).
//!
//! The state of a cell, beside a fingerprint of 20 bits:
//!
//! ```text
//!   10 … 8   7          6 … 0
//!   period   by path    category: 0 none, 1 … 120 a name, 127 not known yet
//! ```
//!
//! **Age.** Time is divided into periods, a seventh of an answer's lifetime each. A cell has the lower three bits of the period in which its
//! answer came. At the beginning of a period, the cells of the one that began a lifetime ago are freed. So an answer is used for six to seven
//! sevenths of the lifetime, and the cache needs no list of its keys.
//!
//! **False positives.** A host that was never asked about has the category of another one if both have the same fingerprint in one of four buckets. At full load
//! that happens to one lookup in about 40,000; see `filters::theory`.

use core::fmt;
use core::time::Duration;

use filters::{Inserted, KeyHash, MultiLevel, MultiLevelShape, Secret, ShapeError, States};
use flow::Instant;

/// Names of categories that a cell can hold.
pub const CATEGORIES_MAX: usize = 120;
/// Answers that a cache can hold.
pub const ENTRIES_MAX: usize = 1 << 20;
const CATEGORY_MASK: u16 = 0x7f;
const NOT_KNOWN: u16 = CATEGORY_MASK;
const BY_PATH: u16 = 0x80;
const PERIOD_SHIFT: u32 = 8;
const PERIODS: u64 = 8;
const STATE_BITS: u8 = 11;
/// Periods of a lifetime.
const LIFETIME_PERIODS: u64 = PERIODS - 1;
/// An answer that is so many periods old is asked for again when it is used.
const REFRESH_PERIODS: u64 = 5;

/// What the cache holds of a host, or of a path of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cached {
    /// The category: 0 for none, else the number of a name from 1. `None`: only paths of the host are known.
    pub category: Option<u8>,
    /// Paths of the host have categories of their own.
    pub by_path: bool,
}

impl Cached {
    const fn state(self) -> u16 {
        let category = match self.category {
            Some(category) => category as u16,
            None => NOT_KNOWN,
        };
        category | if self.by_path { BY_PATH } else { 0 }
    }

    const fn of(state: u16) -> Self {
        let category = state & CATEGORY_MASK;
        Self {
            category: if category == NOT_KNOWN { None } else { Some(category as u8) },
            by_path: state & BY_PATH != 0,
        }
    }
}

/// The cache.
pub struct CategoryCache {
    filter: MultiLevel<States>,
    secret: Secret,
    entries_max: usize,
    period_ns: u64,
    /// The number of the present period.
    period: u64,
    /// Answers that were removed because their lifetime was over.
    pub(super) expired: u64,
    /// Answers that were removed earlier, to make room.
    pub(super) evicted: u64,
}

impl fmt::Debug for CategoryCache {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "CategoryCache({} of {})", self.filter.len(), self.entries_max)
    }
}

impl CategoryCache {
    /// An empty cache for up to `entries_max` answers, which are used for `lifetime` at most. `key` is that of its hash.
    ///
    /// # Errors
    /// The size is invalid.
    pub fn new(entries_max: usize, lifetime: Duration, key: [u64; 2]) -> Result<Self, ShapeError> {
        let lifetime_ns = u64::try_from(lifetime.as_nanos()).unwrap_or(u64::MAX);
        Ok(Self {
            filter: MultiLevel::new(MultiLevelShape::for_items(entries_max as u64, STATE_BITS))?,
            secret: Secret::new(key),
            entries_max,
            period_ns: (lifetime_ns / LIFETIME_PERIODS).max(1),
            period: 0,
            expired: 0,
            evicted: 0,
        })
    }

    /// The key of a host, or of a path of it.
    #[must_use]
    pub fn key(&self, target: &str) -> KeyHash {
        self.secret.hash(target.as_bytes())
    }

    /// What is known, and whether it is so old that it is to be asked for again.
    #[must_use]
    pub fn look_up(&self, key: KeyHash) -> Option<(Cached, bool)> {
        let state = self.filter.lookup(key)?;
        Some((Cached::of(state), self.age(state) >= REFRESH_PERIODS))
    }

    /// Puts an answer in. Returns what was there.
    pub fn insert(&mut self, now: Instant, key: KeyHash, cached: Cached) -> Option<Cached> {
        self.insert_aged(now, key, cached, Duration::ZERO)
    }

    /// As [`CategoryCache::insert`], of an answer that came so long ago, which is less than its lifetime.
    pub fn insert_aged(&mut self, now: Instant, key: KeyHash, cached: Cached, age: Duration) -> Option<Cached> {
        self.expire(now);
        let periods =
            u64::try_from(age.as_nanos()).unwrap_or(u64::MAX).div_ceil(self.period_ns).min(LIFETIME_PERIODS - 1);
        let period = self.period + PERIODS - periods;
        let state = cached.state() | ((period % PERIODS) as u16) << PERIOD_SHIFT;
        if self.filter.lookup(key).is_none() && self.filter.len() >= self.entries_max {
            self.evict();
        }
        loop {
            match self.filter.insert(key, state) {
                Ok(Inserted::Matched(before)) => return Some(Cached::of(before)),
                Ok(Inserted::Placed) => return None,
                // A key's buckets can be full before the cache is.
                Err(filters::Full) => self.evict(),
            }
        }
    }

    /// Removes the answers whose lifetime is over.
    pub fn expire(&mut self, now: Instant) {
        let present = now.as_nanos() / self.period_ns;
        if present.saturating_sub(self.period) >= PERIODS {
            self.expired += self.filter.retain_states(|_| false) as u64;
            self.period = present;
        }
        while self.period < present {
            self.period += 1;
            self.expired += self.remove(self.period + 1) as u64;
        }
    }

    /// When [`CategoryCache::expire`] has something to do next; `None` if the cache is empty.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        let next = self.period.saturating_add(1).saturating_mul(self.period_ns);
        (!self.filter.is_empty()).then(|| Instant::from_nanos(next))
    }

    /// Removes the oldest answers: those of a period.
    fn evict(&mut self) {
        // From the oldest period to the present one, which is the eighth.
        let removed = (2..=PERIODS).map(|later| self.remove(self.period + later)).find(|removed| *removed > 0);
        self.evicted += removed.unwrap_or(0) as u64;
    }

    /// Removes the answers of a period, given modulo [`PERIODS`].
    fn remove(&mut self, period: u64) -> usize {
        let tag = period % PERIODS;
        self.filter.retain_states(|state| u64::from(state >> PERIOD_SHIFT) != tag)
    }

    fn age(&self, state: u16) -> u64 {
        (self.period % PERIODS + PERIODS - u64::from(state >> PERIOD_SHIFT)) % PERIODS
    }

    /// Answers in it. Such as share a cell count once.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.filter.len()
    }

    /// Whether it holds no answer.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.filter.is_empty()
    }

    /// Its memory in bytes.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.filter.bytes()
    }
}

#[cfg(test)]
mod tests {
    use std::format;

    use super::*;

    const LIFETIME: Duration = Duration::from_secs(70);

    fn cache(entries_max: usize) -> CategoryCache {
        CategoryCache::new(entries_max, LIFETIME, [1, 2]).expect("a shape")
    }

    const fn known(category: u8) -> Cached {
        Cached { category: Some(category), by_path: false }
    }

    fn at(seconds: u64) -> Instant {
        Instant::from_millis(seconds * 1000)
    }

    #[test]
    fn an_answer_is_found_with_its_category_until_its_lifetime_is_over() {
        let mut cache = cache(1000);
        let by_path = Cached { category: None, by_path: true };
        for (target, cached) in [("a.example", known(0)), ("b.example", known(120)), ("c.example", by_path)] {
            let key = cache.key(target);
            assert_eq!(cache.insert(at(105), key, cached), None);
            assert_eq!(cache.look_up(key), Some((cached, false)));
        }
        let key = cache.key("a.example");
        assert_eq!(cache.insert(at(112), key, known(3)), Some(known(0)), "another answer replaces it");
        cache.expire(at(165));
        assert_eq!(cache.look_up(key), Some((known(3), true)), "old answers are asked for again");
        cache.expire(at(169));
        assert_eq!(cache.len(), 3);
        cache.expire(at(170));
        assert_eq!((cache.len(), cache.expired), (1, 2), "at most 70 s");
        cache.expire(at(180));
        assert!(cache.is_empty() && cache.next_expiry().is_none());
    }

    #[test]
    fn an_answer_of_some_age_is_used_for_the_rest_of_its_lifetime() {
        let mut cache = cache(10);
        let key = cache.key("a.example");
        cache.insert_aged(at(105), key, known(3), Duration::from_secs(41));
        assert_eq!(cache.look_up(key), Some((known(3), true)));
        cache.expire(at(119));
        assert_eq!(cache.look_up(key), Some((known(3), true)));
        cache.expire(at(130));
        assert_eq!(cache.look_up(key), None);
    }

    #[test]
    fn a_cache_that_was_not_used_for_long_is_empty() {
        let mut cache = cache(10);
        let key = cache.key("a.example");
        cache.insert(at(0), key, known(1));
        cache.expire(at(81));
        assert_eq!((cache.look_up(key), cache.expired), (None, 1));
    }

    #[test]
    fn a_full_cache_loses_its_oldest_answers_first() {
        let mut cache = cache(100);
        for number in 0..200 {
            let key = cache.key(&format!("host-{number}.example"));
            cache.insert(at(100 + number / 4), key, known(1));
            assert!(cache.len() <= 100);
        }
        assert!(cache.evicted >= 100 && cache.expired == 0, "{} {}", cache.evicted, cache.expired);
        let key = cache.key("host-199.example");
        assert!(cache.look_up(key).is_some());
    }

    #[test]
    fn few_hosts_that_were_never_asked_about_are_found() {
        let mut cache = cache(50_000);
        for number in 0..50_000 {
            let key = cache.key(&format!("host-{number}.example"));
            cache.insert(at(100), key, known(1));
        }
        let others = (0..1_000_000).filter(|number| {
            let key = cache.key(&format!("other-{number}.example"));
            cache.look_up(key).is_some()
        });
        let found = others.count();
        // 32 cells, of which 85 % are taken, with fingerprints of 20 bits: 26 in a million.
        assert!((5..60).contains(&found), "{found}");
    }
}
