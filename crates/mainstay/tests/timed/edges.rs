//! Edges beside a cluster, as operators run them, and what demonstrates and measures them.

use std::net::TcpStream;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

use crate::common::forwarded::{self, connect, echo_inside, exchange};
use crate::common::program::{Folder, Program, mainstay, wait_until};
use lab::testbed::topology::Topology;

/// Connections through the edges.
const CONNECTIONS: usize = 20;

pub(crate) fn edge_configuration(id: u8, key: &Path) -> String {
    format!(
        "[security]\npre_shared_keys = [{key:?}]\n[node]\nid = {id}\ncontrol_socket = \"CONTROL\"\n[edge]\nnetwork = \"network\"\n\
         [[edge.node]]\nid = 0\ninterface = \"to-a\"\n[[edge.node]]\nid = 1\ninterface = \"to-b\"\n"
    )
}

/// Waits until each edge sends flows to these nodes alone.
pub(crate) fn wait_for_flows(edges: &[Program; 2], to: [bool; 2]) {
    for edge in edges {
        wait_until(&format!("flows go to {to:?}"), || {
            let status = edge.status().and_then(|status| status.edge).ok_or("it does not answer")?;
            let forwards: Vec<bool> = status.nodes.iter().map(|node| node.forwards).collect();
            if forwards == to { Ok(()) } else { Err(format!("{status:#?}\n{}", edge.log())) }
        });
    }
}

#[test]
fn where_one_node_is_active_all_flows_follow_it_through_a_drain_and_a_failure() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let topology = Topology::build_with_edges().expect("namespaces can be made");
    let folder = Folder::new("edges");
    let key = folder.make_key("cluster.key");
    let nodes = [0, 1].map(|id| {
        let sections = format!("pre_shared_keys = [{key:?}]\n[failure_detection]\nedges_max = 4\n");
        let text = forwarded::configuration(id, "", "", "", &sections);
        let node = Program::start(&topology.nodes[id], &folder, &id.to_string(), "gateway", &text);
        if id == 0 {
            node.wait_for_role("active");
        }
        node
    });
    let edges = [0, 1].map(|side: usize| {
        let name = format!("edge-{side}");
        Program::start(&topology.edges[side], &folder, &name, "edge", &edge_configuration(200 + side as u8, &key))
    });
    wait_for_flows(&edges, [true, false]);
    nodes[1].wait_for_role("standby");
    echo_inside(&topology);
    let mut streams: Vec<TcpStream> = (0..CONNECTIONS).map(|_| connect(&topology)).collect();
    streams.iter_mut().for_each(|stream| exchange(stream, b"before"));

    wait_until("a take-over is ready", || {
        let takeover = nodes[0].status().ok_or("it does not answer")?.takeover;
        if takeover.ready { Ok(()) } else { Err(takeover.obstacles.join("; ")) }
    });
    nodes[0].order("drain");
    wait_for_flows(&edges, [false, true]);
    streams.iter_mut().for_each(|stream| exchange(stream, b"after the drain"));

    nodes[0].order("undrain");
    nodes[0].wait_for_role("standby");
    wait_until("a take-over is ready", || {
        let takeover = nodes[1].status().ok_or("it does not answer")?.takeover;
        if takeover.ready { Ok(()) } else { Err(takeover.obstacles.join("; ")) }
    });
    let [survivor, killed] = nodes;
    killed.kill();
    wait_for_flows(&edges, [true, false]);
    streams.iter_mut().for_each(|stream| exchange(stream, b"after the failure"));
    connect(&topology);
    survivor.wait_for_role("active");
    let moved: u64 = edges.iter().filter_map(|edge| Some(edge.status()?.edge?.moved)).sum();
    assert!(moved >= 2 * CONNECTIONS as u64, "each connection moved twice at an edge: {moved}");
}

/// What a command prints with `--json`.
fn json(words: &[&str]) -> Value {
    let Output { status, stdout, stderr } = mainstay(words).output().expect("the program can be run");
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    serde_json::from_slice(&stdout).expect("one JSON object")
}

fn number(value: &Value, pointer: &str) -> f64 {
    value.pointer(pointer).and_then(Value::as_f64).unwrap_or_else(|| panic!("{pointer} of {value:#}"))
}

#[test]
fn connections_outlive_a_node_between_edges_which_resend_what_it_lost() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let result = json(&["demo", "--edges", "--json"]);
    assert_eq!((number(&result, "/broken"), number(&result, "/without_recovery/broken")), (0.0, 0.0), "{result:#}");
    assert!(number(&result, "/survived") > 500.0, "{result:#}");
    assert!(number(&result, "/edges/resent_packets") > 0.0, "{result:#}");
    assert_eq!(number(&result, "/without_recovery/edges/resent_packets"), 0.0, "{result:#}");
    for pointer in ["/median_stall_ms", "/without_recovery/median_stall_ms"] {
        assert!(result.pointer(pointer).is_some_and(|stalls| stalls["bulk"].is_number() && stalls["syn"].is_number()));
    }
}

#[test]
fn stalls_are_measured_by_outage_round_trip_and_policy() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let page = std::env::temp_dir().join(format!("mainstay-recovery-{}.html", std::process::id()));
    let words = "bench recovery --outages 100ms --rtts 0ms --policies syn-only --sack off --rounds 1 --json --output";
    let result = json(&words.split(' ').chain(page.to_str()).collect::<Vec<_>>());
    let text = std::fs::read_to_string(&page).expect("the page is written");
    std::fs::remove_file(&page).expect("it is there");
    assert!(text.contains("<svg") && text.contains("no SACK") && text.contains("Uploads"), "{text}");
    let rows = result["rows"].as_array().expect("rows");
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["syn", "short", "bulk_up", "bulk_down"]);
    assert!(rows.iter().all(|row| row["sack"] == false && row["congestion_control"].is_string()), "{result:#}");
    assert!(rows.iter().all(|row| row["policy"] == "syn-only" && row["outage_s"] == 0.1 && row["broken"] == 0));
}

#[test]
fn transfers_are_measured_after_a_node_failed_that_half_of_them_passed() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let page = std::env::temp_dir().join(format!("mainstay-rate-control-{}.html", std::process::id()));
    let words =
        "bench rate-control --connections 10 --node-mbit-per-s 20 --rtt 20ms --duration 1s --rounds 1 --json --output";
    let result = json(&words.split(' ').chain(page.to_str()).collect::<Vec<_>>());
    let text = std::fs::read_to_string(&page).expect("the page is written");
    std::fs::remove_file(&page).expect("it is there");
    assert!(text.matches("<svg").count() >= 6 && text.contains("Queue of the surviving node"), "{text}");
    for way in ["nothing", "recovery", "recovery_control"] {
        assert!(number(&result, &format!("/{way}/goodput_mbit_per_s")) > 1.0, "{result:#}");
        assert_eq!(number(&result, &format!("/{way}/broken")), 0.0, "{result:#}");
    }
}
