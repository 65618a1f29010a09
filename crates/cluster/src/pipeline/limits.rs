//! What a pipeline holds at most beside its connections, and what one source may have of them.

use flow::fragments::FragmentLimits;
use flow::source_counts::{SourceCounts, SourcePrefixes};
use flow::source_rates::SourceRates;
use flow::{DropReason, HashKey, Instant, Tuple};

/// Limits of a pipeline; the default limits no source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Of packets in pieces.
    pub fragments: FragmentLimits,
    /// Of connections of one source, if there are any.
    pub sources: Option<SourceLimit>,
}

/// How many connections one source may have, and how fast it may begin them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SourceLimit {
    /// Connections at a time that the source began; further ones are refused as [`DropReason::SourceLimit`].
    pub connections_max: Option<u32>,
    /// Connections that the source begins in a second, and at once; further ones are refused as
    /// [`DropReason::SourceRate`].
    pub begun_per_second_max: Option<u32>,
    /// What counts as one source.
    pub prefixes: SourcePrefixes,
}

/// The connections of each source. Replicas of other nodes' connections count too, so that a source has no more after a
/// take-over than before; they are never refused.
#[derive(Default)]
pub(super) struct Sources {
    limited: Option<(u32, SourceCounts)>,
    rates: Option<SourceRates>,
}

impl Sources {
    pub(super) fn new(limit: SourceLimit, connections_max: u32, key: HashKey) -> Self {
        let SourceLimit { connections_max: of_one, begun_per_second_max, prefixes } = limit;
        let counts = || SourceCounts::new(key, prefixes, connections_max as usize);
        Self {
            limited: of_one.map(|of_one| (of_one, counts())),
            rates: begun_per_second_max.map(|rate| SourceRates::new(key, prefixes, rate)),
        }
    }

    /// Whether the source of a packet may begin another connection.
    pub(super) fn check(&self, now: Instant, tuple: &Tuple) -> Result<(), DropReason> {
        if self.limited.as_ref().is_some_and(|(of_one, counts)| counts.count(tuple) >= *of_one) {
            return Err(DropReason::SourceLimit);
        }
        if self.rates.as_ref().is_some_and(|rates| !rates.may_begin(now, tuple)) {
            return Err(DropReason::SourceRate);
        }
        Ok(())
    }

    /// The source of a packet has begun a connection here.
    pub(super) fn note_begun(&mut self, now: Instant, tuple: &Tuple) {
        if let Some(rates) = &mut self.rates {
            rates.note_begun(now, tuple);
        }
    }

    pub(super) fn add(&mut self, original: &Tuple) {
        if let Some((_, counts)) = &mut self.limited {
            counts.add(original, 1);
        }
    }

    pub(super) fn subtract(&mut self, original: &Tuple) {
        if let Some((_, counts)) = &mut self.limited {
            counts.subtract(original, 1);
        }
    }

    /// Connections that the source of `tuple` has, if they are limited.
    pub(super) fn count(&self, tuple: &Tuple) -> Option<u32> {
        self.limited.as_ref().map(|(_, counts)| counts.count(tuple))
    }
}
