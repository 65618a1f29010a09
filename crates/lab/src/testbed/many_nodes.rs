//! Many nodes between two edges: all of them forward, and each connection has some backups.
//!
//! ```text
//!   client ── inside edge ─┬─ node a ─┬─ outside edge ── server
//!                          ├─ node b ─┤
//!                          ├─ node c ─┤      every node also has a cable to the switch
//!                          └─ node d ─┘      of the replication link
//! ```

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::clock::Epoch;
use super::cluster::{
    BackupsPlan, Cluster, ClusterError, ClusterPlan, REPLICATION_PORT, SPARE_CONNECTIONS, Shape, Tuning,
};
use super::edges::Edges;
use super::meter::{Meter, Reading};
use super::topology::{EDGE_NETWORK, Topology};
use super::watch::Watch;
use super::ways;
use api::Status;
use config::validated::Backend;

/// How often nodes and edges send heartbeats. Ten of them are a detection time, [`DETECTED_WITHIN`]: the 250 ms of the switch in \[TRIPOD, section VI-C\].
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(25);
/// A node that is silent for so long is dead.
pub const DETECTED_WITHIN: Duration = Duration::from_millis(250);

/// How the nodes are to be run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ManyNodesPlan {
    /// Nodes: 3 to [`NODES_MAX`](super::topology::NODES_MAX).
    pub nodes: usize,
    /// Connections are replicated; else a failure breaks those of the node.
    pub is_replicated: bool,
    /// The nodes accept connections; else something else in their namespaces forwards the packets.
    pub accepts: bool,
    /// Backups of each connection; `None`: every node has each connection.
    pub backups: Option<BackupsPlan>,
    /// Connections that are expected.
    pub connections: usize,
    /// Workers of each node.
    pub workers: u8,
}

impl ManyNodesPlan {
    fn cluster(self) -> ClusterPlan {
        ClusterPlan {
            nodes: self.nodes,
            is_replicated: self.is_replicated,
            connections_max: self.connections + SPARE_CONNECTIONS,
            workers: self.workers,
            backend: Backend::default(),
            tuning: Tuning {
                has_edges: true,
                accepts: self.accepts,
                backups: self.backups.filter(|_| self.is_replicated),
                holds_first_reply: self.is_replicated,
                heartbeat_interval: HEARTBEAT_INTERVAL,
                // Nodes die behind ports that keep their carrier, and the kernel would forward for a moment longer.
                fast_path_connections_max: 0,
                ..Tuning::default()
            },
        }
    }
}

/// Bytes that have passed so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Passed {
    /// Between the nodes: replication and state service, with their acknowledgements.
    pub control: Reading,
    /// Bytes that entered the cluster at the edges, from the link header on.
    pub workload_bytes: u64,
}

impl Passed {
    /// What has passed since an earlier reading.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            control: Reading {
                frames: self.control.frames.saturating_sub(earlier.control.frames),
                bytes: self.control.bytes.saturating_sub(earlier.control.bytes),
            },
            workload_bytes: self.workload_bytes.saturating_sub(earlier.workload_bytes),
        }
    }

    /// Bytes between the nodes over those of the workload.
    #[must_use]
    pub fn control_share(self) -> f64 {
        self.control.bytes as f64 / self.workload_bytes.max(1) as f64
    }
}

/// How long the bytes between idle nodes are counted.
const IDLE: Duration = Duration::from_millis(500);

/// The running cluster with its edges.
pub struct ManyNodes {
    /// The nodes.
    pub cluster: Cluster,
    /// The edges.
    pub edges: Edges,
    /// Bytes between the nodes in a second before there are connections: heartbeats, keep-alives and acknowledgements.
    pub idle_control_bytes_per_s: f64,
    meter: Meter,
    /// The network. It outlives the processes in it.
    pub topology: Arc<Topology>,
}

