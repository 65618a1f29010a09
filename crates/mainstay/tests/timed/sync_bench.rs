//! `mainstay bench sync`, small: every part has its figures, and what the daemons do shows in them.

use std::process::Command;

use serde_json::Value;

/// In the large table, which is small here.
const ENTRIES: u64 = 3000;
/// Established before a kill, and how many a second.
const CONNECTIONS: u64 = 300;
const RAMP_PER_S: u64 = 500;
/// What can have been established in the tenth of a second before the kill in which no promise is made.
const LAST_MOMENT: u64 = RAMP_PER_S / 10;

/// The report of a small measurement; none, said aloud, where it cannot be made.
fn report(arguments: &[&str]) -> Option<Value> {
    packet_io::namespace::for_tests()?;
    if Command::new("nft").arg("-v").output().is_err() {
        packet_io::namespace::skip("nft is not installed (package nftables)");
        return None;
    }
    let _turn = crate::take_turn();
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["bench", "sync", "--quick", "--json", "--rounds", "1", "--seconds", "0.3", "--in-flight", "16"]);
    command.args(["--connections", &CONNECTIONS.to_string(), "--ramp-per-s", &RAMP_PER_S.to_string()]);
    command.args(["--entries", &ENTRIES.to_string()]).args(arguments);
    let output = command.output().expect("the program runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("one JSON object"))
}

fn assert_measured(report: &Value, name: &str) {
    let figure = |of: &Value| of[name].as_f64().unwrap_or_else(|| panic!("{name} in {report:#}"));
    assert!(figure(&report["per_s"]) > 0.0 && report["per_s"]["off"].as_f64().is_some_and(|rate| rate > 0.0));
    for side in ["sender", "receiver"] {
        assert!(figure(&report["cpu_us_per_connection"][side]) > 0.0, "{report:#}");
        assert!(figure(&report["rss_mb_200k_by_side"][side]) > 1.0, "{report:#}");
    }
    assert!(figure(&report["takeover_ms_200k"]) > 0.0, "{report:#}");
    // How many break is the subject's promise. That each kill was measured is this program's.
    let kills = report["broken_by_kill"][name].as_array().unwrap_or_else(|| panic!("{name} in {report:#}"));
    assert!(!kills.is_empty() && kills.iter().all(|broken| broken.as_u64() < Some(CONNECTIONS)), "{report:#}");
    assert!(figure(&report["ghosts_after_takeover_closed"]) > 0.0, "{report:#}");
    assert!(figure(&report["netlink_8k_buffer"]) <= figure(&report["netlink_8k_buffer_entries"]), "{report:#}");
    assert_eq!(report["settings"]["entries"], ENTRIES);
}

#[test]
fn mainstay_sync_is_measured_and_misses_nothing_in_the_end() {
    let Some(report) = report(&["--subjects", "off,mainstay"]) else { return };
    assert_measured(&report, "mainstay");
    assert_eq!(report["netlink_8k_buffer"]["mainstay"], 0.0, "{report:#}");
    assert_eq!(report["ghosts_after_takeover"]["mainstay"], 0, "{report:#}");
    let kills = |of: &Value| of["mainstay"].as_array().cloned().unwrap_or_default();
    let promised = kills(&report["broken_though_promised_by_kill"]);
    assert!(!promised.is_empty() && promised.iter().all(|broken| *broken == 0), "{report:#}");
    let is_few = |broken: &Value| broken.as_u64().is_some_and(|broken| broken <= LAST_MOMENT);
    assert!(kills(&report["broken_by_kill"]).iter().all(is_few), "{report:#}");
    assert!(report["takeover_ms_200k"]["conntrackd"].is_null() && report["ratios"]["takeover_ms"].is_null());
}

#[test]
fn conntrackd_is_measured_in_the_same_way() {
    if Command::new("conntrackd").arg("-v").output().is_err() {
        packet_io::namespace::skip("conntrackd is not installed");
        return;
    }
    let Some(report) = report(&["--subjects", "off,conntrackd"]) else { return };
    assert_measured(&report, "conntrackd");
}
