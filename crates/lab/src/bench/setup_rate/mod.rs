//! `mainstay bench setup-rate`: short TCP connections a second through a pair of nodes, with replication and without.
//!
//! A connection is a handshake, one request, one answer and an orderly end, begun by the client. The client keeps a
//! number of them open at a time, so that the time one of them takes does not bound how many are made. The two pairs
//! stand side by side in networks of their own and are measured in turns; either rests while the other is measured.
//!
//! All ends of the network and both nodes share this machine's processors: what the standby spends on replication
//! takes time from the active node and from the traffic, which on machines of their own it does not.
//!
//! With `--multi-primary` both nodes carry connections, half each, and back each other up. With `--representation` (in the module
//! `represented`) pairs are compared by what they replicate.
//!
//! A third network has the kernel in the active node's place, with stateful rules and masquerading of nftables.

pub(super) mod client;
mod figures;
mod report;
mod represented;
pub(super) mod server;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packet_io::{IoError, limits, sysctl};
use serde::Serialize;

use self::client::{Client, Tally};
use self::figures::Figures;
use self::report::{Report, Sides};
use self::server::Server;
use super::BenchError;
use super::bulk::KernelRules;
use super::rounds;
use crate::args::BenchSetupRateArgs;
use crate::testbed;
use crate::testbed::cluster::{Cluster, ClusterPlan, Shape, Tuning};
use crate::testbed::topology::{SERVER, Topology};
use crate::testbed::watch::Watch;
use crate::testbed::ways;
use config::validated::{Backend, Representation};
use console::Progress;

/// Ports that the server listens on. Connections that are over keep their addresses and ports for a while in client
/// and nodes alike; several server ports multiply those that are left.
const SERVER_PORTS: std::ops::Range<u16> = 7100..7116;
/// Connections that a node has room for, most of them over and waiting to be forgotten.
const CONNECTIONS_MAX: usize = 1 << 20;
/// Time that new connections are given to find their pace before they are counted.
const WARM_UP: Duration = Duration::from_millis(200);
/// Descriptors that are needed beside those of the connections.
const SPARE_DESCRIPTORS: u64 = 512;

/// Measures and prints. To be called while the process has but one thread.
///
/// # Errors
/// The networks cannot be built, connections fail, or the result cannot be printed.
pub fn run(args: &BenchSetupRateArgs) -> Result<(), BenchError> {
    testbed::gain_namespaces()?;
    let (watch, progress) = (Watch::new()?, Progress::new());
    if let Some(representation) = args.representation {
        raise_limits(args)?;
        let report = represented::measure(args, representation, &watch, &progress)?;
        return Ok(console::print_as(args.json, &report, || report.describe())?);
    }
    let [on, off, kernel] = compare(args, &watch, &progress, true)?;
    let report = Report::new(args, [&on, &off, &kernel]);
    Ok(console::print_as(args.json, &report, || report.describe())?)
}

/// Each connection has a socket at either end, both in this process.
fn raise_limits(args: &BenchSetupRateArgs) -> Result<(), BenchError> {
    limits::raise_open_files(SPARE_DESCRIPTORS + 4 * u64::from(args.in_flight))?;
    Ok(())
}

/// Sessions a second, with replication and without.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Rates {
    /// With.
    pub replication_on: f64,
    /// Without.
    pub replication_off: f64,
}

/// The median ratio of sessions a second with replication to those without, and the medians of both. The process must be
/// allowed to make networks.
///
/// # Errors
/// The networks cannot be built, or connections fail.
pub fn ratio(args: &BenchSetupRateArgs, watch: &Watch, progress: &Progress) -> Result<(f64, Rates), BenchError> {
    let [on, off, kernel] = compare(args, watch, progress, false)?;
    let report = Report::new(args, [&on, &off, &kernel]);
    let Sides { replication_on, replication_off } = report.per_s.nodes;
    Ok((report.ratio, Rates { replication_on, replication_off }))
}

/// The figures of a pair with replication, of one without, and, if wanted, of the kernel in its place.
fn compare(
    args: &BenchSetupRateArgs,
    watch: &Watch,
    progress: &Progress,
    has_kernel: bool,
) -> Result<[Figures; 3], BenchError> {
    raise_limits(args)?;
    progress.show("building the networks");
    let shape = if args.multi_primary { Shape::AllActive } else { Shape::OneActive };
    let mut replicated = Pair::start(watch, shape, Representation::default())?;
    let mut unreplicated = Pair::start(watch, shape, Representation::None)?;
    let mut router = has_kernel.then(Pair::of_kernel).transpose()?;
    let (mut on, mut off, mut kernel) = (Figures::default(), Figures::default(), Figures::default());
    rounds::repeat(progress, "connections", args.rounds, |round| {
        for (pair, figures) in rounds::turns(round, [(&mut replicated, &mut on), (&mut unreplicated, &mut off)]) {
            pair.measure(watch, args, figures)?;
        }
        router.as_mut().map_or(Ok(()), |router| router.measure(watch, args, &mut kernel))
    })?;
    Ok([on, off, kernel])
}

