//! `mainstay bench sync`: what it costs to replicate the kernel's connections, and what it saves, by `mainstay sync` beside
//! conntrackd.
//!
//! ```text
//!   client ──┬── router a: kernel forwarding, nftables, masquerading ──┬── server
//!            │      daemon │ dedicated link                            │
//!            └── router b: the same, standing by ──────────────────────┘
//! ```
//!
//! Five parts, in each of which all that is compared takes turns:
//!
//! 1. `rate`: short connections a second through the router, and what each costs the daemons;
//! 2. `loss`: connections that break when the router dies at the end of a ramp during which the dedicated link lost packets;
//! 3. `table`: a table of many connections: how long taking over takes, and how much memory the daemons need for it;
//! 4. `buffer`: what two kernels differ by in the end when the buffer for the kernel's events is far too small;
//! 5. `stale`: connections that were closed before the router died, and that the survivor holds for established.
//!
//! The harness is the manager that decides who holds the addresses (keepalived, as a rule).

mod buffer;
mod conntrackd;
mod entries;
mod error;
mod loss;
mod mainstay;
mod pair;
mod rate;
mod replicator;
mod report;
mod routers;
mod setting;
mod stale;
mod subject;
mod table;

use packet_io::{limits, sysctl};

pub use self::error::SyncDaemonError;
use self::report::{Measured, Report};
use self::setting::Setting;
use super::BenchError;
use crate::args::BenchSyncArgs;
use crate::args::sync_bench::Part;
use crate::testbed;
use crate::testbed::watch::Watch;
use console::Progress;

/// Descriptors that are needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 1024;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, nothing gets through, a daemon ends or does not do what it is asked, or the result cannot be
/// printed.
pub fn run(args: &BenchSyncArgs) -> Result<(), BenchError> {
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchSyncArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    let watch = Watch::new()?;
    // Each connection has a socket at either end, both in this process; short ones that are over linger a moment.
    let parts = args.parts();
    let lasting = if parts.contains(&Part::Loss) { 2 * u64::from(args.connections()) } else { 0 };
    limits::raise_open_files(SPARE_DESCRIPTORS + lasting.max(4 * u64::from(args.in_flight)))?;
    let mut left_out = Vec::new();
    let subjects = args.subjects().into_iter().filter(|subject| match subject.hindrance() {
        Some(reason) => {
            left_out.push(format!("{}: {reason}", subject.name()));
            false
        }
        None => true,
    });
    let setting =
        Setting { watch: &watch, progress: Progress::new(), args, subjects: subjects.collect(), kernel: kernel() };
    let mut measured = Measured::default();
    for part in parts {
        match part {
            Part::Rate => measured.rate = rate::measure(&setting)?,
            Part::Loss => measured.loss = loss::measure(&setting)?,
            Part::Table => measured.table = table::measure(&setting)?,
            Part::Buffer => measured.buffer = buffer::measure(&setting)?,
            Part::Stale => measured.stale = stale::measure(&setting)?,
        }
    }
    Ok(Report::new(args, &setting.kernel, &measured, left_out))
}

fn kernel() -> String {
    sysctl::read("kernel/osrelease").unwrap_or_default()
}

#[cfg(test)]
mod tests;