impl ManyNodes {
    /// Builds the network, starts nodes and edges, and waits until flows go to all nodes.
    ///
    /// # Errors
    /// The network cannot be built, or a process does not run as it should.
    pub fn start(plan: ManyNodesPlan, watch: &Watch) -> Result<Self, ClusterError> {
        let topology = Topology::build_of(plan.nodes)?;
        ways::build(&topology)?;
        let topology = Arc::new(topology);
        let mut cluster = Cluster::start_as(Shape::AllActive, &topology, plan.cluster())?;
        cluster.wait_until_ready(watch)?;
        let detection = format!("[failure_detection]\ninterval = \"{}ms\"\n", HEARTBEAT_INTERVAL.as_millis());
        let edges = Edges::start_with_key(&topology, &detection, cluster.edge_key().as_deref())?;
        edges.wait_until_ready(watch)?;
        let meter = Meter::start(&topology, REPLICATION_PORT)?;
        let (began, before) = (Instant::now(), meter.read());
        watch.pass_until(began + IDLE)?;
        let idle_bytes = meter.read().bytes - before.bytes;
        let idle_control_bytes_per_s = idle_bytes as f64 / began.elapsed().as_secs_f64();
        Ok(Self { cluster, edges, idle_control_bytes_per_s, meter, topology })
    }

    /// Kills nodes, one after the other with so much time between them, and waits until no edge sends flows to them. Returns when
    /// the first was killed.
    ///
    /// # Errors
    /// Roles have moved before, a process cannot be ended, or the edges do not notice.
    pub fn kill(&mut self, nodes: &[usize], apart: Duration, watch: &Watch) -> Result<Epoch, ClusterError> {
        self.cluster.check_roles()?;
        let first = Epoch::now();
        for (place, node) in nodes.iter().enumerate() {
            if place > 0 {
                thread::sleep(apart);
            }
            self.cluster.kill_silently(*node)?;
        }
        self.edges.wait_until_stopped(watch, nodes)?;
        Ok(first)
    }

    /// Starts killed nodes anew, and waits until all nodes and edges are as they were before.
    ///
    /// # Errors
    /// A process cannot be started, or does not come back.
    pub fn restart_killed(&mut self, nodes: &[usize], watch: &Watch) -> Result<(), ClusterError> {
        nodes.iter().try_for_each(|node| self.cluster.restart_killed(&self.topology, *node))?;
        self.cluster.wait_until_ready(watch)?;
        self.edges.wait_until_ready(watch)
    }

    /// What has passed since the start.
    #[must_use]
    pub fn passed(&self) -> Passed {
        let entered = |status: Status| {
            let mut network = status.ports.into_iter().filter(|port| port.interface == EDGE_NETWORK);
            network.next().map_or(0, |port| port.received_bytes)
        };
        Passed { control: self.meter.read(), workload_bytes: self.edges.statuses().map(entered).sum() }
    }

    /// Connections that a failure has moved, at the inside edge.
    #[must_use]
    pub fn moved(&self) -> u64 {
        self.edges.statuses().next().and_then(|status| Some(status.edge?.moved)).unwrap_or_default()
    }

    /// Leaves configurations and logs where they are, and prints where.
    pub fn keep_files(&mut self) {
        eprintln!("configurations and logs are in {}", self.cluster.keep_files().display());
        eprintln!("those of the edges are in {}", self.edges.keep_files().display());
    }
}

/// What the state service of several nodes has done since they started.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateService {
    /// Connections whose state was pulled.
    pub pulls: u64,
    /// Messages that were sent.
    pub messages: u64,
}

impl StateService {
    /// The sums over all nodes that answer. A node without a state service counts as none.
    #[must_use]
    pub fn of(cluster: &Cluster) -> Self {
        let statuses = cluster.statuses();
        let services = || statuses.iter().filter_map(|status| status.state_service.as_deref());
        Self {
            pulls: services().map(|service| service.pulled).sum(),
            messages: services().map(|service| service.sent_messages).sum(),
        }
    }
}
