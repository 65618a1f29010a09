//! `mainstay bench rate-control`: many transfers through two nodes of limited capacity, one of which fails: with nothing, with local
//! recovery, and with local recovery and rate control [HALR, figures 20 to 26].
//!
//! ```text
//!   client ── edge ──┬── rate, queue, delay ── node a ✗ ──┬── edge ── server
//!                    └── rate, queue, delay ── node b ────┘
//! ```
//! After the switch-over, all transfers share the capacity of one node. What is measured begins then.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::DemoError;
use super::run::RunError;
use crate::args::BenchRateControlArgs;
use crate::emulator::Link;
use crate::emulator::channel::Settings as LinkSettings;
use crate::testbed::cluster::{Cluster, ClusterError, ClusterPlan, SPARE_CONNECTIONS, Shape, Tuning};
use crate::testbed::edges::Edges;
use crate::testbed::session::Session;
use crate::testbed::topology::{SERVER_PORTS, Topology};
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::traffic::outcome::Outcome;
use crate::testbed::watch::{Waited, Watch};
use crate::testbed::{self, ways};
use config::validated::Backend;
use console::{Progress, Table};

/// Transfers are established within this time.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
/// TCP finds its rates within this time before the failure.
const SETTLING: Duration = Duration::from_secs(4);
/// The edges switch over within this time.
const SWITCHED_OVER_WITHIN: Duration = Duration::from_secs(3);
/// Share of a node's rate that is TCP payload: 1448 of 1514 bytes.
const PAYLOAD_SHARE: f64 = 1448.0 / 1514.0;
/// What each transfer would send, in bytes a second: no transfer is limited by it.
const OFFERED_BYTES_PER_S: u64 = 50_000_000;

/// What was measured of one way.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct Figures {
    /// TCP payload that arrived, of all transfers.
    goodput_mbit_per_s: f64,
    /// Jain's index of the transfers' payload: 1 if all have the same.
    jain: f64,
    /// Packets that the survivor's queue dropped.
    queue_drops: u64,
    /// The queue's length that one arriving packet in a hundred found exceeded.
    p99_queue_packets: u64,
    /// Transfers that broke.
    broken: usize,
}

/// The result.
#[derive(Clone, PartialEq, Debug, Serialize)]
struct Report {
    program_version: String,
    connections: usize,
    /// What each node can forward, in Mbit/s, with headers.
    node_mbit_per_s: u64,
    rtt_ms: f64,
    queue_packets: usize,
    /// Seconds from the switch-over that were measured.
    seconds: f64,
    rounds: u32,
    nothing: Figures,
    recovery: Figures,
    recovery_control: Figures,
}

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The network cannot be built, transfers cannot be established, or the result cannot be printed.
pub fn run(args: &BenchRateControlArgs) -> Result<(), DemoError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    let capacity = (args.node_mbit_per_s as f64 * 1e6 * PAYLOAD_SHARE) as u64;
    let ways = [
        ("nothing", "[recovery]\npolicy = \"off\"\n".to_owned()),
        ("recovery", "[recovery]\npolicy = \"always\"\n".to_owned()),
        (
            "recovery and control",
            format!("[recovery]\npolicy = \"always\"\n\n[rate_control]\ncapacity_bits_per_s = {capacity}\n"),
        ),
    ];
    let mut figures: [Vec<Figures>; 3] = Default::default();
    for round in 0..args.rounds {
        for ((name, sections), figures) in ways.iter().zip(&mut figures) {
            progress.show(&format!("{name}: run {}", round + 1));
            figures.push(Trial { args, watch: &watch, sections }.make()?);
        }
    }
    let [nothing, recovery, recovery_control] = figures.map(|figures| median(&figures));
    let report = Report {
        program_version: env!("CARGO_PKG_VERSION").into(),
        connections: args.connections,
        node_mbit_per_s: args.node_mbit_per_s,
        rtt_ms: args.rtt_ms,
        queue_packets: args.queue_packets,
        seconds: args.seconds,
        rounds: args.rounds,
        nothing,
        recovery,
        recovery_control,
    };
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// The median of each figure; of broken transfers all.
fn median(figures: &[Figures]) -> Figures {
    let of = |of: fn(&Figures) -> f64| {
        let mut values: Vec<f64> = figures.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or_default()
    };
    Figures {
        goodput_mbit_per_s: of(|figures| figures.goodput_mbit_per_s),
        jain: of(|figures| figures.jain),
        queue_drops: of(|figures| figures.queue_drops as f64) as u64,
        p99_queue_packets: of(|figures| figures.p99_queue_packets as f64) as u64,
        broken: figures.iter().map(|figures| figures.broken).sum(),
    }
}

/// One run that is to be made.
struct Trial<'a> {
    args: &'a BenchRateControlArgs,
    watch: &'a Watch,
    sections: &'a str,
}

