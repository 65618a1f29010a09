//! Promises about failures that operators meet, kept on this machine: one failure a test, with real nodes and real traffic.

use std::process::Command;

use serde_json::Value;

/// Plays a failure and compares its outcome with what is promised. Where the machine forbids namespaces, it skips the test.
fn play(failure: &str) {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--failures", "--json", "--only", failure])
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {error}"));
    let rows = result["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1, "{result:#}");
    let row = &rows[0];
    println!("{row:#}");
    assert_eq!(row["failure"], failure);
    assert!(row["connections"].as_u64().is_some_and(|connections| connections >= 34), "{result:#}");
    assert_eq!(row["broken"], 0, "{result:#}");
    assert_eq!(row["unkept"], Value::Array(Vec::new()), "{result:#}");
    assert_eq!(row["passed"], true, "{result:#}");
    assert!(output.status.success(), "{error}");
}

macro_rules! failures {
    ($($test:ident: $failure:literal,)*) => {
        $(
            #[test]
            fn $test() {
                play($failure);
            }
        )*

        #[test]
        fn every_failure_of_the_demo_has_its_test() {
            let tested: Vec<&str> = vec![$($failure),*];
            assert_eq!(tested, lab::demo::failures::names().collect::<Vec<_>>());
        }
    };
}

failures! {
    port_down_on_the_clients_side_of_the_active_node_moves_its_addresses: "port-down-on-active",
    cable_pulled_on_the_servers_side_of_the_active_node_moves_its_addresses: "port-down-on-active-server-side",
    active_node_refuses_to_be_drained_while_the_standbys_port_is_down: "port-down-on-standby-then-drain",
    lost_replication_moves_no_addresses: "replication-link-down",
    active_node_killed_after_replication_was_lost_loses_no_connection: "replication-link-down-then-active-killed",
    node_whose_successor_is_killed_announces_its_addresses: "partition-then-peer-that-took-over-killed",
    loss_of_all_paths_makes_both_active_and_one_yields_when_they_heal: "partition-then-healed",
    standby_started_with_another_key_stays_passive: "wrong-key-on-starting-standby",
    standby_started_with_the_same_id_stays_passive: "same-id-on-starting-standby",
    claim_of_another_host_to_a_shared_address_is_answered: "foreign-address-claim",
    next_hop_gone_moves_the_addresses_to_the_node_that_reaches_it: "next-hop-gone",
}

#[test]
fn a_failure_that_there_is_not_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--failures", "--only", "flood"])
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("port-down-on-active"), "{error}");
}
