//! Placements to compare with: at random, and perfect (a replica on every node where a connection may land).

use flow::{NodeId, NodeSet};
use placement::Item;
use serde::Serialize;

use crate::random::Random;

/// A figure of each placement.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct OfPlacements {
    /// Min-churn predictive placement: what the nodes have.
    pub min_churn: f64,
    /// As many replicas, on random nodes.
    pub random: f64,
    /// Zero-churn placement: a replica wherever the connection may land, however many that are.
    pub perfect: f64,
}

/// As many nodes at random, without the owner.
pub(super) fn random(item: &Item, backups: usize, alive: NodeSet, random: &mut Random) -> Vec<NodeId> {
    let mut others: Vec<NodeId> = alive.iter().filter(|node| *node != item.owner).collect();
    let count = backups.min(others.len());
    for place in 0..count {
        let other = random.between(place as u64, others.len() as u64 - 1) as usize;
        others.swap(place, other);
    }
    others.truncate(count);
    others
}

/// All nodes where it may land.
pub(super) fn perfect(item: &Item) -> Vec<NodeId> {
    item.landings.iter().map(|(node, _)| *node).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_nodes_are_distinct_alive_and_not_the_owner() {
        let mut numbers = Random::new(3);
        let alive: NodeSet = (0..9).map(NodeId).collect();
        let item = Item { hash: 1, owner: NodeId(4), size_bytes: 1, landings: Default::default() };
        let mut seen = NodeSet::EMPTY;
        for _ in 0..200 {
            let nodes = random(&item, 3, alive, &mut numbers);
            let set: NodeSet = nodes.iter().copied().collect();
            assert!(nodes.len() == 3 && set.len() == 3 && !set.contains(NodeId(4)));
            seen = seen.iter().chain(nodes).collect();
        }
        assert_eq!(seen.len(), 8);
    }
}
