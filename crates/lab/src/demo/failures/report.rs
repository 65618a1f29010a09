//! What came of the rows.

use std::fmt::Write as _;
use std::time::Duration;

use serde::Serialize;

use super::laboratory::RowResult;
use super::rows::Row;
use super::words::StatusWords;
use console::{Table, count};

/// What came of all rows.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FailuresReport {
    /// The program's version.
    pub program_version: &'static str,
    /// One for each failure.
    pub rows: Vec<RowReport>,
}

/// What came of one failure.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RowReport {
    /// The failure.
    pub failure: &'static str,
    /// What is promised.
    pub promised: &'static str,
    /// Connections established before the failure.
    pub connections: usize,
    /// Those of them that did not go on to the end.
    pub broken: usize,
    /// Why the first of them broke.
    pub first_broken: Option<String>,
    /// The longest pause of one that went on, in milliseconds.
    pub outage_ms: f64,
    /// What the nodes said of themselves during the failure.
    pub status: Vec<StatusWords>,
    /// All that was promised was kept.
    pub passed: bool,
    /// What was not.
    pub unkept: Vec<String>,
}

impl RowReport {
    /// Sums up a row.
    pub(super) fn new(row: &Row, result: RowResult) -> Self {
        let RowResult { outcomes, last_step_at, mut unkept, words } = result;
        let (survivors, lost): (Vec<_>, Vec<_>) = outcomes.iter().partition(|outcome| outcome.survived(last_step_at));
        let outage = survivors.iter().map(|outcome| outcome.longest_gap).max().unwrap_or(Duration::ZERO);
        let first_broken = lost.first().map(|outcome| {
            let reason = outcome.broken.as_deref().unwrap_or("nothing came back in the end");
            format!("{}: {reason}", outcome.kind.label())
        });
        if !lost.is_empty() {
            unkept.insert(0, format!("{} of {} connections broke", lost.len(), outcomes.len()));
        }
        Self {
            failure: row.failure,
            promised: row.promised,
            connections: outcomes.len(),
            broken: lost.len(),
            first_broken,
            outage_ms: outage.as_secs_f64() * 1e3,
            status: words,
            passed: unkept.is_empty() && !outcomes.is_empty(),
            unkept,
        }
    }

    /// A row that could not be played.
    pub(super) fn not_played(row: &Row, reason: &str) -> Self {
        Self {
            failure: row.failure,
            promised: row.promised,
            connections: 0,
            broken: 0,
            first_broken: None,
            outage_ms: 0.0,
            status: Vec::new(),
            passed: false,
            unkept: vec![format!("the row could not be played: {reason}")],
        }
    }
}

impl FailuresReport {
    /// Names of the rows in which a promise was broken.
    #[must_use]
    pub fn broken_rows(&self) -> Vec<&'static str> {
        self.rows.iter().filter(|row| !row.passed).map(|row| row.failure).collect()
    }

    /// As people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let mut table = Table::of("FAILURE|>CONNECTIONS|>BROKEN|>LONGEST PAUSE|PROMISE|STATUS DURING IT");
        for row in &self.rows {
            let mut lines = row.status.iter().map(StatusWords::line);
            table.row([
                row.failure.to_owned(),
                count(row.connections as u64),
                count(row.broken as u64),
                format!("{:.0} ms", row.outage_ms),
                if row.passed { "kept" } else { "broken" }.to_owned(),
                lines.next().unwrap_or_default(),
            ]);
            for line in lines {
                table.row([String::new(), String::new(), String::new(), String::new(), String::new(), line]);
            }
        }
        let mut text = table.render();
        for row in self.rows.iter().filter(|row| !row.passed) {
            // Writing to a string cannot fail.
            let _ = write!(text, "\n{}\n  promised: {}\n", row.failure, row.promised);
            for unkept in row.unkept.iter().chain(&row.first_broken) {
                let _ = writeln!(text, "  {unkept}");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::super::rows::ROWS;
    use super::*;
    use crate::testbed::traffic::Kind;
    use crate::testbed::traffic::outcome::Outcome;

    fn outcome(last_progress_at: Instant, gap_ms: u64) -> Outcome {
        Outcome {
            established_at: Some(last_progress_at),
            last_progress_at: Some(last_progress_at),
            longest_gap: Duration::from_millis(gap_ms),
            ..Outcome::new(Kind::Ticks, false)
        }
    }

    #[test]
    fn a_row_passes_only_when_no_connection_breaks_and_every_promise_is_kept() {
        let last_step_at = Instant::now();
        let later = last_step_at + Duration::from_millis(5);
        let report = |outcomes: Vec<Outcome>, unkept: Vec<String>| {
            RowReport::new(&ROWS[0], RowResult { outcomes, last_step_at, unkept, words: Vec::new() })
        };
        let good = report(vec![outcome(later, 200), outcome(later, 300)], Vec::new());
        assert_eq!((good.connections, good.broken, good.passed), (2, 0, true));
        assert!((good.outage_ms - 300.0).abs() < 1e-9);
        let stuck = report(vec![outcome(later, 200), outcome(last_step_at, 900)], Vec::new());
        assert_eq!((stuck.broken, stuck.passed), (1, false));
        assert_eq!(stuck.first_broken.as_deref(), Some("ticks: nothing came back in the end"));
        assert!(!report(vec![outcome(later, 1)], vec!["no word".into()]).passed);
        assert!(!report(Vec::new(), Vec::new()).passed, "a row without connections shows nothing");
        let report = FailuresReport { program_version: "0", rows: vec![good, stuck] };
        assert_eq!(report.broken_rows(), [ROWS[0].failure]);
        assert!(report.describe().contains("1 of 2 connections broke"), "{}", report.describe());
    }
}
