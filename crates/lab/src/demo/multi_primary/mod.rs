//! The demo with both nodes at work: each carries half of the connections and backs the other's up; one is killed, and the
//! other carries all. Then what replication costs in such a pair, in sessions a second.

use std::net::SocketAddr;

use serde::Serialize;

use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{FunctionPlan, REPETITIONS_MAX, Stage};
use super::table::{self, ms};
use crate::args::{BenchSetupRateArgs, DemoArgs};
use crate::bench::BenchError;
use crate::bench::setup_rate::{self, Rates};
use crate::testbed::cluster::{ClusterError, Shape};
use crate::testbed::topology::{SERVER_PORTS, Topology};
use crate::testbed::watch::Watch;
use crate::testbed::ways;
use console::{Progress, Table, count};

/// What stands for a figure that the machine was too busy for.
const NOT_MEASURED: &str = "the machine was too busy";
/// Rounds in which the sessions a second are measured.
const RATE_ROUNDS: u32 = 7;
/// Seconds of each side in a round.
const RATE_SECONDS: f64 = 0.6;
/// Sessions that are open at a time.
const RATE_IN_FLIGHT: u16 = 128;

/// What became of the connections, and what replication costs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct MultiPrimaryReport {
    /// The program's version.
    pub program_version: String,
    /// How it was asked to run.
    pub settings: Settings,
    /// Some connections passed through both nodes, one direction each.
    pub asymmetric: bool,
    /// What became of the connections when one node was killed.
    #[serde(flatten)]
    pub run: RunReport,
    /// Sessions a second through the pair with replication over those without: the median of the rounds' ratios. `None`: the
    /// machine was too busy to measure it, for a node was taken for dead each time.
    pub session_rate_ratio: Option<f64>,
    /// Sessions a second through the pair, medians.
    pub sessions_per_s: Option<Rates>,
}

impl MultiPrimaryReport {
    /// As people read it.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { run, sessions_per_s: rates, .. } = self;
        let rate = |of: fn(&Rates) -> f64| {
            rates.as_ref().map_or_else(|| NOT_MEASURED.to_owned(), |rates| count(of(rates) as u64))
        };
        let ratio = self.session_rate_ratio.map_or_else(|| NOT_MEASURED.to_owned(), |ratio| format!("{ratio:.3}"));
        let mut table = Table::of("BOTH NODES ACTIVE|>");
        let rows = [
            ("established before the kill", count(run.connections as u64)),
            ("survived", count(run.survived as u64)),
            ("broken", count(run.broken as u64)),
            ("kill to detection", ms(run.detection_ms)),
            ("kill to addresses announced", ms(run.takeover_ms)),
            ("longest pause of a survivor", ms((run.survived > 0).then_some(run.longest_gap_ms))),
            ("sessions a second, replicated", rate(|rates| rates.replication_on)),
            ("sessions a second, not replicated", rate(|rates| rates.replication_off)),
            ("ratio", ratio),
        ];
        for (what, value) in rows {
            table.row([what.to_owned(), value]);
        }
        let reasons =
            run.broken_by_reason.iter().map(|(reason, number)| format!("  {:>6}  {reason}\n", count(*number as u64)));
        format!(
            "{}\n{}{}\nBoth nodes, the client and the server share this machine's processors: what a node spends on \
         replication\nis taken from the sessions themselves, which on machines of their own it is not.\n",
            table::headline(run),
            table.render(),
            reasons.collect::<String>(),
        )
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

/// How the nodes share the work as the operator asked for it, and where the server listens.
pub(super) fn shape_and_servers(args: &DemoArgs) -> (Shape, Vec<SocketAddr>) {
    if !args.multi_primary {
        return (Shape::OneActive, Topology::server_addresses());
    }
    let ways = ways::chosen(!args.symmetric);
    // As many addresses as without: fewer ports where there are more ways.
    let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
    (Shape::AllActive, ways::server_addresses(ways, ports))
}

/// Measures again when a node was taken for dead meanwhile, which on a busy machine it may be.
fn measure(args: &BenchSetupRateArgs, watch: &Watch, progress: &Progress) -> Result<Option<(f64, Rates)>, BenchError> {
    for _ in 0..=REPETITIONS_MAX {
        match setup_rate::ratio(args, watch, progress) {
            Err(BenchError::Cluster(ClusterError::TookOverEarly)) => {}
            result => return result.map(Some),
        }
    }
    Ok(None)
}

fn make_report(args: &DemoArgs, watch: &Watch) -> Result<MultiPrimaryReport, DemoError> {
    let settings = Settings::new(args);
    let progress = Progress::new();
    let (shape, servers) = shape_and_servers(args);
    let keep_logs = args.keep_logs;
    let (edges, function, host_parameters) = (None, FunctionPlan::default(), Vec::new());
    let stage = Stage {
        watch,
        progress: &progress,
        settings: &settings,
        keep_logs,
        shape,
        servers,
        edges,
        function,
        host_parameters,
    };
    let run = stage.run(true)?;
    let rate = BenchSetupRateArgs {
        seconds: RATE_SECONDS,
        rounds: RATE_ROUNDS,
        in_flight: RATE_IN_FLIGHT,
        multi_primary: true,
        representation: None,
        json: false,
    };
    let (session_rate_ratio, sessions_per_s) = measure(&rate, watch, &progress)?.unzip();
    Ok(MultiPrimaryReport {
        program_version: env!("CARGO_PKG_VERSION").into(),
        settings,
        asymmetric: !args.symmetric,
        run,
        session_rate_ratio,
        sessions_per_s,
    })
}
