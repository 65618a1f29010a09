//! The node of a connection: affinity and the tables of both stages together.

use flow::{Affinity, Ecmp, HashKey, NodeId, NodeSet, Tuple};

/// Selects nodes.
#[derive(Clone, Debug)]
pub(crate) struct Distribution {
    pub(crate) ecmp: Ecmp,
    affinity: Affinity,
    key: HashKey,
    /// Nodes that get no new connections while another node is alive.
    drained: NodeSet,
}

impl Distribution {
    pub(crate) fn new(nodes: NodeSet, affinity: Affinity, key: HashKey) -> Self {
        Self { ecmp: Ecmp::new(nodes), affinity, key, drained: NodeSet::EMPTY }
    }

    pub(crate) const fn is_learned(&self) -> bool {
        matches!(self.affinity, Affinity::Learned)
    }

    pub(crate) const fn is_alive(&self, node: NodeId) -> bool {
        self.ecmp.alive().contains(node)
    }

    /// The node of a connection whose packets went to `before`, if it had any; `entering` is the tuple of its packets that
    /// enter the cluster. `None`: no node is alive.
    pub(crate) fn select(&self, entering: &Tuple, before: Option<NodeId>) -> Option<NodeId> {
        let elsewhere = if self.drained.is_empty() { None } else { self.predict(entering, before, self.drained) };
        let stays = before.filter(|node| self.drained.contains(*node) && self.is_learned() && self.is_alive(*node));
        stays.or(elsewhere).or_else(|| self.predict(entering, before, NodeSet::EMPTY))
    }

    pub(crate) const fn drained(&self) -> NodeSet {
        self.drained
    }

    /// A node gets no new connections, or gets them again. False: it is not known which node a connection has, so it cannot stay.
    pub(crate) const fn set_drained(&mut self, node: NodeId, is_drained: bool) -> bool {
        if is_drained && !self.is_learned() {
            return false;
        }
        if is_drained {
            self.drained.insert(node)
        } else {
            self.drained.remove(node)
        };
        true
    }

    /// As [`Distribution::select`], if the nodes of `failed` had failed.
    pub(crate) fn predict(&self, entering: &Tuple, before: Option<NodeId>, failed: NodeSet) -> Option<NodeId> {
        let stays = before.filter(|node| self.is_learned() && self.is_alive(*node) && !failed.contains(*node));
        stays.or_else(|| self.ecmp.predict(self.affinity.hash(&self.key, entering), failed))
    }

    /// The node of a fragment or of another packet without a connection.
    pub(crate) fn select_fragment(&self, entering: &Tuple) -> Option<NodeId> {
        self.ecmp.select(self.affinity.hash_fragment(&self.key, entering))
    }

    /// The node that the first stage alone selects.
    pub(crate) fn first_choice(&self, entering: &Tuple) -> Option<NodeId> {
        self.ecmp.first_choice(self.affinity.hash(&self.key, entering))
    }
}
