//! What distributes packets to nodes, and what the nodes predict of it.

use flow::random::mix;
use flow::{Ecmp, NodeId, NodeSet};
use serde::Serialize;
use state_service::prediction::{FailureModel, Landings, Prediction, Sampled, Stages};

/// A kind of distribution.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DistributionKind {
    /// Mainstay's edges: two-stage ECMP whose second stage is the highest random weight. The nodes compute it.
    Edge,
    /// A switch: two-stage ECMP whose second stage is the remainder among the survivors. The nodes forge packets to predict it.
    Switch,
}

/// The distribution with its present nodes.
pub(super) struct Distribution {
    kind: DistributionKind,
    /// The nodes in the table of the first stage.
    table: NodeSet,
    alive: NodeSet,
    ecmp: Ecmp,
    sampled: Sampled,
}

impl Distribution {
    pub(super) fn new(kind: DistributionKind, table: NodeSet) -> Self {
        Self { kind, table, alive: table, ecmp: Ecmp::new(table), sampled: Sampled::new(table, Stages::Two, 1) }
    }

    pub(super) const fn alive(&self) -> NodeSet {
        self.alive
    }

    pub(super) fn set_alive(&mut self, node: NodeId, is_alive: bool) {
        self.ecmp.set_alive(node, is_alive);
        if is_alive {
            self.alive.insert(node)
        } else {
            self.alive.remove(node)
        };
        self.sampled.set_nodes(self.alive);
    }

    /// Adds a node to the table of the first stage.
    pub(super) fn add(&mut self, node: NodeId) {
        let dead = self.table.without(self.alive);
        self.table.insert(node);
        self.ecmp = Ecmp::new(self.table);
        for node in dead.iter() {
            self.ecmp.set_alive(node, false);
        }
        self.set_alive(node, true);
    }

    /// The node that receives a packet.
    pub(super) fn node(&self, hash: u64) -> NodeId {
        let node = match self.kind {
            DistributionKind::Edge => self.ecmp.select(hash),
            DistributionKind::Switch => self.switch(hash),
        };
        node.expect("a node is alive")
    }

    fn switch(&self, hash: u64) -> Option<NodeId> {
        let first = self.table.iter().nth((hash % u64::from(self.table.len())) as usize)?;
        if self.alive.contains(first) {
            return Some(first);
        }
        self.alive.iter().nth(self.second_stage(hash, 0) as usize)
    }

    /// The entry that the second stage selects if so many more nodes have failed.
    fn second_stage(&self, hash: u64, failures: u8) -> u64 {
        mix(hash) % u64::from(self.alive.len() - u32::from(failures))
    }

    /// Where the owner predicts that packets land. It forges packets if it cannot compute it.
    pub(super) fn landings(&mut self, hash: u64, failures: &FailureModel) -> Landings {
        if self.kind == DistributionKind::Edge {
            return self.ecmp.landings(hash, failures);
        }
        let groups: Vec<u8> = self.sampled.missing(hash, failures.failures_max()).collect();
        for group in groups {
            let owner = self.node(hash);
            let rank = if group == 0 {
                self.alive.iter().position(|node| node == owner).unwrap_or_default() as u64
            } else {
                self.second_stage(hash, group)
            };
            self.sampled.handle_answer(hash, group, rank as u8).expect("a rank of the group");
        }
        self.sampled.landings(hash, failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The switch does what was predicted while all its nodes were alive.
    #[test]
    fn predicted_landings_of_both_kinds_have_the_node_where_packets_land() {
        let failures = FailureModel::uniform(0.01, 3).expect("in range");
        for kind in [DistributionKind::Edge, DistributionKind::Switch] {
            let mut distribution = Distribution::new(kind, (0..12).map(NodeId).collect());
            let predicted: Vec<_> = (0..500)
                .map(|number| {
                    let hash = mix(number);
                    (hash, distribution.node(hash), distribution.landings(hash, &failures))
                })
                .collect();
            [2, 7, 11].into_iter().for_each(|node| distribution.set_alive(NodeId(node), false));
            for (hash, before, landings) in predicted {
                let node = distribution.node(hash);
                assert!(node == before || landings.iter().any(|(landing, _)| *landing == node), "{kind:?} {hash:x}");
                assert!(node == before || !distribution.alive().contains(before), "only flows of failed nodes move");
            }
        }
    }
}
