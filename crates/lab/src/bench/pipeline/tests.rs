//! The measured pipeline does what it is measured at; the report's text.

use super::*;

#[test]
fn a_small_measurement_has_all_its_figures() {
    let args = BenchPipelineArgs { connections: 5000, packets: 3000, rounds: 2, largest: 1 << 16, json: true };
    let report = measure(&args).expect("no packet is lost");
    let figures = [
        report.ns_per_packet,
        report.ns_per_packet_one_at_a_time,
        report.ratio,
        report.ns_per_packet_replicated,
        report.replication_bytes_per_packet,
        report.ns_per_connection,
        report.open_close_nat_per_s,
        report.by_connections.of_64k.unwrap_or_default(),
        report.ns_per_packet_ipv6,
        report.ns_per_packet_fragments,
        report.ns_per_open_50_rules,
        report.ns_per_open_1000_rules,
        report.open_ratio_1000_rules,
        report.ns_per_packet_50_rules,
        report.ns_per_packet_1000_rules,
        report.packet_ratio_1000_rules,
    ];
    assert!(figures.iter().all(|figure| *figure > 0.0 && figure.is_finite()), "{report:?}");
    assert_eq!((report.by_connections.of_1m, report.by_connections.of_8m), (None, None), "beyond the largest");
    let lines = [
        "a packet, connections in a hashbrown map",
        "a connection opened and closed",
        "5 000 TCP connections",
        "one of 65 536 connections",
        "With 1000 firewall rules",
    ];
    for line in lines {
        assert!(report.describe().contains(line), "{}", report.describe());
    }
}

#[test]
fn the_tables_own_size_is_reported_without_being_measured_twice() {
    let args = BenchPipelineArgs { connections: 1 << 16, packets: 2000, rounds: 1, largest: 1 << 16, json: true };
    let report = measure(&args).expect("no packet is lost");
    assert_eq!(report.by_connections.of_64k, Some(report.ns_per_packet));
    let json = serde_json::to_value(&report).expect("figures are numbers");
    assert_eq!(json["by_connections"]["64k"], json["ns_per_packet"]);
    assert!(json["by_connections"]["8m"].is_null());
}
