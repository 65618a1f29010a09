//! Many nodes between two edges: all of them forward, and each connection has some backups.
//!
//! ```text
//!   client ── inside edge ─┬─ node a ─┬─ outside edge ── server
//!                          ├─ node b ─┤
//!                          ├─ node c ─┤      every node also has a cable to the switch
//!                          └─ node d ─┘      of the replication link, and so does etcd, where there is one
//! ```

use std::net::IpAddr;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::clock::Epoch;
use super::cluster::{
    BackupsPlan, Cluster, ClusterError, ClusterPlan, Directory, Members, REPLICATION_PORT, SPARE_CONNECTIONS, Shape,
    Tuning,
};
use super::edges::Edges;
use super::etcd::EtcdCluster;
use super::meter::{Meter, Reading};
use super::topology::{EDGE_NETWORK, Topology, v4};
use super::watch::Watch;
use super::ways;
use api::Status;
use clap::ValueEnum;
use config::validated::Backend;
use packet_io::namespace::Namespace;
use packet_io::netlink::{Netlink, Prefix};
use packet_io::sysctl;
use serde::Serialize;

/// How often nodes and edges send heartbeats. Ten of them are a detection time, [`DETECTED_WITHIN`]: the 250 ms of the switch in \[TRIPOD, section VI-C\].
pub const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(25);
/// A node that is silent for so long is dead.
pub const DETECTED_WITHIN: Duration = Duration::from_millis(250);

/// Where etcd runs, on the link between the nodes.
const ETCD: IpAddr = v4(10, 99, 0, 100);
/// No host on that link has this address.
const NOWHERE: IpAddr = v4(10, 99, 0, 200);

/// Where the nodes' lists of peers come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum MembersFrom {
    /// Their configuration files
    #[default]
    Static,
    /// Three members of etcd
    Etcd,
    /// The nodes themselves
    Gossip,
}

impl MembersFrom {
    const fn at(self, etcd: IpAddr) -> Members {
        match self {
            Self::Static => Members::Files,
            Self::Etcd => Members::Etcd(etcd),
            Self::Gossip => Members::Gossip,
        }
    }
}

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
    /// Nodes that may join later.
    pub may_join: usize,
    /// Where the nodes' lists of peers come from.
    pub members: MembersFrom,
    /// Ports believe any source: an attack has spoofed ones.
    pub believes_all_sources: bool,
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
                may_join: self.may_join,
                believes_all_sources: self.believes_all_sources,
                members: self.members.at(ETCD),
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
    /// Nodes that have been started.
    nodes: usize,
    /// What the nodes find each other through, with its files.
    etcd: Option<(EtcdCluster, Directory)>,
    /// The network. It outlives the processes in it.
    pub topology: Arc<Topology>,
}

impl ManyNodes {
    /// Builds the network, starts nodes and edges, and waits until flows go to all nodes.
    ///
    /// # Errors
    /// The network cannot be built, or a process does not run as it should.
    pub fn start(plan: ManyNodesPlan, watch: &Watch) -> Result<Self, ClusterError> {
        let topology = Topology::build_of(plan.nodes + plan.may_join)?;
        ways::build(&topology)?;
        let has_etcd = plan.members == MembersFrom::Etcd;
        let etcd = has_etcd.then(|| start_etcd(&topology, plan.backups)).transpose()?;
        let topology = Arc::new(topology);
        let mut cluster = Cluster::start_as(Shape::AllActive, &topology, plan.cluster())?;
        cluster.wait_until_ready(watch)?;
        let detection = format!("[failure_detection]\ninterval = \"{}ms\"\n", HEARTBEAT_INTERVAL.as_millis());
        let sections = detection + &cluster.edge_security();
        let edges = Edges::start_with_key(&topology, &sections, cluster.edge_key().as_deref())?;
        edges.wait_until_first_are_ready(watch, plan.nodes)?;
        let meter = Meter::start(&topology, REPLICATION_PORT)?;
        let (began, before) = (Instant::now(), meter.read());
        watch.pass_until(began + IDLE)?;
        let idle_bytes = meter.read().bytes - before.bytes;
        let idle_control_bytes_per_s = idle_bytes as f64 / began.elapsed().as_secs_f64();
        Ok(Self { cluster, edges, idle_control_bytes_per_s, meter, nodes: plan.nodes, etcd, topology })
    }

    /// Starts the next of the nodes that may join, and waits until all nodes back each other up and the edges send it flows.
    ///
    /// # Errors
    /// Its process cannot be started, or it does not get ready.
    pub fn add_node(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        self.cluster.add_node(&self.topology)?;
        self.nodes += 1;
        self.wait_until_ready(watch)
    }

    /// Kills a member of etcd, and waits until every node reaches the others. Returns how many members each node has,
    /// itself included: the least of these numbers. `None`: there is no etcd.
    ///
    /// # Errors
    /// A node does not reach etcd.
    pub fn kill_etcd_member(&mut self, watch: &Watch) -> Result<Option<usize>, ClusterError> {
        let Some((etcd, _)) = &mut self.etcd else { return Ok(None) };
        etcd.kill_member(0);
        etcd.wait_until_ready()?;
        self.cluster.wait_for_members(watch, self.nodes)?;
        let statuses = self.cluster.statuses();
        let members = statuses.iter().filter_map(|status| Some(status.membership.as_ref()?.members.len() + 1));
        Ok(Some(members.min().unwrap_or_default()))
    }