impl Trial<'_> {
    fn make(&self) -> Result<Figures, RunError> {
        let args = self.args;
        let topology = Topology::build_with_edges()?;
        ways::build(&topology)?;
        let [_link_of_killed, mut link] = self.limit_nodes(&topology)?;
        let topology = Arc::new(topology);
        let mut cluster = Cluster::start_as(Shape::BothActive, &topology, cluster_plan(args.connections))?;
        cluster.wait_until_ready(self.watch)?;
        let edges = Edges::start(&topology, self.sections)?;
        edges.wait_until_ready(self.watch)?;
        let session = Session::start(&topology, traffic_plan(args.connections))?;
        self.await_established(&session)?;
        self.watch.pass_until(Instant::now() + SETTLING)?;
        cluster.kill_active_silently()?;
        self.await_switch_over(&edges)?;
        link.reset()?;
        session.mark()?;
        let began = Instant::now();
        self.watch.pass_until(began + Duration::from_secs_f64(args.seconds))?;
        let (direction, seconds) = (link.report()?.forward, began.elapsed().as_secs_f64());
        let outcomes = session.finish()?.outcomes;
        let bytes: Vec<f64> = outcomes.iter().map(|outcome| outcome.bytes_since_mark() as f64).collect();
        Ok(Figures {
            goodput_mbit_per_s: bytes.iter().sum::<f64>() * 8.0 / 1e6 / seconds,
            jain: jain(&bytes),
            queue_drops: direction.counters.queue_full,
            p99_queue_packets: direction.queue_p99_packets,
            broken: outcomes.iter().filter(|outcome: &&Outcome| outcome.broken.is_some()).count(),
        })
    }

    /// Puts an emulated link between the inside edge and each node.
    fn limit_nodes(&self, topology: &Topology) -> Result<[Link; 2], RunError> {
        let args = self.args;
        let settings = LinkSettings {
            delay: Duration::from_secs_f64(args.rtt_ms / 2e3),
            rate_bits_per_s: Some(args.node_mbit_per_s * 1_000_000),
            queue_packets: args.queue_packets,
            ..LinkSettings::default()
        };
        Ok(topology.limit_nodes(settings)?)
    }

    fn await_established(&self, session: &Session) -> Result<(), RunError> {
        let planned = self.args.connections;
        let waited = self.watch.until(Instant::now() + ESTABLISHED_WITHIN, || -> Result<bool, RunError> {
            Ok(session.progress().established >= planned)
        })?;
        match waited {
            Waited::Met => Ok(()),
            Waited::TooLate => Err(RunError::NotEstablished {
                established: session.progress().established,
                planned,
                within_s: ESTABLISHED_WITHIN.as_secs(),
            }),
        }
    }

    /// Until neither edge sends flows to the killed node.
    fn await_switch_over(&self, edges: &Edges) -> Result<(), RunError> {
        let waited = self.watch.until(Instant::now() + SWITCHED_OVER_WITHIN, || -> Result<bool, RunError> {
            let forwards_to_killed = edges.statuses().filter_map(|status| Some(status.edge?.nodes.first()?.forwards));
            Ok(!forwards_to_killed.fold(false, |any, forwards| any || forwards))
        })?;
        match waited {
            Waited::Met => Ok(()),
            Waited::TooLate => Err(ClusterError::NotReady {
                reason: "the edges did not find that the node is dead".into(),
                logs: String::new(),
            }
            .into()),
        }
    }
}

fn cluster_plan(connections: usize) -> ClusterPlan {
    ClusterPlan {
        has_standby: true,
        is_replicated: true,
        connections_max: connections + SPARE_CONNECTIONS,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning { has_edges: true, holds_first_reply: false, ..Tuning::default() },
    }
}

fn traffic_plan(connections: usize) -> Plan {
    let ways = ways::chosen(false);
    let ports = SERVER_PORTS.into_iter().take(SERVER_PORTS.len() / ways.len());
    Plan {
        servers: ways::server_addresses(ways, ports),
        connections: vec![(Kind::Upload, connections)],
        bulk_bytes_per_s: OFFERED_BYTES_PER_S,
        ramp_per_s: 1,
    }
}

/// Jain's index: the square of the sum over the sum of the squares and the number.
fn jain(shares: &[f64]) -> f64 {
    let (sum, squares) = (shares.iter().sum::<f64>(), shares.iter().map(|share| share * share).sum::<f64>());
    if squares == 0.0 { 0.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

impl Report {
    fn describe(&self) -> String {
        let mut table = Table::of("AFTER THE FAILOVER|>NOTHING|>RECOVERY|>RECOVERY AND CONTROL");
        let all = [&self.nothing, &self.recovery, &self.recovery_control];
        let rows = [
            ("goodput", all.map(|figures| format!("{:.1} Mbit/s", figures.goodput_mbit_per_s))),
            ("Jain's index", all.map(|figures| format!("{:.3}", figures.jain))),
            ("dropped by the queue", all.map(|figures| figures.queue_drops.to_string())),
            ("queue, 99 %", all.map(|figures| format!("{} packets", figures.p99_queue_packets))),
            ("broken transfers", all.map(|figures| figures.broken.to_string())),
        ];
        for (what, [nothing, recovery, control]) in rows {
            table.row([what.to_owned(), nothing, recovery, control]);
        }
        format!(
            "{} transfers; each node forwards {} Mbit/s, with a queue of {} packets; round trip {} ms; {} s.\n\n{}",
            self.connections,
            self.node_mbit_per_s,
            self.queue_packets,
            self.rtt_ms,
            self.seconds,
            table.render()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equal_shares_and_its_inverse_number_for_one_that_has_all() {
        assert!((jain(&[3.0; 7]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }
}
