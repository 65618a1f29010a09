//! What became of each connection, and what of each kind.

use std::time::{Duration, Instant};

use super::Kind;

/// The story of one connection, as its client saw it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did.
    pub kind: Kind,
    /// It went over IPv6.
    pub is_ipv6: bool,
    /// When it was established, if it ever was.
    pub established_at: Option<Instant>,
    /// When anything last came back.
    pub last_progress_at: Option<Instant>,
    /// The longest time without progress while some was due.
    pub longest_gap: Duration,
    /// Bytes received here, or reported as received by the server, and found right.
    pub verified_bytes: u64,
    /// Why it broke, if it did.
    pub broken: Option<String>,
}

impl Outcome {
    /// A connection that is not yet established.
    #[must_use]
    pub const fn new(kind: Kind, is_ipv6: bool) -> Self {
        Self {
            kind,
            is_ipv6,
            established_at: None,
            last_progress_at: None,
            longest_gap: Duration::ZERO,
            verified_bytes: 0,
            broken: None,
        }
    }

    /// Progress was made at `now`; `due_since` is when it could have come at the earliest.
    pub fn note_progress(&mut self, now: Instant, due_since: Instant, bytes: u64) {
        self.longest_gap = self.longest_gap.max(now.saturating_duration_since(due_since));
        self.last_progress_at = Some(now);
        self.verified_bytes += bytes;
    }

    /// Established before `point`.
    #[must_use]
    pub fn was_established_before(&self, point: Instant) -> bool {
        self.established_at.is_some_and(|at| at <= point)
    }

    /// Went on after `point`: nothing broke and something came back.
    #[must_use]
    pub fn survived(&self, point: Instant) -> bool {
        self.broken.is_none() && self.last_progress_at.is_some_and(|at| at > point)
    }
}

/// Progress of a kind within one slice of time.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    /// Start of the slice.
    pub at: Instant,
    /// What progressed.
    pub kind: Kind,
    /// Bytes verified in it.
    pub bytes: u64,
    /// Answers in it.
    pub events: u64,
}

/// Progress over time, by kind, in slices of [`Timeline::SLICE`].
#[derive(Clone, Debug)]
pub struct Timeline {
    start: Instant,
    slices: Vec<[(u64, u64); Kind::ALL.len()]>,
}

impl Timeline {
    /// Length of a slice.
    pub const SLICE: Duration = Duration::from_millis(10);
    /// The most slices kept: ten minutes.
    const SLICES_MAX: usize = 60_000;

    /// An empty timeline from `start` on.
    #[must_use]
    pub const fn new(start: Instant) -> Self {
        Self { start, slices: Vec::new() }
    }

    /// Enters progress.
    pub fn note(&mut self, now: Instant, kind: Kind, bytes: u64) {
        let index = now.saturating_duration_since(self.start).as_nanos() / Self::SLICE.as_nanos();
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        if index >= Self::SLICES_MAX {
            return;
        }
        if index >= self.slices.len() {
            self.slices.resize(index + 1, [(0, 0); Kind::ALL.len()]);
        }
        let (sum_bytes, events) = &mut self.slices[index][kind.code() as usize];
        *sum_bytes += bytes;
        *events += 1;
    }

    /// All slices in which anything progressed.
    pub fn samples(&self) -> impl Iterator<Item = Sample> + '_ {
        self.slices.iter().enumerate().flat_map(move |(index, slice)| {
            let at = self.start + Self::SLICE * u32::try_from(index).unwrap_or(u32::MAX);
            Kind::ALL.into_iter().map(move |kind| {
                let (bytes, events) = slice[kind.code() as usize];
                Sample { at, kind, bytes, events }
            })
        })
    }
}
