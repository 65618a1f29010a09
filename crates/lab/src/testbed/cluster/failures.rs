//! What happens to single nodes in [failures](super::super::failures), and their status meanwhile.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;

use super::super::topology::Topology;
use super::configuration::{configuration, security_configuration};
use super::function::token_file;
use super::node::{start_by, start_configured, start_node};
use super::{Cluster, ClusterError, ClusterPlan, Directory, Shape};
use api::{Event, Query, Request, VERSION};
use config::key_file;
use control::client::{Client, ClientError};

/// How long a node may take to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// A wall clock that is ahead, by libfaketime.
#[derive(Clone, Debug)]
pub struct FalseClock {
    library: std::path::PathBuf,
    ahead: Duration,
}

impl FalseClock {
    /// One that is so far ahead; `None`: libfaketime is not installed.
    #[must_use]
    pub fn new(ahead: Duration) -> Option<Self> {
        let folders = ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(std::path::PathBuf::from);
        let of_machine = folders
            .iter()
            .flat_map(|folder| [folder.clone(), folder.join(format!("{}-linux-gnu", std::env::consts::ARCH))]);
        let mut libraries = of_machine.map(|folder| folder.join("faketime/libfaketimeMT.so.1"));
        libraries.find(|library| library.exists()).map(|library| Self { library, ahead })
    }
}

/// As what the second node is started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Identity {
    /// As configured.
    Own,
    /// With a key that the first node does not have.
    OtherKey,
    /// With the first node's number, as when its configuration file was copied.
    FirstNodesId,
}

impl Cluster {
    /// Starts the first node alone; the second can come later.
    ///
    /// # Errors
    /// Files cannot be written or the process not be started.
    pub fn start_first(topology: &Topology, plan: ClusterPlan) -> Result<Self, ClusterError> {
        let (directory, shape) = (Directory::create()?, Shape::OneActive);
        let nodes = vec![start_node(topology, (plan, shape), &directory, 0)?];
        Ok(Self { nodes, plan, shape, active: 0, active_since_ns: 0, directory })
    }

    /// Starts the second node, in place of the process that was there before.
    ///
    /// # Errors
    /// Files cannot be written or the process not be started.
    pub fn start_second(&mut self, topology: &Topology, identity: Identity) -> Result<(), ClusterError> {
        // Dropping a node ends its process.
        self.nodes.truncate(1);
        let key = self.key_of(identity)?;
        let control_socket = self.directory.file(1, "sock");
        let text =
            configuration(1, (self.plan, self.shape), &control_socket) + &security_configuration(self.plan, &key);
        let text = if identity == Identity::FirstNodesId { with_first_nodes_id(&text) } else { text };
        let node = start_configured(topology, &self.directory, 1, &text)?;
        self.nodes.push(node);
        Ok(())
    }

    /// Starts a node that has ended, with a wall clock that is ahead. The monotonic clock is the machine's.
    ///
    /// # Errors
    /// Files cannot be written or the process not be started.
    pub fn start_with_clock_ahead(
        &mut self,
        topology: &Topology,
        number: usize,
        clock: &FalseClock,
    ) -> Result<(), ClusterError> {
        let control_socket = self.directory.file(number, "sock");
        let text = configuration(number, (self.plan, self.shape), &control_socket)
            + &security_configuration(self.plan, &self.directory.key());
        let program = std::env::current_exe().map_err(|source| self.directory.error(source))?;
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", &clock.library).env("FAKETIME", format!("+{}", clock.ahead.as_secs()));
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("FAKETIME_DONT_RESET", "1");
        self.nodes[number] = start_by(topology, &self.directory, (number, &text), command)?;
        Ok(())
    }

    /// A client of a node's control socket.
    ///
    /// # Errors
    /// It does not answer.
    pub fn client(&self, number: usize) -> Result<Client, ClusterError> {
        let node = &self.nodes[number];
        let refused = |error: ClientError| ClusterError::Refused { name: node.name, reason: error.to_string() };
        Client::connect(&node.control_socket).map_err(refused)
    }

    /// The file with the operator's token, where the nodes have [guards](super::Function::Guards).
    #[must_use]
    pub fn token_file(&self) -> std::path::PathBuf {
        token_file(&self.directory.path)
    }

    fn key_of(&self, identity: Identity) -> Result<std::path::PathBuf, ClusterError> {
        if identity != Identity::OtherKey {
            return Ok(self.directory.key());
        }
        let other = self.directory.path.join("other.key");
        if !other.exists() {
            key_file::write(&other, &key_file::draw())?;
        }
        Ok(other)
    }

    /// A node's status as JSON; nothing when it does not answer.
    #[must_use]
    pub fn raw_status(&self, number: usize) -> Option<Value> {
        let node = self.nodes.get(number)?;
        raw_answer(&node.control_socket, Query::Status)?.into_iter().find(|line| line["line"] == "status")
    }

    /// A node's counters as JSON; none when it does not answer.
    #[must_use]
    pub fn raw_counters(&self, number: usize) -> Vec<Value> {
        let answer = self.nodes.get(number).and_then(|node| raw_answer(&node.control_socket, Query::Counters));
        answer.unwrap_or_default()
    }

    /// A node's events; nothing when it does not answer.
    #[must_use]
    pub fn events_of(&self, number: usize) -> Vec<Event> {
        let ask =
            |node: &super::node::Node| Client::connect(&node.control_socket).and_then(|mut client| client.events());
        self.nodes.get(number).and_then(|node| ask(node).ok()).unwrap_or_default()
    }

    /// What a node has logged so far.
    #[must_use]
    pub fn log_of(&self, number: usize) -> String {
        let bytes = self.nodes.get(number).and_then(|node| fs::read(&node.log).ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Runs `mainstay drain` as an operator would; returns how it ended and what it printed.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn drain_by_command(&self, number: usize) -> Result<Output, ClusterError> {
        let program = std::env::current_exe().map_err(|source| self.directory.error(source))?;
        let mut command = Command::new(program);
        command.arg("drain").arg("--socket").arg(&self.nodes[number].control_socket);
        command.output().map_err(|source| self.directory.error(source))
    }

    /// Takes a drained node back into service.
    ///
    /// # Errors
    /// It refuses.
    pub fn undrain(&self, number: usize) -> Result<(), ClusterError> {
        let node = &self.nodes[number];
        let answer: Result<(), ClientError> =
            Client::connect(&node.control_socket).and_then(|mut client| client.undrain());
        answer.map_err(|error| ClusterError::Refused { name: node.name, reason: error.to_string() })
    }
}

/// The second node's configuration with the first one's number, and the peer's number exchanged likewise.
fn with_first_nodes_id(text: &str) -> String {
    let own = text.replacen("[node]\nid = 1\n", "[node]\nid = 0\n", 1);
    own.replacen("[[replication.peer]]\nid = 0\n", "[[replication.peer]]\nid = 1\n", 1)
}

/// The lines of an answer before its end, as they are; nothing when there is no whole answer.
fn raw_answer(socket: &Path, query: Query) -> Option<Vec<Value>> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(ANSWER_WITHIN)).ok()?;
    let mut request = serde_json::to_vec(&Request { version: VERSION, query }).ok()?;
    request.push(b'\n');
    stream.write_all(&request).ok()?;
    let mut lines = Vec::new();
    for line in BufReader::new(stream).lines() {
        let line: Value = serde_json::from_str(&line.ok()?).ok()?;
        match line["line"].as_str() {
            Some("end") => return Some(lines),
            Some("error") => return None,
            _ => lines.push(line),
        }
    }
    None
}
