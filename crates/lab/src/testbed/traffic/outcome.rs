//! What became of each connection, and what of each kind.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use super::Kind;

/// A connection is to be in the standby's kernel so long after it is established: some milliseconds, and what a busy machine
/// adds to them.
pub const REPLICATED_WITHIN: Duration = Duration::from_millis(100);

/// The story of one connection, as its client saw it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What it did.
    pub kind: Kind,
    /// It went over IPv6.
    pub is_ipv6: bool,
    /// Its two ends as the client sees them, its own first, once it is established. Nothing for datagrams.
    pub ends: Option<(SocketAddr, SocketAddr)>,
    /// When it was begun.
    pub opened_at: Instant,
    /// When it was established, if it ever was.
    pub established_at: Option<Instant>,
    /// When anything last came back.
    pub last_progress_at: Option<Instant>,
    /// The longest time without progress while some was due.
    pub longest_gap: Duration,
    /// Bytes received here, or reported as received by the server, and found right.
    pub verified_bytes: u64,
    /// Those of them at each mark.
    pub marks: Vec<(Instant, u64)>,
    /// Why it broke, if it did.
    pub broken: Option<String>,
}

impl Outcome {
    /// A connection that is begun now.
    #[must_use]
    pub fn new(kind: Kind, is_ipv6: bool) -> Self {
        Self {
            kind,
            is_ipv6,
            ends: None,
            opened_at: Instant::now(),
            established_at: None,
            last_progress_at: None,
            longest_gap: Duration::ZERO,
            verified_bytes: 0,
            marks: Vec::new(),
            broken: None,
        }
    }

    /// Progress was made at `now`; `due_since` is when it could have come at the earliest.
    pub fn note_progress(&mut self, now: Instant, due_since: Instant, bytes: u64) {
        self.longest_gap = self.longest_gap.max(now.saturating_duration_since(due_since));
        self.last_progress_at = Some(now);
        self.verified_bytes += bytes;
    }

    /// Notes the bytes verified by now.
    pub fn mark(&mut self, now: Instant) {
        self.marks.push((now, self.verified_bytes));
    }

    /// Bytes verified between two marks, by their numbers; 0 if there are no such marks.
    #[must_use]
    pub fn bytes_between(&self, [from, to]: [usize; 2]) -> u64 {
        let bytes = |mark: usize| self.marks.get(mark).map_or(0, |(_, bytes)| *bytes);
        bytes(to).saturating_sub(bytes(from))
    }

    /// Established before `point`.
    #[must_use]
    pub fn was_established_before(&self, point: Instant) -> bool {
        self.established_at.is_some_and(|at| at <= point)
    }

    /// Replication promises that the connection outlives a router that died at `killed_at`: it was established before, and
    /// either the standby had it then (`replicated`: the ends of what it had), however new it was, or it was older than
    /// [`REPLICATED_WITHIN`], and the standby should have had it.
    #[must_use]
    pub fn is_promised(&self, killed_at: Instant, replicated: &HashSet<(SocketAddr, SocketAddr)>) -> bool {
        let is_old = killed_at.checked_sub(REPLICATED_WITHIN).is_some_and(|due| self.was_established_before(due));
        let is_there = self.ends.is_none_or(|ends| replicated.contains(&ends));
        self.was_established_before(killed_at) && (is_old || is_there)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_promised_once_the_standby_has_it_and_in_any_case_when_it_should_have() {
        let killed_at = Instant::now() + Duration::from_secs(10);
        let ends = ("10.0.0.1:1000".parse().unwrap(), "10.0.0.2:80".parse().unwrap());
        let before = |ms: u64| Outcome {
            ends: Some(ends),
            established_at: Some(killed_at - Duration::from_millis(ms)),
            ..Outcome::new(Kind::Ramp, false)
        };
        let (none, known) = (HashSet::new(), HashSet::from([ends]));
        assert!(before(1).is_promised(killed_at, &known), "replicated, however new");
        assert!(!before(1).is_promised(killed_at, &none), "it was not replicated");
        assert!(before(101).is_promised(killed_at, &none), "it should have been replicated");
        let later = Outcome { established_at: Some(killed_at + Duration::from_millis(1)), ..before(0) };
        assert!(
            !later.is_promised(killed_at, &known) && !Outcome::new(Kind::Ramp, false).is_promised(killed_at, &known)
        );
    }
}
