//! The demo with each function of the gateway in turn: a node is killed under the connections that pass it.

use std::net::SocketAddr;

use serde::Serialize;

use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{FunctionPlan, Stage};
use super::table::ms;
use crate::args::DemoArgs;
use crate::testbed::cluster::{Function, Shape};
use crate::testbed::topology::{SERVER_PORTS, Topology};
use crate::testbed::watch::Watch;
use console::{Progress, Table, count};

/// SYNs with spoofed sources a second that a SYN proxy is attacked with, at each node.
const FLOOD_SYNS_PER_S: u32 = 5_000;

/// What became of the connections of one function.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FunctionReport {
    /// The function.
    pub function: &'static str,
    /// Connections established before the kill.
    pub connections: usize,
    /// Those that went on afterwards.
    pub survived: usize,
    /// Those that did not.
    pub broken: usize,
    /// The longest pause of any connection that survived.
    pub longest_gap_ms: f64,
    /// What the function did before the kill: handshakes, connections or decisions.
    pub handled: u64,
    /// SYNs with spoofed sources that were sent meanwhile.
    pub spoofed_syns: u64,
}

impl FunctionReport {
    fn of(function: Function, run: &RunReport) -> Self {
        Self {
            function: function.name(),
            connections: run.connections,
            survived: run.survived,
            broken: run.broken,
            longest_gap_ms: run.longest_gap_ms,
            handled: run.handled,
            spoofed_syns: run.flooded,
        }
    }

    /// Whether connections passed the function, and all of them survived.
    fn is_success(&self) -> bool {
        self.connections > 0 && self.broken == 0 && self.handled > 0
    }
}

/// What became of the connections, function by function.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct FunctionsReport {
    /// The program's version.
    pub program_version: String,
    /// How it was asked to run.
    pub settings: Settings,
    /// The functions.
    pub functions: Vec<FunctionReport>,
    /// Broken connections of all of them.
    pub broken: usize,
}

impl FunctionsReport {
    fn describe(&self) -> String {
        let mut table = Table::of("FUNCTION|>CONNECTIONS|>SURVIVED|>BROKEN|>LONGEST PAUSE|>HANDLED|>SPOOFED SYNS");
        for row in &self.functions {
            let numbers = [row.connections, row.survived, row.broken].map(|number| count(number as u64));
            let others = [ms(Some(row.longest_gap_ms)), count(row.handled), count(row.spoofed_syns)];
            table.row([row.function.to_owned()].into_iter().chain(numbers).chain(others));
        }
        table.render()
    }
}

/// Does it all and prints it.
///
/// # Errors
/// It could not be done, a connection broke, or a function saw none.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let report = make_report(args, watch)?;
    console::print_as(args.json, &report, || report.describe())?;
    if let Some(idle) = report.functions.iter().find(|row| row.handled == 0) {
        return Err(DemoError::PromisesBroken(format!("no connection passed the {}", idle.function)));
    }
    let connections = report.functions.iter().map(|row| row.connections).sum();
    if report.functions.iter().all(FunctionReport::is_success) {
        Ok(())
    } else {
        Err(DemoError::Broken { broken: report.broken, connections })
    }
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<FunctionsReport, DemoError> {
    let settings = Settings::new(args);
    let progress = Progress::new();
    let mut functions = Vec::new();
    for function in Function::ALL {
        let flood_syns_per_s = if function == Function::SynProxy { FLOOD_SYNS_PER_S } else { 0 };
        let stage = Stage {
            watch,
            progress: &progress,
            settings: &settings,
            keep_logs: args.keep_logs,
            shape: Shape::OneActive,
            servers: servers(function),
            edges: None,
            function: FunctionPlan { function, flood_syns_per_s },
            host_parameters: Vec::new(),
        };
        functions.push(FunctionReport::of(function, &stage.run(true)?));
    }
    let broken = functions.iter().map(|row| row.broken).sum();
    Ok(FunctionsReport { program_version: env!("CARGO_PKG_VERSION").into(), settings, functions, broken })
}

/// Where clients connect to.
fn servers(function: Function) -> Vec<SocketAddr> {
    if !function.is_balancer() {
        return Topology::server_addresses();
    }
    let of_port = |port| function.services().iter().map(move |address| SocketAddr::new(*address, port));
    SERVER_PORTS.into_iter().flat_map(of_port).collect()
}
