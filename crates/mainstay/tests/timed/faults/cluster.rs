//! Two gateways in the demonstration's network, and what can be done to them.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use api::{PeerStatus, Status};
use config::validated::Backend;
use lab::testbed::cluster::{ClusterPlan, NAMES, Shape, Tuning, configuration};
use lab::testbed::topology::{INTERFACES, Topology};
use packet_io::netlink::Netlink;
use packet_io::signal;

use super::wait_for;
use crate::common::program::{Folder, Program, write_configuration};

/// The link between the nodes.
const SYNC: &str = INTERFACES[2];
/// Connections that a node has room for.
pub(crate) const CONNECTIONS_MAX: usize = 4096;

/// Two nodes: 0 is a, which has the higher priority, 1 is b.
pub(crate) struct Cluster {
    pub(crate) topology: Arc<Topology>,
    folder: Folder,
    /// Added to the configurations of nodes that are started from now on.
    pub(crate) added: String,
    nodes: [Option<Program>; 2],
    /// Failures are detected over the links of the ports as well.
    service_paths: bool,
    /// The key of the channels; `None`: in plain text.
    key: Option<PathBuf>,
}

impl Cluster {
    /// The network, without nodes.
    pub(crate) fn new(name: &str) -> Self {
        let topology = Arc::new(Topology::build().expect("the network can be built"));
        let folder = Folder::new(&format!("fault-{name}"));
        Self { topology, folder, added: String::new(), nodes: [None, None], service_paths: true, key: None }
    }

    /// Both nodes, a active and b synchronised.
    pub(crate) fn ready(name: &str) -> Self {
        Self::new(name).started()
    }

    /// As [`Cluster::ready`]; failures are detected over the replication link alone, so that a cut of it parts the nodes.
    pub(crate) fn ready_with_one_path(name: &str) -> Self {
        let mut cluster = Self::new(name);
        cluster.service_paths = false;
        cluster.started()
    }

    /// As [`Cluster::ready`]; the traffic between the nodes is encrypted.
    pub(crate) fn ready_and_encrypted(name: &str) -> Self {
        let mut cluster = Self::new(name);
        cluster.key = Some(cluster.folder.make_key("cluster.key"));
        cluster.started()
    }

    fn started(mut self) -> Self {
        self.start(0);
        // Of two nodes that start together on a busy machine, either can become active.
        wait_for("node a to be active", || self.role(0) == "active", || self.story());
        self.start(1);
        self.wait_until_ready(0);
        self
    }

    /// Starts a node as the demonstration configures it.
    pub(crate) fn start(&mut self, number: usize) {
        self.start_with(number, CONNECTIONS_MAX, &[]);
    }

    /// Starts a node with room for so many connections, by a program that runs others (and the program's arguments).
    pub(crate) fn start_with(&mut self, number: usize, connections_max: usize, through: &[&str]) {
        let plan = ClusterPlan {
            nodes: 2,
            is_replicated: true,
            connections_max,
            workers: 1,
            backend: Backend::default(),
            tuning: Tuning::default(),
        };
        let socket = self.folder.join(NAMES[number]).with_extension("sock");
        // In plain text: some peers are no gateways, and send what no gateway would.
        let security = match &self.key {
            None => "mode = \"plain\"".to_owned(),
            Some(key) => format!("pre_shared_keys = [{key:?}]"),
        };
        let text = configuration(number, (plan, Shape::OneActive), &socket)
            + &format!("\n[replication.security]\n{security}\n")
            + &self.added;
        let section = "[failure_detection]\n";
        let text = text.replace(section, &format!("{section}service_paths = {}\n", self.service_paths));
        write_configuration(&self.folder, NAMES[number], &text);
        let words = [through, &[env!("CARGO_BIN_EXE_mainstay"), "gateway"]].concat();
        let namespace = &self.topology.nodes[number];
        self.nodes[number] = Some(Program::start_as_configured(namespace, &self.folder, NAMES[number], &words));
    }

    /// Kills a node as a power cut would.
    pub(crate) fn kill(&mut self, number: usize) {
        self.nodes[number].take().expect("it runs").kill();
    }

