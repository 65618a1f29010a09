//! `mainstay bench rate-control`: many transfers through two nodes of limited capacity, one of which fails: with nothing, with local
//! recovery, and with local recovery and rate control [HALR, figures 20 to 26].
//!
//! ```text
//!   client ── edge ──┬── rate, queue, delay ── node a ✗ ──┬── edge ── server
//!                    └── rate, queue, delay ── node b ────┘
//! ```
//! After the switch-over, all transfers share the capacity of one node. What is measured begins then. The course of goodput, fairness
//! and queue is sampled from some time before the failure on.

mod page;

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::DemoError;
use super::run::RunError;
use crate::args::BenchRateControlArgs;
use crate::emulator::Link;
use crate::emulator::channel::Settings as LinkSettings;
use crate::testbed::cluster::{Cluster, ClusterPlan, SPARE_CONNECTIONS, Shape, Tuning};
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
use packet_io::sysctl;

/// Transfers are established within this time.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(10);
/// TCP finds its rates within this time before the failure.
const SETTLING: Duration = Duration::from_secs(4);
/// Samples begin so long before the failure.
const SAMPLED_BEFORE: Duration = Duration::from_millis(500);
/// Transfers and the queue are sampled so often.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(100);
/// Samples over which fairness is computed: in fewer, a transfer has a few segments only.
const FAIRNESS_SAMPLES: usize = 5;
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

/// What one sample shows, of the time since the one before; of fairness since [`FAIRNESS_SAMPLES`] before.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
struct Moment {
    /// Seconds since the switch-over.
    at_s: f64,
    goodput_mbit_per_s: f64,
    jain: f64,
    /// Packets in the survivor's queue.
    queue_packets: u64,
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
    /// The hosts' congestion control.
    congestion_control: String,
    /// Seconds from the switch-over that were measured.
    seconds: f64,
    rounds: u32,
    nothing: Figures,
    recovery: Figures,
    recovery_control: Figures,
    /// The course of the first run of each way, in the order of the figures above.
    courses: [Vec<Moment>; 3],
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
    let mut courses: [Vec<Moment>; 3] = Default::default();
    for round in 0..args.rounds {
        for ((name, sections), (figures, course)) in ways.iter().zip(figures.iter_mut().zip(&mut courses)) {
            progress.show(&format!("{name}: run {}", round + 1));
            let (of_run, course_of_run) = Trial { args, watch: &watch, sections }.make()?;
            figures.push(of_run);
            if round == 0 {
                *course = course_of_run;
            }
        }
    }
    let [nothing, recovery, recovery_control] = figures.map(|figures| median(&figures));
    let report = Report {
        program_version: env!("CARGO_PKG_VERSION").into(),
        connections: args.connections,
        node_mbit_per_s: args.node_mbit_per_s,
        rtt_ms: args.rtt_ms,
        queue_packets: args.queue_packets,
        congestion_control: args.congestion_control(),
        seconds: args.seconds,
        rounds: args.rounds,
        nothing,
        recovery,
        recovery_control,
        courses,
    };
    if let Some(path) = &args.output {
        fs::write(path, page::page(&report).html()).map_err(|source| DemoError::Page { path: path.clone(), source })?;
    }
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
    fn make(&self) -> Result<(Figures, Vec<Moment>), RunError> {
        let args = self.args;
        let topology = Topology::build_with_edges()?;
        ways::build(&topology)?;
        for host in [&topology.client, &topology.server] {
            host.run(|| sysctl::write("net/ipv4/tcp_congestion_control", &args.congestion_control()))??;
        }
        let [_link_of_killed, mut link] = self.limit_nodes(&topology)?;
        let topology = Arc::new(topology);
        let mut cluster = Cluster::start_as(Shape::AllActive, &topology, cluster_plan(args.connections))?;
        cluster.wait_until_ready(self.watch)?;
        let edges = Edges::start(&topology, &(self.sections.to_owned() + &cluster.edge_security()))?;
        edges.wait_until_ready(self.watch)?;
        let session = Session::start(&topology, traffic_plan(args.connections))?;
        self.await_established(&session)?;
        self.watch.pass_until(Instant::now() + SETTLING)?;
        let mut queues = Vec::new();
        self.sample(&session, &mut link, &mut queues, SAMPLED_BEFORE)?;
        cluster.kill_active_silently()?;
        edges.wait_until_stopped(self.watch, &[0])?;
        link.reset()?;
        let switched_over = queues.len();
        self.sample(&session, &mut link, &mut queues, Duration::from_secs_f64(args.seconds))?;
        let direction = link.report()?.forward;
        let outcomes = session.finish()?.outcomes;
        let course = Course { outcomes: &outcomes, queues: &queues, switched_over };
        let whole = [switched_over, queues.len() - 1];
        let figures = Figures {
            goodput_mbit_per_s: course.goodput_mbit_per_s(whole),
            jain: course.jain(whole),
            queue_drops: direction.counters.queue_full,
            p99_queue_packets: direction.queue_p99_packets,
            broken: outcomes.iter().filter(|outcome: &&Outcome| outcome.broken.is_some()).count(),
        };
        Ok((figures, course.moments()))
    }

