//! `mainstay bench recovery`: how long TCP stalls after edges have switched over, by outage, round trip, congestion control and policy [HALR,
//! figures 12 to 19].
//!
//! ```text
//!   client ── edge ──┬── node a ✗ ──┬── edge ── server      outage: from the kill until the edges have found it, which the
//!                    └── node b ────┘                       detection time decides
//! ```
//!
//! Each run is the network of `mainstay demo --edges` with transfers in both directions and connections that are being opened. Half of
//! them pass the node that is killed.

mod page;
mod report;

use std::fmt;
use std::fs;
use std::time::Duration;

use self::report::{Report, Row};
use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{EdgesPlan, FunctionPlan, RunError, Stage};
use super::stalls::StallsByKind;
use crate::args::{BenchRecoveryArgs, Switch};
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
    for setting in settings(args) {
        // The policies take turns, so that each is measured beside the others.
        let mut of_policies: Vec<_> = args.policies.iter().map(|policy| (policy, Gathered::default())).collect();
        for round in 0..args.rounds {
            for (policy, gathered) in &mut of_policies {
                progress.show(&format!("{setting}, {policy}: run {}", round + 1));
                gathered.run(&Trial { watch: &watch, progress: &progress, setting: &setting, policy })?;
            }
        }
        rows.extend(of_policies.into_iter().flat_map(|(policy, gathered)| gathered.rows(&setting, policy)));
    }
    let report = Report { program_version: env!("CARGO_PKG_VERSION").into(), rounds: args.rounds, rows };
    if let Some(path) = &args.output {
        fs::write(path, page::page(&report).html()).map_err(|source| DemoError::Page { path: path.clone(), source })?;
    }
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// What the runs of all policies share.
#[derive(Clone, Debug)]
struct Setting {
    outage: Duration,
    rtt_ms: f64,
    sack: bool,
    congestion_control: String,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { outage, rtt_ms, congestion_control, .. } = self;
        let sack = if self.sack { "" } else { " without SACK" };
        write!(f, "outage {} s, round trip {rtt_ms} ms, {congestion_control}{sack}", outage.as_secs_f64())
    }
}

/// All combinations that are asked for.
fn settings(args: &BenchRecoveryArgs) -> Vec<Setting> {
    let mut settings = Vec::new();
    for congestion_control in args.congestion_controls() {
        for sack in &args.sacks {
            for rtt_ms in &args.rtts_ms {
                settings.extend(args.outages.iter().map(|outage| Setting {
                    outage: *outage,
                    rtt_ms: *rtt_ms,
                    sack: *sack == Switch::On,
                    congestion_control: congestion_control.clone(),
                }));
            }
        }
    }
    settings
}

/// One run that is to be made.
struct Trial<'a> {
    watch: &'a Watch,
    progress: &'a Progress,
    setting: &'a Setting,
    policy: &'a str,
}

impl Trial<'_> {
    fn make(&self) -> Result<RunReport, RunError> {
        let watched_after_kill = self.setting.outage * 2 + WATCHED_MIN;
        let heartbeat_interval = self.setting.outage / MULTIPLIER;
        let ways = ways::chosen(false);
        let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
        let settings = Settings {
            link_loss: 0.0,
            rtt_ms: self.setting.rtt_ms,
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
            shape: Shape::AllActive,
            servers: ways::server_addresses(ways, ports),
            edges: Some(EdgesPlan {
                sections: format!("[recovery]\npolicy = \"{}\"\n", self.policy),
                heartbeat_interval,
                holds_first_reply: false,
                watched_after_kill: Some(watched_after_kill),
            }),
            function: FunctionPlan::default(),
            host_parameters: vec![
                ("tcp_sack", u8::from(self.setting.sack).to_string()),
                ("tcp_congestion_control", self.setting.congestion_control.clone()),
            ],
        };
        stage.run(true)
    }
}

/// What the runs of one policy had.
#[derive(Default)]
struct Gathered {
    stalls_ms: StallsByKind,
    resent_packets: u64,
    rejected_runs: u32,
    broken: usize,
}

impl Gathered {
    /// Makes a run, and again if the machine was too busy.
    fn run(&mut self, trial: &Trial<'_>) -> Result<(), DemoError> {
        let outage_ms = trial.setting.outage.as_secs_f64() * 1e3;
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
            self.stalls_ms.extend(&edges.stalls_ms);
            self.resent_packets += edges.resent_packets;
            return Ok(());
        }
        Ok(())
    }

    fn rows(self, setting: &Setting, policy: &str) -> Vec<Row> {
        let Self { stalls_ms, rejected_runs, broken, .. } = self;
        let kinds = [
            ("syn", stalls_ms.syn, stalls_ms.syn_completion),
            ("short", stalls_ms.short, stalls_ms.short_completion),
            ("bulk_up", stalls_ms.bulk_up, Vec::new()),
            ("bulk_down", stalls_ms.bulk_down, Vec::new()),
        ];
        let row = |(kind, stalls_ms, completions_ms): (&'static str, Vec<f64>, Vec<f64>)| Row {
            outage_s: setting.outage.as_secs_f64(),
            kind,
            rtt_ms: setting.rtt_ms,
            sack: setting.sack,
            congestion_control: setting.congestion_control.clone(),
            policy: policy.to_owned(),
            connections: stalls_ms.len(),
            stall_ms: report::Quantiles::of(stalls_ms),
            completion_ms: report::Quantiles::of(completions_ms),
            resent_packets: self.resent_packets,
            broken,
            rejected_runs,
        };
        kinds.into_iter().map(row).collect()
    }
}
