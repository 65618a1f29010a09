//! Where matches come from, how long they are, how old, and how often chunks are found.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::redundancy_study::magnitudes::Magnitudes;
use crate::redundancy_study::microscope::{
    ChunksOutcome, DISTANCE_PARTS, LENGTH_STEP_BYTES, MicroscopeOutcome, Origin,
};
use crate::redundancy_study::tally::share;

/// Ranks of the distribution of hits in the result.
const RANK_POINTS: u32 = 60;

/// A point of a distribution: the share that lies at or below a value.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Step {
    /// The value.
    pub to: f64,
    /// The share up to there.
    pub share: f64,
}

/// Shares of what matches save.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Origins {
    /// By what the packet and the one that its bytes were found in have in common.
    #[serde(flatten)]
    pub shares: BTreeMap<&'static str, f64>,
    /// The same by who was the first to send the bytes.
    pub first_sent: BTreeMap<&'static str, f64>,
    /// Retransmissions, which are part of what is within a flow.
    pub retransmitted: f64,
    /// What is from the same two hosts, of which the source's port was the same too.
    pub same_source_port: f64,
}

impl Origins {
    pub(super) fn of(microscope: &MicroscopeOutcome) -> Self {
        let shares = |origins: &BTreeMap<Origin, u64>| {
            let total = origins.values().sum();
            let of = |origin: Origin| share(origins.get(&origin).copied().unwrap_or(0) as f64, total);
            Origin::ALL.map(|origin| (origin.name(), of(origin))).into()
        };
        let total = microscope.origins.values().sum();
        Self {
            shares: shares(&microscope.origins),
            first_sent: shares(&microscope.first_senders),
            retransmitted: share(microscope.repeated as f64, total),
            same_source_port: share(microscope.same_source_port as f64, total),
        }
    }
}

/// How long matches are.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MatchLengths {
    /// Matches.
    pub matches: u64,
    /// Share of matches up to a length in bytes.
    pub of_matches: Vec<Step>,
    /// Share of what is saved up to a length in bytes.
    pub of_saved: Vec<Step>,
    /// Matches of at most 150 bytes.
    pub to_150_bytes: Shares,
    /// Matches of whole payloads.
    pub whole_payload: Shares,
}

/// Shares of matches and of what they save.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Shares {
    /// Of matches.
    pub matches: f64,
    /// Of what is saved.
    pub saved: f64,
}

impl MatchLengths {
    pub(super) fn of(microscope: &MicroscopeOutcome) -> Self {
        let sum = |which: usize| microscope.lengths.values().map(|counts| counts[which]).sum();
        let totals: [u64; 2] = [sum(0), sum(1)];
        let steps = |which: usize| {
            let steps = microscope.lengths.iter();
            growing(steps.map(|(step, counts)| (((step + 1) * LENGTH_STEP_BYTES) as f64, counts[which])), totals[which])
        };
        let short = microscope.lengths.range(..150 / LENGTH_STEP_BYTES);
        let short = short.fold([0; 2], |sum, (_, counts)| [sum[0] + counts[0], sum[1] + counts[1]]);
        let shares = |counts: [u64; 2]| Shares {
            matches: share(counts[0] as f64, totals[0]),
            saved: share(counts[1] as f64, totals[1]),
        };
        Self {
            matches: microscope.matches,
            of_matches: steps(0),
            of_saved: steps(1),
            to_150_bytes: shares(short),
            whole_payload: shares(microscope.whole),
        }
    }
}

fn growing(parts: impl Iterator<Item = (f64, u64)>, total: u64) -> Vec<Step> {
    let mut sum = 0;
    let step = |(to, part)| {
        sum += part;
        Step { to, share: share(sum as f64, total) }
    };
    parts.map(step).collect()
}

pub(super) fn distances(microscope: &MicroscopeOutcome) -> Vec<Step> {
    let total = microscope.distances.values().sum();
    let parts = microscope.distances.iter();
    growing(parts.map(|(part, bytes)| ((part + 1) as f64 / DISTANCE_PARTS as f64, *bytes)), total)
}

pub(super) fn ages(microscope: &MicroscopeOutcome) -> Vec<Step> {
    let total = microscope.ages.iter().map(|(_, [_, bytes])| bytes).sum();
    growing(microscope.ages.iter().map(|(end_ms, [_, bytes])| (end_ms as f64 / 1e3, bytes)), total)
}

pub(super) fn lifetimes(chunks: &ChunksOutcome) -> Vec<Step> {
    growing(chunks.lifetimes.iter().map(|(end_ms, [count, _])| (end_ms as f64 / 1e3, count)), chunks.count())
}

/// How often chunks are found.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hits {
    /// Chunks that were found at least once.
    pub chunks: u64,
    /// One of so many was counted and stands for them.
    pub sampled_one_of: u64,
    /// Share of what is saved that comes from the fifth of chunks that save most.
    pub saved_by_top_fifth: f64,
    /// Rank and hits.
    pub by_rank: Vec<[u64; 2]>,
    /// Share of chunks, those that save most first, and share of what they save.
    pub contributions: Vec<Step>,
}

impl Hits {
    pub(super) fn of(chunks: &ChunksOutcome) -> Self {
        let contributions = contributions(&chunks.contributions);
        Self {
            chunks: chunks.count(),
            sampled_one_of: chunks.sampled,
            saved_by_top_fifth: at(&contributions, 0.2),
            by_rank: chunks.by_rank(RANK_POINTS),
            contributions,
        }
    }
}

fn contributions(counts: &Magnitudes) -> Vec<Step> {
    let totals = counts.iter().fold([0; 2], |sum, (_, counts)| [sum[0] + counts[0], sum[1] + counts[1]]);
    let mut sums = [0; 2];
    let step = |(_, [count, bytes]): (u64, [u64; 2])| {
        sums = [sums[0] + count, sums[1] + bytes];
        Step { to: share(sums[0] as f64, totals[0]), share: share(sums[1] as f64, totals[1]) }
    };
    counts.iter().rev().map(step).collect()
}

/// The share at `to`, on a straight line between the steps beside it.
fn at(steps: &[Step], to: f64) -> f64 {
    let mut before = Step { to: 0.0, share: 0.0 };
    for step in steps {
        if step.to >= to {
            let part = if step.to > before.to { (to - before.to) / (step.to - before.to) } else { 1.0 };
            return crate::redundancy_study::tally::rounded(before.share + part * (step.share - before.share));
        }
        before = *step;
    }
    before.share
}
