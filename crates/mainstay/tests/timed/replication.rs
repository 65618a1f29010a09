//! Kills under real traffic, beside two Linux routers that conntrackd replicates.

use std::fs;
use std::process::Command;

use serde_json::Value;

/// Flows at a time: few, as other tests share the machine.
const FLOWS: &str = "60";
/// Not how well the links were kept is tried here, but what becomes of the flows: a busy machine does.
const LATENESS_MS: &str = "1000";
/// Of the flows of large objects, which the standby has long known: those that must go on. Not all, because a busy machine can
/// keep an end point from its processor for as long as a flow is waited for; where nothing is replicated none goes on.
const RECOVERED_MIN: f64 = 0.95;
/// Flows of large objects in transfer at the kill. On a busy machine many of the others still connect then.
const AT_RISK_MIN: u64 = 10;

#[test]
fn connections_survive_a_kill_when_nothing_is_lost() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let page = std::env::temp_dir().join(format!("mainstay-replication-{}.html", std::process::id()));
    let mut command = Command::new(env!("CARGO_BIN_EXE_mainstay"));
    command.args(["bench", "replication", "--quick", "--json", "--losses", "0", "--objects-kb", "1,1000"]);
    command.args(["--subjects", "native,native-held,conntrackd", "--flows", FLOWS, "--lateness-ms", LATENESS_MS]);
    command.args(["--give-up", "10", "--report"]).arg(&page);
    let output = command.output().expect("the program runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");

    for subject in ["native", "native-held"] {
        let large = row(&report, subject, 1000);
        assert!(large["at_risk"].as_u64().expect("a number") >= AT_RISK_MIN, "{subject}: {large:#}");
        assert!(large["recovered"].as_f64().expect("a share") >= RECOVERED_MIN, "{subject}: {large:#}");
        assert!(large["beyond_detection_ms"]["median"].as_f64().expect("a time") > 0.0, "{subject}: {large:#}");
        let cell = of_subject(&report["cells"], subject).next().expect("a cell");
        assert_eq!(cell["kills"], 1, "{subject}: {report:#}");
        assert!(cell["connect_ms"]["median"].as_f64().expect("a time") > 0.0, "{subject}: {cell:#}");
    }
    let html = fs::read_to_string(&page).expect("the page was written");
    fs::remove_file(&page).expect("it can be removed");
    assert!(html.starts_with("<!doctype html>") && html.contains("<svg") && html.contains("native-held"));
}

fn of_subject<'a>(list: &'a Value, subject: &'a str) -> impl Iterator<Item = &'a Value> {
    let list = list.as_array().expect("a list");
    list.iter().filter(move |entry| entry["subject"] == subject)
}

fn row<'a>(report: &'a Value, subject: &'a str, object_kb: u64) -> &'a Value {
    of_subject(&report["rows"], subject).find(|row| row["object_kb"] == object_kb).expect("a row")
}
