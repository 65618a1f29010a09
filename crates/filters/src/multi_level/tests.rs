//! Multi-level filters keep their items, and match the load, cost and error rates of MLCBF.

use super::*;
use crate::{Full, Inserted, Insertion, Secret, theory};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::vec::Vec;

fn key(number: u64) -> KeyHash {
    Secret::new([21, 22]).spread(number)
}

fn shape(cells: u64, levels: u8, cells_per_bucket: u8, insertion: Insertion) -> MultiLevelShape {
    MultiLevelShape { cells, levels, cells_per_bucket, insertion, ..MultiLevelShape::for_items(0, 8) }
}

/// A d-left filter: all levels have the same size.
fn d_left(cells: u64, levels: u8, cells_per_bucket: u8) -> MultiLevelShape {
    MultiLevelShape { ratio_per_mille: 1000, ..shape(cells, levels, cells_per_bucket, Insertion::LeastLoad) }
}

fn counting(shape: MultiLevelShape) -> MultiLevel<Counters> {
    MultiLevel::new(shape).expect("a shape")
}

/// Inserts items until one fails. Returns the number of successes.
fn fill(filter: &mut MultiLevel<Counters>, secret: &Secret) -> u64 {
    (0..).find(|number| filter.insert(secret.spread(*number)) == Err(Full)).expect("it is finite")
}

/// The load at which the first insertion fails: the average over the trials.
fn maximum_load(shape: MultiLevelShape, trials: u64) -> f64 {
    let loads = (0..trials).map(|trial| {
        let mut filter = counting(shape);
        fill(&mut filter, &Secret::new([trial, 99])) as f64 / filter.cells() as f64
    });
    loads.sum::<f64>() / trials as f64
}

#[test]
fn maximum_loads_match_figure_13() {
    let first = |levels, cells| shape(10_000, levels, cells, Insertion::FirstAvailable);
    let cases = [
        ("FA(4,8)", first(4, 8), 0.9365),
        ("FA(8,4)", first(8, 4), 0.9726),
        // 100 000 items need 115 207, 119 189 and 117 994 cells.
        ("FA(4,4)", first(4, 4), 100_000.0 / 115_207.0),
        ("LL(4,4)", shape(10_000, 4, 4, Insertion::LeastLoad), 100_000.0 / 119_189.0),
        ("d-left(4,4)", d_left(10_000, 4, 4), 100_000.0 / 117_994.0),
    ];
    for (name, shape, expected) in cases {
        let load = maximum_load(shape, 60);
        assert!((load - expected).abs() < 0.01, "{name}: {load} instead of {expected}");
    }
}

#[test]
fn items_are_distributed_over_the_levels_as_in_mlcbf() {
    let mut filter = counting(shape(20_000, 4, 8, Insertion::FirstAvailable));
    let mut sums = [0.0; 4];
    for trial in 0..20 {
        let secret = Secret::new([trial, 5]);
        filter = counting(filter.shape);
        (0..15_000).for_each(|number| assert!(filter.insert(secret.spread(number)).is_ok()));
        sums.iter_mut().zip(filter.items_by_level()).for_each(|(sum, items)| *sum += items as f64 / 20.0);
    }
    // Section 3.1 B; the counts of single trials scatter by about 30.
    for (items, expected) in sums.iter().zip([10_328.0, 4237.0, 432.0, 0.0]) {
        assert!((items - expected).abs() < 20.0, "{sums:?}");
    }
}

