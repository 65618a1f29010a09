//! The promise, kept on this machine: connections outlive the node that carries them.

use std::process::Command;

use packet_io::namespace::{NamespaceSupport, probe};

/// Pauses and detection are promised for a quiet machine; the one that runs tests may be busy.
const DETECTION_MS_MAX: f64 = 400.0;
const GAP_MS_MAX: f64 = 3000.0;

#[test]
fn connections_outlive_their_node_with_replication_and_only_with_it() {
    if let NamespaceSupport::Forbidden(why) = probe() {
        println!("skipped: {why}");
        return;
    }
    let page = std::env::temp_dir().join(format!("mainstay-demo-test-{}.html", std::process::id()));
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--json", "--ramp", "200", "--seconds", "2", "--report"])
        .arg(&page)
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    let html = std::fs::read_to_string(&page);
    let _ = std::fs::remove_file(&page);
    assert!(output.status.success(), "{error}");
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let number = |pointer: &str| result.pointer(pointer).and_then(serde_json::Value::as_f64).expect(pointer);

    // 66 steady ones, and at least seven eighths of the ramp.
    assert!(number("/connections") >= 66.0 + 175.0, "{result:#}");
    assert_eq!(number("/survived"), number("/connections"), "{result:#}");
    assert_eq!(number("/broken"), 0.0, "{result:#}");
    assert!(number("/bytes_verified") > 10e6, "{result:#}");
    assert!(number("/detection_ms") < DETECTION_MS_MAX, "{result:#}");
    assert!(number("/takeover_ms") >= number("/detection_ms"), "{result:#}");
    assert!(number("/longest_gap_ms") < GAP_MS_MAX, "{result:#}");
    // Without its state every TCP connection is lost; the two datagram flows need none.
    assert!(number("/without_replication/survived") <= 2.0, "{result:#}");
    assert!(number("/without_replication/broken") >= 64.0 + 175.0, "{result:#}");
    let html = html.expect("the page was written");
    assert!(html.starts_with("<!doctype html>") && html.contains("outlived the node"));
}
