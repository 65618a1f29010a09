//! What an operator does to running nodes: other configurations, out of service and back, new processes.

use std::fs;
use std::time::{Duration, Instant};

use packet_io::netlink::{Netlink, Prefix};
use packet_io::signal::{self, Signal};

use super::super::topology::{INTERFACES, SYNC_PREFIX_BITS, Topology, second_sync_address};
use super::super::watch::{Waited, Watch};
use super::configuration::{configuration, security_configuration};
use super::node::Node;
use super::{Cluster, ClusterError, Members};
use api::{DetectorState, MemberStatus, NodeRole, PeerStatus, ReloadReport};
use control::client::{Client, ClientError};

/// How long a node may take to end on request.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

impl Node {
    /// Has the node do something.
    fn ask<T>(&self, ask: impl FnOnce(&mut Client) -> Result<T, ClientError>) -> Result<T, ClusterError> {
        let answer = Client::connect(&self.control_socket).and_then(|mut client| ask(&mut client));
        answer.map_err(|error| ClusterError::Refused { name: self.name, reason: error.to_string() })
    }

    /// Whether it reports that a failure now would lose nothing.
    fn check_safe(&self) -> Result<(), String> {
        let takeover = self.status()?.takeover;
        if takeover.ready { Ok(()) } else { Err(format!("node {}: {}", self.name, takeover.obstacles.join("; "))) }
    }

    /// Whether it has this role now.
    fn check_role(&self, wanted: NodeRole) -> Result<(), String> {
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
            cluster.nodes[drained].check_role(NodeRole::Drained)?;
            cluster.nodes[1 - drained].check_role(NodeRole::Active)
        })?;
        self.nodes[drained].ask(Client::undrain)?;
        self.wait_until_ready(watch)
    }

    /// Has a node end as a service manager would, starts it anew and waits until it could take over again.
    ///
    /// # Errors
    /// It does not end, or does not come back.
    pub fn restart(&mut self, topology: &Topology, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.stop(number, watch)?;
        self.restart_killed(topology, number)?;
        self.wait_until_ready(watch)
    }

    /// Has a node end as a service manager would.
    ///
    /// # Errors
    /// It does not end.
    pub fn stop(&mut self, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.check_running()?;
        let node = &mut self.nodes[number];
        node.is_killed = true;
        signal::send(node.child.id(), Signal::Terminate)?;
        let waited = watch.until(Instant::now() + ENDS_WITHIN, || -> Result<bool, ClusterError> {
            let ended = node.child.try_wait();
            Ok(ended.map_err(|source| self.directory.error(source))?.is_some())
        })?;
        if waited == Waited::TooLate {
            let reason = format!("it has not ended within {} s", ENDS_WITHIN.as_secs());
            return Err(ClusterError::Refused { name: node.name, reason });
        }
        Ok(())
    }

    /// Drains a node, and waits until it holds no addresses.
    ///
    /// # Errors
    /// It refuses, or keeps its addresses.
    pub fn drain(&mut self, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.nodes[number].ask(|client| client.drain(false))?;
        self.wait_until(watch, |cluster| cluster.nodes[number].check_role(NodeRole::Drained))
    }

    /// The other nodes read files in which this node is no peer, or is one again.
    ///
    /// # Errors
    /// One does not put them in force.
    pub fn reload_others(&mut self, number: usize, is_removed: bool) -> Result<(), ClusterError> {
        self.plan.tuning.removed = is_removed.then_some(number);
        let others = (0..self.nodes.len()).filter(|other| *other != number && !self.nodes[*other].is_killed);
        others.collect::<Vec<_>>().into_iter().try_for_each(|other| self.reload(other, "").map(drop))
    }

    /// A node has its second address on the replication link from its next start on. Where files have the list, the others read it now.
    ///
    /// # Errors
    /// The address cannot be added, or another node does not take it.
    pub fn move_node(&mut self, topology: &Topology, number: usize) -> Result<(), ClusterError> {
        let address = Prefix::new(second_sync_address(number), SYNC_PREFIX_BITS);
        topology.nodes[number].run(|| Netlink::open()?.add_address(INTERFACES[2], address))??;
        self.plan.tuning.moved = Some(number);
        if self.plan.tuning.members == Members::Files { self.reload_others(number, false) } else { Ok(()) }
    }

    /// Waits until the other nodes find a record of this one in the source of members, or none.
    ///
    /// # Errors
    /// One does not for too long.
    pub fn wait_for_record(&mut self, number: usize, is_there: bool, watch: &Watch) -> Result<(), ClusterError> {
        let is_of = |member: &MemberStatus| usize::from(member.id) == number && member.recorded;
        self.wait_until(watch, |cluster| {
            cluster.others(number).try_for_each(|node| {
                let membership = node.status()?.membership.ok_or("the members are not in a source")?;
                let is_recorded = membership.members.iter().any(is_of);
                let found = format!("node {} finds a record of node {number}: {is_recorded}", node.name);
                if is_recorded == is_there { Ok(()) } else { Err(found) }
            })
        })
    }

    /// Waits until this node is no peer of any other.
    ///
    /// # Errors
    /// It is one for too long.
    pub fn wait_until_removed(&mut self, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| {
            cluster.others(number).try_for_each(|node| {
                let is_peer = node.status()?.peers.iter().any(|peer| usize::from(peer.id) == number);
                if is_peer { Err(format!("node {number} is a peer of node {}", node.name)) } else { Ok(()) }
            })
        })
    }

    /// As [`Cluster::wait_until_safe`], of all nodes but this one.
    ///
    /// # Errors
    /// As there.
    pub fn wait_until_others_are_safe(&mut self, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| cluster.others(number).try_for_each(Node::check_safe))
    }

    /// Waits until no other node takes a node that has ended for one that is up.
    ///
    /// # Errors
    /// One does for too long.
    pub fn wait_until_left(&mut self, number: usize, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| {
            cluster.others(number).try_for_each(|node| {
                let is_up = |peer: &PeerStatus| usize::from(peer.id) == number && peer.detector == DetectorState::Up;
                let has_noticed = !node.status()?.peers.iter().any(is_up);
                if has_noticed { Ok(()) } else { Err(format!("node {} takes the node for up", node.name)) }
            })
        })
    }

    /// Waits until each node that runs reports that a failure now would lose nothing.
    ///
    /// # Errors
    /// One does not for too long: with its reasons.
    pub fn wait_until_safe(&mut self, watch: &Watch) -> Result<(), ClusterError> {
        self.wait_until(watch, |cluster| {
            cluster.nodes.iter().filter(|node| !node.is_killed).try_for_each(Node::check_safe)
        })
    }

    /// The nodes that run, without this one.
    fn others(&self, number: usize) -> impl Iterator<Item = &Node> {
        let others = self.nodes.iter().enumerate().filter(move |(other, node)| *other != number && !node.is_killed);
        others.map(|(_, node)| node)
    }
}
