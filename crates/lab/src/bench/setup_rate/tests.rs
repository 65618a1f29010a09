//! Connections are counted; the report's text.

use super::*;
use crate::bench::bulk::KernelRules;

#[test]
fn connections_are_made_and_counted() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Arc::new(Topology::build().unwrap());
    KernelRules::install(&topology.nodes[0]).unwrap();
    let _server = Server::start(&topology.server, &server_addresses()).unwrap();
    let client = Client::start(&topology, server_addresses(), 8).unwrap();
    let watch = Watch::new().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    let waited = watch.until(deadline, || Ok::<_, BenchError>(client.tally().completed >= 100)).unwrap();
    assert_eq!(waited, crate::testbed::watch::Waited::Met, "{:?}", client.tally());
    client.finish().unwrap();
}

#[test]
fn a_server_that_is_not_there_is_a_failure_with_its_reason() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let topology = Arc::new(Topology::build().unwrap());
    KernelRules::install(&topology.nodes[0]).unwrap();
    let client = Client::start(&topology, server_addresses(), 1).unwrap();
    let watch = Watch::new().unwrap();
    let deadline = Instant::now() + Duration::from_secs(10);
    watch.until(deadline, || Ok::<_, BenchError>(client.tally().failed > 0)).unwrap();
    let error = client.finish().unwrap_err().to_string();
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn the_report_has_both_sides_and_their_cost() {
    let mut on = Figures::default();
    let (mut off, mut kernel) = (Figures::default(), Figures::default());
    for (rate_on, rate_off) in [(9500.0, 10_000.0), (9000.0, 10_100.0), (9600.0, 9900.0)] {
        on.connections_per_s.push(rate_on);
        off.connections_per_s.push(rate_off);
        kernel.connections_per_s.push(12_500.0);
    }
    on.active_cpu_us.push(41.26);
    let args = BenchSetupRateArgs {
        seconds: 1.0,
        rounds: 3,
        in_flight: 16,
        multi_primary: false,
        representation: None,
        json: false,
    };
    let report = Report::new(&args, [&on, &off, &kernel]);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(
        json["per_s"],
        serde_json::json!({
            "replication_on": 9500.0, "replication_off": 10_000.0, "kernel_nft": 12_500.0
        })
    );
    assert_eq!(report.ratio_kernel, 0.8);
    assert_eq!((report.ratio, report.spans_per_s.replication_on), (0.95, [9000.0, 9600.0]));
    assert_eq!(json["cpu_us_per_connection"]["replication_on"]["active"], 41.3);
    for text in ["replication off", "10 000", "41.3 µs", "With replication 0.950 of the connections"] {
        assert!(report.describe().contains(text), "{}", report.describe());
    }
}
