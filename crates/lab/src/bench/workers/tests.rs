//! A small measurement has its figures; the report's text.

use super::*;

fn args() -> BenchWorkersArgs {
    BenchWorkersArgs {
        workers: 2,
        connections: 5000,
        packets: 8000,
        rounds: 2,
        seconds: 0.1,
        streams: 2,
        pipeline_only: true,
        json: true,
    }
}

#[test]
fn a_small_measurement_has_all_its_figures() {
    let report = measure(&args()).expect("no packet is lost");
    let Report { pipeline_packets_per_s: pipeline, ns_per_packet_direct_and_handed_over: nanos, .. } = &report;
    let figures = [pipeline.medians[0], pipeline.medians[1], pipeline.ratio, nanos[0], nanos[1]];
    assert!(figures.iter().all(|figure| *figure > 0.0 && figure.is_finite()), "{report:?}");
    assert!(nanos[1] > nanos[0], "handing over is work: {report:?}");
    assert!(report.bulk_gbit_per_s.is_none() && report.handed_over_share.is_none());
    let text = report.describe();
    for line in ["pipeline, million packets a second, 2 workers", "ns when it comes to another first"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn the_report_has_both_sides_of_the_bulk_measurement() {
    let mut figures = Figures { handed_share: 0.0125, ..Figures::default() };
    for (alone, together) in [(8.0, 12.0), (9.0, 18.0), (10.0, 15.0)] {
        figures.bulk[0].push(alone);
        figures.bulk[1].push(together);
    }
    let report = Report::new(&BenchWorkersArgs { pipeline_only: false, ..args() }, &figures);
    let bulk = report.bulk_gbit_per_s.as_ref().expect("it was measured");
    assert_eq!((bulk.medians, bulk.ratio), ([9.0, 15.0], 1.5));
    let text = report.describe();
    assert!(text.contains("bulk TCP, Gbit/s, 2 workers") && text.contains("1.25 %"), "{text}");
}
