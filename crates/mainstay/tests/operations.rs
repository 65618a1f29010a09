//! Operators at work on running nodes: nothing that they do costs a connection.

use std::process::Command;

use packet_io::namespace::{NamespaceSupport, probe};

/// A hand-over is a matter of milliseconds on a quiet machine; the one that runs tests may be busy.
const GAP_MS_MAX: f64 = 3000.0;

#[test]
fn reloads_a_drain_and_a_rolling_restart_under_load_lose_no_connection() {
    if let NamespaceSupport::Forbidden(why) = probe() {
        println!("skipped: {why}");
        return;
    }
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--rolling-restart", "--json", "--seconds", "2"])
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", String::from_utf8_lossy(&output.stdout));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let number = |key: &str| result[key].as_f64().expect(key);
    assert_eq!((number("reloads"), number("drains"), number("restarts")), (40.0, 1.0, 2.0));
    assert_eq!(number("connections"), 66.0, "{result:#}");
    assert_eq!(number("survived"), number("connections"), "{result:#}");
    assert_eq!(number("broken"), 0.0, "{result:#}");
    assert!(number("bytes_verified") > 10e6, "{result:#}");
    assert!(number("longest_gap_ms") < GAP_MS_MAX, "{result:#}");
}
