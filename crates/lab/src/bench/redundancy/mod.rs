//! `mainstay bench redundancy`: how fast redundant bytes are found and put back, on one core, and how many they are.
//!
//! Traffic made for it, half of which is redundant, is cut into packets and into blocks of 16 KB. Each method marks, encodes
//! and decodes it; memcpy, zstd over a long window, LZ4 and FastCDC's chunking alone handle the same bytes. All take turns, and
//! the thread's processor time is measured. Every encoder meets the traffic with its cache full: it has seen it once before,
//! and there is more of it than the cache holds. What is decoded is compared with what was encoded.
//!
//! What is saved is measured apart, on the same traffic and on pages whose parts are redundant a few words at a time, beside
//! the seed's estimate of what could be; and what a second stage adds.

mod baselines;
mod report;
mod savings;
mod speed;
mod subject;
#[cfg(test)]
mod tests;
pub(super) mod traffic;

use redundancy::Method;

use self::report::{Figures, Report};
use self::savings::Savings;
use self::speed::BLOCK_BYTES;
use self::subject::Subject;
use super::BenchError;
use super::rounds;
use crate::args::BenchRedundancyArgs;
use console::Progress;

/// Measures and prints.
///
/// # Errors
/// Something is not restored, or the result cannot be printed.
pub fn run(args: &BenchRedundancyArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchRedundancyArgs) -> Result<Report, BenchError> {
    let progress = Progress::new();
    let traffic = traffic::half_redundant((args.megabytes as usize) << 20);
    let cache_bytes = (args.cache_megabytes as usize) << 20;
    let mut figures = Figures::default();
    let mut subjects = Vec::new();
    for block_bytes in BLOCK_BYTES {
        for method in Method::ALL {
            subjects.push(Subject::new(method, block_bytes, cache_bytes, &traffic)?);
        }
    }
    let mut baselines = baselines::Libraries::new(&traffic, cache_bytes)?;
    rounds::repeat(&progress, "speed", args.rounds, |round| {
        for baseline in rounds::turns(round, [true, false]) {
            if baseline {
                baselines.measure(&traffic, &mut figures.baselines)?;
            } else {
                measure_subjects(round, &mut subjects, &traffic, &mut figures)?;
            }
        }
        Ok::<_, BenchError>(())
    })?;
    progress.show("savings");
    figures.savings = Savings::measure(&traffic, cache_bytes)?;
    Ok(Report::new(args, figures))
}

fn measure_subjects(
    round: u32,
    subjects: &mut [Subject],
    traffic: &[u8],
    figures: &mut Figures,
) -> Result<(), BenchError> {
    // Each round begins with another.
    let first = round as usize % subjects.len();
    subjects.rotate_left(first);
    for subject in subjects {
        let key = (subject.method.name(), subject.block_bytes);
        figures.mark.entry(key).or_default().push(subject.mark(traffic));
        figures.encode.entry(key).or_default().push(subject.encode(traffic));
        let (decode, saved) = subject.decode(traffic)?;
        figures.decode.entry(key).or_default().push(decode);
        figures.saved.insert(key, saved);
    }
    Ok(())
}
