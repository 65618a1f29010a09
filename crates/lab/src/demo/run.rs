//! One run: traffic, a kill in the middle of it, and what became of the connections.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use flow::Tuple;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::{IoError, sysctl};

use super::probes::{Probed, probe};
use super::replication::ReplicationReport;
use super::report::{ClusterReport, RunReport, Settings};
use super::stalls::EdgesReport;
use crate::emulator::LinkError;
use crate::testbed::clock::Epoch;
use crate::testbed::cluster::{
    Cluster, ClusterError, ClusterPlan, Function, REPLICATION_PORT, SPARE_CONNECTIONS, Shape, Tuning,
};
use crate::testbed::direct_return::{DirectReturn, DirectReturnPlan};
use crate::testbed::distance::Distances;
use crate::testbed::edges::Edges;
use crate::testbed::exact_table::ExactTable;
use crate::testbed::meter::{Meter, Reading};
use crate::testbed::session::{Session, TrafficError};
use crate::testbed::syn_flood::{Flood, FloodPacket, FloodPlan};
use crate::testbed::topology::{
    self, BRIDGE, INTERFACES, NETWORKS, PREFIX_BITS, SECOND_SERVER, SERVER, SERVER_PORTS, Topology,
};
use crate::testbed::traffic::Kind;
use crate::testbed::traffic::client::Plan;
use crate::testbed::watch::{Waited, Watch, WatchError};
use crate::testbed::ways;
use api::{Event, EventKind};
use config::validated::Backend;
use console::{Progress, count};

/// Connections of each kind, beside the ramp.
pub const MIX: [(Kind, usize); 5] =
    [(Kind::Download, 8), (Kind::Upload, 8), (Kind::Ticks, 16), (Kind::Idle, 32), (Kind::Udp, 2)];
/// Rate of each bulk transfer, in bytes a second.
pub const BULK_BYTES_PER_S: u64 = 4_000_000;
/// Ramp connections opened each second, at most.
const RAMP_PER_S_MAX: usize = 2000;
/// How much of the ramp is established when the node is killed.
const RAMP_SHARE_AT_KILL: (usize, usize) = (7, 8);

/// How often a run is repeated.
pub const REPETITIONS_MAX: usize = 3;
/// How long the first connections may take.
const ESTABLISHED_WITHIN: Duration = Duration::from_secs(5);
/// How long the standby may take to take over.
const TAKEN_OVER_WITHIN: Duration = Duration::from_secs(3);
/// How long silent connections may take to answer after the take-over.
const ANSWERED_WITHIN: Duration = Duration::from_secs(6);
/// The same where most of them never will.
const ANSWERED_WITHIN_UNREPLICATED: Duration = Duration::from_secs(2);

/// Why a run has no result.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The network cannot be built.
    #[error(transparent)]
    Network(#[from] IoError),
    /// The links that are no cables.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// The nodes.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// The traffic.
    #[error(transparent)]
    Traffic(#[from] TrafficError),
    /// A signal came.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// An attack could not be played to its end.
    #[error("{0}")]
    Attack(String),
    /// Traffic does not get through even while both nodes are well.
    #[error(
        "{established} of {planned} connections were established within {within_s} s although nothing was wrong yet"
    )]
    NotEstablished {
        /// Those that were.
        established: usize,
        /// Those that should have been.
        planned: usize,
        /// The deadline, in seconds.
        within_s: u64,
    },
}

/// Opens connections, and waits until they stand.
pub(super) fn open(topology: &Arc<Topology>, plan: Plan, watch: &Watch) -> Result<Session, RunError> {
    let planned: usize = plan.connections.iter().map(|(_, number)| number).sum();
    let session = Session::start(topology, plan)?;
    let within = ESTABLISHED_WITHIN + Duration::from_millis(planned as u64);
    let waited = watch.until(Instant::now() + within, || -> Result<bool, RunError> {
        Ok(session.progress().established >= planned)
    })?;
    match waited {
        Waited::Met => Ok(session),
        Waited::TooLate => Err(RunError::NotEstablished {
            established: session.progress().established,
            planned,
            within_s: within.as_secs(),
        }),
    }
}

