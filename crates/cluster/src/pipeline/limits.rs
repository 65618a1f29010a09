//! What a pipeline holds at most beside its connections, and what one source may have of them.

use flow::fragments::FragmentLimits;
use flow::source_counts::{SourceCounts, SourcePrefixes};
use flow::{DropReason, HashKey, Tuple};

use super::Pipeline;

/// Limits of a pipeline; the default limits no source.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Limits {
    /// Of packets in pieces.
    pub fragments: FragmentLimits,
    /// Of connections of one source, if there are any.
    pub sources: Option<SourceLimit>,
}

/// How many connections one source may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SourceLimit {
    /// Connections at a time that the source began; further ones are refused as [`DropReason::SourceLimit`].
    pub connections_max: u32,
    /// What counts as one source.
    pub prefixes: SourcePrefixes,
}

/// The connections of each source. Copies of other nodes' connections count too, so that a source has no more after a
/// take-over than before; they are never refused.
pub(super) struct Sources {
    connections_max: u32,
    counts: SourceCounts,
}

impl Sources {
    pub(super) fn new(limit: SourceLimit, connections_max: u32, key: HashKey) -> Self {
        let SourceLimit { connections_max: of_one, prefixes } = limit;
        Self { connections_max: of_one, counts: SourceCounts::new(key, prefixes, connections_max as usize) }
    }
}

impl Pipeline {
    /// Whether the source of a packet may begin another connection.
    pub(super) fn check_source(&self, tuple: &Tuple) -> Result<(), DropReason> {
        match &self.sources {
            Some(sources) if sources.counts.count(tuple) >= sources.connections_max => Err(DropReason::SourceLimit),
            _ => Ok(()),
        }
    }

    pub(super) fn count_of_source(&mut self, original: &Tuple) {
        if let Some(sources) = &mut self.sources {
            sources.counts.add(original, 1);
        }
    }

    pub(super) fn discount_of_source(&mut self, original: &Tuple) {
        if let Some(sources) = &mut self.sources {
            sources.counts.subtract(original, 1);
        }
    }

    /// Connections that the source of `tuple` has, if sources are limited.
    #[must_use]
    pub fn connections_of_source(&self, tuple: &Tuple) -> Option<u32> {
        self.sources.as_ref().map(|sources| sources.counts.count(tuple))
    }
}
