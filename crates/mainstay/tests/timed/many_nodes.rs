//! Many nodes between edges: connections outlive as many nodes as they have backups, and what measures such a cluster.

use serde_json::Value;

use crate::common::program::mainstay;

fn json(line: &str) -> Value {
    let output = mainstay(&line.split(' ').collect::<Vec<_>>()).output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}\n{}", String::from_utf8_lossy(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("one JSON object: {error}"))
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {value:#}"))
}

#[test]
fn connections_outlive_two_of_four_nodes_and_their_return() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json("demo --json --nodes 4 --kill 2 --ramp 100");
    assert_eq!((number(&result, "/nodes"), number(&result, "/kill")), (4.0, 2.0));
    // All that are planned stand before the kill.
    assert!(number(&result, "/connections") >= 66.0 + 100.0, "{result:#}");
    assert_eq!((number(&result, "/survived"), number(&result, "/broken")), (number(&result, "/connections"), 0.0));
    assert!(number(&result, "/bytes_verified") > 1e6, "{result:#}");
    // Half of the connections passed the killed nodes.
    assert!(number(&result, "/moved") > 20.0, "{result:#}");
    // Nodes that replicated nothing would not be measured to.
    assert!(number(&result, "/control_bytes") > 10_000.0 && number(&result, "/control_share") < 0.5, "{result:#}");
    assert!(number(&result, "/switch_over_ms") > 0.0 && number(&result, "/pause/transfers") > 0.0, "{result:#}");
    assert_eq!((number(&result, "/rejoined/nodes"), number(&result, "/rejoined/broken")), (2.0, 0.0), "{result:#}");
    assert_eq!((number(&result, "/rejoined/opened"), number(&result, "/rejoined/opened_broken")), (48.0, 0.0));
}

/// Whether the machine has etcd; else the demo names what to install.
fn has_etcd() -> bool {
    let found = std::process::Command::new("etcd").arg("--version").output().is_ok();
    if !found {
        packet_io::namespace::skip("etcd is not installed: install Debian's etcd-server");
    }
    found
}

#[test]
fn nodes_that_find_each_other_through_etcd_lose_none_though_a_member_of_etcd_dies_before() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    if !has_etcd() {
        return;
    }
    let _turn = crate::take_turn();
    let result = json("demo --json --nodes 4 --kill 2 --add 1 --etcd");
    assert_eq!(result["membership"]["source"], "etcd", "{result:#}");
    assert_eq!(number(&result, "/membership/members"), 5.0, "{result:#}");
    assert_eq!(number(&result, "/membership/etcd_members_killed"), 1.0, "{result:#}");
    assert_eq!(number(&result, "/joined/nodes"), 1.0, "{result:#}");
    assert_eq!(number(&result, "/joined/connections_broken_by_join"), 0.0, "{result:#}");
    assert!(number(&result, "/connections") >= 66.0, "{result:#}");
    assert_eq!((number(&result, "/survived"), number(&result, "/broken")), (number(&result, "/connections"), 0.0));
    assert!(number(&result, "/moved") > 10.0, "{result:#}");
    assert_eq!((number(&result, "/rejoined/nodes"), number(&result, "/rejoined/broken")), (2.0, 0.0), "{result:#}");
    assert_eq!(number(&result, "/rejoined/opened_broken"), 0.0, "{result:#}");
}

#[test]
fn without_etcd_the_demo_names_what_to_install() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let mut demo = mainstay(&["demo", "--nodes", "3", "--etcd"]);
    let output = demo.env("PATH", "/nonexistent").output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("install Debian's etcd-server"), "{error}");
}

#[test]
fn as_many_nodes_as_there_are_cannot_be_killed_nor_more_be_added_than_there_is_room_for() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let output = mainstay(&["demo", "--nodes", "3", "--kill", "3"]).output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("kill 2 at most"), "{error}");
    let output = mainstay(&["demo", "--nodes", "6", "--add", "3"]).output().expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("add 2 at most"), "{error}");
}

#[test]
fn nodes_that_leave_in_good_order_lose_no_connection_nor_does_the_next_death() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json("demo --json --nodes 4 --leave --way stop --way stop-start --members gossip");
    let rows = result["rows"].as_array().expect("rows");
    let ways: Vec<_> = rows.iter().map(|row| (row["way"].as_str(), row["k"].as_u64())).collect();
    let of = |k| [(Some("stop"), Some(k)), (Some("stop-start"), Some(k))];
    assert_eq!(ways, [of(1), of(2)].concat());
    for row in rows {
        assert_eq!((row["membership"].as_str(), number(row, "/lost")), (Some("gossip"), 0.0), "{row:#}");
        assert!(number(row, "/connections") >= 400.0 && number(row, "/ready_after_ms") > 0.0, "{row:#}");
    }
}

#[test]
fn neither_a_removal_nor_the_loss_of_a_lease_loses_a_connection_when_the_node_is_back_and_another_dies() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json("demo --json --nodes 4 --leave --way remove --way lease-lost --members etcd --members static");
    let rows = result["rows"].as_array().expect("rows");
    let ways: Vec<_> = rows.iter().map(|row| (row["membership"].as_str(), row["way"].as_str())).collect();
    let of = |members| move |way| (Some(members), Some(way));
    let (etcd, files) = (["remove", "lease-lost"].map(of("etcd")), [of("static")("remove")]);
    assert_eq!(ways, [&etcd[..], &etcd, &files, &files].concat(), "with one backup, and with two");
    for row in rows {
        assert_eq!(number(row, "/lost"), 0.0, "{row:#}");
        assert!(number(row, "/connections") >= 400.0, "{row:#}");
    }
}

#[test]
fn latencies_are_measured_beside_nodes_without_replication_and_with_a_remote_store() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json("bench cluster --json --rounds 1 --duration 300ms --connections 24");
    for quantile in ["p50", "p99"] {
        for side in ["mainstay", "baseline"] {
            assert!(number(&result, &format!("/latency_us/{quantile}/{side}")) > 1.0, "{result:#}");
        }
    }
    // Without replication the killed node's connections are lost, and with it none is.
    assert_eq!(number(&result, "/broken/mainstay"), 0.0, "{result:#}");
    assert!(number(&result, "/broken/baseline") > 0.0, "{result:#}");
    assert!(number(&result, "/pulls_share/random") > number(&result, "/pulls_share/predictive"), "{result:#}");
    match result.pointer("/reasons/remote_store") {
        Some(reason) => packet_io::namespace::skip(reason),
        None => {
            // The packets of a request and of its answer wait for a round trip each. How long that takes depends on what else the
            // machine does, so the round trips are counted.
            assert!(number(&result, "/latency_us/p50/remote_store") > 1.0, "{result:#}");
            assert!(number(&result, "/store_reads_per_request") >= 2.0, "{result:#}");
            assert_eq!(number(&result, "/broken/remote_store"), 0.0, "{result:#}");
        }
    }
}

#[test]
fn packets_of_no_connection_cost_messages_only_without_broadcast() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json("bench attack --json --rates 2000 --rounds 1 --duration 1s");
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.iter().map(|row| number(row, "/bogus_per_s")).collect::<Vec<_>>(), [0.0, 2000.0]);
    let attacked = &rows[1];
    assert!(number(attacked, "/sent_per_s/with_broadcast") > 1000.0, "{attacked:#}");
    assert!(number(attacked, "/with_broadcast") < number(attacked, "/without_broadcast") / 2.0, "{result:#}");
    assert!(number(attacked, "/legitimate_share/with_broadcast") > 0.5, "{result:#}");
}
