//! Which chunks are found again, how often and for how long (seed, figures 2.8 b and 2.10).

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hasher};

use flow::Instant;
use serde::{Deserialize, Serialize};

use super::owners::Owner;
use crate::redundancy_study::limits::CHUNKS_MAX;
use crate::redundancy_study::magnitudes::Magnitudes;
use crate::redundancy_study::packet::Packet;
use crate::redundancy_study::tally::rounded;

/// The most popular chunks that the fit leaves out, as the seed does.
const RANKS_LEFT_OUT: u64 = 100;
/// No line is fitted through fewer points.
const FIT_POINTS_MIN: u64 = 10;
/// Ranks beyond so many are looked at in steps.
const FIT_RANKS_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug)]
struct Chunk {
    hits: u64,
    saved: u64,
    first_at: Instant,
    last_at: Instant,
    /// Who had sent it when it was found the first time.
    sender: Owner,
}

/// Counts chunks. A chunk is the bytes of a match; the same bytes are the same chunk.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    chunks: HashMap<u64, Chunk>,
    /// Only chunks are counted whose hash ends in so many zeros.
    zeros: u32,
}

impl Chunks {
    /// Counts a hit. Returns who sent the chunk first, or none if it is not one of those that are counted.
    pub(super) fn hit(&mut self, bytes: &[u8], packet: &Packet, saved: u64, sender: &Owner) -> Option<Owner> {
        let mut hasher = DefaultHasher::new();
        hasher.write(bytes);
        let hash = hasher.finish();
        if !self.is_counted(hash) {
            return None;
        }
        let new = Chunk { hits: 0, saved: 0, first_at: packet.at, last_at: packet.at, sender: *sender };
        let chunk = self.chunks.entry(hash).or_insert(new);
        chunk.hits += 1;
        chunk.saved += saved;
        chunk.last_at = packet.at;
        let sender = chunk.sender;
        while self.chunks.len() > CHUNKS_MAX {
            self.zeros += 1;
            let zeros = self.zeros;
            self.chunks.retain(|hash, _| hash.trailing_zeros() >= zeros);
        }
        Some(sender)
    }

    const fn is_counted(&self, hash: u64) -> bool {
        hash.trailing_zeros() >= self.zeros
    }

    pub(super) fn finish(self) -> ChunksOutcome {
        let each = 1 << self.zeros;
        let mut outcome = ChunksOutcome { sampled: each, ..ChunksOutcome::default() };
        for chunk in self.chunks.values() {
            *outcome.hits.entry(chunk.hits).or_default() += each;
            outcome.contributions.add(chunk.saved, each, chunk.saved * each);
            outcome.lifetimes.add(milliseconds(chunk.first_at, chunk.last_at), each, 0);
        }
        outcome
    }
}

/// What was counted.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub(crate) struct ChunksOutcome {
    /// One of so many chunks was counted, and stands for them.
    pub sampled: u64,
    /// How many chunks were found how often.
    pub hits: BTreeMap<u64, u64>,
    /// Chunks and saved bytes by what a chunk saved.
    pub contributions: Magnitudes,
    /// Chunks by milliseconds between the first time that they were found and the last.
    pub lifetimes: Magnitudes,
}

/// A straight line through ranks and hits, both as logarithms.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct ZipfFit {
    /// The line's slope: hits of the i-th chunk are as i to this power.
    pub alpha: f64,
    /// How much of the variance it explains, from 0 to 1.
    pub r_squared: f64,
    /// Chunks that it was fitted to.
    pub chunks: u64,
}

