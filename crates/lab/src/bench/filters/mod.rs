//! `mainstay bench filters`: what the structures of the room `filters` cost, and how often they are wrong.
//!
//! Two parts. *Speed*: each structure is filled with the same million keys, then keys that are in it and keys that are not
//! are looked up, and some are removed, inserted and changed, structure by structure in turns. Keys are 64-bit hashes, as
//! the node's table has them of its tuples; what each structure does with them from there on is measured. Beside those of
//! the room stand a [`BinaryFuse8`](xorf::BinaryFuse8), the fastest filter for a set that never changes, and a `hashbrown`
//! map. *The paper's numbers*: its simulations are repeated and compared with its text.
//!
//! Time is the thread's processor time, so that other programs do not count; what they do to the caches does. What the structures
//! do to each other's does not: before each is timed in a round, some lookups that are not fetch it back. Each key is looked up on its own
//! and none waits for another's answer, so that as many are in progress as the processor sees ahead.

mod auxiliary;
mod classification;
mod cuckoo;
mod exact;
pub(super) mod keys;
mod large;
mod paper;
mod report;
mod speed;
pub(super) mod subjects;

use ::filters::theory;

use self::report::Report;
use super::BenchError;
use crate::args::BenchFiltersArgs;
use console::Progress;

/// Measures and prints.
///
/// # Errors
/// A structure does not do what it is measured at, which is a defect, or the result cannot be printed.
pub fn run(args: &BenchFiltersArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    let classification = classification::measure(args.rounds).map_err(BenchError::from)?;
    let all = WithClassification { report, classification };
    Ok(console::print_as(args.json, &all, || {
        format!("{}\n{}", all.report.describe(), classification::describe(&all.classification))
    })?)
}

/// All that is printed.
#[derive(Debug, serde::Serialize)]
struct WithClassification {
    #[serde(flatten)]
    report: Report,
    /// Figures 17 and 19.
    classification: Vec<classification::Row>,
}

fn measure(args: &BenchFiltersArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let keys = speed::Keys::new(args.items);
    let figures = speed::measure(args, &progress, &keys)?;
    drop(keys);
    let large = large::measure(args, &progress)?;
    progress.show("the paper's numbers");
    let max_load = paper::maximum_loads(args.trials)?;
    let paper = paper::compare(args.trials, &max_load)?;
    let expected = theory::FirstAvailable::of(subjects::first_available(args.items), args.items)?.false_positive();
    Ok(Report::new(args, figures, &large, max_load, paper, expected))
}

#[cfg(test)]
mod tests;
