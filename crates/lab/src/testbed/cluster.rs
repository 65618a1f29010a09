//! Two gateway nodes, or one alone, as an operator would run them: a configuration file each, a process each, watched
//! through their control sockets.

mod failures;
mod function;
mod multi_primary;
mod operations;
mod tuning;

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use packet_io::namespace::Namespace;
use packet_io::netlink::Netlink;
use packet_io::signal::{self, die_with_parent};
use packet_io::{IoError, usage};

pub use self::failures::Identity;
pub use self::function::Function;
pub use self::tuning::{SPARE_CONNECTIONS, Tuning};

use super::clock::Epoch;
use super::exact_table::ExactTable;
use super::topology::{CLIENT, INSIDE, INTERFACES, OUTSIDE, SYNC, Topology};
use super::watch::{Waited, Watch, WatchError};
use api::{Event, FlowFilterText, Status};
use config::key_file;
use config::validated::{Backend, Representation};
use control::client::Client;

/// How long the nodes may take until they are ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// UDP port of the replication link.
pub const REPLICATION_PORT: u16 = 3781;
/// Lines of a node's log that an error shows.
const LOG_TAIL_LINES: usize = 12;
/// How long a connection's first reply waits for the standby to have the connection, at most.
const HOLD_FIRST_REPLY: &str = "250ms";
/// The nodes' names, in the order of their numbers.
pub const NAMES: [&str; 2] = ["a", "b"];

/// How the nodes are to be run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClusterPlan {
    /// There is a node b that stands by; without, node a is alone.
    pub has_standby: bool,
    /// Connections are replicated to the standby.
    pub is_replicated: bool,
    /// Connections that a node can hold.
    pub connections_max: usize,
    /// Workers of each node.
    pub workers: u8,
    /// What serves the nodes' ports.
    pub backend: Backend,
    /// What experiments vary.
    pub tuning: Tuning,
}

/// How the nodes share the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// One has all addresses, the other stands by.
    #[default]
    OneActive,
    /// Each has a group of addresses, and stands by for the other's.
    BothActive,
}

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

struct Node {
    name: &'static str,
    child: Child,
    control_socket: PathBuf,
    log: PathBuf,
}

/// The running nodes. Dropping it ends the processes and removes the files.
pub struct Cluster {
    /// Node a, then node b where there is one.
    nodes: Vec<Node>,
    plan: ClusterPlan,
    shape: Shape,
    /// Which of them is active, or the one that is to be killed where both are.
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

    /// As [`Cluster::start`], of this shape; for both active the topology must have
    /// [ways](super::ways) by either.
    ///
    /// # Errors
    /// Files cannot be written or processes not be started.
    pub fn start_as(shape: Shape, topology: &Topology, plan: ClusterPlan) -> Result<Self, ClusterError> {
        let directory = Directory::create()?;
        plan.tuning.function.write_files(&directory.path).map_err(|source| directory.error(source))?;
        let numbers = 0..=usize::from(plan.has_standby);
        let start = |number| start_node(topology, (plan, shape), &directory, number);
        let nodes = numbers.map(start).collect::<Result<_, _>>()?;
        Ok(Self { nodes, plan, shape, active: 0, active_since_ns: 0, directory })
    }

    /// Waits until one node is active (or each for its group) and the other could take over (without replication: until
    /// both receive from each other).
    ///
    /// # Errors
    /// A node ended, or the deadline passed: with the ends of the logs.
    pub fn wait_until_ready(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| {
            cluster.find_active()?;
            let ClusterPlan { has_standby, is_replicated, .. } = cluster.plan;
            let mut watched = cluster.nodes.iter().filter(|_| has_standby);
            watched.try_for_each(|node| node.check_peer(is_replicated))
        })
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
        assert_eq!(self.plan.tuning.fast_path_connections_max, 0, "the kernel forwards on after the process has died");
        self.check_roles()?;
        let child = &mut self.nodes[self.active].child;
        let killed_at = Epoch::now();
        let ended = child.kill().and_then(|()| child.wait());
        ended.map_err(|source| self.directory.error(source))?;
        Ok(killed_at)
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

