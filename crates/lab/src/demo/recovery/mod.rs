//! `mainstay bench recovery`: how long TCP stalls after edges have switched over, by outage, round trip and policy.
//!
//! ```text
//!   client ── edge ──┬── node a ✗ ──┬── edge ── server      outage: from the kill until the edges have found it, which the
//!                    └── node b ────┘                       detection time decides
//! ```
//! Each run is the network of `mainstay demo --edges` with transfers in both directions and connections that are being opened. Half of
//! them pass the node that is killed.

mod report;

use std::time::Duration;

use self::report::{Report, Row};
use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{EdgesPlan, RunError, Stage};
use crate::args::BenchRecoveryArgs;
use crate::testbed::cluster::{ClusterError, Shape};
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::watch::Watch;
use crate::testbed::{self, ways};
use config::validated::Representation;
use console::Progress;

/// Heartbeats in a detection time.
const MULTIPLIER: u32 = 10;
/// Connections that are opened in a run; an eighth of them after the kill.
const RAMP: usize = 800;
/// Seconds in which they are opened.
const RAMP_SECONDS: f64 = 4.0;
/// What is watched after the switch-over: TCP's next timer comes after at most the time that has passed.
const WATCHED_MIN: Duration = Duration::from_millis(2500);
/// A run in which the edges switched over so much earlier or later is rejected: the machine was too busy for it.
const SWITCH_OVER_TOLERANCE_MS: f64 = 60.0;
/// Rejected runs of a row until it is given up.
const REJECTED_RUNS_MAX: u32 = 3;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The network cannot be built, or the result cannot be printed.
pub fn run(args: &BenchRecoveryArgs) -> Result<(), DemoError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    let mut rows = Vec::new();
    for rtt_ms in &args.rtts_ms {
        for outage in &args.outages {
            // The policies take turns, so that each is measured beside the others.
            let mut of_policies: Vec<_> = args.policies.iter().map(|policy| (policy, Gathered::default())).collect();
            for round in 0..args.rounds {
                for (policy, gathered) in &mut of_policies {
                    let outage_s = outage.as_secs_f64();
                    progress.show(&format!("outage {outage_s} s, round trip {rtt_ms} ms, {policy}: run {}", round + 1));
                    gathered.run(&Trial {
                        watch: &watch,
                        progress: &progress,
                        outage: *outage,
                        rtt_ms: *rtt_ms,
                        policy,
                    })?;
                }
            }
            for (policy, gathered) in of_policies {
                rows.extend(gathered.rows(*outage, *rtt_ms, policy));
            }
        }
    }
    let report = Report { program_version: env!("CARGO_PKG_VERSION").into(), rounds: args.rounds, rows };
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// One run that is to be made.
struct Trial<'a> {
    watch: &'a Watch,
    progress: &'a Progress,
    outage: Duration,
    rtt_ms: f64,
    policy: &'a str,
}

impl Trial<'_> {
    fn make(&self) -> Result<RunReport, RunError> {
        let ways = ways::chosen(false);
        let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
        let settings = Settings {
            link_loss: 0.0,
            rtt_ms: self.rtt_ms,
            ramp: RAMP,
            seconds: RAMP_SECONDS,
            workers: 1,
            representation: Representation::default(),
        };
        let stage = Stage {
            watch: self.watch,
            progress: self.progress,
            settings: &settings,
            keep_logs: false,
            shape: Shape::BothActive,
            servers: ways::server_addresses(ways, ports),
            edges: Some(EdgesPlan {
                sections: format!("[recovery]\npolicy = \"{}\"\n", self.policy),
                heartbeat_interval: self.outage / MULTIPLIER,
                holds_first_reply: false,
                watched_after_kill: Some(self.outage * 2 + WATCHED_MIN),
            }),
        };
        stage.run(true)
    }
}

/// What the runs of one policy had.
#[derive(Default)]
struct Gathered {
    bulk_down_ms: Vec<f64>,
    bulk_up_ms: Vec<f64>,
    syn_ms: Vec<f64>,
    rejected_runs: u32,
    broken: usize,
}

impl Gathered {
    /// Makes a run, and again if the machine was too busy.
    fn run(&mut self, trial: &Trial<'_>) -> Result<(), DemoError> {
        let outage_ms = trial.outage.as_secs_f64() * 1e3;
        for _ in 0..=REJECTED_RUNS_MAX {
            let report = match trial.make() {
                Ok(report) => report,
                Err(RunError::Cluster(ClusterError::TookOverEarly)) => {
                    self.rejected_runs += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let edges = report.edges.as_ref();
            let Some(edges) = edges.filter(|edges| {
                // A silent node is found at the end of the detection time after its last packet.
                (edges.switch_over_ms - outage_ms).abs() <= SWITCH_OVER_TOLERANCE_MS + outage_ms / f64::from(MULTIPLIER)
            }) else {
                self.rejected_runs += 1;
                continue;
            };
            self.broken += report.broken;
            self.bulk_down_ms.extend(&edges.stalls_ms.bulk_down);
            self.bulk_up_ms.extend(&edges.stalls_ms.bulk_up);
            self.syn_ms.extend(&edges.stalls_ms.syn);
            return Ok(());
        }
        Ok(())
    }

    fn rows(self, outage: Duration, rtt_ms: f64, policy: &str) -> [Row; 3] {
        let Self { bulk_down_ms, bulk_up_ms, syn_ms, rejected_runs, broken } = self;
        [("bulk_down", bulk_down_ms), ("bulk_up", bulk_up_ms), ("syn", syn_ms)].map(|(kind, stalls_ms)| Row {
            outage_s: outage.as_secs_f64(),
            kind,
            rtt_ms,
            policy: policy.to_owned(),
            connections: stalls_ms.len(),
            stall_ms: report::Quantiles::of(stalls_ms),
            broken,
            rejected_runs,
        })
    }
}
