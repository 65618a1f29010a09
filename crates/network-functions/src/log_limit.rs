//! How often each of those who write to the [log](crate::function::Log) may do so: one rule that matches all the time must
//! not hide what others have to say.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use core::time::Duration;

use flow::{Instant, RateLimit, TokenBucket, Tuple};

use crate::function::LogEntry;

/// Entries a second of each source, unless told otherwise; as many may come at once.
pub const ENTRIES_PER_SECOND_DEFAULT: u32 = 100;
/// Sources whose entries are counted: more than a firewall has rules. When there are as many, those that are far from
/// their limit are forgotten; when there is none, a further source's entries are dropped.
pub const SOURCES_MAX: usize = 16_384;
/// How long entries are kept back before it is said how many they were.
const SUMMARY_INTERVAL: Duration = Duration::from_secs(1);

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
pub(crate) struct LogLimits {
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
    pub(crate) fn set_limit(&mut self, entries_per_s: Option<u32>) {
        self.limit = entries_per_s.map(|per_s| RateLimit::new(per_s, per_s));
    }

    /// Whether the source may write an entry now; if not, it is remembered that it would have.
    pub(crate) fn admit(&mut self, now: Instant, from: LogSource<'_>, tuple: Tuple) -> bool {
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
    pub(crate) fn summaries(&mut self, now: Instant, mut say: impl FnMut(LogEntry)) {
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
