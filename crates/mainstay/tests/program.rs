//! The program as an operator runs it: what it prints, where, and with which status it ends.

use std::path::Path;
use std::process::{Command, Output};

fn mainstay(arguments: &[&str]) -> Output {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(arguments)
        .current_dir(directory)
        .output()
        .expect("the program can be run")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it is text")
}

#[test]
fn a_right_configuration_is_summed_up() {
    let output = mainstay(&["gateway", "--config", "examples/active.toml", "--check"]);
    assert_eq!(text(&output.stderr), "");
    let (summary, host) = text(&output.stdout).split_once('\n').expect("lines");
    assert_eq!(
        summary,
        "examples/active.toml: right. Node 0 of 2: 2 ports, 2 routes, 3 firewall rules, 3 translations, 1 peer."
    );
    assert!(host.contains("BACKEND"), "{host}");
    assert!(output.status.success());
}

#[test]
fn what_the_host_can_do_is_told_port_by_port() {
    let output = mainstay(&["gateway", "--config", "examples/active.toml", "--check", "--json"]);
    let host: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(host["ports"].as_array().map(Vec::len), Some(2));
    for port in host["ports"].as_array().expect("an array") {
        assert_eq!(port["backend"], "af_packet");
        // An interface that this machine does not have is told of as such.
        let is_told = host["findings"].as_array().expect("an array").iter().any(|finding| {
            finding.as_str().is_some_and(|text| text.contains(port["interface"].as_str().expect("a name")))
        });
        assert!(port["exists"] == true || is_told, "{host}");
    }
}

#[test]
fn a_wrong_configuration_is_told_on_standard_error() {
    let output = mainstay(&["gateway", "--config", "Cargo.toml", "--check"]);
    assert_eq!(text(&output.stdout), "");
    let error = text(&output.stderr);
    assert!(error.starts_with("Cargo.toml:") && error.contains(": syntax: unknown field `"), "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn asking_a_gateway_that_is_not_there_ends_with_one_sentence() {
    for command in ["status", "flows"] {
        let output = mainstay(&[command, "--socket", "/nonexistent/socket", "--json"]);
        assert_eq!(text(&output.stdout), "");
        assert_eq!(
            text(&output.stderr),
            "no gateway answers at /nonexistent/socket: is it running? (mainstay gateway --config …)\n"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

#[test]
fn a_mistyped_command_ends_with_status_2() {
    assert_eq!(mainstay(&["gatewya"]).status.code(), Some(2));
}

/// What a measurement reports, or `None` (said aloud) where the machine forbids namespaces.
fn measured(arguments: &[&str]) -> Option<serde_json::Value> {
    let support = packet_io::namespace::probe();
    if let packet_io::namespace::NamespaceSupport::Forbidden(why) = support {
        println!("skipped: {why}");
        return None;
    }
    let output = mainstay(arguments);
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("it is JSON"))
}

#[test]
fn bulk_data_is_measured_through_a_node_and_through_the_kernel() {
    let Some(report) = measured(&["bench", "bulk", "--seconds", "0.2", "--rounds", "1", "--json"]) else { return };
    let [mainstay, kernel] = ["mainstay", "kernel"].map(|side| report["gbit_per_s"][side].as_f64().expect("a figure"));
    assert!(mainstay > 0.0 && kernel > 0.0, "{report}");
    assert!((report["ratio"].as_f64().expect("a figure") - mainstay / kernel).abs() < 0.1, "{report}");
}

#[test]
fn connections_a_second_are_measured_with_replication_and_without() {
    let arguments = ["bench", "setup-rate", "--seconds", "0.2", "--rounds", "1", "--in-flight", "16", "--json"];
    let Some(report) = measured(&arguments) else { return };
    for side in ["replication_on", "replication_off"] {
        assert!(report["per_s"][side].as_f64().expect("a figure") > 0.0, "{report}");
        assert!(report["cpu_us_per_connection"][side]["active"].as_f64().expect("a figure") > 0.0, "{report}");
    }
}

#[test]
fn what_a_packet_costs_is_measured_by_each_backend_and_by_the_kernel() {
    let af_xdp = packet_io::limits::missing_capabilities(&["CAP_BPF", "CAP_NET_ADMIN"]);
    if !af_xdp.is_empty() {
        println!("skipped: AF_XDP needs {af_xdp:?}");
        return;
    }
    let arguments = ["bench", "packets", "--seconds", "0.2", "--rounds", "1", "--flows", "64", "--json"];
    let Some(report) = measured(&arguments) else { return };
    for side in ["af_xdp", "af_packet", "kernel_nft"] {
        assert!(report["ns_per_packet"][side].as_f64().is_some(), "{report}");
        assert!(report["arrived"][side].as_f64().expect("a share") > 0.5, "{report}");
    }
    assert!(report["ratio_af_xdp"].as_f64().is_some(), "{report}");
}
