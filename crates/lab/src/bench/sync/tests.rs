//! The report's text.

use serde_json::json;

use super::report::{Measured, Report};
use super::{buffer, loss, rate, stale, table};
use crate::args::sync_bench::Subject;
use crate::args::{BenchCommand, BenchSyncArgs, LabCommand, SideBySideCommand, parse};

fn args(line: &str) -> BenchSyncArgs {
    match parse(&format!("bench sync {line}")).unwrap() {
        LabCommand::Bench(BenchCommand::SideBySide(SideBySideCommand::Sync(args))) => args,
        other => panic!("understood as {other:?}"),
    }
}

fn rates(per_s: [f64; 3], cpu_us: [f64; 2]) -> rate::Figures {
    let mut figures = rate::Figures::default();
    per_s.into_iter().for_each(|rate| figures.per_s.push(rate));
    figures.cpu_us.iter_mut().zip(cpu_us).for_each(|(rounds, us)| rounds.push(us));
    figures
}

fn measured() -> Measured {
    let mut measured = Measured::default();
    measured.rate.insert(Subject::Off, rates([10_000.0, 5000.0, 8000.0], [0.0, 0.0]));
    measured.rate.insert(Subject::Mainstay, rates([9300.0, 4500.0, 7600.0], [10.04, 5.0]));
    measured.rate.insert(Subject::Conntrackd, rates([5500.0, 3000.0, 4400.0], [100.0, 60.0]));
    let broken = |all, promised| loss::Broken { all, promised };
    measured.loss.insert(Subject::Mainstay, vec![broken(0, 0), broken(2, 0), broken(0, 0)]);
    measured.loss.insert(Subject::Conntrackd, vec![broken(97, 90), broken(16, 16), broken(74, 70)]);
    for (subject, took_ms, bytes) in
        [(Subject::Mainstay, 4.0, [50e6, 40e6]), (Subject::Conntrackd, 1500.0, [90e6, 130e6])]
    {
        let mut figures = table::Figures::default();
        figures.take_over_ms.push(took_ms);
        figures.resident_bytes.iter_mut().zip(bytes).for_each(|(rounds, bytes)| rounds.push(bytes));
        figures.resident_empty_bytes.iter_mut().for_each(|rounds| rounds.push(10e6));
        measured.table.insert(subject, figures);
    }
    let outcome = buffer::Outcome { there: 20_000, missing: 300, superfluous: 12, repaired_s: 45.0 };
    measured.buffer.insert(Subject::Conntrackd, vec![outcome]);
    let stale = |closed, stale| stale::Outcome { closed, stale };
    measured.stale.insert(Subject::Mainstay, vec![stale(700, 0), stale(744, 2), stale(650, 0)]);
    measured
}

#[test]
fn figures_are_medians_and_ratios_those_of_rounds_that_were_disturbed_alike() {
    let report = Report::new(&args(""), "6.18", &measured(), Vec::new());
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!((&json["per_s"]["off"], &json["per_s"]["mainstay"]), (&json!(8000.0), &json!(7600.0)));
    assert_eq!(json["ratios"]["per_s"]["mainstay"], 0.93);
    assert_eq!(json["ratios"]["per_s"]["conntrackd"], 0.55);
    assert_eq!(json["cpu_us_per_connection"]["sender"]["mainstay"], 10.0);
    assert_eq!(json["ratios"]["cpu_us_per_connection"], json!({"sender": 0.1, "receiver": 0.083}));
    assert_eq!(json["broken_at_20_percent_loss"], json!({"mainstay": 0.0, "conntrackd": 74.0}));
    assert_eq!(json["broken_by_kill"]["conntrackd"], json!([97, 16, 74]));
    assert_eq!(json["broken_though_promised_by_kill"], json!({"mainstay": [0, 0, 0], "conntrackd": [90, 16, 70]}));
    // Not the median: one take-over with stale entries is one too many.
    assert_eq!(json["ghosts_after_takeover"], json!({"mainstay": 2, "conntrackd": null}));
    assert_eq!(json["ghosts_after_takeover_closed"]["mainstay"], 650);
    assert_eq!(json["takeover_ms_200k"], json!({"mainstay": 4.0, "conntrackd": 1500.0}));
    // The greater side, and what it has grown by.
    assert_eq!(json["rss_mb_200k"], json!({"mainstay": 50.0, "conntrackd": 130.0}));
    assert_eq!(json["bytes_per_entry"], json!({"mainstay": 200.0, "conntrackd": 600.0}));
    assert_eq!(json["netlink_8k_buffer"], json!({"mainstay": null, "conntrackd": 312.0}));
}

#[test]
fn unmeasured_figures_are_null_and_the_reason_is_reported() {
    let mut measured = measured();
    measured.rate.remove(&Subject::Conntrackd);
    measured.table.remove(&Subject::Conntrackd);
    let reason = "conntrackd: conntrackd cannot be run (not found): install the package conntrackd".to_owned();
    let report = Report::new(&args("--quick"), "6.18", &measured, vec![reason]);
    let json = serde_json::to_value(&report).unwrap();
    for of in ["per_s", "takeover_ms_200k", "rss_mb_200k"] {
        assert!(json[of]["conntrackd"].is_null() && json[of]["mainstay"].is_number(), "{of}: {}", json[of]);
    }
    assert!(json["ratios"]["cpu_us_per_connection"]["sender"].is_null());
    let text = report.describe();
    for words in ["replication off", "93.0 %", "broken of 2 000", "Left out: conntrackd: conntrackd cannot be run"] {
        assert!(text.contains(words), "{words} in {text}");
    }
}
