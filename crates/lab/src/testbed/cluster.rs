//! Some gateway nodes, or one alone, as an operator would run them: a configuration file each, a process each, watched
//! through their control sockets.

mod configuration;
mod failures;
mod function;
mod multi_primary;
mod node;
mod operations;
mod tuning;

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;
use packet_io::netlink::Netlink;
use packet_io::{IoError, signal, usage};

pub use self::configuration::{ClusterPlan, NAMES, REPLICATION_PORT, Shape, configuration};
pub use self::failures::{FalseClock, Identity};
pub use self::function::{Function, guarded};
pub use self::tuning::{BackupsPlan, Members, SPARE_CONNECTIONS, Tuning};

use self::node::{Node, start_node};
use super::clock::Epoch;
use super::etcd::EtcdError;
use super::exact_table::ExactTable;
use super::topology::{INTERFACES, Topology};
use super::watch::{Waited, Watch, WatchError};
use api::{Event, NodeRole, Status};
use config::key_file;
use control::client::Client;

/// How long the nodes may take until they are ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// Why the nodes do not run as they should.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// The files of the demo cannot be written.
    #[error("cannot write the nodes' files in {}: {source}", directory.display())]
    Files {
        /// Where.
        directory: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no etcd that the nodes could find each other through.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// The nodes' key cannot be written.
    #[error(transparent)]
    Key(#[from] key_file::KeyNotWritten),
    /// A node cannot be started.
    #[error(transparent)]
    Start(#[from] IoError),
    /// A node ended by itself.
    #[error("node {name} ended ({status}) while it should run; its log ends with:\n{log}")]
    Ended {
        /// Which.
        name: &'static str,
        /// How.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The nodes run but do not get ready.
    #[error("the nodes were not ready within {} s: {reason}\n{logs}", READY_WITHIN.as_secs())]
    NotReady {
        /// What is missing.
        reason: String,
        /// The ends of their logs.
        logs: String,
    },
    /// A node was declared dead that was alive, so that the kill would prove nothing.
    #[error(
        "the standby took over before the active node was killed: the machine was too busy to let a node send for 100 ms; \
         try again when it is quieter"
    )]
    TookOverEarly,
    /// A node would not do what was asked of it.
    #[error("node {name}: {reason}")]
    Refused {
        /// Which.
        name: &'static str,
        /// Its words.
        reason: String,
    },
    /// A signal came.
    #[error(transparent)]
    Watch(#[from] WatchError),
}

/// The running nodes. Dropping it ends the processes and removes the files.
pub struct Cluster {
    /// Node a, then the others.
    nodes: Vec<Node>,
    plan: ClusterPlan,
    shape: Shape,
    /// Which of them is active, or the one that is to be killed where all are.
    active: usize,
    /// Since when roles are what they are, in nanoseconds of the monotonic clock.
    active_since_ns: u64,
    directory: Directory,
}

impl Cluster {
    /// Writes the configurations and starts the nodes.
    ///
    /// # Errors
    /// Files cannot be written or processes not be started.
    pub fn start(topology: &Topology, plan: ClusterPlan) -> Result<Self, ClusterError> {
        Self::start_as(Shape::default(), topology, plan)
    }

    /// As [`Cluster::start`], of this shape; for all active the topology must have [ways](super::ways).
    ///
    /// # Errors
    /// Files cannot be written or processes not be started.
    pub fn start_as(shape: Shape, topology: &Topology, plan: ClusterPlan) -> Result<Self, ClusterError> {
        let directory = Directory::create()?;
        plan.tuning.function.write_files(&directory.path).map_err(|source| directory.error(source))?;
        if plan.tuning.backups.is_some() {
            key_file::write(&tuning::edge_key(&directory.path), &key_file::draw())?;
        }
        let start = |number| start_node(topology, (plan, shape), &directory, number);
        let nodes = (0..plan.nodes).map(start).collect::<Result<_, _>>()?;
        Ok(Self { nodes, plan, shape, active: 0, active_since_ns: 0, directory })
    }

    /// The secret of the edges' hash, from which nodes compute backups; `None`, if there are none.
    #[must_use]
    pub fn edge_key(&self) -> Option<PathBuf> {
        self.plan.tuning.backups.map(|_| tuning::edge_key(&self.directory.path))
    }

    /// The section by which edges authenticate themselves to the nodes.
    #[must_use]
    pub fn edge_security(&self) -> String {
        configuration::edge_security(self.plan, &self.directory.key())
    }

    /// Waits until one node is active (or each for its group) and the others could take over (without replication: until
    /// all receive from each other).
    ///
    /// # Errors
    /// A node ended, or the deadline passed: with the ends of the logs.
    pub fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| {
            cluster.find_active()?;
            let (nodes, is_replicated) = (cluster.nodes.len(), cluster.plan.is_replicated);
            let mut watched = cluster.nodes.iter().filter(|_| nodes > 1);
            watched.try_for_each(|node| node.check_peers(nodes, is_replicated))
        })
    }

    /// Waits until each node reaches the source of its members and knows `nodes` of them, itself included.
    ///
    /// # Errors
    /// As [`Cluster::wait_until_ready`].
    pub fn wait_for_members(&mut self, watch: &Watch, nodes: usize) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| cluster.nodes.iter().try_for_each(|node| node.check_members(nodes)))
    }

    /// Checks that roles are still what they were when the nodes were ready.
    ///
    /// # Errors
    /// A node ended, or the roles have moved.
    pub fn check_roles(&mut self) -> Result<(), ClusterError> {
        self.check_running()?;
        let since = (self.active, self.active_since_ns);
        if self.find_active().is_err() || since != (self.active, self.active_since_ns) {
            return Err(ClusterError::TookOverEarly);
        }
        Ok(())
    }

    /// Kills the active node as a power cut would: it sends nothing more.
    ///
    /// # Errors
    /// A node ended before, or the roles have moved.
    pub fn kill_active(&mut self) -> Result<Epoch, ClusterError> {
        self.check_roles()?;
        self.kill_active_unchecked()
    }

    /// As [`Cluster::kill_active`], but the ports keep their carrier, as behind a switch: only its silence shows that the node is
    /// dead.
    ///
    /// # Panics
    /// The nodes have a fast path: it outlasts the process for a moment, so the node would not be dead.
    ///
    /// # Errors
    /// A node ended before, or the roles have moved.
    pub fn kill_active_silently(&mut self) -> Result<Epoch, ClusterError> {
        self.check_roles()?;
        self.kill_silently(self.active)
    }

    /// As [`Cluster::kill_active_silently`], of any node, and whatever the roles are.
    ///
    /// # Panics
    /// The nodes have a fast path.
    ///
    /// # Errors
    /// The process cannot be ended.
    pub fn kill_silently(&mut self, number: usize) -> Result<Epoch, ClusterError> {
        assert_eq!(self.plan.tuning.fast_path_connections_max, 0, "the kernel forwards on after the process has died");
        let node = &mut self.nodes[number];
        let killed_at = Epoch::now();
        node.is_killed = true;
        let ended = node.child.kill().and_then(|()| node.child.wait());
        ended.map_err(|source| self.directory.error(source))?;
        Ok(killed_at)
    }

    /// Starts a node anew that was killed silently. It gets nothing of what it had.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn restart_killed(&mut self, topology: &Topology, number: usize) -> Result<(), ClusterError> {
        self.nodes[number] = start_node(topology, (self.plan, self.shape), &self.directory, number)?;
        Ok(())
    }

    /// Starts the next of the nodes that may join.
    ///
    /// # Panics
    /// All of them have joined.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn add_node(&mut self, topology: &Topology) -> Result<(), ClusterError> {
        let number = self.nodes.len();
        assert!(number < self.plan.nodes_max(), "no further node may join");
        self.nodes.push(start_node(topology, (self.plan, self.shape), &self.directory, number)?);
        Ok(())
    }

    /// As [`Cluster::kill_active`], of the node that was active when it was last looked at: for who has no time to look.
    ///
    /// # Errors
    /// The node ended before.
    pub fn kill_active_unchecked(&mut self) -> Result<Epoch, ClusterError> {
        self.kill(self.active)
    }

    /// Kills a node as a power cut would: from one moment on it sends and forwards nothing.
    ///
    /// # Errors
    /// The system does not let its process be ended, or its ports be taken down.
    pub fn kill(&mut self, number: usize) -> Result<Epoch, ClusterError> {
        let child = &mut self.nodes[number].child;
        let namespace = Namespace::open(Path::new(&format!("/proc/{}/ns/net", child.id())))?;
        let killed_at = Epoch::now();
        // A process that runs would report to its peer that its ports go down; one that is killed leaves in the kernel, for
        // some 100 ms, what forwards its connections.
        signal::pause(child.id())?;
        namespace.run(set_ports_down)??;
        let ended = child.kill().and_then(|()| child.wait());
        ended.map_err(|source| self.directory.error(source))?;
        Ok(killed_at)
    }

    /// Waits until `ready` finds nothing missing.
    fn wait_until(
        &mut self,
        watch: &Watch,
        mut ready: impl FnMut(&mut Self) -> Result<(), String>,
    ) -> Result<(), ClusterError> {
        let mut missing = String::new();
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, ClusterError> {
            self.check_running()?;
            let found = ready(self);
            missing = found.err().unwrap_or_default();
            Ok(missing.is_empty())
        })?;
        if waited == Waited::Met {
            return Ok(());
        }
        let logs = self.nodes.iter().map(|node| format!("log of node {}:\n{}", node.name, node.log_tail()));
        Err(ClusterError::NotReady { reason: missing, logs: logs.collect::<Vec<_>>().join("\n") })
    }

    /// The other node's events; nothing when it does not answer.
    #[must_use]
    pub fn standby_events(&self) -> Vec<Event> {
        let Some(standby) = self.nodes.get(1 - self.active) else { return Vec::new() };
        let client = Client::connect(&standby.control_socket);
        client.and_then(|mut client| client.events()).unwrap_or_default()
    }

    /// The number of the node that is not the active one.
    #[must_use]
    pub const fn standby(&self) -> usize {
        1 - self.active
    }

    /// The connections of the active node; none when it does not answer.
    #[must_use]
    pub fn active_connections(&self) -> ExactTable {
        self.nodes.get(self.active).map(Node::connections).unwrap_or_default()
    }

    /// The connections of the other node; none when it does not answer.
    #[must_use]
    pub fn standby_connections(&self) -> ExactTable {
        self.nodes.get(self.standby()).map(Node::connections).unwrap_or_default()
    }

    /// How each node is; nothing of one that does not answer.
    #[must_use]
    pub fn statuses(&self) -> Vec<Status> {
        self.nodes.iter().filter_map(|node| node.status().ok()).collect()
    }

    /// The nodes' names, in their order.
    #[must_use]
    pub fn node_names(&self) -> Vec<&'static str> {
        self.nodes.iter().map(|node| node.name).collect()
    }

    /// Memory of the nodes that live, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.nodes.iter().filter_map(|node| usage::resident_bytes_of(node.child.id())).sum()
    }

    /// Processor time of each node so far, that of the active one first: either may be.
    #[must_use]
    pub fn cpu_times(&self) -> Vec<Duration> {
        let of = |node: &Node| usage::cpu_time_of(node.child.id()).unwrap_or_default();
        let mut times: Vec<_> = self.nodes.iter().map(of).collect();
        times.swap(0, self.active);
        times
    }

    /// Keeps the nodes on one of the machine's processors. False where that cannot be.
    #[must_use]
    pub fn keep_on_processor(&self, processor: usize) -> bool {
        self.nodes.iter().all(|node| usage::keep_on_processor(node.child.id(), processor))
    }

    /// Leaves configurations and logs where they are; returns where.
    pub fn keep_files(&mut self) -> PathBuf {
        self.directory.keep()
    }

    fn check_running(&mut self) -> Result<(), ClusterError> {
        for node in self.nodes.iter_mut().filter(|node| !node.is_killed) {
            if let Ok(Some(status)) = node.child.try_wait() {
                return Err(ClusterError::Ended { name: node.name, status, log: node.log_tail() });
            }
        }
        Ok(())
    }

    /// Notes which node is active.
    fn find_active(&mut self) -> Result<(), String> {
        let statuses = self.nodes.iter().map(|node| node.status().map(|status| status.node));
        let nodes = statuses.collect::<Result<Vec<_>, _>>()?;
        if self.shape == Shape::AllActive {
            (self.active, self.active_since_ns) = (0, multi_primary::since_when_each_has_its_group(&nodes)?);
            return Ok(());
        }
        let active = nodes.iter().position(|node| node.role == NodeRole::Active);
        match active {
            Some(active) if nodes.get(1 - active).is_none_or(|other| other.role == NodeRole::Standby) => {
                (self.active, self.active_since_ns) = (active, nodes[active].role_since_ns);
                Ok(())
            }
            _ => {
                let roles: Vec<&str> = nodes.iter().map(|node| node.role.name()).collect();
                Err(format!("the nodes are {}", roles.join(" and ")))
            }
        }
    }
}

