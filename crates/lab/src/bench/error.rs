//! Why a measurement has no result.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use packet_io::IoError;

use super::kernel_routers::conntrackd::ConntrackdError;
use super::sync::SyncDaemonError;
use crate::emulator::LinkError;
use crate::testbed::cluster::ClusterError;
use crate::testbed::session::TrafficError;
use crate::testbed::watch::WatchError;

/// Why a measurement has no result.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Packets that had to pass did not: the figures would be of something else.
    #[error("{what}: {lost} of {packets} packets did not pass, so there is nothing to measure; this is a defect")]
    Lost {
        /// What was measured.
        what: &'static str,
        /// Packets that did not pass.
        lost: u64,
        /// Packets sent.
        packets: u64,
    },
    /// The table did not hold what it was to hold.
    #[error("the table holds {there} connections instead of {expected}; this is a defect")]
    Connections {
        /// How many it holds.
        there: u32,
        /// How many it was to hold.
        expected: u32,
    },
    /// The connections were not where they are to be measured within the time.
    #[error(
        "after {within_s} s {there} of {expected} connections are on the fast path, or in the kernel's table: try fewer by \
         --connections, or when the machine is quieter"
    )]
    NotFilled {
        /// How many are there.
        there: u32,
        /// How many were to be.
        expected: u32,
        /// How long they were given, in seconds.
        within_s: u64,
    },
    /// The process that was to fill an edge gave no figure.
    #[error(
        "the memory of {connections} connections under {policy} could not be read: the process that fills the edge failed; try fewer by --memory"
    )]
    NoMemoryFigure {
        /// The edge's policy.
        policy: &'static str,
        /// Its connections.
        connections: u32,
    },
    /// A packet costs more than a worker can afford.
    #[error("the worst packet of the parser {parser} costs {worst} {unit}, more than {limit}; this is a defect")]
    TooCostly {
        /// The parser.
        parser: &'static str,
        /// Of the costs.
        unit: &'static str,
        /// What it costs.
        worst: u64,
        /// What it may cost.
        limit: u64,
    },
    /// There is no operation of this name.
    #[error("there is no operation named \"{name}\": choose from {known}")]
    NoOperation {
        /// The name.
        name: String,
        /// The names that there are.
        known: String,
    },
    /// Instructions were not counted.
    #[error(transparent)]
    Callgrind(#[from] super::callgrind::CallgrindError),
    /// The receiver could not be reached through the gateway.
    #[error("no stream to {address} could be opened through the gateway, twice: {source}")]
    Unreachable {
        /// Who was to be reached.
        address: SocketAddr,
        /// What the system said.
        source: Box<BenchError>,
    },
    /// The kernel cannot be compared with.
    #[error("the kernel cannot take the gateway's place: {0}; install nftables")]
    NoRules(String),
    /// The hosts of a network would answer by themselves what is sent past their stacks.
    #[error("the hosts' own stacks cannot be kept silent: {0}; install nftables")]
    HostsAnswer(String),
    /// All nodes would be killed.
    #[error("--kill {kill} of --nodes {nodes} leaves no node: kill {} at most", nodes - 1)]
    NoNodeLeft {
        /// Nodes that were to be killed.
        kill: u8,
        /// All nodes.
        nodes: u8,
    },
    /// The cluster cannot be simulated.
    #[error(transparent)]
    Simulation(#[from] simulator::many_nodes::ManyNodesError),
    /// What is measured needs the fast path.
    #[error("the gateway has no fast path on this host, and `mainstay gateway --check` states why")]
    NoFastPath,
    /// A failover broke connections that it had to keep.
    #[error("{broken} of {connections} connections are broken; this is a defect")]
    Broken {
        /// How many are.
        broken: u32,
        /// Of how many.
        connections: u32,
    },
    /// The two ends of replication did not come together.
    #[error("the replication session did not synchronise; this is a defect")]
    NotSynchronised,
    /// What was restored is not what was encoded, or a library failed.
    #[error("{0} does not give back what it was given; this is a defect")]
    NotRestored(&'static str),
    /// The machine cannot give what the measurement needs.
    #[error(transparent)]
    System(#[from] IoError),
    /// The nodes do not run as they should.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The pair of routers with conntrackd does not run as it should.
    #[error(transparent)]
    Conntrackd(#[from] ConntrackdError),
    /// The pair of routers with `mainstay sync` does not run as it should.
    #[error(transparent)]
    SyncDaemon(#[from] SyncDaemonError),
    /// Processes that run do not come together.
    #[error("{what}: not ready in time: {reason}")]
    NotReady {
        /// What was measured.
        what: &'static str,
        /// What is missing.
        reason: String,
    },
    /// The demo's traffic, which is measured with, has ended.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// The page cannot be written.
    #[error("cannot write the report {}: {source}", path.display())]
    Page {
        /// Where it was to be.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An emulated link does not carry out a command.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// A filter cannot be made as large as it was asked for.
    #[error("the filter cannot be made: {0}; ask for other numbers of items")]
    Filter(#[from] ::filters::ShapeError),
    /// A filter did not do what it was measured at.
    #[error("{what}: {done} of {expected} operations were carried out; this is a defect")]
    Filtered {
        /// The filter and the operation.
        what: String,
        /// How many were carried out.
        done: u64,
        /// How many had to be.
        expected: u64,
    },
    /// A signal came.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// The measurement's own traffic cannot be sent.
    #[error("the traffic cannot be sent or received: {0}")]
    Socket(#[source] io::Error),
    /// The result cannot be printed.
    #[error("the result cannot be printed: {0}")]
    Output(#[from] io::Error),
    /// Connections stand, but nothing comes out of them.
    #[error("nothing passed while it was measured: the machine is too busy, or this is a defect")]
    NothingPassed,
    /// The load did not make the node defer connections.
    #[error(
        "the node was {:.0} % busy, and defers connections from {:.0} % on: nothing was deferred, so there is nothing to measure; \
         raise --rate or --streams", .utilisation * 100.0, .utilisation_max * 100.0
    )]
    NeverDegraded {
        /// How busy it was, as a share.
        utilisation: f64,
        /// From where on it degrades replication.
        utilisation_max: f64,
    },
    /// Connections that had to be made were not.
    #[error("{failed} of {connections} connections failed ({reason}): the figures would be of something else")]
    Failed {
        /// How many.
        failed: u64,
        /// Of how many.
        connections: u64,
        /// The first failure.
        reason: String,
    },
}
