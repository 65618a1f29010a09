//! The demonstration on kernel tracking, as people run it.

use std::process::Command;

use lab::demo::kernel::available;

use super::turn;

/// Runs the demonstration, which finds out itself what it needs. Nothing, said aloud, where the machine lacks it.
fn run(options: &[&str], programs: &[(&str, &str)]) -> Option<serde_json::Value> {
    packet_io::namespace::for_tests()?;
    if let Err(reason) = available(programs) {
        packet_io::namespace::skip(format_args!("{reason}"));
        return None;
    }
    let _turn = turn();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--kernel", "--json", "--seconds", "2"])
        .args(options)
        .output()
        .expect("the program can be run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("one JSON object"))
}

/// All connections outlived the router with replication, and no TCP connection did without.
fn assert_that_replication_decides(result: &serde_json::Value) {
    let number = |pointer: &str| result.pointer(pointer).and_then(serde_json::Value::as_f64).expect(pointer);
    assert_eq!(number("/connections"), 66.0, "{result:#}");
    assert_eq!((number("/survived"), number("/broken")), (66.0, 0.0), "{result:#}");
    assert!(number("/longest_gap_ms") > 0.0 && number("/bytes_verified") > 1e6, "{result:#}");
    // Two of them are datagram flows.
    assert_eq!(number("/without_replication/survived"), 2.0, "{result:#}");
    for (report, is_replicated) in [(result, true), (&result["without_replication"], false)] {
        let paths = report["by_path"].as_array().expect("a report for each way");
        assert_eq!(paths.len(), 6, "{report:#}");
        for path in paths {
            let connections = path["connections"].as_u64().expect("a number");
            assert!(connections > 0, "{path}");
            assert_eq!(path["survived"].as_u64(), Some(if is_replicated { connections } else { 0 }), "{path}");
        }
    }
}

#[test]
fn connections_in_the_kernel_outlive_their_router_with_replication_and_only_with_it() {
    let Some(result) = run(&[], &[("nft", "nftables")]) else { return };
    assert_that_replication_decides(&result);
    let number = |pointer: &str| result.pointer(pointer).and_then(serde_json::Value::as_f64).expect(pointer);
    // The hook is run when the death is known, and the addresses move when it returns.
    assert!(number("/detection_ms") + number("/hook_ms") <= number("/takeover_ms") + 1.0, "{result:#}");
    assert!(number("/without_replication/takeover_ms") > 0.0, "{result:#}");
}

#[test]
fn connections_in_the_kernel_outlive_their_router_when_keepalived_moves_the_addresses() {
    let programs = [("nft", "nftables"), ("keepalived", "keepalived")];
    let Some(result) = run(&["--keepalived"], &programs) else { return };
    assert_eq!(result["manager"], "keepalived");
    assert_that_replication_decides(&result);
}
