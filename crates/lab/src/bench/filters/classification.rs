//! The paper's simulation of traffic classification (MLCBF, section 3.2): what an insertion looks at (figure 17) and how long
//! operations take (figure 19), by the load of a filter for 20 000 flows. Bandwidth (figure 18) is `mainstay study replication`'s.

use std::hint::black_box;

use ::filters::{CountingBloomShape, Insertion, MultiLevel, MultiLevelShape, Secret, ShapeError, States};
use analysis::comparators::{StatefulBloom, StatefulBloomShape, d_left};
use packet_io::usage::thread_cpu_time;
use serde::Serialize;

use super::auxiliary::WithAuxiliary;
use super::keys::{SECRET, key};
use crate::bench::rounds::{Rounds, rounded};
use console::Table;

/// Flows that the filters are made for.
const FLOWS: u64 = 20_000;
/// Loads, as shares of these in percent.
const LOADS: [u64; 5] = [10, 30, 50, 70, 90];
/// Flows that come and go at each load.
const COMING: u64 = 1000;
/// Insertions whose cost is counted at each load.
const COUNTED: u64 = 200;
/// What of their cells filters are made to fill: the maximum load of each but for a little (figure 13).
const FA_LOAD: u64 = 93;
const LL_LOAD: u64 = 90;
const STATES: u16 = 9;
/// The paper's counting Bloom filter, also beside a filter whose unsuccessful searches it spares.
const CELLS_PER_FLOW: u64 = 10;
const HASHES: u8 = 4;

/// A filter at a load.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    /// `fa_4_8`, `fa_4_8_acbf`, …
    pub(super) filter: &'static str,
    pub(super) load_percent: u64,
    /// Cells compared and buckets asked for room by an insertion, on average; a counting Bloom filter's are its hash functions.
    pub(super) insertion_cost: f64,
    pub(super) insert_ns: f64,
    pub(super) lookup_ns: f64,
    pub(super) modify_ns: f64,
    pub(super) remove_ns: f64,
}

enum Filter {
    Cells(Box<MultiLevel<States>>, MultiLevelShape),
    Auxiliary(Box<WithAuxiliary>, MultiLevelShape),
    Bloom(Box<StatefulBloom>),
}

impl Filter {
    fn insert(&mut self, number: u64, secret: Secret) {
        let (key, state) = (secret.spread(key(number)), (number % u64::from(STATES)) as u16);
        match self {
            // At these loads there is room for all but a few, which then cost as much.
            Self::Cells(filter, _) => {
                let _ = filter.insert(key, state);
            }
            Self::Auxiliary(filter, _) => {
                let _ = filter.insert(key, state);
            }
            Self::Bloom(filter) => filter.insert(key, state),
        }
    }

    fn lookup(&self, number: u64, secret: Secret) -> bool {
        let key = secret.spread(key(number));
        match self {
            Self::Cells(filter, _) => filter.lookup(key).is_some(),
            Self::Auxiliary(filter, _) => filter.lookup(key).is_some(),
            Self::Bloom(filter) => filter.lookup(key).is_some(),
        }
    }

    fn modify(&mut self, number: u64, secret: Secret) {
        let (key, state) = (secret.spread(key(number)), ((number + 1) % u64::from(STATES)) as u16);
        match self {
            Self::Cells(filter, _) => {
                let _ = filter.modify(key, state);
            }
            Self::Auxiliary(filter, _) => {
                let _ = filter.modify(key, state);
            }
            Self::Bloom(filter) => {
                let _ = filter.modify(key, state);
            }
        }
    }

    fn remove(&mut self, number: u64, secret: Secret) {
        let key = secret.spread(key(number));
        match self {
            Self::Cells(filter, _) => {
                let _ = filter.remove(key);
            }
            Self::Auxiliary(filter, _) => {
                let _ = filter.remove(key);
            }
            Self::Bloom(filter) => {
                let _ = filter.remove(key);
            }
        }
    }

    /// Inserts and returns the cost: a search that finds nothing, then the buckets asked whether they have room.
    fn insertion_cost(&mut self, number: u64, secret: Secret) -> u32 {
        let key = secret.spread(key(number));
        let (cells, shape, before) = match self {
            Self::Cells(filter, shape) => (filter.search_cost(key).cells, *shape, filter.items_by_level()),
            Self::Auxiliary(filter, shape) => (filter.search_cost(key).cells, *shape, filter.cells().items_by_level()),
            Self::Bloom(_) => {
                self.insert(number, secret);
                return HASHES.into();
            }
        };
        self.insert(number, secret);
        let after = match self {
            Self::Cells(filter, _) => filter.items_by_level(),
            Self::Auxiliary(filter, _) => filter.cells().items_by_level(),
            Self::Bloom(_) => before,
        };
        let level = after.iter().zip(before).position(|(after, before)| *after > before);
        let buckets = match (shape.insertion, level) {
            (Insertion::FirstAvailable, Some(level)) => level as u32 + 1,
            _ => shape.levels.into(),
        };
        cells + buckets
    }
}