#[test]
fn loads_of_levels_match_table_1() {
    type Row = [f64; 4];
    let first = |levels, cells| shape(10_000, levels, cells, Insertion::FirstAvailable);
    let least = |levels, cells| shape(10_000, levels, cells, Insertion::LeastLoad);
    // Items, load factors of the first four levels: "Exp. AVLF".
    let rows: [(&str, MultiLevelShape, u64, Row); 9] = [
        ("FA(4,8) 20 %", first(4, 8), 2000, [2.992, 0.008, 0.0, 0.0]),
        ("FA(4,8) 85 %", first(4, 8), 8500, [7.88, 7.472, 4.528, 0.16]),
        ("LL(4,8) 20 %", least(4, 8), 2000, [1.632, 1.616, 1.544, 1.392]),
        ("LL(4,8) 85 %", least(4, 8), 8500, [6.808, 6.816, 6.8, 6.792]),
        ("d-left(4,8) 20 %", d_left(10_000, 4, 8), 2000, [1.936, 1.776, 1.52, 1.176]),
        ("d-left(4,8) 85 %", d_left(10_000, 4, 8), 8500, [7.128, 6.904, 6.744, 6.472]),
        ("FA(8,4) 20 %", first(8, 4), 2000, [1.564, 0.06, 0.0, 0.0]),
        ("FA(8,4) 85 %", first(8, 4), 8500, [3.856, 3.736, 3.304, 1.776]),
        ("LL(8,4) 20 %", least(8, 4), 2000, [0.804, 0.796, 0.796, 0.796]),
    ];
    for (name, shape, items, expected) in rows {
        let mut factors = [0.0; 4];
        for trial in 0..20 {
            let (mut filter, secret) = (counting(shape), Secret::new([trial, 6]));
            (0..items).for_each(|number| assert!(filter.insert(secret.spread(number)).is_ok()));
            for (level, items) in filter.items_by_level()[..4].iter().enumerate() {
                factors[level] += *items as f64 / filter.levels[level].buckets as f64 / 20.0;
            }
        }
        for (factor, expected) in factors.iter().zip(expected) {
            assert!((factor - expected).abs() < 0.08, "{name}: {factors:?} instead of {expected:?}");
        }
    }
}

#[test]
fn search_costs_match_the_equations() {
    for (levels, cells, items) in [(4, 8, 3000), (4, 8, 6000), (4, 8, 9000), (8, 4, 6000), (8, 4, 9000)] {
        let shape = shape(10_000, levels, cells, Insertion::FirstAvailable);
        let mut filter = counting(shape);
        (0..items).for_each(|number| assert!(filter.insert(key(number)).is_ok()));
        let mean = |keys: core::ops::Range<u64>| {
            let number = (keys.end - keys.start) as f64;
            keys.map(|number| f64::from(filter.search_cost(key(number)).cells)).sum::<f64>() / number
        };
        let theory = theory::FirstAvailable::of(shape, items).expect("a shape");
        let compared = [
            (mean(items..items + 100_000), theory.unsuccessful_search_cells()),
            (mean(0..items), theory.successful_search_cells()),
        ];
        for (measured, expected) in compared {
            assert!((measured / expected - 1.0).abs() < 0.03, "({levels},{cells}) {items}: {compared:?}");
        }
        // Its two simplifications nearly compensate each other.
        let by_equation_5 = theory.successful_search_cells_by_equation_5();
        assert!((by_equation_5 / compared[1].0 - 1.0).abs() < 0.1, "({levels},{cells}) {items}: {by_equation_5}");
    }
}

#[test]
fn false_positives_are_within_a_tenth_of_the_formula() {
    let cases = [
        ("FA", shape(10_000, 4, 8, Insertion::FirstAvailable)),
        ("LL", shape(10_000, 4, 8, Insertion::LeastLoad)),
        ("d-left", d_left(10_000, 4, 8)),
    ];
    let mut rates = Vec::new();
    for (name, shape) in cases {
        let mut filter = counting(MultiLevelShape { fingerprint_bits: 12, ..shape });
        (0..8500).for_each(|number| assert!(filter.insert(key(number)).is_ok()));
        let tests = 1_000_000;
        let found = (8500..8500 + tests).filter(|number| filter.contains(key(*number))).count();
        let items_by_level = filter.items_by_level();
        let factors = items_by_level.iter().zip(&filter.levels).filter(|(_, level)| level.buckets > 0);
        let sum: f64 = factors.map(|(items, level)| *items as f64 / level.buckets as f64).sum();
        let (measured, expected) = (found as f64 / tests as f64, sum / 4096.0);
        assert!((measured / expected - 1.0).abs() < 0.1, "{name}: {measured} instead of {expected}");
        rates.push(measured);
    }
    assert!(rates[0] < rates[1] && rates[0] < rates[2], "first available has the fewest: {rates:?}");
}

#[test]
fn each_change_marks_one_cell() {
    let mut filter = MultiLevel::<States>::new(MultiLevelShape::for_items(1000, 8)).expect("a shape");
    let mark = filter.memory_mut().mark().expect("the first");
    let mut taken = Vec::new();
    for number in 0..1000 {
        filter.insert(key(number), 1).expect("room");
        filter.memory_mut().take_changes(mark, 10, &mut taken);
        filter.modify(key(number), 2).expect("it is there");
        filter.memory_mut().take_changes(mark, 10, &mut taken);
        if number % 2 == 0 {
            filter.remove(key(number)).expect("it is there");
            filter.memory_mut().take_changes(mark, 10, &mut taken);
        }
    }
    assert_eq!(taken.len(), 1000 + 1000 + 500);
}