    /// Has a node's process stand still.
    pub(crate) fn pause(&self, number: usize) {
        signal::pause(self.process(number)).expect("it runs");
    }

    /// Has it go on.
    pub(crate) fn resume(&self, number: usize) {
        signal::resume(self.process(number)).expect("it runs");
    }

    fn process(&self, number: usize) -> u32 {
        self.nodes[number].as_ref().expect("it runs").id()
    }

    /// Cuts the link between the nodes, or joins it again.
    pub(crate) fn set_link(&self, is_up: bool) {
        let set = self.topology.nodes[0].run(|| Netlink::open()?.set_up(SYNC, is_up));
        set.and_then(|set| set).expect("the link is there");
    }

    /// Lets so many kilobits a second pass from each node to the other; all, with `None`. False where `tc` is missing.
    pub(crate) fn throttle_link(&self, kilobits_per_s: Option<u32>) -> bool {
        self.topology.nodes.iter().all(|node| {
            let mut command = Command::new("tc");
            match kilobits_per_s {
                Some(rate) => {
                    let rate = format!("{rate}kbit");
                    command.args(["qdisc", "replace", "dev", SYNC, "root", "tbf", "rate", &rate]);
                    command.args(["burst", "3kb", "latency", "50ms"]);
                }
                None => {
                    command.args(["qdisc", "del", "dev", SYNC, "root"]);
                }
            }
            let started = node.spawn_command(command);
            started.is_ok_and(|mut child| child.wait().is_ok_and(|status| status.success()))
        })
    }

    /// A node's status; `None` when it does not answer.
    pub(crate) fn status(&self, number: usize) -> Option<Status> {
        self.nodes[number].as_ref()?.status()
    }

    /// A node's role; empty when it does not answer.
    pub(crate) fn role(&self, number: usize) -> String {
        self.status(number).map(|status| status.node.role.to_string()).unwrap_or_default()
    }

    pub(crate) fn roles(&self) -> [String; 2] {
        [0, 1].map(|number| self.role(number))
    }

    /// A node's status of its peer.
    pub(crate) fn peer(&self, number: usize) -> PeerStatus {
        self.status(number).and_then(|status| status.peers.into_iter().next()).unwrap_or_default()
    }

    /// How many connections a node holds.
    pub(crate) fn connections(&self, number: usize) -> u64 {
        self.status(number).map_or(0, |status| status.connections.count)
    }

    /// A node's log so far.
    pub(crate) fn log(&self, number: usize) -> String {
        fs::read_to_string(self.folder.join(NAMES[number]).with_extension("log")).unwrap_or_default()
    }

    /// Waits until `active` holds the addresses, the other stands by, and either could go on alone.
    pub(crate) fn wait_until_ready(&self, active: usize) {
        let wanted = if active == 0 { ["active", "standby"] } else { ["standby", "active"] };
        let is_ready = || self.roles() == wanted && [0, 1].iter().all(|number| self.peer(*number).synchronised);
        wait_for(&format!("node {} to be active and both synchronised", NAMES[active]), is_ready, || self.story());
    }

    pub(crate) fn wait_for_roles(&self, wanted: [&str; 2]) {
        wait_for(&format!("the nodes to be {wanted:?}"), || self.roles() == wanted, || self.story());
    }

    /// Roles, each node's status of its peer, what it dropped, and the ends of the logs.
    pub(crate) fn story(&self) -> String {
        let tails = [0, 1].map(|number| {
            let log = self.log(number);
            let lines: Vec<&str> = log.lines().collect();
            let peer = self.peer(number);
            let drops = self.status(number).map(|status| status.drops).unwrap_or_default();
            let drops: Vec<_> = drops.iter().map(|drop| format!("{} {}", drop.packets, drop.reason)).collect();
            format!(
                "{}: {} ({:?}, synchronised {}, session {}; dropped {})\n  {}",
                NAMES[number],
                self.role(number),
                peer.detector,
                peer.synchronised,
                peer.session,
                drops.join(", "),
                lines[lines.len().saturating_sub(15)..].join("\n  ")
            )
        });
        tails.join("\n")
    }
}
