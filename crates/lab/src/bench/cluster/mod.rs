//! `mainstay bench cluster`: small requests and transfers through many nodes, before nodes are killed and after it \[TRIPOD, section VI\].
//!
//! ```text
//!   mainstay       each connection has backups: a node that takes over has its state
//!   baseline       the same gateways without replication
//!   remote store   each packet waits for a round trip to a store on the switch between the nodes
//! ```
//!
//! Each side has a network of its own in each round, and another for transfers. All processes share this machine's processors, and one
//! request is made at a time.

mod load;
mod network;
mod remote_store;
mod report;
mod resp;
pub mod store_gateway;
mod throughput;

use std::time::{Duration, Instant};

use packet_io::limits;
use simulator::many_nodes::{DistributionKind, ManyNodesConfig, run_many_nodes};

use self::load::{Echo, Latencies, Load};
use self::network::{Network, SIDES, Side, server_addresses};
use self::report::{Figures, Report, Shares};
use self::throughput::Throughput;
use super::BenchError;
use super::rounds;
use crate::args::BenchClusterArgs;
use crate::testbed;
use crate::testbed::cluster::ClusterError;
use crate::testbed::many_nodes::StateService;
use crate::testbed::watch::Watch;
use console::Progress;

/// A round in which a node was taken for dead before the kill is repeated so often.
const REPETITIONS_MAX: usize = 3;
/// Descriptors that are needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 512;
/// Connections of the simulation that random backups are taken from.
const SIMULATED_CONNECTIONS: u32 = 20_000;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, a process does not run as it should, or the result cannot be printed.
pub fn run(args: &BenchClusterArgs) -> Result<(), BenchError> {
    if args.kill >= args.nodes {
        return Err(BenchError::NoNodeLeft { kill: args.kill, nodes: args.nodes });
    }
    let report = measure(args)?;
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

fn measure(args: &BenchClusterArgs) -> Result<Report, BenchError> {
    testbed::gain_namespaces()?;
    limits::raise_open_files(SPARE_DESCRIPTORS + 2 * u64::from(args.connections))?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    let store = remote_store::program();
    let mut report = Report::new(args, random_share(args)?, store.clone().err());
    rounds::repeat(&progress, "rounds", args.rounds, |round| {
        let mut sides = SIDES;
        // No side is always the first.
        sides.rotate_left(round as usize % SIDES.len());
        for side in sides {
            let program = match (side, &store) {
                (Side::RemoteStore, Err(_)) => continue,
                (Side::RemoteStore, Ok(program)) => Some(*program),
                _ => None,
            };
            let Trial { figures, shares } = repeated(|| trial(args, side, program, &watch))?;
            report.push(side, figures, shares);
            report.push_throughput(side, repeated(|| throughput_trial(args, side, program, &watch))?);
        }
        Ok::<_, BenchError>(())
    })?;
    Ok(report.finished())
}

/// What a side came to in a round.
struct Trial {
    figures: Figures,
    /// Of control bytes and pulls, if connections are replicated.
    shares: Option<Shares>,
}

/// Runs again where a node was taken for dead before the kill, which on a busy machine it may be.
fn repeated<T>(mut trial: impl FnMut() -> Result<T, BenchError>) -> Result<T, BenchError> {
    let mut repeated = 0;
    loop {
        match trial() {
            Err(BenchError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
            result => return result,
        }
    }
}

fn trial(args: &BenchClusterArgs, side: Side, store: Option<&str>, watch: &Watch) -> Result<Trial, BenchError> {
    let mut network = Network::start(args, (side, store), (args.connections.into(), 0), watch)?;
    let servers = server_addresses();
    let _echo = Echo::start(&network.many.topology.server, &servers)?;
    let lasting = Duration::from_secs_f64(args.seconds);
    let began = network.many.passed();
    let mut load = Load::open(&network.many.topology.client, &servers, args.connections)?;
    let read_before = network.store_reads()?;
    let before = load.requests(lasting)?;
    let read = network.store_reads()?.zip(read_before).map(|(after, before)| after - before);
    let passed = network.many.passed().since(began);

    network.kill(args.kill, watch)?;
    let broken = load.give_up_broken();
    let after = load.requests(lasting)?;
    let many = &network.many;
    let shares = network.is_replicated.then(|| Shares {
        control: passed.control_share(),
        idle_bytes_per_s: many.idle_control_bytes_per_s,
        pulls: StateService::of(&many.cluster).pulls as f64 / many.moved().max(1) as f64,
    });
    let quantiles = |latencies: &Latencies| [0.5, 0.99].map(|share| latencies.quantile(share));
    let figures = Figures {
        before: quantiles(&before),
        after: quantiles(&after),
        broken: broken as f64,
        moved: many.moved() as f64,
        reads_per_request: read.map(|read| read as f64 / before.count() as f64),
    };
    Ok(Trial { figures, shares })
}

fn throughput_trial(
    args: &BenchClusterArgs,
    side: Side,
    store: Option<&str>,
    watch: &Watch,
) -> Result<Throughput, BenchError> {
    let joining = throughput::joining(side, args.nodes.into());
    let mut network = Network::start(args, (side, store), (throughput::CONNECTIONS, joining), watch)?;
    throughput::trial(args, &mut network, joining, watch)
}

/// Of the connections that such a failure moves, the share whose new node has no replica if replicas are on random nodes. Production code
/// has no such setting, so the same cluster is simulated.
fn random_share(args: &BenchClusterArgs) -> Result<f64, BenchError> {
    let config = ManyNodesConfig {
        // The simulation adds its last node after the failure.
        nodes: args.nodes + 1,
        failures: args.kill,
        backups: args.kill.into(),
        connections: SIMULATED_CONNECTIONS,
        distribution: DistributionKind::Edge,
        failure_probability: 0.01,
        loss_per_mille: 0,
        seed: 1,
    };
    let began = Instant::now();
    Ok(run_many_nodes(&config, &mut || began.elapsed())?.churn.random)
}
