//! The result as people read it in a terminal.

use std::fmt::Write;

use super::replication::ReplicationReport;
use super::report::{DemoReport, KindReport, RunReport};
use crate::emulator::LATENESS_P99_US_MAX;
use crate::testbed::traffic::Kind;
use console::{Table, count, counted, scaled};

/// What stands for a figure that there is none of.
const NONE: &str = "–";

/// The whole result.
#[must_use]
pub fn describe(report: &DemoReport) -> String {
    let mut text = headline(&report.replicated);
    text.push('\n');
    text.push_str(&summary(report).render());
    text.push('\n');
    text.push_str(&kinds(report).render());
    if let Some(replication) = &report.replicated.replication {
        text.push_str(&replicated_as(replication));
    }
    let reasons = &report.replicated.broken_by_reason;
    if !reasons.is_empty() {
        text.push_str("\nWhy connections broke although they were replicated:\n");
        for (reason, number) in reasons {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {:>6}  {reason}", count(*number as u64));
        }
    }
    for note in [repetitions(report), lateness(report)].into_iter().flatten() {
        let _ = write!(text, "\n{note}\n");
    }
    text
}

/// What is to be said of runs that had to be repeated.
#[must_use]
pub fn repetitions(report: &DemoReport) -> Option<String> {
    let repeated = report.replicated.repeated + report.without_replication.repeated;
    (repeated > 0).then(|| {
        format!(
            "Repeated: {}, reasons the busy machine kept the active node silent for so long that the standby took over \
             before the kill.",
            counted(repeated, "run")
        )
    })
}

/// What is to be said of emulated links that the machine left no time for.
#[must_use]
pub fn lateness(report: &DemoReport) -> Option<String> {
    let runs = [&report.replicated, &report.without_replication];
    let p99_us = runs.into_iter().filter_map(|run| run.link_lateness_p99_us).max()?;
    (p99_us > LATENESS_P99_US_MAX).then(|| {
        format!(
            "The emulated links were late: one packet in a hundred by more than {:.1} ms, reasons the machine is busy. \
             Pauses are longer than they would be.",
            p99_us as f64 / 1e3
        )
    })
}

/// One sentence.
#[must_use]
pub fn headline(run: &RunReport) -> String {
    let RunReport { connections, survived, .. } = run;
    let all = if survived == connections { "All" } else { "Only" };
    let of = if survived == connections {
        count(*connections as u64)
    } else {
        format!("{} of {}", count(*survived as u64), count(*connections as u64))
    };
    format!("{all} {of} connections outlived the node that carried them.\n")
}

/// Milliseconds with a unit.
#[must_use]
pub fn ms(value: Option<f64>) -> String {
    value.map_or_else(|| NONE.into(), |ms| format!("{ms:.0} ms"))
}

/// Bytes with a decimal prefix.
#[must_use]
#[allow(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(bytes: u64) -> String {
    scaled(bytes as f64, "B")
}

fn summary(report: &DemoReport) -> Table {
    let mut table = Table::of("|>REPLICATED|>NOT REPLICATED");
    let mut row = |label: &str, cell: &dyn Fn(&RunReport) -> String| {
        table.row([label.to_owned(), cell(&report.replicated), cell(&report.without_replication)]);
    };
    row("established before the kill", &|run| count(run.connections as u64));
    row("survived", &|run| count(run.survived as u64));
    row("broken", &|run| count(run.broken as u64));
    row("kill to detection", &|run| ms(run.detection_ms));
    row("kill to addresses announced", &|run| ms(run.takeover_ms));
    row("kill to first packet forwarded", &|run| ms(run.first_packet_ms));
    row("longest pause of a survivor", &|run| ms((run.survived > 0).then_some(run.longest_gap_ms)));
    row("bytes verified", &|run| bytes(run.bytes_verified));
    table
}

/// What replication cost, and how exact it was.
fn replicated_as(report: &ReplicationReport) -> String {
    let ReplicationReport { representation, promise, false_misses, inaccurate_states, .. } = report;
    format!(
        "\nReplicated as {representation}: {promise}.\n  \
         {:.0} bytes a connection on the link between the nodes ({} in {}, of {})\n  \
         {} not there any more, {} in another state, {} of {} that never were let through\n",
        report.replication_bytes_per_connection,
        bytes(report.replication_bytes),
        counted(usize::try_from(report.replication_frames).unwrap_or(usize::MAX), "frame"),
        counted(report.connections_replicated, "connection"),
        count(*false_misses as u64),
        count(*inaccurate_states as u64),
        count(report.false_hits.into()),
        count(report.probes.into()),
    )
}

fn kinds(report: &DemoReport) -> Table {
    let mut table = Table::of("KIND|>CONNECTIONS|>SURVIVED|>LONGEST PAUSE|>MEDIAN|>VERIFIED|>NOT REPLICATED: SURVIVED");
    for kind in Kind::ALL {
        let Some(with) = report.replicated.kind(kind) else { continue };
        let KindReport { connections, survived, longest_gap_ms, median_gap_ms, bytes_verified, .. } = with;
        table.row([
            kind.label().to_owned(),
            count(*connections as u64),
            count(*survived as u64),
            ms(*longest_gap_ms),
            ms(*median_gap_ms),
            bytes(*bytes_verified),
            survived_of(report.without_replication.kind(kind)),
        ]);
    }
    table
}

/// `3 of 8`.
#[must_use]
pub fn survived_of(kind: Option<&KindReport>) -> String {
    kind.map_or_else(
        || NONE.into(),
        |kind| format!("{} of {}", count(kind.survived as u64), count(kind.connections as u64)),
    )
}
