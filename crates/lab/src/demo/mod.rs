//! The main job on one machine: real TCP through a real cluster, a node killed, and what survived.
//!
//! [`testbed`](crate::testbed) runs two gateways in a network of namespaces and sends traffic through them, [`mod@run`] kills one and [`report`] holds what became of the connections, for [`table`] and [`html`] to show. All
//! of it is removed again however the program ends.

pub mod failures;
pub mod html;
pub mod kernel;
pub mod meter;
pub mod multi_primary;
pub mod operations;
pub mod probes;
pub mod replication;
pub mod report;
pub mod run;
pub mod table;
pub mod wan;

use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use packet_io::{IoError, limits, sysctl};

use crate::args::DemoArgs;
use crate::testbed::cluster::Shape;
use crate::testbed::gain_namespaces;
use crate::testbed::topology::Topology;
use crate::testbed::watch::Watch;
use report::{Report, Settings};
use run::{RunError, Stage};

/// Descriptors that the demo needs beside those of its connections.
const SPARE_DESCRIPTORS: usize = 1024;

/// Why the demo has no result, or a bad one.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The machine cannot give what the demo needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// A program is missing that the demo runs.
    #[error("the demo cannot be run: {0}")]
    Missing(String),
    /// A run could not be made.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The page cannot be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Page {
        /// Where it was to be.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The two sites.
    #[error(transparent)]
    Wan(#[from] wan::WanError),
    /// What replication costs could not be measured.
    #[error(transparent)]
    Rate(#[from] crate::bench::BenchError),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
    /// Promises were broken, of failures that were made on purpose.
    #[error("promises were broken: {0}")]
    PromisesBroken(String),
    /// Connections broke that should not have.
    #[error("{broken} of {connections} replicated connections broke")]
    Broken {
        /// How many.
        broken: usize,
        /// Of how many.
        connections: usize,
    },
}

/// Runs the demo and shows its result. To be called while the process has but one thread: an ordinary user gets networks
/// of his own only then.
///
/// # Errors
/// The demo could not be run, or a connection broke that was established before the kill.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    gain_namespaces()?;
    let watch = Watch::new()?;
    if args.wan {
        return wan::run(args, &watch);
    }
    // Each connection has a socket at either end, both in this process.
    let descriptors = SPARE_DESCRIPTORS + 2 * args.ramp;
    limits::raise_open_files(descriptors as u64)?;
    check_representation(args)?;
    if args.kernel {
        return kernel::run(args, &watch);
    }
    if args.failures {
        return failures::run(args, &watch);
    }
    if args.rolling_restart {
        return operations::run(args, &watch);
    }
    if args.multi_primary {
        return multi_primary::run(args, &watch);
    }
    let report = make_report(args, &watch)?;
    if let Some(path) = &args.report {
        fs::write(path, html::page(&report)).map_err(|source| DemoError::Page { path: path.clone(), source })?;
    }
    if args.json {
        console::print_json(&report)?;
    } else {
        console::print(&table::describe(&report))?;
        if let Some(path) = &args.report {
            console::print(&format!("\nThe page with charts is {}\n", path.display()))?;
        }
    }
    let (broken, connections) = (report.replicated.broken, report.replicated.connections);
    if report.is_success() { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

/// What does not go with a filter between the nodes; their configurations would be refused.
fn check_representation(args: &DemoArgs) -> Result<(), DemoError> {
    if args.representation.is_compact() && args.workers > 1 {
        let name = args.representation.name();
        return Err(DemoError::Missing(format!(
            "--representation {name} goes with one worker where addresses are translated: leave --workers out"
        )));
    }
    Ok(())
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<Report, DemoError> {
    let settings = Settings::new(args);
    let progress = console::Progress::new();
    let stage = Stage {
        watch,
        progress: &progress,
        settings: &settings,
        keep_logs: args.keep_logs,
        shape: Shape::OneActive,
        servers: Topology::server_addresses(),
    };
    let began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let replicated = stage.run(true)?;
    let without_replication = stage.run(false)?;
    Ok(Report {
        program_version: env!("CARGO_PKG_VERSION").into(),
        began_unix_s,
        kernel: sysctl::read("kernel/osrelease").unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        settings,
        replicated,
        without_replication,
    })
}
