//! The demo with an edge on either side of two nodes that both forward: one is killed, and the edges move its flows and resend what
//! it lost. The same without local recovery shows what that saves.

use serde::Serialize;

use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{EdgesPlan, FunctionPlan, Stage};
use super::stalls::EdgesReport;
use super::table::{self, ms};
use crate::args::DemoArgs;
use crate::testbed::cluster::{Shape, Tuning};
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::watch::Watch;
use crate::testbed::ways;
use console::{Progress, Table, count};

/// Connections that are opened while the node is killed, if nothing else is asked for: some of their SYNs are lost.
const RAMP_DEFAULT: usize = 600;

/// Medians of stalls after the switch-over, in milliseconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct MedianStalls {
    /// Of transfers.
    pub bulk: Option<f64>,
    /// Of connections that were being opened.
    pub syn: Option<f64>,
}

impl MedianStalls {
    fn of(run: &RunReport) -> Self {
        let edges = run.edges.as_ref();
        Self { bulk: edges.and_then(|edges| edges.bulk.median_ms), syn: edges.and_then(|edges| edges.syn.median_ms) }
    }
}

/// The run without local recovery.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WithoutRecovery {
    /// Medians of its stalls.
    pub median_stall_ms: MedianStalls,
    /// What became of its connections.
    #[serde(flatten)]
    pub run: RunReport,
}

/// What became of the connections, with local recovery and without.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct EdgesDemoReport {
    /// The program's version.
    pub program_version: String,
    /// How it was asked to run.
    pub settings: Settings,
    /// Medians of the stalls after the switch-over.
    pub median_stall_ms: MedianStalls,
    /// What became of the connections when one node was killed.
    #[serde(flatten)]
    pub run: RunReport,
    /// The same without local recovery.
    pub without_recovery: WithoutRecovery,
}

impl EdgesDemoReport {
    fn describe(&self) -> String {
        let (with, without) = (&self.run, &self.without_recovery.run);
        let mut table = Table::of("EDGES|>LOCAL RECOVERY|>WITHOUT");
        let stall =
            |of: fn(&EdgesReport) -> Option<f64>| [with, without].map(|run| ms(run.edges.as_ref().and_then(of)));
        let number = |of: fn(&EdgesReport) -> u64| {
            [with, without].map(|run| run.edges.as_ref().map_or_else(|| "-".to_owned(), |edges| count(of(edges))))
        };
        let rows = [
            ("established before the kill", [with, without].map(|run| count(run.connections as u64))),
            ("survived", [with, without].map(|run| count(run.survived as u64))),
            ("broken", [with, without].map(|run| count(run.broken as u64))),
            ("kill to switch-over", stall(|edges| Some(edges.switch_over_ms))),
            ("kill to packets resent", stall(|edges| edges.resent_ms)),
            ("packets resent", number(|edges| edges.resent_packets)),
            ("stalled transfers", number(|edges| edges.bulk.connections as u64)),
            ("their stall after the switch-over, median", stall(|edges| edges.bulk.median_ms)),
            ("longest", stall(|edges| edges.bulk.longest_ms)),
            ("stalled connections being opened", number(|edges| edges.syn.connections as u64)),
            ("their stall after the switch-over, median", stall(|edges| edges.syn.median_ms)),
            ("longest", stall(|edges| edges.syn.longest_ms)),
        ];
        for (what, [with, without]) in rows {
            table.row([what.to_owned(), with, without]);
        }
        format!("{}\n{}", table::headline(with), table.render())
    }
}

/// Does it all and prints it.
///
/// # Errors
/// It could not be done, or a connection broke.
pub(super) fn run(args: &DemoArgs, watch: &Watch) -> Result<(), DemoError> {
    let report = make_report(args, watch)?;
    console::print_as(args.json, &report, || report.describe())?;
    let RunReport { broken, connections, .. } = report.run;
    if broken == 0 { Ok(()) } else { Err(DemoError::Broken { broken, connections }) }
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<EdgesDemoReport, DemoError> {
    let settings = Settings { ramp: if args.ramp == 0 { RAMP_DEFAULT } else { args.ramp }, ..Settings::new(args) };
    let progress = Progress::new();
    let ways = ways::chosen(false);
    let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
    let servers = ways::server_addresses(ways, ports);
    let run = |policy: &str| {
        let stage = Stage {
            watch,
            progress: &progress,
            settings: &settings,
            keep_logs: args.keep_logs,
            shape: Shape::AllActive,
            servers: servers.clone(),
            edges: Some(EdgesPlan {
                sections: format!("[recovery]\npolicy = \"{policy}\"\n"),
                heartbeat_interval: Tuning::default().heartbeat_interval,
                holds_first_reply: true,
                watched_after_kill: None,
            }),
            host_parameters: Vec::new(),
            function: FunctionPlan::default(),
        };
        stage.run(true)
    };
    let (with, without) = (run("always")?, run("off")?);
    Ok(EdgesDemoReport {
        program_version: env!("CARGO_PKG_VERSION").into(),
        settings,
        median_stall_ms: MedianStalls::of(&with),
        run: with,
        without_recovery: WithoutRecovery { median_stall_ms: MedianStalls::of(&without), run: without },
    })
}