    /// Samples transfers and the queue for so long: at once, and then at the ends of intervals.
    fn sample(
        &self,
        session: &Session,
        link: &mut Link,
        queues: &mut Vec<u64>,
        lasting: Duration,
    ) -> Result<(), RunError> {
        let began = Instant::now();
        for number in 0.. {
            let at = SAMPLE_INTERVAL * number;
            if at > lasting {
                break;
            }
            self.watch.pass_until(began + at)?;
            session.mark()?;
            queues.push(link.report()?.forward.queue_packets);
        }
        Ok(())
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
}

/// What was sampled: the marks of the transfers, and the queue at each.
struct Course<'a> {
    outcomes: &'a [Outcome],
    queues: &'a [u64],
    /// The first mark after the switch-over.
    switched_over: usize,
}

impl Course<'_> {
    fn bytes(&self, marks: [usize; 2]) -> Vec<f64> {
        self.outcomes.iter().map(|outcome| outcome.bytes_between(marks) as f64).collect()
    }

    fn jain(&self, marks: [usize; 2]) -> f64 {
        jain(&self.bytes(marks))
    }

    /// Seconds from the switch-over to a mark.
    fn at_s(&self, mark: usize) -> f64 {
        let at = |mark: usize| self.outcomes.first().and_then(|outcome| Some(outcome.marks.get(mark)?.0));
        let (Some(at), Some(zero)) = (at(mark), at(self.switched_over)) else { return 0.0 };
        at.saturating_duration_since(zero).as_secs_f64() - zero.saturating_duration_since(at).as_secs_f64()
    }

    fn goodput_mbit_per_s(&self, marks: [usize; 2]) -> f64 {
        let seconds = self.at_s(marks[1]) - self.at_s(marks[0]);
        self.bytes(marks).iter().sum::<f64>() * 8.0 / 1e6 / seconds.max(f64::EPSILON)
    }

    fn moments(&self) -> Vec<Moment> {
        let moment = |mark: usize| Moment {
            at_s: self.at_s(mark),
            goodput_mbit_per_s: self.goodput_mbit_per_s([mark - 1, mark]),
            jain: self.jain([mark.saturating_sub(FAIRNESS_SAMPLES), mark]),
            queue_packets: self.queues[mark],
        };
        (1..self.queues.len()).map(moment).collect()
    }
}

fn cluster_plan(connections: usize) -> ClusterPlan {
    ClusterPlan {
        nodes: 2,
        is_replicated: true,
        connections_max: connections + SPARE_CONNECTIONS,
        workers: 1,
        backend: Backend::default(),
        tuning: Tuning {
            has_edges: true,
            holds_first_reply: false,
            // The node is killed silently, and its kernel would forward for a moment longer.
            fast_path_connections_max: 0,
            ..Tuning::default()
        },
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
            "{} transfers ({}); each node forwards {} Mbit/s, with a queue of {} packets; round trip {} ms; {} s.\n\n{}",
            self.connections,
            self.congestion_control,
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
    fn a_course_counts_from_the_switch_over() {
        let mut outcome = Outcome::new(Kind::Upload, false);
        let began = Instant::now();
        for (number, bytes) in [0, 1_000_000, 1_000_000, 3_000_000].into_iter().enumerate() {
            outcome.marks.push((began + SAMPLE_INTERVAL * number as u32, bytes));
        }
        let outcomes = [outcome.clone(), outcome];
        let course = Course { outcomes: &outcomes, queues: &[9, 8, 7, 6], switched_over: 2 };
        let moments = course.moments();
        let figures = |moment: &Moment| {
            let Moment { at_s, goodput_mbit_per_s, queue_packets, .. } = *moment;
            ((at_s * 1e3).round(), goodput_mbit_per_s.round(), queue_packets)
        };
        assert_eq!(
            moments.iter().map(figures).collect::<Vec<_>>(),
            [(-100.0, 160.0, 8), (0.0, 0.0, 7), (100.0, 320.0, 6)]
        );
        assert!((course.jain([2, 3]) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn jains_index_is_one_for_equal_shares_and_its_inverse_number_for_one_that_has_all() {
        assert!((jain(&[3.0; 7]) - 1.0).abs() < 1e-12);
        assert!((jain(&[5.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-12);
        assert_eq!(jain(&[0.0, 0.0]), 0.0);
    }
}