    /// What the nodes find each other through, if it is etcd.
    #[must_use]
    pub fn etcd(&self) -> Option<&EtcdCluster> {
        self.etcd.as_ref().map(|(etcd, _)| etcd)
    }

    fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        self.cluster.wait_until_ready(watch)?;
        self.edges.wait_until_first_are_ready(watch, self.nodes)
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
        self.wait_until_ready(watch)
    }

    /// Has a node end as a service manager would, and waits until the others have noticed, and report that they are ready for a failure.
    /// Returns how long that took from the node's end.
    ///
    /// # Errors
    /// It does not end, or the others do not get ready.
    pub fn stop(&mut self, node: usize, watch: &Watch) -> Result<Duration, ClusterError> {
        self.cluster.stop(node, watch)?;
        let ended_at = Instant::now();
        self.cluster.wait_until_left(node, watch)?;
        self.cluster.wait_until_safe(watch)?;
        Ok(ended_at.elapsed())
    }

    /// Starts a node that has ended. Returns how long it took until all report that they are ready for a failure, and the edges send it flows.
    ///
    /// # Errors
    /// It cannot be started, or does not come back.
    pub fn start_ended(&mut self, node: usize, watch: &Watch) -> Result<Duration, ClusterError> {
        let started_at = Instant::now();
        self.cluster.restart_killed(&self.topology, node)?;
        self.wait_until_whole(watch)?;
        Ok(started_at.elapsed())
    }

    /// The other nodes lose a node as a peer: they read files without it, or an operator writes into its record in etcd that it has left.
    ///
    /// # Errors
    /// A node does not take it.
    pub fn remove(&mut self, node: usize) -> Result<(), ClusterError> {
        let Some((etcd, _)) = &self.etcd else { return self.cluster.reload_others(node, true) };
        let key = member_key(node);
        let record = etcd.get(&key)?.unwrap_or_default();
        let left = |word: &str| match word.split_once('=') {
            Some(("state", _)) => "state=left".to_owned(),
            Some(("version", version)) => format!("version={}", version.parse::<u64>().unwrap_or_default() + 1),
            _ => word.to_owned(),
        };
        etcd.put(&key, &record.split(' ').map(left).collect::<Vec<_>>().join(" "))?;
        Ok(())
    }

    /// The other nodes lose a dead node as a peer: they read files without it, or an operator deletes its key in etcd, and they forget it.
    ///
    /// # Errors
    /// A node does not take it.
    pub fn remove_dead(&mut self, node: usize, watch: &Watch) -> Result<(), ClusterError> {
        match &self.etcd {
            None => self.cluster.reload_others(node, true)?,
            Some((etcd, _)) => etcd.delete(&member_key(node))?,
        }
        self.cluster.wait_until_removed(node, watch)
    }

    /// The other nodes get a removed node back as a peer. A node that runs has by itself taken its record in etcd back.
    ///
    /// # Errors
    /// A node does not take it.
    pub fn restore(&mut self, node: usize) -> Result<(), ClusterError> {
        if self.etcd.is_none() { self.cluster.reload_others(node, false) } else { Ok(()) }
    }

    /// A node's packets to etcd go nowhere, or reach it again.
    ///
    /// # Errors
    /// The system does not take the route.
    pub fn set_separated_from_etcd(&self, node: usize, is_separated: bool) -> Result<(), ClusterError> {
        let to_etcd = Prefix::new(ETCD, 32);
        self.topology.nodes[node].run(|| {
            let mut netlink = Netlink::open()?;
            if is_separated { netlink.add_route(to_etcd, NOWHERE) } else { netlink.delete_route(to_etcd, NOWHERE) }
        })??;
        Ok(())
    }

    /// Waits until all nodes report that they are ready for a failure, and edges send flows to all of them. Returns how long that took.
    ///
    /// # Errors
    /// They do not get ready.
    pub fn wait_until_whole(&mut self, watch: &Watch) -> Result<Duration, ClusterError> {
        let began = Instant::now();
        self.wait_until_ready(watch)?;
        self.cluster.wait_until_safe(watch)?;
        Ok(began.elapsed())
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

/// The key of the cluster's settings in etcd.
pub const SETTINGS_KEY: &str = "/mainstay/settings";

/// The key of a node's record in etcd.
#[must_use]
pub fn member_key(node: usize) -> String {
    format!("/mainstay/members/{node}")
}

/// Starts etcd in a namespace of its own on the link between the nodes. It has the number of backups.
fn start_etcd(topology: &Topology, backups: Option<BackupsPlan>) -> Result<(EtcdCluster, Directory), ClusterError> {
    let namespace = Namespace::new()?;
    namespace.run(sysctl::quieten_ipv6)??;
    topology.join_switch("to-etcd", &namespace, ETCD)?;
    let directory = Directory::create()?;
    let etcd = EtcdCluster::start(namespace, ETCD, &directory.path)?;
    if let Some(BackupsPlan { count, .. }) = backups {
        etcd.put(SETTINGS_KEY, &format!("version=1 backups={count}"))?;
    }
    Ok((etcd, directory))
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
