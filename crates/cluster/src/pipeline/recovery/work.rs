//! How much work a recovery does for packets that may be answers to many connections.
//!
//! Behind a computed translation, one reply tuple stands for hundreds of originals. Each is made again under the rules and
//! looked for in every filter, and where several fit, each end point may be probed. Strangers can send such packets, so the work
//! is budgeted, for each source and for all sources together. The unit is a tuple that was made again or looked for.
//!
//! A packet is admitted while neither budget is overdrawn, and its work is charged whatever comes of it: a miss, an ambiguous
//! match, a refusal. Only a packet that restores its connection is free: there are no more of them than replicated connections.
//! So a budget is overdrawn by the work of one packet at most. What a packet names itself, its tuple as an original, costs one
//! look-up and no budget: hosts inside get their connections back during a flood from outside.

use core::time::Duration;

use flow::source_counts::SourcePrefixes;
use flow::source_rates::SourceRates;
use flow::{HashKey, Instant, Tuple};

/// Tuples that are made again or looked for in a second, for all sources together. At a quarter of a microsecond each, this is
/// two percent of a processor.
pub(super) const TUPLES_PER_SECOND_MAX: u64 = 65_536;
/// So much of that budget may be used at once.
const BURST: Duration = Duration::from_millis(100);
/// Tuples of one source in a second, for each miss that it may have in a second
/// ([`super::RecoveryConfig::misses_per_source_max`]).
pub(super) const TUPLES_PER_MISS: u32 = 160;
/// A probe is translated, copied and sent: it costs as much as this many tuples.
pub(super) const TUPLES_PER_PROBE: usize = 4;

/// The two budgets.
#[derive(Debug)]
pub(super) struct Work {
    /// When the common budget is full again (the generic cell rate algorithm, ITU-T I.371).
    full_at: Instant,
    sources: SourceRates,
}

impl Work {
    pub(super) fn new(key: HashKey, misses_per_source_max: u32) -> Self {
        let tuples_max = misses_per_source_max.saturating_mul(TUPLES_PER_MISS);
        Self { full_at: Instant::ZERO, sources: SourceRates::new(key, SourcePrefixes::default(), tuples_max) }
    }

    /// Whether all sources together have used up their budget. During a flood most packets are refused for this reason. It is asked
    /// first, because the sources' budgets lie in memory that is seldom in a cache.
    pub(super) fn is_overdrawn(&self, now: Instant) -> bool {
        self.full_at > now + BURST
    }

    /// Whether the source of `source` has budget left.
    pub(super) fn admits(&self, now: Instant, source: &Tuple) -> bool {
        self.sources.may_begin(now, source)
    }

    /// Work for `tuples` tuples was done for a packet from the source of `source`.
    pub(super) fn charge(&mut self, now: Instant, source: &Tuple, tuples: usize) {
        const COST_NANOS: u64 = 1_000_000_000 / TUPLES_PER_SECOND_MAX;
        let tuples = u32::try_from(tuples).unwrap_or(u32::MAX);
        self.full_at = self.full_at.max(now) + Duration::from_nanos(u64::from(tuples) * COST_NANOS);
        self.sources.note_begun_many(now, source, tuples);
    }
}