    /// Memory of the nodes that live, in bytes.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        self.nodes.iter().filter_map(|node| usage::resident_bytes_of(node.child.id())).sum()
    }

    /// Processor time of each node so far.
    #[must_use]
    pub fn cpu_times(&self) -> Vec<Duration> {
        self.nodes.iter().map(|node| usage::cpu_time_of(node.child.id()).unwrap_or_default()).collect()
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
        for node in &mut self.nodes {
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
        if self.shape == Shape::BothActive {
            (self.active, self.active_since_ns) = (0, multi_primary::since_when_each_has_its_group(&nodes)?);
            return Ok(());
        }
        let active = nodes.iter().position(|node| node.role == "active");
        match active {
            Some(active) if nodes.get(1 - active).is_none_or(|other| other.role == "standby") => {
                (self.active, self.active_since_ns) = (active, nodes[active].role_since_ns);
                Ok(())
            }
            _ => {
                let roles: Vec<&str> = nodes.iter().map(|node| node.role.as_str()).collect();
                Err(format!("the nodes are {}", roles.join(" and ")))
            }
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn status(&self) -> Result<Status, String> {
        let status = Client::connect(&self.control_socket).and_then(|mut client| client.status());
        status.map_err(|error| format!("node {} does not answer: {error}", self.name))
    }

    fn connections(&self) -> ExactTable {
        let mut table = ExactTable::default();
        // One that does not answer has none that could be compared.
        let _ = Client::connect(&self.control_socket)
            .and_then(|mut client| client.flows(FlowFilterText::default(), u64::MAX, |flow| table.enter(flow)));
        table
    }

    /// Returns what is missing until the nodes know of each other all that they should.
    fn check_peer(&self, is_replicated: bool) -> Result<(), String> {
        let status = self.status()?;
        let Some(peer) = status.peers.first() else { return Err(format!("node {} has no peer", self.name)) };
        if peer.detector != "up" {
            return Err(format!("node {} does not receive from the other", self.name));
        }
        if is_replicated && !peer.synchronised {
            return Err(format!("node {} is not synchronised with the other", self.name));
        }
        Ok(())
    }

    fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        if tail.is_empty() { "  (nothing)".into() } else { tail.iter().map(|line| format!("  {line}\n")).collect() }
    }
}

fn start_node(
    topology: &Topology,
    (plan, shape): (ClusterPlan, Shape),
    directory: &Directory,
    number: usize,
) -> Result<Node, ClusterError> {
    let control_socket = directory.file(number, "sock");
    let text = configuration(number, (plan, shape), &control_socket) + &security_configuration(plan, &directory.key());
    start_configured(topology, directory, number, &text)
}

/// Starts a node with this configuration.
fn start_configured(
    topology: &Topology,
    directory: &Directory,
    number: usize,
    text: &str,
) -> Result<Node, ClusterError> {
    let [config, control_socket, log] = ["toml", "sock", "log"].map(|extension| directory.file(number, extension));
    fs::write(&config, text).map_err(|source| directory.error(source))?;
    // A node that is started again goes on in its log.
    let output = OpenOptions::new().create(true).append(true).open(&log).map_err(|source| directory.error(source))?;
    let program = std::env::current_exe().map_err(|source| directory.error(source))?;
    let mut command = Command::new(program);
    command.arg("gateway").arg("--config").arg(&config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    die_with_parent(&mut command);
    let child = topology.nodes[number].spawn_command(command)?;
    Ok(Node { name: NAMES[number], child, control_socket, log })
}

/// Nothing passes the ports of the calling thread's namespace any more.
fn set_ports_down() -> Result<(), IoError> {
    let mut netlink = Netlink::open()?;
    INTERFACES.iter().try_for_each(|interface| netlink.set_up(interface, false))
}

/// A node's configuration file.
#[must_use]
pub fn configuration(number: usize, (plan, shape): (ClusterPlan, Shape), control_socket: &Path) -> String {
    let ClusterPlan { has_standby, connections_max, workers, backend, .. } = plan;
    let mut text = format!(
        "{}[node]\nid = {number}\nname = \"{}\"\nnodes = {}\npriority = {}\ncontrol_socket = {control_socket:?}\n{}\n",
        plan.tuning.function.chain(),
        NAMES[number],
        if has_standby { 2 } else { 1 },
        200 - 100 * number,
        plan.tuning.node(),
    );
    let ports = match shape {
        Shape::OneActive => {
            [INSIDE, OUTSIDE].map(|shared| format!("addresses = {}\n", multi_primary::addresses(shared)))
        }
        Shape::BothActive => {
            text.push_str(&multi_primary::groups(number));
            multi_primary::port_addresses()
        }
    };
    for (name, shared) in INTERFACES.into_iter().zip(ports) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\nbackend = {:?}\n{}{shared}\n",
            backend.name(),
            if plan.tuning.redirects_peer { "redirect_peer = true\n" } else { "" },
        );
    }
    let _ = write!(
        text,
        "[limits]\nconnections_max = {connections_max}\n\n[workers]\ncount = {workers}\n\n\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"{}\"\naction = \"accept\"\n\n",
        INTERFACES[0]
    );
    if shape == Shape::BothActive {
        text.push_str(&multi_primary::translations());
    }
    let clients = CLIENT.into_iter().zip(OUTSIDE).filter(|_| plan.tuning.function.translates_clients());
    for (client, shared) in clients {
        let mapping = plan.tuning.mapping();
        let _ = write!(text, "[[nat.source]]\nsource = [\"{client}\"]\nto = [\"{shared}\"]\n{mapping}\n");
    }
    text.push_str(&plan.tuning.function.sections(control_socket.parent().unwrap_or(Path::new("."))));
    text.push_str(&plan.tuning.sections());
    if plan.is_replicated {
        text.push_str(&plan.tuning.filter(plan.connections_max));
    }
    if has_standby {
        text.push_str(&peer_configuration(number, plan));
    }
    text
}

/// The part of a node's configuration about the other node.
fn peer_configuration(number: usize, plan: ClusterPlan) -> String {
    let other = 1 - number;
    let representation = if plan.is_replicated { plan.tuning.representation } else { Representation::None };
    let experimental = if representation.is_experimental() { "experimental = true\n" } else { "" };
    let representation = representation.name();
    format!(
        "[replication]\n{experimental}local = \"{}:{REPLICATION_PORT}\"\nrepresentation = \"{representation}\"\n\
         {}\n\
         [[replication.peer]]\nid = {other}\naddress = \"{}:{REPLICATION_PORT}\"\n\n\
         [failure_detection]\ninterval = \"{}ms\"\nmultiplier = 10\n{}",
        SYNC[number],
        plan.tuning.replication(HOLD_FIRST_REPLY, plan.is_replicated),
        SYNC[other],
        plan.tuning.heartbeat_interval.as_millis(),
        if plan.tuning.has_edges { "edges_max = 4\n" } else { "" },
    )
}

/// The nodes share a key.
fn security_configuration(plan: ClusterPlan, key: &Path) -> String {
    if plan.tuning.is_plain {
        return "\n[replication.security]\nmode = \"plain\"\n".into();
    }
    if plan.has_standby { format!("\n[replication.security]\npre_shared_keys = [{key:?}]\n") } else { String::new() }
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
