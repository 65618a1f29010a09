//! Every operation does what it is measured at; names and numbers are reported.

use super::*;

fn args(only: &[&str], rounds: u32) -> BenchOperationsArgs {
    BenchOperationsArgs {
        only: only.iter().map(|name| (*name).to_owned()).collect(),
        rounds,
        no_instructions: true,
        json: true,
        counted: false,
    }
}

#[test]
fn every_operation_is_carried_out_and_timed() {
    let rows = measure(&args(&[], 1)).expect("no operation fails");
    let scalar = CATALOGUE.iter().filter(|(name, _)| !name.ends_with("_avx2")).count();
    assert!(rows.len() >= scalar, "{rows:?}");
    for row in rows {
        assert!(row.ns.is_some_and(|ns| ns > 0.0), "{row:?}");
    }
}

#[test]
fn an_unknown_operation_is_refused_with_the_known_names() {
    let error = measure(&args(&["packet_teleported"], 1)).unwrap_err().to_string();
    assert!(error.contains("packet_teleported") && error.contains("packet_planned"), "{error}");
}

#[test]
fn the_counted_run_carries_out_what_is_asked_for() {
    let chosen = chosen(&args(&["update_encode", "packet_edge"], 0)).expect("both are known");
    assert_eq!(chosen.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["packet_edge", "update_encode"]);
    run_counted(&args(&["syn_cookie_make"], 0)).expect("it is carried out");
}

#[test]
fn the_report_has_what_was_measured_and_a_dash_for_the_rest() {
    let mut figures = Rounds::default();
    [12.0, 10.0, 14.0].into_iter().for_each(|ns| figures.push(ns));
    let timed = Row::of_times("packet_planned", &figures);
    let report =
        Report { rounds: 3, operations: vec![timed, Row::of_instructions("packet_first".to_owned(), 1234.56)] };
    let text = report.describe();
    for part in ["packet_planned", "12.0", "14.0", "1234.6", "–"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let json = serde_json::to_value(&report).expect("numbers and names");
    assert_eq!(json["operations"][1]["instructions"], 1234.6);
    assert!(json["operations"][0].get("instructions").is_none(), "{json}");
}
