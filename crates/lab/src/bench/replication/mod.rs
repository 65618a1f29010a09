//! `mainstay bench replication`: what survives when the active of two gateways dies, by what replicates its connections.
//!
//! A client fetches objects of several sizes, up to two hundred at a time, through a pair of gateways that filter and
//! translate. The active one is killed in the midst of it, and the link between the two is cut at the same moment. Of the
//! flows that were in progress, some get the rest of their objects through the other gateway; that share, and the
//! time until they went on, are reported (the experiment of Neira-Ayuso et al., section 7.2).
//!
//! One kill serves all sizes at once. Whatever is compared is measured in turns. Runs in which an emulated link was too late,
//! or a gateway was taken for dead before it was, are thrown away, counted and made again.

pub mod conntrackd;
mod experiment;
mod gateways;
pub mod network;
pub mod objects;
mod page;
pub mod pair;
mod report;
mod seed;
mod statistics;
mod subject;
mod table;

use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use packet_io::{limits, sysctl};

use self::experiment::Setting;
use self::network::Links;
use self::report::{Cell, Report, Settings};
use super::BenchError;
use crate::args::BenchReplicationArgs;
use crate::testbed;
use crate::testbed::watch::Watch;
use console::{Progress, Unit, Work};

/// How often a kill is tried again whose run was thrown away.
const REPEATS_MAX: usize = 3;
/// Descriptors that are needed beside those of the flows.
const SPARE_DESCRIPTORS: u64 = 1024;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, nothing gets through, or the result cannot be printed.
pub fn run(args: &BenchReplicationArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    if let Some(path) = &args.report {
        fs::write(path, page::page(&report).html())
            .map_err(|source| BenchError::Page { path: path.clone(), source })?;
    }
    Ok(console::print_as(args.json, &report, || {
        let page = args.report.as_ref().map(|path| format!("\nThe page with charts is {}\n", path.display()));
        table::describe(&report) + &page.unwrap_or_default()
    })?)
}

fn measure(args: &BenchReplicationArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let watch = Watch::new()?;
    // Each flow has a socket at either end, both in this process; those that are over linger a moment.
    limits::raise_open_files(SPARE_DESCRIPTORS + 8 * u64::from(args.flows))?;
    let began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let mut left_out = Vec::new();
    let mut cells = Vec::new();
    for subject in args.subjects() {
        if let Some(reason) = subject.hindrance(args.multi_primary) {
            left_out.push(format!("{}: {reason}", subject.name()));
            continue;
        }
        for rtt_ms in args.rtts_ms() {
            cells.extend(args.losses().into_iter().map(|loss| Cell::new(subject, loss, rtt_ms)));
        }
    }
    let progress = Progress::new();
    let work = progress.work(Unit::Of("kills"), Some(u64::from(args.rounds()) * cells.len() as u64));
    let matrix = Matrix { watch: &watch, work, args, object_kilobytes: args.objects_kb() };
    let mut kills = 0;
    for round in 1..=args.rounds() {
        for cell in &mut cells {
            matrix.kill_once(round, kills, cell)?;
            kills += 1;
        }
    }
    left_out.extend(cells.iter().filter_map(|cell| {
        let missing = args.rounds() as usize - cell.outcomes.len();
        let what = format!("{}, loss {}, RTT {} ms", cell.subject.name(), cell.loss, cell.rtt_ms);
        (missing > 0).then(|| format!("{what}: {missing} kills, as the machine was too busy in every attempt"))
    }));
    Ok(Report {
        program_version: env!("CARGO_PKG_VERSION").into(),
        kernel: sysctl::read("kernel/osrelease").unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        began_unix_s,
        settings: Settings {
            rounds: args.rounds(),
            multi_primary: args.multi_primary,
            at_once: args.flows.into(),
            object_kb: matrix.object_kilobytes.clone(),
            flow_bytes_per_s: objects::FLOW_BYTES_PER_S,
            give_up_s: args.give_up_s(),
            lateness_ms_max: args.lateness_ms(),
            seed: args.seed,
        },
        rows: cells.iter().flat_map(|cell| cell.rows(&matrix.object_kilobytes)).collect(),
        cells: cells.iter().map(Cell::report).collect(),
        left_out,
    })
}

struct Matrix<'a> {
    watch: &'a Watch,
    work: Work<'a>,
    args: &'a BenchReplicationArgs,
    object_kilobytes: Vec<u32>,
}

impl Matrix<'_> {
    /// Adds a kill, before which there were `kills`, to the cell, unless the machine is too busy in every attempt.
    fn kill_once(&self, round: u32, kills: u64, cell: &mut Cell) -> Result<(), BenchError> {
        let Self { watch, work, args, object_kilobytes } = self;
        let name = format!("{}, loss {:.0} %, round trip {} ms", cell.subject.name(), cell.loss * 100.0, cell.rtt_ms);
        let setting = Setting {
            links: Links {
                dedicated_loss: cell.loss,
                round_trip: Duration::from_millis(cell.rtt_ms.into()),
                both_active: args.multi_primary,
                // The same for all that are compared, another for each kill.
                seed: args.seed.wrapping_add(u64::from(round) << 32),
            },
            object_kilobytes,
            at_once: args.flows.into(),
            give_up: Duration::from_secs_f64(args.give_up_s()),
            lateness_max: Duration::from_secs_f64(args.lateness_ms() / 1e3),
        };
        for _ in 0..=REPEATS_MAX {
            match experiment::run(watch, cell.subject, setting, &|what| work.show(kills, &format!("{name}: {what}")))? {
                Ok(outcome) => {
                    cell.outcomes.push(outcome);
                    break;
                }
                Err(reason) => cell.rejected.push(reason),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