/// The filters of figures 17 and 19, each with its name.
fn filters() -> Result<Vec<(&'static str, Filter)>, ShapeError> {
    let shape = |levels, cells_per_bucket, insertion, load: u64| {
        let shape = d_left::shape(FLOWS * 100 / load, levels, cells_per_bucket, 8);
        MultiLevelShape { ratio_per_mille: 500, insertion, ..shape }
    };
    let [fa_4_8, fa_8_4] = [(4, 8), (8, 4)].map(|(d, h)| shape(d, h, Insertion::FirstAvailable, FA_LOAD));
    let ll_4_8 = shape(4, 8, Insertion::LeastLoad, LL_LOAD);
    let d_left_4_8 = d_left::shape(FLOWS * 100 / LL_LOAD, 4, 8, 8);
    let plain = |shape| Ok(Filter::Cells(Box::new(MultiLevel::new(shape)?), shape));
    let auxiliary = CountingBloomShape { counters: FLOWS * CELLS_PER_FLOW, hashes: HASHES };
    let with_auxiliary = |shape| Ok(Filter::Auxiliary(Box::new(WithAuxiliary::new(shape, auxiliary)?), shape));
    let bloom = StatefulBloomShape { cells: FLOWS * CELLS_PER_FLOW, hashes: HASHES, state_bits: 12 };
    Ok(vec![
        ("fa_4_8", plain(fa_4_8)?),
        ("fa_4_8_acbf", with_auxiliary(fa_4_8)?),
        ("fa_8_4", plain(fa_8_4)?),
        ("fa_8_4_acbf", with_auxiliary(fa_8_4)?),
        ("ll_4_8", plain(ll_4_8)?),
        ("d_left_4_8", plain(d_left_4_8)?),
        ("counting_bloom", Filter::Bloom(Box::new(StatefulBloom::new(bloom)?))),
    ])
}

/// Measures all filters at all loads; figures are medians of the rounds.
pub(super) fn measure(rounds: u32) -> Result<Vec<Row>, ShapeError> {
    let secret = Secret::new(SECRET);
    let mut rows = Vec::new();
    for (name, mut filter) in filters()? {
        let mut present = 0;
        for load_percent in LOADS {
            let wanted = FLOWS * load_percent / 100;
            (present..wanted).for_each(|number| filter.insert(number, secret));
            present = wanted;
            rows.push(at_load(name, &mut filter, load_percent, rounds, secret));
        }
    }
    Ok(rows)
}

fn at_load(name: &'static str, filter: &mut Filter, load_percent: u64, rounds: u32, secret: Secret) -> Row {
    let coming = |round: u64| (round + 1) * FLOWS..(round + 1) * FLOWS + COMING;
    let counted = || coming(0).take(COUNTED as usize);
    let costs: u32 = counted().map(|number| filter.insertion_cost(number, secret)).sum();
    counted().for_each(|number| filter.remove(number, secret));
    let mut times: [Rounds; 4] = Default::default();
    for round in 1..=u64::from(rounds) {
        let mut time = |operation: usize, work: &mut dyn FnMut(u64)| {
            let began = thread_cpu_time();
            coming(round).for_each(work);
            let spent = thread_cpu_time().saturating_sub(began);
            times[operation].push(spent.as_nanos() as f64 / COMING as f64);
        };
        time(0, &mut |number| filter.insert(black_box(number), secret));
        time(1, &mut |number| {
            black_box(filter.lookup(black_box(number), secret));
        });
        time(2, &mut |number| filter.modify(black_box(number), secret));
        time(3, &mut |number| filter.remove(black_box(number), secret));
    }
    let [insert_ns, lookup_ns, modify_ns, remove_ns] = times.map(|times| rounded(times.median(), 1));
    let insertion_cost = rounded(f64::from(costs) / COUNTED as f64, 2);
    Row { filter: name, load_percent, insertion_cost, insert_ns, lookup_ns, modify_ns, remove_ns }
}

/// The rows as people read them.
pub(super) fn describe(rows: &[Row]) -> String {
    let mut table = Table::of("|>LOAD %|>INSERTION COST|>INSERT NS|>LOOKUP NS|>CHANGE NS|>REMOVE NS");
    for row in rows {
        let nanos = [row.insert_ns, row.lookup_ns, row.modify_ns, row.remove_ns].map(|nanos| format!("{nanos:.1}"));
        let figures = [row.load_percent.to_string(), format!("{:.2}", row.insertion_cost)];
        table.row([row.filter.to_owned()].into_iter().chain(figures).chain(nanos));
    }
    format!(
        "Traffic classification, {FLOWS} flows (figures 17 and 19). The insertion's cost is in cells compared and buckets asked for room.\n\n{}",
        table.render()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_available_inserts_at_the_least_cost_and_an_auxiliary_filter_spares_most_of_that() {
        let rows = measure(1).expect("the shapes are right");
        let cost = |name, load| {
            let found = rows.iter().find(|row| (row.filter, row.load_percent) == (name, load));
            found.expect("it was measured").insertion_cost
        };
        for load in LOADS {
            assert!(cost("fa_4_8", load) < cost("ll_4_8", load), "{load}: {rows:?}");
            assert!(cost("fa_4_8", load) < cost("d_left_4_8", load), "{load}: {rows:?}");
            assert!(cost("fa_8_4", load) < cost("fa_4_8", load) + 1.0, "{load}: {rows:?}");
            assert!(cost("fa_4_8_acbf", load) < cost("fa_4_8", load) / 2.0, "{load}: {rows:?}");
        }
        assert!(cost("fa_4_8", 90) > cost("fa_4_8", 10), "a full filter costs more");
    }
}
