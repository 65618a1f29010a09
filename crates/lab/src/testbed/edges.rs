//! The two edges beside the cluster: a process each, in a namespace each, watched through their control sockets.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packet_io::signal::die_with_parent;
use packet_io::usage;

use super::cluster::{ClusterError, Directory};
use super::topology::{EDGE_NETWORK, TO_NODES, Topology};
use super::watch::{Waited, Watch};
use api::{Event, Status};
use control::client::Client;

/// How long the edges may take until they receive all nodes.
const READY_WITHIN: Duration = Duration::from_secs(10);
/// How long the edges may take until they send no flows to a dead node.
const SWITCHED_OVER_WITHIN: Duration = Duration::from_secs(5);
/// The edges' names.
const NAMES: [&str; 2] = ["inside", "outside"];
/// The number of the first edge; nodes have lower ones.
const FIRST_NUMBER: usize = 200;

struct Process {
    child: Child,
    control_socket: PathBuf,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The running edges. Dropping it ends the processes and removes the files.
pub struct Edges {
    processes: Vec<Process>,
    directory: Directory,
}

impl Edges {
    /// Starts an edge on each side of the nodes. `sections` follows the interfaces in their configurations: local recovery and rate
    /// control.
    ///
    /// # Errors
    /// Files cannot be written, or processes not be started.
    pub fn start(topology: &Topology, sections: &str) -> Result<Self, ClusterError> {
        Self::start_with_key(topology, sections, None)
    }

    /// As [`Edges::start`], with a file that has the secret of their hash, so that nodes can compute where flows go.
    ///
    /// # Errors
    /// As [`Edges::start`].
    pub fn start_with_key(topology: &Topology, sections: &str, hash_key: Option<&Path>) -> Result<Self, ClusterError> {
        let directory = Directory::create()?;
        let mut processes = Vec::new();
        for (number, namespace) in topology.edges.iter().enumerate() {
            let [config, control_socket, log] =
                ["toml", "sock", "log"].map(|extension| directory.path.join(format!("{}.{extension}", NAMES[number])));
            let text = configuration(number, topology.nodes.len(), &control_socket, hash_key) + sections;
            fs::write(&config, text).map_err(|source| directory.error(source))?;
            let output = OpenOptions::new().create(true).append(true).open(&log);
            let program = std::env::current_exe().map_err(|source| directory.error(source))?;
            let mut command = Command::new(program);
            command.arg("edge").arg("--config").arg(&config);
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(output.map_err(|source| directory.error(source))?);
            die_with_parent(&mut command);
            processes.push(Process { child: namespace.spawn_command(command)?, control_socket, log });
        }
        Ok(Self { processes, directory })
    }

    /// Waits until each edge sends flows to all nodes.
    ///
    /// # Errors
    /// The deadline passed: with the ends of the logs.
    pub fn wait_until_ready(&self, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until_first_are_ready(watch, usize::MAX)
    }

    /// As [`Edges::wait_until_ready`], of the first `count` nodes.
    ///
    /// # Errors
    /// As there.
    pub fn wait_until_first_are_ready(&self, watch: &Watch, count: usize) -> Result<(), ClusterError> {
        let is_ready = |status: &Status| {
            let is_ready = |node: &api::EdgeNodeStatus| usize::from(node.id) >= count || node.forwards;
            status.edge.as_ref().is_some_and(|edge| edge.nodes.iter().all(is_ready))
        };
        let waited = watch.until(Instant::now() + READY_WITHIN, || -> Result<bool, ClusterError> {
            Ok(self.statuses().filter(is_ready).count() == self.processes.len())
        })?;
        if waited == Waited::Met {
            return Ok(());
        }
        let logs = self.processes.iter().map(|process| fs::read_to_string(&process.log).unwrap_or_default());
        Err(ClusterError::NotReady { reason: "an edge does not receive all nodes".into(), logs: logs.collect() })
    }

    /// Waits until no edge sends flows to these nodes.
    ///
    /// # Errors
    /// The deadline passed.
    pub fn wait_until_stopped(&self, watch: &Watch, nodes: &[usize]) -> Result<(), ClusterError> {
        let is_stopped = |status: &Status| {
            let forwards = |node: &api::EdgeNodeStatus| node.forwards && nodes.contains(&usize::from(node.id));
            status.edge.as_ref().is_some_and(|edge| !edge.nodes.iter().any(forwards))
        };
        let waited = watch.until(Instant::now() + SWITCHED_OVER_WITHIN, || -> Result<bool, ClusterError> {
            Ok(self.statuses().filter(is_stopped).count() == self.processes.len())
        })?;
        match waited {
            Waited::Met => Ok(()),
            Waited::TooLate => Err(ClusterError::NotReady {
                reason: "the edges did not find that a node is dead".into(),
                logs: String::new(),
            }),
        }
    }

    /// Leaves configurations and logs where they are; returns where.
    pub fn keep_files(&mut self) -> PathBuf {
        self.directory.keep()
    }

    /// How each edge is; nothing of one that does not answer.
    pub fn statuses(&self) -> impl Iterator<Item = Status> + '_ {
        self.processes.iter().filter_map(|process| Client::connect(&process.control_socket).ok()?.status().ok())
    }

    /// The events of both edges.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        let of_one = |process: &Process| {
            let client = Client::connect(&process.control_socket);
            client.and_then(|mut client| client.events()).unwrap_or_default()
        };
        self.processes.iter().flat_map(of_one).collect()
    }

    /// Processor time of each edge so far.
    #[must_use]
    pub fn cpu_times(&self) -> Vec<Duration> {
        self.processes.iter().map(|edge| usage::cpu_time_of(edge.child.id()).unwrap_or_default()).collect()
    }
}

/// An edge's configuration file, as far as its interfaces.
fn configuration(number: usize, nodes: usize, control_socket: &Path, hash_key: Option<&Path>) -> String {
    let of_node = |(id, interface)| format!("[[edge.node]]\nid = {id}\ninterface = {interface:?}\n\n");
    let nodes: String = TO_NODES.into_iter().take(nodes).enumerate().map(of_node).collect();
    let hash_key = hash_key.map_or_else(String::new, |path| format!("hash_key = {path:?}\n"));
    format!(
        "[node]\nid = {}\nname = \"{}\"\ncontrol_socket = {control_socket:?}\n\n[edge]\nnetwork = {EDGE_NETWORK:?}\n{hash_key}\n\
         {nodes}",
        FIRST_NUMBER + number,
        NAMES[number],
    )
}
