//! Connections between the same two hosts at the same time (MLCBF, figure 8).

use std::collections::HashMap;
use std::time::Duration;

use flow::{Instant, Tuple};
use serde::Serialize;

/// Pairs of hosts that are followed at a time; pairs beyond them are counted and left out.
pub const HOST_PAIRS_MAX: usize = 4 << 20;
/// The lifetimes that pairs are sorted by, in milliseconds: up to this, or longer.
pub const LIFETIMES_MS: [u64; 8] = [50, 200, 1000, 5000, 20_000, 60_000, 300_000, u64::MAX];

#[derive(Clone, Copy, Debug)]
struct Pair {
    began: Instant,
    open: u32,
    open_max: u32,
}

/// Pairs of hosts of one span of lifetimes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
pub struct Parallel {
    /// How many pairs.
    pub pairs: u64,
    /// The sum of what each had open at most at a time.
    pub open_max_sum: u64,
    /// The most that any had open at a time.
    pub open_max: u32,
}

/// Follows pairs of hosts.
#[derive(Debug, Default)]
pub(super) struct Hosts {
    pairs: HashMap<([u8; 16], [u8; 16]), Pair>,
    pub(super) by_lifetime: [Parallel; LIFETIMES_MS.len()],
    pub(super) pairs_max: usize,
    pub(super) left_out: u64,
}

impl Hosts {
    /// A connection was established.
    pub(super) fn begin(&mut self, at: Instant, tuple: &Tuple) {
        let key = (tuple.source, tuple.destination);
        if self.pairs.len() >= HOST_PAIRS_MAX && !self.pairs.contains_key(&key) {
            self.left_out += 1;
            return;
        }
        let pair = self.pairs.entry(key).or_insert(Pair { began: at, open: 0, open_max: 0 });
        pair.open += 1;
        pair.open_max = pair.open_max.max(pair.open);
        self.pairs_max = self.pairs_max.max(self.pairs.len());
    }

    /// A connection that had been established is over.
    pub(super) fn end(&mut self, at: Instant, tuple: &Tuple) {
        let key = (tuple.source, tuple.destination);
        let Some(pair) = self.pairs.get_mut(&key) else { return };
        pair.open -= 1;
        if pair.open == 0 {
            let pair = *pair;
            self.pairs.remove(&key);
            self.count(at.saturating_since(pair.began), pair.open_max);
        }
    }

    /// The capture is over.
    pub(super) fn finish(&mut self, at: Instant) {
        for pair in std::mem::take(&mut self.pairs).into_values() {
            self.count(at.saturating_since(pair.began), pair.open_max);
        }
    }

    fn count(&mut self, lifetime: Duration, open_max: u32) {
        let millis = u64::try_from(lifetime.as_millis()).unwrap_or(u64::MAX);
        let bin = LIFETIMES_MS.iter().position(|end| millis <= *end).unwrap_or(LIFETIMES_MS.len() - 1);
        let parallel = &mut self.by_lifetime[bin];
        parallel.pairs += 1;
        parallel.open_max_sum += u64::from(open_max);
        parallel.open_max = parallel.open_max.max(open_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_lives_from_its_first_connection_to_its_last() {
        let tuple =
            |port: u16| Tuple::new(6, format!("192.0.2.1:{port}").parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let mut hosts = Hosts::default();
        for port in 1..=3 {
            hosts.begin(Instant::from_millis(u64::from(port) * 10), &tuple(port));
        }
        for port in 1..=3 {
            hosts.end(Instant::from_millis(100 + u64::from(port)), &tuple(port));
        }
        assert_eq!(hosts.pairs_max, 1);
        assert_eq!(hosts.by_lifetime[1], Parallel { pairs: 1, open_max_sum: 3, open_max: 3 }, "93 ms");
    }
}
