//! The configuration files that the nodes are given.

use std::fmt::Write as _;
use std::path::Path;

use super::super::topology::{CLIENT, INSIDE, INTERFACES, NODES_MAX, OUTSIDE};
use super::multi_primary;
use super::tuning::{Members, Tuning};
use config::validated::{Backend, Representation};

/// How long a connection's first reply waits for its backups to have the connection, at most.
const HOLD_FIRST_REPLY: &str = "250ms";

/// UDP port of the replication link.
pub const REPLICATION_PORT: u16 = 3781;
/// The nodes' names, in the order of their numbers.
pub const NAMES: [&str; NODES_MAX] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// How the nodes are to be run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ClusterPlan {
    /// Nodes that are started at first: 1 to [`NODES_MAX`], as many as the network has or fewer. Of two, the second may stand by; more are all active.
    pub nodes: usize,
    /// Connections are replicated to other nodes.
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

impl ClusterPlan {
    /// The nodes, with those that may join later.
    pub(super) const fn nodes_max(&self) -> usize {
        self.nodes + self.tuning.may_join
    }
}

/// How the nodes share the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Shape {
    /// One has all addresses, the other stands by.
    #[default]
    OneActive,
    /// Each has a group of addresses, and stands by for those of others.
    AllActive,
}

/// A node's configuration file.
#[must_use]
pub fn configuration(number: usize, (plan, shape): (ClusterPlan, Shape), control_socket: &Path) -> String {
    let (ClusterPlan { connections_max, workers, backend, .. }, nodes) = (plan, plan.nodes_max());
    let mut text = format!(
        "{}[node]\nid = {number}\nname = \"{}\"\nnodes = {nodes}\npriority = {}\ncontrol_socket = {control_socket:?}\n{}\n",
        plan.tuning.function.chain(),
        NAMES[number],
        if number == 0 { 200 } else { 100 },
        plan.tuning.node(),
    );
    let ports = match shape {
        Shape::OneActive => {
            [INSIDE, OUTSIDE].map(|shared| format!("addresses = {}\n", multi_primary::addresses(shared)))
        }
        Shape::AllActive => {
            text.push_str(&multi_primary::groups(number, nodes));
            multi_primary::port_addresses(nodes)
        }
    };
    for (name, shared) in INTERFACES.into_iter().zip(ports) {
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "[[port]]\nname = \"{name}\"\ninterface = \"{name}\"\nbackend = {:?}\n{}{}{shared}\n",
            backend.name(),
            if plan.tuning.believes_all_sources { "reverse_path = \"off\"\n" } else { "" },
            if plan.tuning.redirects_peer { "redirect_peer = true\n" } else { "" },
        );
    }
    let _ = write!(
        text,
        "[limits]\nconnections_max = {connections_max}\n\n[workers]\ncount = {workers}\n\n\
         [[firewall.rule]]\nname = \"out\"\nfrom = \"{}\"\naction = \"{}\"\n\n",
        INTERFACES[0],
        if plan.tuning.accepts { "accept" } else { "drop" },
    );
    if shape == Shape::AllActive {
        text.push_str(&multi_primary::translations());
    }
    let clients = CLIENT.into_iter().zip(OUTSIDE).filter(|_| plan.tuning.function.translates_clients());
    for (client, shared) in clients {
        let mapping = plan.tuning.mapping();
        let _ = write!(text, "[[nat.source]]\nsource = [\"{client}\"]\nto = [\"{shared}\"]\n{mapping}\n");
    }
    let folder = control_socket.parent().unwrap_or(Path::new("."));
    text.push_str(&plan.tuning.function.sections(folder));
    text.push_str(&plan.tuning.sections());
    if plan.is_replicated {
        text.push_str(&plan.tuning.filter(plan.connections_max));
    }
    if nodes > 1 {
        text.push_str(&peer_configuration(number, plan));
        text.push_str(&plan.tuning.backups(nodes, folder));
        text.push_str(&plan.tuning.membership(number));
    }
    text
}

/// The part of a node's configuration about the other nodes.
fn peer_configuration(number: usize, plan: ClusterPlan) -> String {
    let representation = if plan.is_replicated { plan.tuning.representation } else { Representation::None };
    let experimental = if representation.is_experimental() { "experimental = true\n" } else { "" };
    let representation = representation.name();
    let others = (0..plan.nodes_max()).filter(|other| *other != number && plan.tuning.members == Members::Files);
    let others = others.filter(|other| plan.tuning.removed != Some(*other));
    let peers = others.map(|other| {
        format!(
            "[[replication.peer]]\nid = {other}\naddress = \"{}:{REPLICATION_PORT}\"\n\n",
            plan.tuning.sync_address(other)
        )
    });
    format!(
        "[replication]\n{experimental}local = \"{}:{REPLICATION_PORT}\"\nrepresentation = \"{representation}\"\n\
         {}\n{}[failure_detection]\ninterval = \"{}ms\"\nmultiplier = 10\n{}",
        plan.tuning.sync_address(number),
        plan.tuning.replication(HOLD_FIRST_REPLY, plan.is_replicated),
        peers.collect::<String>(),
        plan.tuning.heartbeat_interval.as_millis(),
        if plan.tuning.has_edges { "edges_max = 4\n" } else { "" },
    )
}

/// The edges have the key of the nodes.
pub(super) fn edge_security(plan: ClusterPlan, key: &Path) -> String {
    if plan.tuning.is_plain || plan.nodes < 2 {
        return "\n[security]\nmode = \"plain\"\n".into();
    }
    format!("\n[security]\npre_shared_keys = [{key:?}]\n")
}

/// The nodes share a key.
pub(super) fn security_configuration(plan: ClusterPlan, key: &Path) -> String {
    if plan.tuning.is_plain {
        return "\n[replication.security]\nmode = \"plain\"\n".into();
    }
    if plan.nodes > 1 { format!("\n[replication.security]\npre_shared_keys = [{key:?}]\n") } else { String::new() }
}
