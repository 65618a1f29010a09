//! The benchmarks of many connections on the fast path, small: every part has its figures.

use std::process::Command;

use serde_json::Value;

/// The report of a small measurement; none, said aloud, where it cannot be made.
fn report(arguments: &str) -> Option<Value> {
    let _turn = crate::take_turn();
    packet_io::namespace::for_tests()?;
    if Command::new("nft").arg("-v").output().is_err() {
        packet_io::namespace::skip("nft is not installed (package nftables)");
        return None;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    let output = command.args(arguments.split(' ')).arg("--json").output().expect("the program runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    if errors.contains("no fast path on this host") {
        packet_io::namespace::skip("the gateway has no fast path on this host");
        return None;
    }
    assert!(output.status.success(), "{errors}");
    Some(serde_json::from_slice(&output.stdout).expect("one JSON object"))
}

#[test]
fn full_tables_are_measured_on_the_fast_path_and_in_the_kernel() {
    // At a pace at which nothing is lost when the machine is busy with other tests.
    let small = "lab bench packets --duration 200ms --packets-per-second 20000 --rounds 1 --flows 64 --connections 300";
    let Some(report) = report(small) else { return };
    if let Some(reason) = report["full_tables_left_out"].as_str() {
        packet_io::namespace::skip(reason);
        return;
    }
    assert_eq!((&report["flows"], &report["connections"]), (&64.into(), &300.into()));
    for side in ["fast_path", "kernel_nft", "fast_path_1m", "kernel_nft_1m"] {
        // A packet's cost can come out below that of the cable in so short a time. That packets arrived is this program's.
        assert!(report["ns_per_packet"][side].is_number(), "{side}: {report:#}");
        assert!(report["arrived"][side].as_f64() > Some(0.5), "{side}: {report:#}");
    }
    assert!(report["ratio_fast_path_1m"].is_number(), "{report:#}");
}

#[test]
fn connections_on_the_fast_path_survive_the_death_of_their_node() {
    let Some(report) = report("lab bench failover --connections 200") else { return };
    for count in ["connections", "installed_before", "installed_after"] {
        assert_eq!(report[count], 200, "{report:#}");
    }
    assert_eq!(report["broken"], 0, "{report:#}");
    let ms = |name: &str| report[name].as_f64().unwrap_or_else(|| panic!("{name} in {report:#}"));
    let [detection, takeover, first_packet, last_packet] =
        ["detection_ms", "takeover_ms", "first_packet_ms", "last_packet_ms"].map(ms);
    assert!(0.0 < detection && detection <= takeover, "{report:#}");
    assert!(detection < first_packet && first_packet <= last_packet, "{report:#}");
}
