//! The two edges beside the cluster: a process each, in a namespace each, watched through their control sockets.

use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use packet_io::signal::die_with_parent;
use packet_io::usage;

use super::cluster::{ClusterError, Directory};
use super::topology::{EDGE_INTERFACES, Topology};
use super::watch::{Waited, Watch};
use api::{Event, Status};
use control::client::Client;

/// How long the edges may take until they receive all nodes.
const READY_WITHIN: Duration = Duration::from_secs(10);
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
        let directory = Directory::create()?;
        let mut processes = Vec::new();
        for (number, namespace) in topology.edges.iter().enumerate() {
            let [config, control_socket, log] =
                ["toml", "sock", "log"].map(|extension| directory.path.join(format!("{}.{extension}", NAMES[number])));
            let text = configuration(number, &control_socket) + sections;
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
        let is_ready = |status: &Status| {
            let nodes = status.edge.as_ref().map(|edge| &edge.nodes);
            nodes.is_some_and(|nodes| nodes.iter().all(|node| node.forwards))
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
fn configuration(number: usize, control_socket: &Path) -> String {
    let [network, nodes @ ..] = EDGE_INTERFACES;
    let of_node = |(id, interface)| format!("[[edge.node]]\nid = {id}\ninterface = {interface:?}\n\n");
    let nodes: String = nodes.into_iter().enumerate().map(of_node).collect();
    format!(
        "[node]\nid = {}\nname = \"{}\"\ncontrol_socket = {control_socket:?}\n\n[edge]\nnetwork = {network:?}\n\n{nodes}",
        FIRST_NUMBER + number,
        NAMES[number],
    )
}
