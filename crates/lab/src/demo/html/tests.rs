//! The page of a made-up result.

use std::collections::BTreeMap;

use super::*;
use crate::demo::report::{KindReport, SLICE_MS, Slice, TimedEvent};
use api::EventKind;
use config::validated::Representation;

/// Traffic that pauses for the given time after the kill, or for good.
fn run(broken: usize, pause_ms: f64) -> RunReport {
    let slice = |index: i32, kind| {
        let after_kill_ms = f64::from(index) * SLICE_MS;
        let flows = after_kill_ms < 0.0 || after_kill_ms >= pause_ms;
        Slice { after_kill_ms, kind, bytes: if flows { 320_000 } else { 0 }, answers: if flows { 15 } else { 0 } }
    };
    let kinds = [Kind::Download, Kind::Upload, Kind::Ticks, Kind::Udp];
    let report = |kind| KindReport {
        kind,
        connections: 8,
        survived: 8 - broken,
        broken,
        longest_gap_ms: (broken < 8).then_some(pause_ms),
        median_gap_ms: (broken < 8).then_some(pause_ms),
        bytes_verified: 12_345_678,
    };
    let event = |after_kill_ms, kind| TimedEvent { after_kill_ms, kind, detail: "node <0>".into() };
    RunReport {
        connections: 32,
        survived: 32 - 4 * broken,
        broken: 4 * broken,
        detection_ms: Some(98.2),
        takeover_ms: Some(98.4),
        first_packet_ms: None,
        longest_gap_ms: pause_ms,
        bytes_verified: 49_382_712,
        repeated: 1,
        link_lateness_p99_us: Some(2400),
        by_kind: kinds.map(report).to_vec(),
        broken_by_reason: BTreeMap::new(),
        cluster: None,
        handled: 0,
        flooded: 0,
        edges: None,
        replication: None,
        events: vec![event(98.2, EventKind::PeerDown), event(98.4, EventKind::Announced)],
        slices: (-30..90).flat_map(|index| kinds.map(|kind| slice(index, kind))).collect(),
    }
}

fn report() -> DemoReport {
    DemoReport {
        program_version: "1.2.3".into(),
        began_unix_s: 1_790_000_000,
        kernel: "6.18".into(),
        processors: 2,
        settings: Settings {
            link_loss: 0.1,
            rtt_ms: 20.0,
            ramp: 8000,
            seconds: 3.0,
            workers: 1,
            representation: Representation::default(),
        },
        replicated: run(0, 240.0),
        without_replication: run(8, 1e9),
    }
}

#[test]
fn the_page_is_whole_and_asks_nothing_of_any_network() {
    let page = page(&report());
    for part in [
        "All 32 connections outlived",
        "+98 ms",
        "8 of 8",
        "0 of 8",
        "--link-loss 0.1 --rtt 20ms --ramp 8000",
        "by more than 2.4 ms",
        "node &lt;0&gt;",
        "Repeated: 2 runs",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for foreign in ["http:", "https:", "src=", "href=", "@import", "url(", "<script", "NaN", "inf"] {
        assert!(!page.contains(foreign), "{foreign}");
    }
    for tag in ["svg", "table", "section", "div", "tr", "td", "p"] {
        let opened = page.matches(&format!("<{tag} ")).count() + page.matches(&format!("<{tag}>")).count();
        assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
    }
}

#[test]
fn a_run_in_which_nothing_ever_came_can_be_shown() {
    let empty = RunReport::default();
    let page = page(&DemoReport { replicated: empty.clone(), without_replication: empty, ..report() });
    assert!(!page.contains("NaN"), "{page}");
}

#[test]
fn dates_are_those_of_the_calendar() {
    let dates =
        [(0, "1970-01-01 00:00 UTC"), (951_782_399, "2000-02-28 23:59 UTC"), (1_709_208_000, "2024-02-29 12:00 UTC")];
    for (unix_s, text) in dates {
        assert_eq!(date(unix_s), text);
    }
}
