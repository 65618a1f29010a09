//! Failures that operators meet, made on purpose: each in a network of its own, with real nodes and real traffic, and held
//! against what is promised of it.
//!
//! `rows` has the failures and promises, `laboratory` plays them, `network` makes failures of the network, `words`
//! reads the nodes' status, and `report` holds the results.

mod laboratory;
mod network;
mod report;
mod rows;
mod words;

use super::DemoError;
use super::run::{REPETITIONS_MAX, RunError};
use crate::args::DemoArgs;
use crate::testbed::cluster::ClusterError;
use crate::testbed::watch::Watch;
use console::Progress;
use laboratory::Laboratory;
pub use report::{FailuresReport, RowReport};
use rows::{ROWS, Row};
pub use words::StatusWords;

/// The names of all rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.failure)
}

/// The rows of a failure, or all.
///
/// # Errors
/// There is no such failure: the names that there are.
fn rows(only: Option<&str>) -> Result<Vec<&'static Row>, DemoError> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| only.is_none_or(|only| only == row.failure)).collect();
    if rows.is_empty() {
        let names: Vec<&str> = names().collect();
        let only = only.unwrap_or_default();
        return Err(DemoError::Missing(format!("there is no failure {only}: write one of {}", names.join(", "))));
    }
    Ok(rows)
}

/// Plays the rows that are asked for and prints what came of them.
///
/// # Errors
/// They could not be played, or a promise was broken.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let progress = Progress::new();
    let mut reports = Vec::new();
    for row in rows(args.only.as_deref())? {
        progress.show(row.failure);
        reports.push(play(row, args.keep_logs, watch)?);
    }
    progress.show("");
    let report = FailuresReport { program_version: env!("CARGO_PKG_VERSION"), rows: reports };
    console::print_as(args.json, &report, || report.describe())?;
    let broken = report.broken_rows();
    if broken.is_empty() { Ok(()) } else { Err(DemoError::PromisesBroken(broken.join(", "))) }
}

/// Plays a row; again in another network when the roles moved before the failure, which on a busy machine they may.
fn play(row: &Row, keep_logs: bool, watch: &Watch) -> Result<RowReport, RunError> {
    let mut repeated = 0;
    loop {
        match play_once(row, keep_logs, watch) {
            Err(RunError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
            Err(error @ (RunError::Watch(_) | RunError::Cluster(ClusterError::Watch(_)))) => return Err(error),
            Err(error) => return Ok(RowReport::not_played(row, &error.to_string())),
            Ok(report) => return Ok(report),
        }
    }
}

fn play_once(row: &Row, keep_logs: bool, watch: &Watch) -> Result<RowReport, RunError> {
    let mut laboratory = Laboratory::build(row, watch, keep_logs)?;
    (row.play)(&mut laboratory)?;
    Ok(RowReport::new(row, laboratory.finish()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_failure_is_refused_with_the_known_ones() {
        assert_eq!(rows(None).expect("all rows").len(), ROWS.len());
        assert_eq!(rows(Some(ROWS[0].failure)).expect("one row").len(), 1);
        let refused = rows(Some("flood")).map(|rows| rows.len()).expect_err("there is no such row").to_string();
        assert!(refused.contains("flood: write one of port-down-on-active,"), "{refused}");
    }
}