/// What a run is done with.
pub struct Stage<'a> {
    /// Waits.
    pub watch: &'a Watch,
    /// Shows the progress.
    pub progress: &'a Progress,
    /// As the operator asked.
    pub settings: &'a Settings,
    /// The nodes' files stay.
    pub keep_logs: bool,
    /// How the nodes share the work.
    pub shape: Shape,
    /// Where the server listens: connections take the addresses in turn.
    pub servers: Vec<SocketAddr>,
    /// Edges are on either side of the nodes; `None`: there are none.
    pub edges: Option<EdgesPlan>,
    /// What the nodes do beside firewall and source NAT.
    pub function: FunctionPlan,
    /// Parameters of the hosts' TCP, below `net/ipv4`, with their values.
    pub host_parameters: Vec<(&'static str, String)>,
}

/// The edges of a run, and what they ask of the nodes.
#[derive(Clone, Debug)]
pub struct EdgesPlan {
    /// Sections of the edges' files: local recovery and rate control.
    pub sections: String,
    /// How often nodes send heartbeats; ten of them are a detection time.
    pub heartbeat_interval: Duration,
    /// A connection's first reply waits for the other node to have the connection.
    pub holds_first_reply: bool,
    /// How long traffic passes after the kill; `None`: half of the time asked for.
    pub watched_after_kill: Option<Duration>,
}

/// A function of the nodes, and what attacks it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionPlan {
    /// The function.
    pub function: Function,
    /// SYNs with spoofed sources that each node gets in a second, from before the first connection on; 0: none.
    pub flood_syns_per_s: u32,
}

