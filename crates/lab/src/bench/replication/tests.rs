//! The result of made-up kills.

use super::experiment::{FlowOutcome, Outcome, Rejected, Sample};
use super::pair::TakeOver;
use super::*;
use crate::args::replication::Subject;

/// A kill with these recovered and lost flows of each size.
fn outcome(recovered: usize, lost: usize, resumed_ms: f64) -> Outcome {
    let flow_outcomes = |count, flow_outcome: &FlowOutcome| {
        let sample = |object_kilobytes| Sample { object_kilobytes, flow_outcome: flow_outcome.clone() };
        [0, 100].map(sample).into_iter().cycle().take(2 * count).collect::<Vec<_>>()
    };
    let samples = [
        flow_outcomes(recovered, &FlowOutcome::Recovered { resumed_ms }),
        flow_outcomes(lost, &FlowOutcome::Lost("nothing within 6 s".into())),
        flow_outcomes(1, &FlowOutcome::Unaffected),
        flow_outcomes(1, &FlowOutcome::Connecting { finished: true }),
    ];
    let take_over = TakeOver { detected_ms: Some(100.0), announced_ms: Some(101.0), first_packet_ms: Some(130.0) };
    Outcome { samples: samples.concat(), take_over, connect_ms: vec![0.5, 0.25, 1.0] }
}

fn report() -> Report {
    let cell = |subject, loss, recovered, lost| Cell {
        outcomes: vec![outcome(recovered, lost, 250.0), outcome(recovered, lost, 350.0)],
        rejected: vec![Rejected::Late { p99_us: 2500 }],
        ..Cell::new(subject, loss, 0)
    };
    let cells = [
        cell(Subject::Native, 0.0, 20, 0),
        cell(Subject::NativeHeld, 0.0, 20, 0),
        cell(Subject::Native, 0.2, 19, 1),
        cell(Subject::ConntrackdUdp, 0.2, 10, 10),
        cell(Subject::ConntrackdTcp, 0.2, 0, 20),
    ];
    let sizes = vec![0, 100];
    Report {
        program_version: "1.0".into(),
        kernel: "6.18".into(),
        processors: 2,
        began_unix_s: 0,
        rows: cells.iter().flat_map(|cell| cell.rows(&sizes)).collect(),
        cells: cells.iter().map(Cell::report).collect(),
        settings: Settings {
            rounds: 2,
            multi_primary: false,
            at_once: 200,
            object_kb: sizes,
            flow_bytes_per_s: 625_000,
            give_up_s: 6.0,
            lateness_ms_max: 2.0,
            seed: 1,
        },
        left_out: vec!["conntrackd: it is not <installed>".into()],
    }
}

#[test]
fn rows_have_shares_with_their_spread_and_times_from_the_kill() {
    let json = serde_json::to_value(report()).unwrap();
    let row = json["rows"].as_array().unwrap().iter().find(|row| row["subject"] == "conntrackd-udp").unwrap();
    assert_eq!((row["object_kb"].as_u64(), row["at_risk"].as_u64()), (Some(0), Some(40)));
    assert_eq!((row["recovered"].as_f64(), row["loss"].as_f64()), (Some(0.5), Some(0.2)));
    assert_eq!(row["recovered_interval"], serde_json::json!([0.352, 0.648]));
    assert_eq!(row["time_to_recover_ms"], serde_json::json!({"median": 250.0, "p99": 350.0}));
    assert_eq!(row["beyond_detection_ms"]["median"], 150.0);
    assert_eq!((row["connecting"].clone(), row["unaffected"].as_u64()), (serde_json::json!([2, 2]), Some(2)));
    assert_eq!(row["lost_by_reason"]["nothing within 6 s"], 20);
    let cell = &json["cells"][0];
    assert_eq!((cell["kills"].as_u64(), cell["rejected_late"].as_u64()), (Some(2), Some(1)));
    assert_eq!(cell["tcp_wait_ms"]["median"], 149.0);
    assert_eq!(
        (cell["announcement_ms"]["p99"].as_f64(), cell["connect_ms"]["median"].as_f64()),
        (Some(1.0), Some(0.5))
    );
    let nobody = json["rows"].as_array().unwrap().iter().find(|row| row["subject"] == "conntrackd-tcp").unwrap();
    assert!(nobody["time_to_recover_ms"].is_null() && nobody["recovered"] == 0.0);
}

#[test]
fn the_tables_show_every_share_with_its_number() {
    let text = table::describe(&report());
    for expected in [
        "Loss between the gateways 20 %",
        "50 % (40)",
        "95 % (40)",
        "100 % (40)",
        "Left out: conntrackd",
        "again because",
    ] {
        assert!(text.contains(expected), "{expected} is missing in\n{text}");
    }
}

#[test]
fn the_page_has_charts_raw_figures_and_the_comparison() {
    let html = page::page(&report()).html();
    assert!(html.starts_with("<!doctype html>") && html.trim_end().ends_with("</html>"));
    assert_eq!(html.matches("<svg viewBox=\"0 0 920").count(), 4, "two for each loss");
    for expected in ["why they differ", "6 to 7 s", "class=\"series s1\"", "not &lt;installed&gt;", "By size"] {
        assert!(html.contains(expected), "{expected} is missing");
    }
    assert!(!html.contains("NaN"), "no figure is made of nothing");
}

#[test]
fn what_was_not_measured_is_not_compared() {
    let mut little = report();
    little.cells.retain(|cell| cell.loss > 0.0);
    little.rows.retain(|row| row.loss > 0.0);
    let compared = seed::compare(&little);
    assert_eq!(compared.len(), 3);
    assert!(compared.iter().any(|row| row.here.contains("conntrackd-udp: 50 % up to 5 KB, 50 % from 10 KB")));
}
