//! The functions' log for the operator, with a rate limit for each source, so that one rule that matches constantly
//! does not hide the entries of others.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use flow::{Instant, RateLimit, TokenBucket, Tuple};

/// The default number of entries a second of each source, and the size of a burst.
pub const ENTRIES_PER_SECOND_DEFAULT: u32 = 100;
/// The maximum number of sources with a limit: more than a firewall has rules. When full, sources with a full token
/// bucket are evicted; without one, a further source's entries are dropped.
pub const SOURCES_MAX: usize = 16_384;
/// The interval between summaries of suppressed entries.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

/// An event that the operator asked to log (a firewall rule with `log`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The function that logged it.
    pub function: &'static str,
    /// The text.
    pub message: String,
    /// The packet's tuple.
    pub tuple: Tuple,
}

/// The maximum number of entries of a [`Log`]. When it is full, new entries are counted and dropped until it is
/// drained.
pub const LOG_ENTRIES_MAX: usize = 1024;

/// Entries for the operator; the chain's caller writes them out.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Vec<LogEntry>,
    dropped_entries: u64,
    limits: LogLimits,
}

impl Log {
    /// Adds the entry that `entry` returns. It is not called when the log is full, so that a flood of entries costs no
    /// formatting.
    pub fn push_with(&mut self, entry: impl FnOnce() -> LogEntry) {
        if self.entries.len() < LOG_ENTRIES_MAX {
            self.entries.push(entry());
        } else {
            self.dropped_entries += 1;
        }
    }

    /// As [`Log::push_with`], within the source's limit; see [`Log::push_summaries`] for suppressed entries.
    pub fn push_limited(&mut self, now: Instant, from: LogSource<'_>, tuple: Tuple, message: impl FnOnce() -> String) {
        if self.limits.admit(now, from, tuple) {
            self.push_with(|| LogEntry { function: from.function, message: message(), tuple });
        } else {
            self.dropped_entries += 1;
        }
    }

    /// Sets the entries a second of each source, and the size of its bursts; `None` is unlimited. The default is
    /// [`ENTRIES_PER_SECOND_DEFAULT`].
    pub fn set_limit(&mut self, entries_per_s: Option<u32>) {
        self.limits.set_limit(entries_per_s);
    }

    /// Adds an entry for each source with suppressed entries during the last second, with their number.
    pub fn push_summaries(&mut self, now: Instant) {
        let mut limits = mem::take(&mut self.limits);
        limits.summaries(now, |entry| self.push_with(|| entry));
        self.limits = limits;
    }

    /// Takes the entries, oldest first.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = LogEntry> + '_ {
        self.entries.drain(..)
    }

    /// The number of entries dropped because the log was full, or their source at its limit.
    #[must_use]
    pub const fn dropped_entries(&self) -> u64 {
        self.dropped_entries
    }
}

/// The source of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSource<'a> {
    /// The function.
    pub function: &'static str,
    /// Its rule, or another part of it with a separate limit.
    pub name: &'a str,
}

/// The state of a source.
#[derive(Clone, Debug, Default)]
struct Source {
    bucket: TokenBucket,
    /// Entries suppressed since the last summary.
    suppressed: u64,
    /// The connection of the last suppressed entry.
    last: Option<Tuple>,
}

impl Source {
    fn is_evictable(&self, now: Instant) -> bool {
        self.suppressed == 0 && self.bucket.is_full(now)
    }
}

/// The limits of all sources.
#[derive(Clone, Debug)]
struct LogLimits {
    limit: Option<RateLimit>,
    sources: BTreeMap<&'static str, BTreeMap<String, Source>>,
    /// The time of the next summary; `None` while no entries are suppressed.
    summary_at: Option<Instant>,
}

impl Default for LogLimits {
    fn default() -> Self {
        let mut new = Self { limit: None, sources: BTreeMap::new(), summary_at: None };
        new.set_limit(Some(ENTRIES_PER_SECOND_DEFAULT));
        new
    }
}

impl LogLimits {
    fn set_limit(&mut self, entries_per_s: Option<u32>) {
        self.limit = entries_per_s.map(|per_s| RateLimit::new(per_s, per_s));
    }

    /// Whether the source may write an entry now; otherwise the entry is counted as suppressed.
    fn admit(&mut self, now: Instant, from: LogSource<'_>, tuple: Tuple) -> bool {
        let Some(limit) = self.limit else { return true };
        let Some(source) = self.source(now, from) else { return false };
        let may = source.bucket.take(now, &limit);
        if !may {
            source.suppressed += 1;
            source.last = Some(tuple);
            self.summary_at.get_or_insert(now + SUMMARY_INTERVAL);
        }
        may
    }

    fn source(&mut self, now: Instant, from: LogSource<'_>) -> Option<&mut Source> {
        let is_known = self.sources.get(from.function).is_some_and(|sources| sources.contains_key(from.name));
        if !is_known {
            if self.sources.values().map(BTreeMap::len).sum::<usize>() >= SOURCES_MAX {
                for sources in self.sources.values_mut() {
                    sources.retain(|_, source| !source.is_evictable(now));
                }
            }
            if self.sources.values().map(BTreeMap::len).sum::<usize>() >= SOURCES_MAX {
                return None;
            }
            self.sources.entry(from.function).or_default().insert(from.name.into(), Source::default());
        }
        self.sources.get_mut(from.function)?.get_mut(from.name)
    }

    /// Writes the summaries of suppressed entries, one for each source, when they are due.
    fn summaries(&mut self, now: Instant, mut push: impl FnMut(LogEntry)) {
        if self.summary_at.is_none_or(|at| at > now) {
            return;
        }
        self.summary_at = None;
        for (function, sources) in &mut self.sources {
            for (name, source) in sources {
                if let Some(tuple) = source.last.take() {
                    let message = format!("{} more by rule {name} not logged", source.suppressed);
                    source.suppressed = 0;
                    push(LogEntry { function, message, tuple });
                }
            }
        }
    }
}