impl Stage<'_> {
    /// Runs in a network of its own; again in another one when the standby took over before the kill, which the result
    /// notes.
    ///
    /// # Errors
    /// The run could not be made; that connections break is a result, not an error.
    pub fn run(&self, is_replicated: bool) -> Result<RunReport, RunError> {
        let mut repeated = 0;
        loop {
            match self.run_once(is_replicated) {
                Err(RunError::Cluster(ClusterError::TookOverEarly)) if repeated < REPETITIONS_MAX => repeated += 1,
                result => return result.map(|report| RunReport { repeated, ..report }),
            }
        }
    }

    fn run_once(&self, is_replicated: bool) -> Result<RunReport, RunError> {
        let name = if is_replicated { "replicated" } else { "not replicated" };
        let show = |what: &str| self.progress.show(&format!("{name}: {what}"));
        show("building the network");
        let mut topology = if self.edges.is_some() { Topology::build_with_edges()? } else { Topology::build()? };
        if self.shape == Shape::AllActive {
            ways::build(&topology)?;
        }
        for (name, value) in &self.host_parameters {
            for host in [&topology.client, &topology.server] {
                host.run(|| sysctl::write(&format!("net/ipv4/{name}"), value))??;
            }
        }
        let mut distances = Distances::lay(&mut topology, self.settings.link_loss, self.settings.rtt_ms)?;
        let topology = Arc::new(topology);
        let mut cluster = Cluster::start_as(self.shape, &topology, self.cluster_plan(is_replicated))?;
        if self.keep_logs {
            let files = cluster.keep_files();
            self.progress.show("");
            eprintln!("{name}: configurations and logs are in {}", files.display());
        }
        show("waiting for the nodes");
        cluster.wait_until_ready(self.watch)?;
        let edges = self.edges.as_ref().map(|plan| plan.sections.clone() + &cluster.edge_security());
        let mut edges = edges.map(|sections| Edges::start(&topology, &sections)).transpose()?;
        edges.iter().try_for_each(|edges| edges.wait_until_ready(self.watch))?;
        if let Some(edges) = edges.as_mut().filter(|_| self.keep_logs) {
            eprintln!("{name}: those of the edges are in {}", edges.keep_files().display());
        }
        // Emulated links have no frames to count, and no way for probes.
        let is_measured =
            is_replicated && self.edges.is_none() && self.settings.link_loss == 0.0 && self.settings.rtt_ms == 0.0;
        let meter = is_measured.then(|| Meter::start(&topology, REPLICATION_PORT)).transpose()?;
        let flood = self.start_flood(&topology)?;
        let _direct_return = self.start_direct_return(&topology)?;
        let session = self.start_traffic(&topology)?;
        self.warm_up(&session, &show)?;
        distances.reset()?;
        let exact = meter.map(|meter| (cluster.active_connections(), meter.read()));
        let statuses = cluster.statuses();
        let cluster_report = ClusterReport::of(&statuses);
        let handled = statuses.iter().map(|status| self.function.function.handled(status)).sum();
        let killed_at = if edges.is_some() { cluster.kill_active_silently()? } else { cluster.kill_active()? };
        show("the active node is dead");
        self.await_take_over(&cluster, killed_at)?;
        let pause = self.edges.as_ref().and_then(|plan| plan.watched_after_kill);
        let pause = pause.unwrap_or(Duration::from_secs_f64(self.settings.seconds / 2.0));
        self.watch.pass_until(killed_at.instant() + pause)?;
        show("waking the silent connections");
        session.wake_silent()?;
        self.await_answers(&session, is_replicated)?;
        let replication = exact.map(|(exact, cost)| self.compare(&cluster, &topology, &exact, cost)).transpose()?;
        let link_lateness_p99_us = distances.lateness_p99_us()?;
        let traffic = session.finish()?;
        let flooded = flood.map_or(0, |flood| flood.sent());
        let report = RunReport::new(killed_at, &traffic.outcomes, &traffic.timeline, &cluster.standby_events());
        let edges = edges.and_then(|edges| {
            let resent =
                |edge: &api::EdgeStatus| edge.resent_segments + edge.resent_syns + edge.resent_acknowledgements;
            let resent_packets = edges.statuses().filter_map(|status| Some(resent(status.edge.as_deref()?))).sum();
            EdgesReport::new(killed_at, &edges.events(), &traffic.outcomes, resent_packets)
        });
        Ok(RunReport { link_lateness_p99_us, replication, cluster: cluster_report, edges, handled, flooded, ..report })
    }

    fn start_flood(&self, topology: &Topology) -> Result<Option<Flood>, IoError> {
        let (syns_per_s, SocketAddr::V4(destination)) = (self.function.flood_syns_per_s, self.servers[0]) else {
            return Ok(None);
        };
        if syns_per_s == 0 {
            return Ok(None);
        }
        let next_hops = topology.nodes.iter().map(|node| topology::link_address(node, INTERFACES[0]));
        let plan = FloodPlan {
            source: topology::link_address(&topology.client, BRIDGE)?,
            next_hops: next_hops.collect::<Result<_, _>>()?,
            destination,
            packet: FloodPacket::Syn,
            packets_per_s: syns_per_s,
            seed: 1,
        };
        Flood::start(&topology.client, BRIDGE, plan).map(Some)
    }

    /// With direct return, what takes packets out of the tunnels to the servers.
    fn start_direct_return(&self, topology: &Topology) -> Result<Option<DirectReturn>, IoError> {
        if self.function.function != Function::BalancerDirectReturn {
            return Ok(None);
        }
        let networks: Vec<Prefix> =
            NETWORKS[0].into_iter().zip(PREFIX_BITS).map(|(address, bits)| Prefix::new(address, bits)).collect();
        let ends: Vec<IpAddr> = [SERVER, SECOND_SERVER].into_iter().flatten().collect();
        let plan = DirectReturnPlan {
            clients: &topology.client,
            client_networks: &networks,
            servers: &topology.server,
            services: self.function.function.services(),
            ends: &ends,
        };
        DirectReturn::start(&plan).map(Some)
    }

    /// Starts server and client. Behind a load balancer there are two servers on the host.
    fn start_traffic(&self, topology: &Arc<Topology>) -> Result<Session, RunError> {
        if !self.function.function.is_balancer() {
            return Ok(Session::start(topology, self.traffic_plan())?);
        }
        topology.server.run(|| -> Result<(), IoError> {
            let mut netlink = Netlink::open()?;
            let mut addresses = SECOND_SERVER.into_iter().zip(PREFIX_BITS);
            addresses.try_for_each(|(address, bits)| netlink.add_address(BRIDGE, Prefix::new(address, bits)))
        })??;
        let servers: Vec<IpAddr> = match self.function.function {
            Function::BalancerDirectReturn => self.function.function.services().to_vec(),
            _ => [SERVER, SECOND_SERVER].into_iter().flatten().collect(),
        };
        let listening: Vec<SocketAddr> =
            servers.into_iter().flat_map(|server| SERVER_PORTS.map(|port| SocketAddr::new(server, port))).collect();
        Ok(Session::start_behind(topology, self.traffic_plan(), &listening)?)
    }

    /// Holds what the other node has, and lets pass, against what the killed one had.
    fn compare(
        &self,
        cluster: &Cluster,
        topology: &Topology,
        exact: &ExactTable,
        cost: Reading,
    ) -> Result<ReplicationReport, IoError> {
        let there = cluster.standby_connections();
        let is_real = |tuple: &Tuple| exact.has(tuple) || there.has(tuple);
        // Where both nodes are active, the way to the one that is left is another.
        let probed = match self.shape {
            Shape::OneActive => probe(topology, cluster.standby(), is_real)?,
            Shape::AllActive => Probed::default(),
        };
        Ok(ReplicationReport::new(self.settings.representation, exact, cost).compared(exact, &there, probed))
    }

    fn cluster_plan(&self, is_replicated: bool) -> ClusterPlan {
        let planned: usize = MIX.iter().map(|(_, number)| number).sum();
        ClusterPlan {
            nodes: 2,
            is_replicated,
            workers: self.settings.workers,
            connections_max: planned + self.settings.ramp + SPARE_CONNECTIONS,
            backend: Backend::default(),
            tuning: self.tuning(),
        }
    }

    fn tuning(&self) -> Tuning {
        let representation = self.settings.representation;
        match &self.edges {
            None => Tuning { representation, function: self.function.function, ..Tuning::default() },
            Some(plan) => Tuning {
                representation,
                has_edges: true,
                heartbeat_interval: plan.heartbeat_interval,
                holds_first_reply: plan.holds_first_reply,
                // The node dies behind ports that keep their carrier, and the kernel would forward for a moment longer.
                fast_path_connections_max: 0,
                ..Tuning::default()
            },
        }
    }

    pub(super) fn traffic_plan(&self) -> Plan {
        let ramp = self.settings.ramp;
        let mut connections = MIX.to_vec();
        connections.push((Kind::Ramp, ramp));
        Plan {
            servers: self.servers.clone(),
            connections,
            bulk_bytes_per_s: BULK_BYTES_PER_S,
            ramp_per_s: self.ramp_per_s(),
        }
    }

    /// Slow enough that the ramp lasts through the warm-up, and never faster than the machine can follow.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "small")]
    fn ramp_per_s(&self) -> u64 {
        let lasting = self.settings.ramp as f64 / self.settings.seconds.max(1.0);
        (lasting.ceil() as usize).clamp(1, RAMP_PER_S_MAX) as u64
    }

    /// Lets traffic flow until all planned connections stand and most of the ramp.
    pub(super) fn warm_up(&self, session: &Session, show: &dyn Fn(&str)) -> Result<(), RunError> {
        let (share, of) = RAMP_SHARE_AT_KILL;
        let steady: usize = MIX.iter().map(|(_, number)| number).sum();
        let ramped = self.settings.ramp * share / of;
        let begin = Instant::now();
        let at_least = begin + Duration::from_secs_f64(self.settings.seconds / 2.0);
        let within = ESTABLISHED_WITHIN + Duration::from_secs(2 * ramped as u64 / self.ramp_per_s());
        let waited = self.watch.until(begin + within, || -> Result<bool, RunError> {
            let progress = session.progress();
            show(&format!("{} connections", count(progress.established as u64)));
            let stand = progress.established - progress.ramped >= steady && progress.ramped >= ramped;
            Ok(stand && Instant::now() >= at_least)
        })?;
        match waited {
            Waited::Met => Ok(()),
            Waited::TooLate => Err(RunError::NotEstablished {
                established: session.progress().established,
                planned: steady + ramped,
                within_s: within.as_secs(),
            }),
        }
    }

    /// That the standby never takes over shows in the result.
    fn await_take_over(&self, cluster: &Cluster, killed_at: Epoch) -> Result<(), WatchError> {
        let deadline = killed_at.instant() + TAKEN_OVER_WITHIN;
        // Not asked before it can have happened: the standby has other things to do.
        self.watch.pass_until(killed_at.instant() + Duration::from_millis(150))?;
        let waited = self.watch.until(deadline, || -> Result<bool, WatchError> {
            let has_announced =
                |event: &Event| event.kind == EventKind::Announced && killed_at.ms_to_event(event.monotonic_ns) >= 0.0;
            Ok(cluster.standby_events().iter().any(has_announced))
        })?;
        if waited == Waited::TooLate {
            self.progress.show("the standby has not taken over");
        }
        Ok(())
    }

    pub(super) fn await_answers(&self, session: &Session, is_replicated: bool) -> Result<(), WatchError> {
        let within = if is_replicated { ANSWERED_WITHIN } else { ANSWERED_WITHIN_UNREPLICATED };
        self.watch.until(Instant::now() + within, || -> Result<bool, WatchError> {
            let progress = session.progress();
            Ok(progress.wakes > 0 && progress.unanswered == 0)
        })?;
        Ok(())
    }
}
