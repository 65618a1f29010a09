//! A small measurement has its figures; memory by policy; the report's text.

use super::memory::MemoryRow;
use super::*;

fn args() -> BenchEdgeArgs {
    BenchEdgeArgs {
        connections: 3000,
        packets: 3000,
        rounds: 2,
        memory_connections: vec![2000],
        json: true,
        filled: None,
    }
}

#[test]
fn a_small_measurement_has_all_its_figures() {
    let figures = measure(&args(), &Progress::new()).expect("no packet is lost");
    let rows = [("always", 3_400_000, 2000), ("off", 400_000, 0)];
    let memory = rows.map(|(policy, bytes, held)| MemoryRow { policy, connections: 2000, bytes, held }).to_vec();
    let report = Report::new(&args(), &figures, Some(321.4), memory);
    let nanos = [report.ns_per_packet, report.gateway_ns_per_packet, report.full_ns_per_packet];
    let ratios = [report.full_gateway_ns_per_packet, report.ratio, report.full_ratio];
    assert!(nanos.iter().chain(&ratios).all(|figure| *figure > 0.0 && figure.is_finite()), "{report:?}");
    assert!(report.full_ns_per_packet > report.ns_per_packet, "a full-sized packet is more work: {report:?}");
    assert_eq!(report.bytes_per_connection, 1700.0);
    let text = report.describe();
    for line in ["3 000 TCP connections", "full-sized, gateway", "takes 1700 bytes", "3 400 000", "321 instructions"] {
        assert!(text.contains(line), "{text}");
    }
}

#[test]
fn an_edge_holds_a_segment_of_each_connection_that_its_policy_wants() {
    let held = |policy| memory::fill(policy, 500).expect("no packet is lost").1;
    let held = RecoveryPolicy::ALL.map(|(name, policy)| (name, held(policy)));
    let expected =
        [("always", 500), ("from-second-lost-heartbeat", 500), ("heavy-hitters", 500), ("syn-only", 0), ("off", 0)];
    assert_eq!(held, expected);
}
