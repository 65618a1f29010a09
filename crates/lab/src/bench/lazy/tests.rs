//! The report of known figures.

use super::*;

fn args() -> BenchLazyArgs {
    BenchLazyArgs {
        rate: 27_000,
        streams: 4,
        long_connections: 100,
        seconds: 1.0,
        settle_seconds: 1.0,
        rounds: 3,
        spread: false,
        json: true,
    }
}

#[test]
fn the_report_has_medians_and_what_is_left_of_the_throughput_without_replication() {
    // The seed's figures, with a round that something disturbed.
    let side = |megabits: [f64; 3]| {
        let mut figures = Figures::default();
        megabits.into_iter().for_each(|it| figures.megabits_per_s.push(it));
        [0.31, 0.32, 0.33].into_iter().for_each(|share| figures.standby_cpu.push(share));
        figures.threshold_ms.push(60.0);
        figures.level_max = 4;
        figures
    };
    let figures = [side([259.0, 130.0, 260.0]), side([77.0, 38.0, 77.5]), side([224.0, 112.0, 225.0])];
    let before = LazyStatus { deferred: 1234, ..LazyStatus::default() };
    let report = Report::new(&args(), &figures, &Survival { survived: 99, of: 100, before });
    assert_eq!(report.throughput.no_replication, 259.0);
    assert_eq!((report.throughput.no_dli, report.throughput.dli), (77.0, 224.0));
    assert_eq!(report.share_of_no_replication.dli, 0.865);
    assert_eq!((report.level_max, report.goals.dli_over_no_replication.is_reached), (4, false));
    assert!(report.goals.dli_over_no_dli.is_reached && report.goals.dli_over_no_dli.ratio > 2.9);
    let text = report.describe();
    for part in ["27 000 short connections", "99\nof 100 connections", "1 234 that were deferred", "0.865", "32 %"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn nothing_that_passed_is_no_figure() {
    let reading = |received_bytes| Reading {
        at: Instant::now(),
        received_bytes,
        sent: received_bytes,
        cpu_times: Vec::new(),
        active: Status::default(),
    };
    let before = reading(5);
    assert!(matches!(Figures::default().add(&before, &reading(5)), Err(BenchError::NothingPassed)));
    let mut figures = Figures::default();
    assert!(figures.add(&before, &reading(1_000_005)).is_ok());
    assert!(figures.megabits_per_s.median() > 0.0 && figures.offered_per_s.median() > 0.0);
}

#[test]
fn a_level_of_any_reading_counts() {
    let at_level = |received_bytes, level| Reading {
        at: Instant::now(),
        received_bytes,
        sent: received_bytes,
        cpu_times: Vec::new(),
        active: Status { lazy: Some(LazyStatus { level, ..LazyStatus::default() }), ..Status::default() },
    };
    let mut figures = Figures::default();
    figures.add(&at_level(0, 0), &at_level(1_000_000, 0)).expect("bytes passed");
    assert_eq!(figures.level_max, 0);
    figures.add(&at_level(0, 3), &at_level(1_000_000, 1)).expect("bytes passed");
    assert_eq!((figures.level_max, figures.level.median()), (3, 0.0));
}

#[test]
fn a_node_that_never_degraded_is_an_error_with_its_remedy() {
    let error = BenchError::NeverDegraded { utilisation: 0.31, utilisation_max: 0.9 }.to_string();
    assert!(error.contains("31 %") && error.contains("90 %") && error.contains("--rate"), "{error}");
}
