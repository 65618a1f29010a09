//! `mainstay bench cluster`: small requests through many nodes, before nodes are killed and after it \[TRIPOD, sections VI-C to VI-F\].
//!
//! ```text
//!   mainstay       each connection has backups: a node that takes over has its state
//!   baseline       the same gateways without replication
//!   remote store   each packet waits for a round trip to a store on the switch between the nodes
//! ```
//!
//! Each side has a network of its own in each round. All processes share this machine's processors, and one request is made at a time.

mod load;
mod remote_store;
mod report;
mod resp;
pub mod store_gateway;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use packet_io::limits;
use simulator::many_nodes::{DistributionKind, ManyNodesConfig, run_many_nodes};

use self::load::{Echo, Latencies, Load};
use self::remote_store::RemoteStore;
use self::report::{Figures, Report, SIDES, Shares, Side};
use super::BenchError;
use super::rounds;
use crate::args::BenchClusterArgs;
use crate::testbed;
use crate::testbed::cluster::{BackupsPlan, ClusterError};
use crate::testbed::many_nodes::{ManyNodes, ManyNodesPlan, StateService};
use crate::testbed::topology::SERVER_PORTS;
use crate::testbed::watch::Watch;
use crate::testbed::ways;
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
            let Trial { figures, shares } = trial(args, side, program, &watch)?;
            report.push(side, figures, shares);
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

fn trial(args: &BenchClusterArgs, side: Side, store: Option<&str>, watch: &Watch) -> Result<Trial, BenchError> {
    let mut repeated = 0;
    loop {
        match trial_once(args, side, store, watch) {
            Err(BenchError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
            result => return result,
        }
    }
}

fn trial_once(args: &BenchClusterArgs, side: Side, store: Option<&str>, watch: &Watch) -> Result<Trial, BenchError> {
    let plan = ManyNodesPlan {
        nodes: args.nodes.into(),
        is_replicated: side == Side::Mainstay,
        accepts: side != Side::RemoteStore,
        backups: Some(BackupsPlan { count: args.kill.into(), broadcast: true }),
        connections: args.connections.into(),
        workers: 1,
        may_join: 0,
        has_etcd: false,
    };
    let mut many = ManyNodes::start(plan, watch)?;
    let mut remote = store.map(|program| RemoteStore::start(program, &many, watch)).transpose()?;
    let servers: Vec<SocketAddr> =
        ways::server_addresses(ways::chosen(false), SERVER_PORTS).into_iter().filter(SocketAddr::is_ipv4).collect();
    let _echo = Echo::start(&many.topology.server, &servers)?;
    let lasting = Duration::from_secs_f64(args.seconds);
    let began = many.passed();
    let mut load = Load::open(&many.topology.client, &servers, args.connections)?;
    let before = load.requests(lasting)?;
    let passed = many.passed().since(began);

    let killed: Vec<usize> = (0..args.kill.into()).collect();
    if let Some(remote) = &mut remote {
        killed.iter().for_each(|node| remote.kill(*node));
    }
    many.kill(&killed, Duration::ZERO, watch)?;
    let broken = load.give_up_broken();
    let after = load.requests(lasting)?;
    let shares = (side == Side::Mainstay).then(|| Shares {
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
    };
    Ok(Trial { figures, shares })
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
