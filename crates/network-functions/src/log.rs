//! The log: what functions have to say to the operator, and how often each of those who write to it may do so: one rule that
//! matches all the time must not hide what others have to say.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::mem;
use core::time::Duration;

use flow::{Instant, RateLimit, TokenBucket, Tuple};

/// Entries a second of each source, unless told otherwise; as many may come at once.
pub const ENTRIES_PER_SECOND_DEFAULT: u32 = 100;
/// Sources whose entries are counted: more than a firewall has rules. When there are as many, those that are far from
/// their limit are forgotten; when there is none, a further source's entries are dropped.
pub const SOURCES_MAX: usize = 16_384;
/// How long entries are kept back before it is said how many they were.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

/// Something that an operator asked to be told of (a firewall rule with `log`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The function that says it.
    pub function: &'static str,
    /// What it says.
    pub message: String,
    /// The packet's tuple.
    pub tuple: Tuple,
}

/// Entries that a [`Log`] holds at most. Once it is full, new entries are counted and dropped until it is drained.
pub const LOG_ENTRIES_MAX: usize = 1024;

/// Entries for the operator, waiting to be written by whoever runs the chain.
#[derive(Clone, Debug, Default)]
pub struct Log {
    entries: Vec<LogEntry>,
    dropped_entries: u64,
    limits: LogLimits,
}

impl Log {
    /// Adds the entry that `entry` makes. It is not called when the log is full, so that a flood of connections that
    /// are worth an entry costs no formatting.
    pub fn push_with(&mut self, entry: impl FnOnce() -> LogEntry) {
        if self.entries.len() < LOG_ENTRIES_MAX {
            self.entries.push(entry());
        } else {
            self.dropped_entries += 1;
        }
    }

    /// As [`Log::push_with`], as often as each source may; see [`Log::push_summaries`] for the rest.
    pub fn push_limited(&mut self, now: Instant, from: LogSource<'_>, tuple: Tuple, message: impl FnOnce() -> String) {
        if self.limits.admit(now, from, tuple) {
            self.push_with(|| LogEntry { function: from.function, message: message(), tuple });
        } else {
            self.dropped_entries += 1;
        }
    }

    /// Sets how many entries a second each source may write, and as many at once; `None` is any number. At first it is
    /// [`ENTRIES_PER_SECOND_DEFAULT`].
    pub fn set_limit(&mut self, entries_per_s: Option<u32>) {
        self.limits.set_limit(entries_per_s);
    }

    /// Adds an entry for each source whose entries were kept back during the last second: how many they were.
    pub fn push_summaries(&mut self, now: Instant) {
        let mut limits = mem::take(&mut self.limits);
        limits.summaries(now, |entry| self.push_with(|| entry));
        self.limits = limits;
    }

    /// Takes the entries, oldest first.
    pub fn drain(&mut self) -> impl ExactSizeIterator<Item = LogEntry> + '_ {
        self.entries.drain(..)
    }

    /// How many entries found the log full, or their source at its limit, since the log was made.
    #[must_use]
    pub const fn dropped_entries(&self) -> u64 {
        self.dropped_entries
    }
}

/// Who writes an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSource<'a> {
    /// The function.
    pub function: &'static str,
    /// Its rule, or another part of it that has a limit of its own.
    pub name: &'a str,
}

/// What is known of a source.
#[derive(Clone, Debug, Default)]
struct Source {
    bucket: TokenBucket,
    /// Entries kept back since it was last said how many.
    suppressed: u64,
    /// The connection of the last of them.
    last: Option<Tuple>,
}

impl Source {
    fn is_forgettable(&self, now: Instant) -> bool {
        self.suppressed == 0 && self.bucket.is_full(now)
    }
}

/// The limits of all sources.
#[derive(Clone, Debug)]
struct LogLimits {
    limit: Option<RateLimit>,
    sources: BTreeMap<&'static str, BTreeMap<String, Source>>,
    /// When it is next said how many entries were kept back; `None` while none are.
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

    /// Whether the source may write an entry now; if not, it is remembered that it would have.
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
                    sources.retain(|_, source| !source.is_forgettable(now));
                }
            }
            if self.sources.values().map(BTreeMap::len).sum::<usize>() >= SOURCES_MAX {
                return None;
            }
            self.sources.entry(from.function).or_default().insert(from.name.into(), Source::default());
        }
        self.sources.get_mut(from.function)?.get_mut(from.name)
    }

    /// Says how many entries were kept back, an entry for each source, when it is time to.
    fn summaries(&mut self, now: Instant, mut say: impl FnMut(LogEntry)) {
        if self.summary_at.is_none_or(|at| at > now) {
            return;
        }
        self.summary_at = None;
        for (function, sources) in &mut self.sources {
            for (name, source) in sources {
                if let Some(tuple) = source.last.take() {
                    let message = format!("{} more by rule {name} not logged", source.suppressed);
                    source.suppressed = 0;
                    say(LogEntry { function, message, tuple });
                }
            }
        }
    }
}
