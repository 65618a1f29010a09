//! A filter much larger than the caches, looked up in batches.

use std::array;

use ::filters::{KeyHash, MultiLevel, Secret, States};

use super::keys::{SECRET, key};
use super::speed::{carried_out, nanos_each, shuffle};
use super::subjects;
use crate::args::BenchFiltersArgs;
use crate::bench::BenchError;
use crate::bench::rounds::{self, Rounds};
use console::Progress;

/// Keys that are looked up together.
const BATCH: usize = 32;
/// The part of the items that is looked up in a round.
const LOOKED_UP_DIVISOR: u64 = 8;

/// Nanoseconds a key.
#[derive(Default)]
pub(super) struct Large {
    pub(super) batched_hit: Rounds,
    pub(super) batched_miss: Rounds,
    pub(super) one_by_one_hit: Rounds,
}

pub(super) fn measure(args: &BenchFiltersArgs, progress: &Progress) -> Result<Large, BenchError> {
    progress.show("filling the large filter");
    let secret = Secret::new(SECRET);
    let mut filter = MultiLevel::<States>::new(subjects::first_available(args.large))?;
    let placed = (0..args.large).filter(|number| filter.insert(secret.spread(key(*number)), 1).is_ok()).count();
    carried_out("the large filter", "inserting", placed as u64, args.large as usize)?;
    let looked_up = (args.large / LOOKED_UP_DIVISOR).max(1);
    let mut hits: Vec<u64> = (0..looked_up).map(|number| key(number * LOOKED_UP_DIVISOR)).collect();
    shuffle(&mut hits);
    let misses: Vec<u64> = (args.large..args.large + looked_up).map(key).collect();
    let mut figures = Large::default();
    rounds::repeat(progress, "the large filter", args.rounds, |_| {
        let (nanos, found) = nanos_each(&hits, |keys| batched(&filter, &secret, keys));
        carried_out("the large filter", "looking up in batches", found, hits.len())?;
        figures.batched_hit.push(nanos);
        figures.batched_miss.push(nanos_each(&misses, |keys| batched(&filter, &secret, keys)).0);
        let (nanos, found) = nanos_each(&hits, |keys| one_by_one(&filter, &secret, keys));
        carried_out("the large filter", "looking up", found, hits.len())?;
        figures.one_by_one_hit.push(nanos);
        Ok::<_, BenchError>(())
    })?;
    Ok(figures)
}

fn batched(filter: &MultiLevel<States>, secret: &Secret, keys: &[u64]) -> u64 {
    let mut states = [None; BATCH];
    let (batches, rest) = keys.as_chunks::<BATCH>();
    let mut found = 0;
    for batch in batches {
        let keys: [KeyHash; BATCH] = array::from_fn(|index| secret.spread(batch[index]));
        filter.lookup_batch(&keys, &mut states);
        found += states.iter().flatten().count() as u64;
    }
    found + one_by_one(filter, secret, rest)
}

fn one_by_one(filter: &MultiLevel<States>, secret: &Secret, keys: &[u64]) -> u64 {
    keys.iter().filter(|key| filter.lookup(secret.spread(**key)).is_some()).count() as u64
}
