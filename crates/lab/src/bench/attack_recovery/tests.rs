//! A small flood, and the report of known figures.

use super::*;

fn args(packets: u64) -> BenchAttackRecoveryArgs {
    BenchAttackRecoveryArgs { rate: 100_000, connections: 2000, packets, rounds: 3, json: true }
}

#[test]
fn a_flood_passes_nothing_and_loses_no_legitimate_packet() {
    let mut node = Recovering::start(2000).unwrap();
    let mut flood = Flooded::default();
    // So many bogus replies that the budget is used up, whatever the machine.
    let per_s = node.pass(2000, 10_000_000, &mut flood).unwrap();
    assert!(per_s > 0.0 && flood.bogus > 0);
    let counters = node.pipeline.recovery.counters();
    assert!(counters.over_budget > 0 && counters.over_budget + counters.missed + counters.restored >= flood.bogus);
    assert!(node.pipeline.table().len() <= 2000 + 64, "hardly one is taken for a connection");
}

#[test]
fn the_report_has_both_sides_of_the_ratio() {
    let mut figures = Figures::default();
    for (without, with) in [(1000.0, 950.0), (500.0, 480.0), (1100.0, 1034.0)] {
        figures.legitimate_per_s[0].push(without);
        figures.legitimate_per_s[1].push(with);
    }
    figures.flood = Flooded { bogus: 5000, spent: Duration::from_millis(500), over_budget: 4000, tuples: 30_000 };
    let report = Report::new(&args(10), &figures);
    assert_eq!((report.legitimate_per_s.without_flood, report.legitimate_per_s.with_flood), (1000.0, 950.0));
    assert_eq!((report.legitimate_share, report.tuples_per_s), (0.95, 60_000.0));
    let text = report.describe();
    for part in ["100 000 bogus replies a second", "512 inside", "0.950", "5 000 bogus", "4 000 were dropped"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
