//! `mainstay bench recovery`: how long TCP stalls after edges have switched over, by outage, round trip and policy.
//!
//! ```text
//!   client ── edge ──┬── node a ✗ ──┬── edge ── server      outage: from the kill until the edges have found it, which the
//!                    └── node b ────┘                       detection time decides
//! ```
//! Without edges, the nodes recover by themselves (`[replication.segments]`), and all connections pass the node that is killed.
//!
//! Each run is the network of `mainstay demo --edges` with transfers in both directions and connections that are being opened. Half of
//! them pass the node that is killed.

mod report;

use std::time::Duration;

use self::report::{Report, Row};
use super::DemoError;
use super::report::{RunReport, Settings};
use super::run::{EdgesPlan, NodesPlan, RunError, Stage};
use crate::args::BenchRecoveryArgs;
use crate::testbed::cluster::{ClusterError, Shape};
use crate::testbed::topology::{SERVER_PORTS, Topology};
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

/// Policies of nodes without edges.
const NODE_POLICIES: [&str; 3] = ["off", "syn-only", "always"];

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The network cannot be built, or the result cannot be printed.
pub fn run(args: &BenchRecoveryArgs) -> Result<(), DemoError> {
    if let Some(other) =
        args.policies.iter().find(|policy| args.without_edges && !NODE_POLICIES.contains(&policy.as_str()))
    {
        let known = NODE_POLICIES.join(", ");
        return Err(DemoError::Missing(format!("nodes have no policy {other}: choose among {known}")));
    }
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
                        without_edges: args.without_edges,
                    })?;
                }
            }
            for (policy, gathered) in of_policies {
                rows.extend(gathered.rows(*outage, *rtt_ms, policy, args.without_edges));
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
    without_edges: bool,
}

impl Trial<'_> {
    fn make(&self) -> Result<RunReport, RunError> {
        let watched_after_kill = self.outage * 2 + WATCHED_MIN;
        let heartbeat_interval = self.outage / MULTIPLIER;
        let node_policy = NODE_POLICIES.into_iter().find(|known| *known == self.policy).unwrap_or("off");
        let nodes = NodesPlan { policy: node_policy, heartbeat_interval, watched_after_kill };
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
            shape: if self.without_edges { Shape::OneActive } else { Shape::BothActive },
            servers: if self.without_edges {
                Topology::server_addresses()
            } else {
                ways::server_addresses(ways, ports)
            },
            edges: (!self.without_edges).then(|| EdgesPlan {
                sections: format!("[recovery]\npolicy = \"{}\"\n", self.policy),
                heartbeat_interval,
                holds_first_reply: false,
                watched_after_kill: Some(watched_after_kill),
            }),
            nodes: self.without_edges.then_some(nodes),
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
    syn_forwarded_ms: Vec<f64>,
    link_bytes_per_s: Vec<f64>,
    resent_packets: u64,
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
            self.syn_forwarded_ms.extend(&edges.stalls_ms.syn_forwarded);
            self.link_bytes_per_s.extend(edges.link_bytes_per_s);
            self.resent_packets += edges.resent_packets;
            return Ok(());
        }
        Ok(())
    }

    fn rows(self, outage: Duration, rtt_ms: f64, policy: &str, without_edges: bool) -> Vec<Row> {
        let Self { bulk_down_ms, bulk_up_ms, syn_ms, syn_forwarded_ms, rejected_runs, broken, .. } = self;
        let link_bytes_per_s = report::Quantiles::of(self.link_bytes_per_s).median;
        let mut kinds = vec![("bulk_down", bulk_down_ms), ("bulk_up", bulk_up_ms), ("syn", syn_ms)];
        if without_edges {
            kinds.push(("syn_forwarded", syn_forwarded_ms));
        }
        let row = |(kind, stalls_ms): (&'static str, Vec<f64>)| Row {
            outage_s: outage.as_secs_f64(),
            kind,
            rtt_ms,
            recovered_by: if without_edges { "node" } else { "edge" },
            policy: policy.to_owned(),
            connections: stalls_ms.len(),
            stall_ms: report::Quantiles::of(stalls_ms),
            link_bytes_per_s,
            resent_packets: self.resent_packets,
            broken,
            rejected_runs,
        };
        kinds.into_iter().map(row).collect()
    }
}
