//! Attacks on running processes, each held, as the demo plays them.

use std::process::Command;

use serde_json::Value;

/// Fewest attacks.
const ATTACKS_MIN: usize = 20;

#[test]
fn every_attack_of_the_demo_is_held_and_seen_by_the_operator() {
    let Some(()) = packet_io::namespace::for_tests() else { return };
    let _turn = crate::take_turn();
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--hostile", "--json"])
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("no JSON: {error}"));
    let rows = result["rows"].as_array().expect("rows");
    assert!(rows.len() >= ATTACKS_MIN, "{result:#}");
    for row in rows {
        println!("{row:#}");
        assert_eq!(row["held"], true, "{row:#}");
        for field in ["attack", "target", "observed", "operator_sees"] {
            assert!(row[field].as_str().is_some_and(|text| !text.is_empty()), "{field}: {row:#}");
        }
    }
    // A machine that lacks what an attack needs leaves it out. Under MAINSTAY_TESTS=all none may be.
    for left_out in result["left_out"].as_array().expect("a list") {
        packet_io::namespace::skip(&left_out["reason"]);
    }
    let known = rows.len() + result["left_out"].as_array().map_or(0, Vec::len);
    assert_eq!(known, lab::demo::hostile::names().count());
    assert!(output.status.success(), "{error}");
}

#[test]
fn an_attack_that_there_is_not_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_mainstay"))
        .args(["demo", "--hostile", "--attack", "meteor"])
        .output()
        .expect("the program can be run");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains("forged-reset"), "{error}");
}
