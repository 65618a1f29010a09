//! The main job on one machine: real TCP through a real cluster, a node killed, and what survived.
//!
//! [`testbed`](crate::testbed) runs two gateways in a network of namespaces and sends traffic through them, [`mod@run`] kills one and [`report`] holds what became of the connections, for [`table`] and [`html`] to show. All
//! of it is removed again however the program ends.

pub mod edges;
mod error;
pub mod failures;
pub mod functions;
pub mod hostile;
pub mod html;
pub mod kernel;
mod many_nodes;
pub mod multi_primary;
pub mod operations;
pub mod probes;
pub mod rate_control;
pub mod recovery;
pub mod replication;
pub mod report;
pub mod run;
pub mod stalls;
pub mod table;
pub mod tunnel;

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use packet_io::{limits, sysctl};

pub use error::DemoError;

use crate::args::DemoArgs;
use crate::testbed::cluster::Shape;
use crate::testbed::gain_namespaces;
use crate::testbed::topology::Topology;
use crate::testbed::watch::Watch;
use report::{DemoReport, Settings};
use run::{FunctionPlan, Stage};

/// Descriptors that the demo needs beside those of its connections.
const SPARE_DESCRIPTORS: usize = 1024;

/// Runs the demo and shows its result. To be called while the process has but one thread: an ordinary user gets networks
/// of his own only then.
///
/// # Errors
/// The demo could not be run, or a connection broke that was established before the kill.
pub fn run(args: &DemoArgs) -> Result<(), DemoError> {
    gain_namespaces()?;
    let watch = Watch::new()?;
    if args.tunnel {
        return tunnel::run(args, &watch);
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
    if args.hostile {
        return hostile::run(args, &watch);
    }
    if args.rolling_restart {
        return operations::run(args, &watch);
    }
    if let Some(nodes) = args.nodes {
        return many_nodes::run(args, nodes, &watch);
    }
    if args.edges {
        return edges::run(args, &watch);
    }
    if args.functions {
        return functions::run(args, &watch);
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

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<DemoReport, DemoError> {
    let settings = Settings::new(args);
    let progress = console::Progress::new();
    let stage = Stage {
        watch,
        progress: &progress,
        settings: &settings,
        keep_logs: args.keep_logs,
        shape: Shape::OneActive,
        servers: Topology::server_addresses(),
        edges: None,
        host_parameters: Vec::new(),
        function: FunctionPlan::default(),
    };
    let began_unix_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let replicated = stage.run(true)?;
    let without_replication = stage.run(false)?;
    Ok(DemoReport {
        program_version: env!("CARGO_PKG_VERSION").into(),
        began_unix_s,
        kernel: sysctl::read("kernel/osrelease").unwrap_or_default(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        settings,
        replicated,
        without_replication,
    })
}
