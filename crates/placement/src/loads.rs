//! Expected churn, by node and of a whole placement.

use flow::{NODES_MAX, NodeId};
use state_service::prediction::Backups;

use crate::item::Item;

/// Expected churn by node, in bytes.
#[derive(Clone, Debug)]
pub(crate) struct NodeLoads(pub(crate) [f64; NODES_MAX]);

impl Default for NodeLoads {
    fn default() -> Self {
        Self([0.0; NODES_MAX])
    }
}

impl NodeLoads {
    pub(crate) fn of(&self, node: usize) -> f64 {
        self.0.get(node).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, node: NodeId, bytes: f64) {
        if let Some(load) = self.0.get_mut(usize::from(node.0)) {
            *load = (*load + bytes).max(0.0);
        }
    }

    /// Adds the landings of a connection without a replica, or subtracts them with a `sign` of −1.
    pub(crate) fn add_uncovered(&mut self, item: &Item, backups: &Backups, sign: f64) {
        for (landing, (node, _)) in item.landings.iter().enumerate() {
            if !backups.contains(node) {
                self.add(*node, sign * item.churn(landing));
            }
        }
    }

    pub(crate) fn max(&self) -> f64 {
        self.0.iter().copied().fold(0.0, f64::max)
    }

    pub(crate) fn total(&self) -> f64 {
        self.0.iter().sum()
    }
}

/// The expected churn of a placement, in bytes of state that must be pulled: by node, the landings without a replica.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ExpectedChurn {
    /// That of the node with the most: φ of equation 1.
    pub max_bytes: f64,
    /// The sum over all nodes.
    pub total_bytes: f64,
}

impl ExpectedChurn {
    /// That of these connections with these replicas.
    ///
    /// # Panics
    /// There are not as many placements as connections.
    #[must_use]
    pub fn of(items: &[Item], placed: &[Backups]) -> Self {
        assert_eq!(items.len(), placed.len(), "a placement for each connection");
        let mut loads = NodeLoads::default();
        for (item, backups) in items.iter().zip(placed) {
            loads.add_uncovered(item, backups, 1.0);
        }
        Self { max_bytes: loads.max(), total_bytes: loads.total() }
    }
}