#[test]
fn a_batch_lookup_equals_single_lookups() {
    let mut filter = MultiLevel::<States>::new(MultiLevelShape::for_items(1000, 8)).expect("a shape");
    (0..1000).for_each(|number| assert!(filter.insert(key(number), (number % 256) as u16).is_ok()));
    let keys: Vec<_> = (500..1600).map(key).collect();
    let mut states = std::vec![None; keys.len()];
    filter.lookup_batch(&keys, &mut states);
    let one_by_one: Vec<_> = keys.iter().map(|key| filter.lookup(*key)).collect();
    assert_eq!(states, one_by_one);
    assert_eq!(states.iter().flatten().count(), 500);
}

/// The filter with the search of this processor, with four vectors of 128 bits, and bucket by bucket.
fn by_each_search(shape: MultiLevelShape) -> [MultiLevel<States>; 3] {
    let [filter, mut narrow, mut any] = core::array::from_fn(|_| MultiLevel::<States>::new(shape).expect("a shape"));
    narrow.search = Search::FourByEight;
    any.search = Search::Any;
    [filter, narrow, any]
}

#[test]
fn every_search_variant_writes_the_same_cells() {
    // Few fingerprint bits, so that several cells match; so full that some insertions fail.
    let of = |fingerprint_bits, cells_per_bucket, insertion| MultiLevelShape {
        fingerprint_bits,
        ..shape(600, 4, cells_per_bucket, insertion)
    };
    let shapes = [
        of(4, 8, Insertion::FirstAvailable),
        of(4, 8, Insertion::LeastLoad),
        of(23, 8, Insertion::FirstAvailable),
        of(7, 6, Insertion::FirstAvailable),
        of(7, 5, Insertion::LeastLoad),
        MultiLevelShape { ratio_per_mille: 1000, ..of(5, 8, Insertion::LeastLoad) },
    ];
    for shape in shapes {
        let mut filters = by_each_search(shape);
        for number in 0..4000_u64 {
            let (one, other, state) = (key(number % 700), key(number * 7 % 900), (number % 256) as u16);
            let results = filters.each_mut().map(|filter| match number % 5 {
                0 | 1 => (Some(filter.insert(one, state)), None, false),
                2 => (None, filter.modify(other, state), filter.insert_distinct(one, state).is_ok()),
                3 => (None, filter.remove(other), filter.modify_state(one, state, 3)),
                _ => (None, filter.lookup(other), filter.remove_state(one, state)),
            });
            assert_eq!([results[1], results[2]], [results[0]; 2], "{shape:?}");
        }
        let [here, narrow, any] = &filters;
        assert!(here.len() > 300, "{}", here.len());
        assert_eq!((narrow.memory.words(), any.memory.words()), (here.memory.words(), here.memory.words()));
        let keys: Vec<_> = (0..1001).map(key).collect();
        let states = [here, narrow, any].map(|filter| {
            let mut states = std::vec![None; keys.len()];
            filter.lookup_batch(&keys, &mut states);
            states
        });
        assert_eq!([&states[1], &states[2]], [&states[0]; 2]);
    }
}

#[test]
fn colliding_items_with_distinct_cells_remain_until_both_are_removed() {
    // Four bits of fingerprint: many items collide.
    let shape = MultiLevelShape { fingerprint_bits: 4, ..shape(200, 4, 8, Insertion::FirstAvailable) };
    let mut filter = MultiLevel::<States>::new(shape).expect("a shape");
    (0..120).for_each(|number| assert_eq!(filter.insert_distinct(key(number), number as u16), Ok(())));
    assert_eq!(filter.len(), 120);
    for number in 0..120 {
        assert!((number..120).all(|number| filter.lookup(key(number)).is_some()), "{number}");
        // Each is identified by its state, which then changes.
        assert!(filter.modify_state(key(number), number as u16, 200));
        assert!(!filter.modify_state(key(number), number as u16, 201));
        assert!(filter.remove_state(key(number), 200));
        assert!(!filter.remove_state(key(number), number as u16));
    }
    assert!(filter.is_empty());
    // The insertion of MLCBF matches the second item with the first.
    let matched = (0..120).filter(|number| matches!(filter.insert(key(*number), 1), Ok(Inserted::Matched(_))));
    assert!(matched.count() > 10);
}

