//! A node of the cluster: a process with its files.

use std::fs::{self, OpenOptions};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use packet_io::signal::die_with_parent;

use super::super::exact_table::ExactTable;
use super::super::topology::Topology;
use super::configuration::{ClusterPlan, NAMES, Shape, configuration, security_configuration};
use super::{ClusterError, Directory};
use api::{DetectorState, FlowFilterText, Status};
use control::client::Client;

/// Lines of a node's log that an error shows.
const LOG_TAIL_LINES: usize = 12;

pub(super) struct Node {
    pub(super) name: &'static str,
    pub(super) child: Child,
    pub(super) control_socket: PathBuf,
    pub(super) log: PathBuf,
    /// It was killed on purpose.
    pub(super) is_killed: bool,
}

impl Drop for Node {
    fn drop(&mut self) {
        // A child that has ended already cannot be killed, and need not be.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    pub(super) fn status(&self) -> Result<Status, String> {
        let status = Client::connect(&self.control_socket).and_then(|mut client| client.status());
        status.map_err(|error| format!("node {} does not answer: {error}", self.name))
    }

    pub(super) fn connections(&self) -> ExactTable {
        let mut table = ExactTable::default();
        // One that does not answer has none that could be compared.
        let _ = Client::connect(&self.control_socket)
            .and_then(|mut client| client.flows(FlowFilterText::default(), u64::MAX, |flow| table.enter(flow)));
        table
    }

    /// Returns what is missing until the node knows of the first `nodes`, of which it is one, all that it should.
    pub(super) fn check_peers(&self, nodes: usize, is_replicated: bool) -> Result<(), String> {
        let status = self.status()?;
        let peers = || status.peers.iter().filter(|peer| usize::from(peer.id) < nodes);
        if peers().count() + 1 < nodes {
            return Err(format!("node {} has {} of {} peers", self.name, peers().count(), nodes - 1));
        }
        for peer in peers() {
            let other = NAMES.get(usize::from(peer.id)).copied().unwrap_or("of another cluster");
            if peer.detector != DetectorState::Up {
                return Err(format!("node {} does not receive from node {other}", self.name));
            }
            if is_replicated && !peer.synchronised {
                return Err(format!("node {} is not synchronised with node {other}", self.name));
            }
        }
        Ok(())
    }

    /// Returns what is missing until the node knows so many members, itself included, from a source that it reaches.
    pub(super) fn check_members(&self, nodes: usize) -> Result<(), String> {
        let status = self.status()?;
        let membership = status.membership.ok_or_else(|| format!("node {} has its members in its file", self.name))?;
        let recorded = membership.members.iter().filter(|member| member.recorded).count();
        if !membership.reachable || recorded + 1 < nodes {
            let error = membership.error.unwrap_or_default();
            return Err(format!("node {} knows {recorded} other members: {error}", self.name));
        }
        Ok(())
    }

    pub(super) fn log_tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        let tail = &lines[lines.len().saturating_sub(LOG_TAIL_LINES)..];
        if tail.is_empty() { "  (nothing)".into() } else { tail.iter().map(|line| format!("  {line}\n")).collect() }
    }
}

pub(super) fn start_node(
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
pub(super) fn start_configured(
    topology: &Topology,
    directory: &Directory,
    number: usize,
    text: &str,
) -> Result<Node, ClusterError> {
    let program = std::env::current_exe().map_err(|source| directory.error(source))?;
    start_by(topology, directory, (number, text), Command::new(program))
}

/// Starts a node with this configuration by a command that needs the arguments alone: the program, or one that runs it.
pub(super) fn start_by(
    topology: &Topology,
    directory: &Directory,
    (number, text): (usize, &str),
    mut command: Command,
) -> Result<Node, ClusterError> {
    let [config, control_socket, log] = ["toml", "sock", "log"].map(|extension| directory.file(number, extension));
    fs::write(&config, text).map_err(|source| directory.error(source))?;
    // A node that is started again goes on in its log.
    let output = OpenOptions::new().create(true).append(true).open(&log).map_err(|source| directory.error(source))?;
    command.arg("gateway").arg("--config").arg(&config);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    die_with_parent(&mut command);
    let child = topology.nodes[number].spawn_command(command)?;
    Ok(Node { name: NAMES[number], child, control_socket, log, is_killed: false })
}