/// A pair of nodes between a client and a server, or the kernel in their place.
struct Pair {
    topology: Arc<Topology>,
    cluster: Option<Cluster>,
    servers: Vec<SocketAddr>,
    /// Kept for as long as the pair is.
    _server: Server,
}

/// The meters' readings at a moment.
struct Reading {
    at: Instant,
    tally: Tally,
    cpu_times: Vec<Duration>,
    /// Bytes that the nodes have received from each other.
    link_bytes: u64,
}

impl Pair {
    fn start(watch: &Watch, shape: Shape, representation: Representation) -> Result<Self, BenchError> {
        let topology = Arc::new(Topology::build()?);
        topology.client.run(allow_reuse_of_ports)??;
        let servers = match shape {
            Shape::OneActive => server_addresses(),
            Shape::AllActive => {
                ways::build(&topology)?;
                let addresses = ways::server_addresses(ways::chosen(false), SERVER_PORTS);
                addresses.into_iter().filter(SocketAddr::is_ipv4).collect()
            }
        };
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: representation != Representation::None,
            connections_max: CONNECTIONS_MAX,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning { representation, ..Tuning::default() },
        };
        let mut cluster = Cluster::start_as(shape, &topology, plan)?;
        cluster.wait_until_ready(watch)?;
        let server = Server::start(&topology.server, &servers)?;
        Ok(Self { topology, cluster: Some(cluster), servers, _server: server })
    }

    fn of_kernel() -> Result<Self, BenchError> {
        let topology = Arc::new(Topology::build()?);
        topology.client.run(allow_reuse_of_ports)??;
        if let KernelRules::None { reason } = KernelRules::install(&topology.nodes[0])? {
            return Err(BenchError::NoRules(reason));
        }
        let servers = server_addresses();
        let server = Server::start(&topology.server, &servers)?;
        Ok(Self { topology, cluster: None, servers, _server: server })
    }

    /// Makes connections for the time asked for and adds a figure of each kind.
    fn measure(&mut self, watch: &Watch, args: &BenchSetupRateArgs, into: &mut Figures) -> Result<(), BenchError> {
        let client = Client::start(&self.topology, self.servers.clone(), args.in_flight)?;
        watch.pass_until(Instant::now() + WARM_UP)?;
        let before = self.read(&client)?;
        watch.pass_until(before.at + Duration::from_secs_f64(args.seconds))?;
        let after = self.read(&client)?;
        client.finish()?;
        self.cluster.as_mut().map_or(Ok(()), Cluster::check_roles)?;

        let connections = after.tally.completed - before.tally.completed;
        if connections == 0 {
            return Err(BenchError::NothingPassed);
        }
        into.connections_per_s.push(connections as f64 / (after.at - before.at).as_secs_f64());
        into.bytes.push((after.link_bytes - before.link_bytes) as f64 / connections as f64);
        let nodes = [&mut into.active_cpu_us, &mut into.standby_cpu_us].into_iter();
        for (rounds, (after, before)) in nodes.zip(after.cpu_times.iter().zip(&before.cpu_times)) {
            rounds.push(after.saturating_sub(*before).as_secs_f64() * 1e6 / connections as f64);
        }
        Ok(())
    }

    fn read(&self, client: &Client) -> Result<Reading, BenchError> {
        // What enters the nodes' namespaces comes first: it takes time.
        let link_bytes = represented::link_bytes(&self.topology)?;
        Ok(Reading {
            at: Instant::now(),
            tally: client.tally(),
            cpu_times: self.cluster.as_ref().map(Cluster::cpu_times).unwrap_or_default(),
            link_bytes,
        })
    }
}

/// Lets the client use the ports of connections that are over again after a second.
pub(super) fn allow_reuse_of_ports() -> Result<(), IoError> {
    sysctl::write("net/ipv4/tcp_tw_reuse", "1")
}

fn server_addresses() -> Vec<SocketAddr> {
    SERVER_PORTS.map(|port| SocketAddr::new(SERVER[0], port)).collect()
}

#[cfg(test)]
mod tests;