#[test]
fn a_full_filter_rejects_insertions_without_changes() {
    let mut filter = counting(shape(200, 2, 2, Insertion::LeastLoad));
    let items = fill(&mut filter, &Secret::new([21, 22]));
    let words = filter.memory.words().to_vec();
    assert_eq!(filter.insert(key(items)), Err(Full));
    assert_eq!((filter.memory.words(), filter.len() as u64), (&words[..], items));
}

fn any_shape() -> impl Strategy<Value = MultiLevelShape> {
    (2_u8..=8, 1_u8..=8, prop_oneof![Just(500_u16), Just(1000), Just(800)], any::<bool>()).prop_map(
        |(levels, cells_per_bucket, ratio_per_mille, is_first)| {
            let insertion = if is_first { Insertion::FirstAvailable } else { Insertion::LeastLoad };
            MultiLevelShape { ratio_per_mille, ..shape(2500, levels, cells_per_bucket, insertion) }
        },
    )
}

proptest! {
    /// With 23 bits of fingerprint none of these keys collides.
    #[test]
    fn a_filter_with_counters_is_a_multiset(
        shape in any_shape(),
        steps in proptest::collection::vec((0_u64..60, any::<bool>()), 0..200),
    ) {
        let mut filter = counting(shape);
        let mut model = BTreeMap::<u64, u16>::new();
        for (number, is_insertion) in steps {
            let count = model.get(&number).copied().unwrap_or_default();
            if is_insertion {
                let expected = if count == 0 { Inserted::Placed } else { Inserted::Matched(count) };
                prop_assert_eq!(filter.insert(key(number)), Ok(expected));
                model.insert(number, count + 1);
            } else {
                prop_assert_eq!(filter.remove(key(number)), count > 0);
                if count > 1 { model.insert(number, count - 1); } else { model.remove(&number); }
            }
            prop_assert_eq!(filter.len(), model.len());
            for number in 0..60 {
                prop_assert_eq!(filter.count(key(number)), model.get(&number).copied().unwrap_or_default());
            }
        }
        for (number, count) in model {
            (0..count).for_each(|_| { filter.remove(key(number)); });
        }
        prop_assert!(filter.memory.words().iter().all(|word| *word == 0), "removal clears every cell");
    }

    #[test]
    fn a_filter_with_states_is_a_map(
        shape in any_shape(),
        steps in proptest::collection::vec((0_u64..60, 0_u8..4, 0_u16..256), 0..200),
    ) {
        let mut filter = MultiLevel::<States>::new(shape).expect("a shape");
        let mut model = BTreeMap::new();
        for (number, operation, state) in steps {
            match operation {
                0 => {
                    let expected = model.insert(number, state).map_or(Inserted::Placed, Inserted::Matched);
                    prop_assert_eq!(filter.insert(key(number), state), Ok(expected));
                }
                1 => prop_assert_eq!(
                    filter.modify(key(number), state),
                    model.get_mut(&number).map(|known| core::mem::replace(known, state))
                ),
                2 => prop_assert_eq!(filter.remove(key(number)), model.remove(&number)),
                _ => {
                    let is_there = model.get(&number) == Some(&state);
                    prop_assert_eq!(filter.remove_state(key(number), state), is_there);
                    if is_there { model.remove(&number); }
                }
            }
            prop_assert_eq!(filter.len(), model.len());
            for number in 0..60 {
                prop_assert_eq!(filter.lookup(key(number)), model.get(&number).copied());
                prop_assert_eq!(filter.search_cost(key(number)).is_found, model.contains_key(&number));
            }
        }
    }

    #[test]
    fn a_saturated_counter_stays(more in 1_u16..20) {
        let mut filter = counting(MultiLevelShape { content_bits: 3, ..shape(100, 2, 4, Insertion::FirstAvailable) });
        (0..7 + more).for_each(|_| { filter.insert(key(1)).expect("room"); });
        (0..7 + more).for_each(|_| assert!(filter.remove(key(1))));
        prop_assert_eq!(filter.count(key(1)), 7);
    }
}

#[test]
fn retain_frees_the_cells_of_other_states_only() {
    let mut filter = MultiLevel::<States>::new(MultiLevelShape::for_items(1000, 8)).expect("a shape");
    for number in 0..900 {
        filter.insert_distinct(key(number), (number % 3) as u16).expect("room");
    }
    assert_eq!(filter.retain_states(|state| state != 1), 300);
    assert_eq!(filter.len(), 600);
    for number in 0..900 {
        let expected = (number % 3 != 1).then_some((number % 3) as u16);
        assert_eq!(filter.lookup(key(number)), expected, "{number}");
    }
}
