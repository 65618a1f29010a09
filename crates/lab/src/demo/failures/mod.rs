//! Failures that operators meet, made on purpose: each in a network of its own, with real nodes and real traffic, and held
//! against what is promised of it.
//!
//! `rows` says what is done and promised, `laboratory` plays it, `network` makes failures of the network, `words` reads
//! what nodes say of themselves, and `report` holds what came of it.

mod laboratory;
mod network;
mod report;
mod rows;
mod words;

use super::DemoError;
use super::cluster::ClusterError;
use super::run::{REPETITIONS_MAX, RunError};
use super::watch::Watch;
use crate::args::DemoArgs;
use console::Progress;
use laboratory::Laboratory;
pub use report::{FailuresReport, RowReport};
use rows::{ROWS, Row};
pub use words::StatusWords;

/// The names of all rows.
pub fn names() -> impl Iterator<Item = &'static str> {
    ROWS.iter().map(|row| row.failure)
}

/// Plays the rows that are asked for and prints what came of them.
///
/// # Errors
/// They could not be played, or a promise was broken.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let progress = Progress::new();
    let is_asked_for = |row: &&Row| args.only.as_deref().is_none_or(|only| only == row.failure);
    let mut rows = Vec::new();
    for row in ROWS.iter().filter(is_asked_for) {
        progress.show(row.failure);
        rows.push(play(row, args.keep_logs, watch)?);
    }
    progress.show("");
    let report = FailuresReport { program_version: env!("CARGO_PKG_VERSION"), rows };
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