/// Nothing passes the ports of the calling thread's namespace any more.
fn set_ports_down() -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    INTERFACES.iter().try_for_each(|interface| netlink.set_up(interface, false))
}

/// A private directory, removed with all that is in it unless it is to be kept.
pub(crate) struct Directory {
    pub(crate) path: PathBuf,
    is_kept: bool,
}

impl Directory {
    pub(crate) fn create() -> Result<Self, ClusterError> {
        let path = std::env::temp_dir().join(format!("mainstay-demo-{:016x}", packet_io::random::number()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => {
                let directory = Self { path, is_kept: false };
                key_file::write(&directory.key(), &key_file::draw())?;
                Ok(directory)
            }
            Err(source) => Err(ClusterError::Files { directory: path, source }),
        }
    }

    /// A file of a node's.
    fn file(&self, number: usize, extension: &str) -> PathBuf {
        self.path.join(format!("{}.{extension}", NAMES[number]))
    }

    /// Leaves it where it is; returns where.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.is_kept = true;
        self.path.clone()
    }

    /// The key that the nodes have in common.
    pub(crate) fn key(&self) -> PathBuf {
        self.path.join("cluster.key")
    }

    pub(crate) fn error(&self, source: io::Error) -> ClusterError {
        ClusterError::Files { directory: self.path.clone(), source }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if !self.is_kept {
            // There is no caller left for an error, and the system clears its temporary directory itself.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests;
