use super::*;

#[test]
fn a_small_measurement_has_all_its_figures() {
    let args = BenchPipelineArgs { connections: 5000, packets: 3000, rounds: 2, json: true };
    let report = measure(&args).expect("no packet is lost");
    let figures = [
        report.ns_per_packet,
        report.ns_per_packet_one_at_a_time,
        report.ratio,
        report.ns_per_packet_replicated,
        report.replication_bytes_per_packet,
        report.ns_per_connection,
    ];
    assert!(figures.iter().all(|figure| *figure > 0.0 && figure.is_finite()), "{report:?}");
    for line in ["a packet, connections in a hashbrown map", "a connection opened and closed", "5 000 TCP connections"]
    {
        assert!(report.describe().contains(line), "{}", report.describe());
    }
}
