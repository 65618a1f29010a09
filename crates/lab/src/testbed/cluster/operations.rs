//! What an operator does to running nodes: other configurations, out of service and back, new processes.

use std::fs;
use std::time::{Duration, Instant};

use packet_io::signal::{self, Signal};

use super::super::topology::Topology;
use super::super::watch::{Waited, Watch};
use super::configuration::{configuration, security_configuration};
use super::node::{Node, start_node};
use super::{Cluster, ClusterError};
use api::ReloadReport;
use control::client::{Client, ClientError};

/// How long a node may take to end on request.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

impl Node {
    /// Has the node do something.
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClusterError> {
        let answer = Client::connect(&self.control_socket).and_then(|mut client| ask(&mut client));
        answer.map_err(|error| ClusterError::Refused { name: self.name, reason: error.to_string() })
    }

    /// Whether it has this role now.
    fn check_role(&self, wanted: &str) -> Result<(), String> {
        let role = self.status()?.node.role;
        if role == wanted { Ok(()) } else { Err(format!("node {} is {role}, not {wanted}", self.name)) }
    }
}

impl Cluster {
    /// The number of the active node.
    ///
    /// # Errors
    /// No node is, or a node does not answer.
    pub fn active(&mut self) -> Result<usize, ClusterError> {
        self.check_running()?;
        self.find_active().map_err(|reason| ClusterError::Refused { name: super::NAMES[self.active], reason })?;
        Ok(self.active)
    }

    /// Appends sections to a node's configuration, in place of those appended before, and has the node read it.
    ///
    /// # Errors
    /// The node does not put it in force.
    pub fn reload(&mut self, number: usize, appended: &str) -> Result<ReloadReport, ClusterError> {
        let node = &self.nodes[number];
        let text = configuration(number, (self.plan, self.shape), &node.control_socket)
            + &security_configuration(self.plan, &self.directory.key());
        let path = self.directory.path.join(format!("{}.toml", node.name));
        fs::write(path, format!("{text}\n{appended}")).map_err(|source| self.directory.error(source))?;
        let report = node.ask(|client| client.reload(false))?;
        if !report.applied {
            let reason = report.mistakes.iter().chain(&report.needs_restart).cloned().collect::<Vec<_>>().join("; ");
            return Err(ClusterError::Refused { name: node.name, reason });
        }
        Ok(report)
    }

    /// Drains the active node, waits until the other has taken over, and undrains it.
    ///
    /// # Errors
    /// The node refuses, or no node takes over.
    pub fn drain_and_undrain_active(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        let drained = self.active()?;
        self.nodes[drained].ask(|client| client.drain(false))?;
        self.wait_until(watch, |cluster| {
            cluster.nodes[drained].check_role("drained")?;
            cluster.nodes[1 - drained].check_role("active")
        })?;
        self.nodes[drained].ask(Client::undrain)?;
        self.wait_until_ready(watch)
    }

    /// Has a node end as a service manager would, starts it anew and waits until it could take over again.
    ///
    /// # Errors
    /// It does not end, or does not come back.
    pub fn restart(&mut self, topology: &Topology, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.check_running()?;
        let node = &mut self.nodes[number];
        signal::send(node.child.id(), Signal::Terminate)?;
        let waited = watch.until(Instant::now() + ENDS_WITHIN, || -> Result<bool, ClusterError> {
            let ended = node.child.try_wait();
            Ok(ended.map_err(|source| self.directory.error(source))?.is_some())
        })?;
        if waited == Waited::TooLate {
            let reason = format!("it has not ended within {} s", ENDS_WITHIN.as_secs());
            return Err(ClusterError::Refused { name: node.name, reason });
        }
        self.nodes[number] = start_node(topology, (self.plan, self.shape), &self.directory, number)?;
        self.wait_until_ready(watch)
    }
}
