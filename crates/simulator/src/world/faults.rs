//! What the scenario does to nodes and links.

use cluster::node::Node;
use cluster::role;

use super::{World, view};
use crate::Sabotage;
use crate::link::{Link, LinkConfig};
use crate::scenario::Fault;
use crate::topology::{self, NODES};

impl World<'_> {
    pub(super) fn start(&mut self, node: usize) {
        let with_replication = self.options.sabotage != Some(Sabotage::NoReplication);
        let config = topology::node_config(self.scenario, node, self.machines[node].incarnation, with_replication);
        let value = Node::new(config, self.now).expect("the configuration is sound");
        self.machines[node].node = Some(value);
        self.checkers.started(self.now, node);
        self.settle(node);
    }

    fn kill(&mut self, node: usize) {
        if self.machines[node].node.is_none() {
            return;
        }
        let view = view(self.scenario, &self.hosts, &self.machines);
        self.checkers.before_kill(self.now, node, &view, &mut self.outcome);
        let machine = &mut self.machines[node];
        machine.node = None;
        machine.incarnation += 1;
        machine.waiting.clear();
        machine.timer_at = None;
    }

    fn role(&self, node: usize) -> Option<role::State> {
        self.machines[node].node.as_ref().map(|value| value.status(self.now).role)
    }

    /// The scenario interferes.
    pub(super) fn interfere(&mut self, fault: Fault) {
        self.trace.note(self.now, 0, || format!("fault: {fault:?}"));
        let active = (0..NODES).find(|node| self.role(*node).is_some_and(role::State::holds_addresses));
        match fault {
            Fault::KillActive => {
                if let Some(node) = active {
                    self.kill(node);
                }
            }
            Fault::KillStandby => {
                if let Some(node) = active {
                    self.kill(1 - node);
                }
            }
            Fault::Leave => {
                if let Some(node) = active
                    && let Some(value) = &mut self.machines[node].node
                {
                    value.leave(self.now);
                    self.settle(node);
                }
            }
            Fault::Restart => {
                for node in 0..NODES {
                    if matches!(self.role(node), Some(role::State::Leaving | role::State::Left)) {
                        self.kill(node);
                    }
                    if self.machines[node].node.is_none() {
                        self.start(node);
                    }
                }
            }
            Fault::Partition(is_cut) => {
                for machine in &mut self.machines {
                    machine.replication.is_cut = is_cut;
                }
                self.checkers.partitioned(self.now, is_cut);
            }
            Fault::Cut { host, is_cut } => self.host_links[host].is_cut = is_cut,
            Fault::Calm => self.calm(),
        }
    }

    fn calm(&mut self) {
        self.is_calm = true;
        let sound = |link: &mut Link| {
            let LinkConfig { delay, jitter, .. } = link.config;
            link.config = LinkConfig { delay, jitter, ..LinkConfig::default() };
        };
        self.host_links.iter_mut().for_each(sound);
        for machine in &mut self.machines {
            machine.ports.iter_mut().for_each(sound);
            sound(&mut machine.replication);
        }
    }
}