impl ChunksOutcome {
    /// Those of two sites together.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.sampled = self.sampled.max(other.sampled);
        other.hits.iter().for_each(|(hits, chunks)| *self.hits.entry(*hits).or_default() += chunks);
        self.contributions.merge(&other.contributions);
        self.lifetimes.merge(&other.lifetimes);
    }

    /// How many chunks there are.
    #[must_use]
    pub(crate) fn count(&self) -> u64 {
        self.hits.values().sum()
    }

    /// The hits of each rank, most first, at about so many ranks spread evenly over a logarithmic axis.
    #[must_use]
    pub(crate) fn by_rank(&self, points: u32) -> Vec<[u64; 2]> {
        let mut at = Vec::new();
        let (mut wanted, mut rank) = (1.0_f64, 0);
        let step = (self.count().max(2) as f64).powf(1.0 / f64::from(points));
        for (hits, chunks) in self.hits.iter().rev() {
            let end = rank + chunks;
            while (wanted as u64) <= end {
                at.push([wanted as u64, *hits]);
                wanted = (wanted * step).max(wanted + 1.0);
            }
            rank = end;
        }
        at
    }

    /// The fit over the bulk: without the hundred most popular and without those that were found once.
    #[must_use]
    pub(crate) fn fit_bulk(&self) -> Option<ZipfFit> {
        self.fit(RANKS_LEFT_OUT, 2)
    }

    /// The fit over all.
    #[must_use]
    pub(crate) fn fit_all(&self) -> Option<ZipfFit> {
        self.fit(0, 1)
    }

    fn fit(&self, ranks_left_out: u64, hits_min: u64) -> Option<ZipfFit> {
        let step = self.count().div_ceil(FIT_RANKS_MAX).max(1);
        let (mut rank, mut values, mut sums) = (0, 0, [0.0_f64; 6]);
        for (hits, chunks) in self.hits.iter().rev().take_while(|(hits, _)| **hits >= hits_min) {
            let y = (*hits as f64).ln();
            let first = (rank + 1).max(ranks_left_out + 1);
            values += u64::from(first <= rank + chunks);
            for x in (first..=rank + chunks).step_by(step as usize).map(|rank| (rank as f64).ln()) {
                for (sum, term) in sums.iter_mut().zip([1.0, x, y, x * x, x * y, y * y]) {
                    *sum += term;
                }
            }
            rank += chunks;
        }
        let [n, x, y, xx, xy, yy] = sums;
        let (variance_x, variance_y, covariance) = (n * xx - x * x, n * yy - y * y, n * xy - x * y);
        // Where all were found alike often there is no line to be fitted.
        if n < FIT_POINTS_MIN as f64 || values < 2 {
            return None;
        }
        let r_squared = covariance * covariance / (variance_x * variance_y);
        let fit = ZipfFit { alpha: covariance / variance_x, r_squared, chunks: n as u64 };
        Some(ZipfFit { alpha: rounded(fit.alpha), r_squared: rounded(fit.r_squared), ..fit })
    }
}

pub(super) fn milliseconds(from: Instant, to: Instant) -> u64 {
    to.saturating_since(from).as_millis().try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_made_by_zipfs_law_is_found_to_be_one() {
        for alpha in [-0.7, -0.97, -1.3] {
            let mut outcome = ChunksOutcome::default();
            for rank in 1..=20_000_u32 {
                let hits = (1e6 * f64::from(rank).powf(alpha)).round() as u64;
                *outcome.hits.entry(hits.max(1)).or_default() += 1;
            }
            let fit = outcome.fit_bulk().expect("there are enough");
            assert!((fit.alpha - alpha).abs() < 0.01 && fit.r_squared > 0.99, "{alpha}: {fit:?}");
            let by_rank = outcome.by_rank(50);
            assert_eq!(by_rank[0], [1, 1_000_000]);
            assert!(by_rank.len() > 30 && by_rank.is_sorted_by(|a, b| a[0] < b[0] && a[1] >= b[1]));
        }
        let alike = ChunksOutcome { hits: [(3, 500)].into(), ..ChunksOutcome::default() };
        assert_eq!(alike.fit_all(), None, "all alike are no line");
        assert_eq!(ChunksOutcome::default().fit_all(), None);
        assert_eq!(ChunksOutcome::default().by_rank(10), Vec::<[u64; 2]>::new());
    }
}
