//! Equal-cost multi-path in two stages [TRIPOD, section III-A, figure 3].
//!
//! ```text
//!            stage 1: 16 384 entries, about as many of each node    stage 2: failover group of the entry's node
//!  hash ─► entry = upper 14 bits ─► node of the entry ─┬─ alive ─► this node
//!                                                      └─ failed ─► the survivor with the highest weight for the hash
//! ```
//!
//! TRIPOD has one entry per node, and selects among the survivors by a second table of `hash % survivors`. Here both stages are the
//! highest random weight (Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998): the first computed for each
//! entry beforehand, the second for the hash. So a flow that was moved to a survivor stays there when a further node fails. The
//! selection is a function of the hash and of the sets of nodes and of live nodes:
//!
//! - If a node fails or is removed, only its own flows move.
//! - If a node returns or is added, flows move only to that node.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

use crate::connection::NodeId;
use crate::node_set::{NODES_MAX, NodeSet};
use crate::random::mix;

/// Bits of a hash that choose an entry of the first stage. With 8 nodes, their shares differ by 2 % (the standard deviation), with 64
/// by 6 %.
const ENTRY_BITS: u32 = 14;

/// The tables of both stages.
#[derive(Clone, Debug)]
pub struct Ecmp {
    nodes: ArrayVec<NodeId, NODES_MAX>,
    /// The first stage; empty without nodes.
    entries: Vec<NodeId>,
    alive: NodeSet,
}

impl Ecmp {
    /// Entries of the first stage.
    pub const ENTRIES: usize = 1 << ENTRY_BITS;

    /// Tables for these nodes, all of them alive.
    #[must_use]
    pub fn new(nodes: NodeSet) -> Self {
        // An entry's hash is any of those that choose it.
        let of_entry = |entry: u64| heaviest(entry << (64 - ENTRY_BITS), nodes.iter());
        Self {
            nodes: nodes.iter().collect(),
            entries: (0..Self::ENTRIES as u64).map_while(of_entry).collect(),
            alive: nodes,
        }
    }

    /// The live nodes.
    #[must_use]
    pub const fn alive(&self) -> NodeSet {
        self.alive
    }

    /// Sets whether a node is alive. Returns false if nothing changed or the node is not in the tables.
    pub fn set_alive(&mut self, node: NodeId, is_alive: bool) -> bool {
        if !self.nodes.contains(&node) {
            return false;
        }
        if is_alive { self.alive.insert(node) } else { self.alive.remove(node) }
    }

    /// The node for a hash. `None`: no node is alive.
    #[must_use]
    #[inline]
    pub fn select(&self, hash: u64) -> Option<NodeId> {
        self.among(hash, self.alive)
    }

    /// The node that [`Ecmp::select`] would return if the nodes of `failed` had failed, too [TRIPOD, section V-C]. The tables
    /// answer directly, so no packets are forged to ask a switch.
    #[must_use]
    pub fn predict(&self, hash: u64, failed: NodeSet) -> Option<NodeId> {
        self.among(hash, self.alive.without(failed))
    }

    /// The node of the first stage, alive or not. `None`: there are no nodes.
    #[must_use]
    #[inline]
    pub fn first_choice(&self, hash: u64) -> Option<NodeId> {
        self.entries.get((hash >> (64 - ENTRY_BITS)) as usize).copied()
    }

    #[inline]
    fn among(&self, hash: u64, alive: NodeSet) -> Option<NodeId> {
        let first = self.first_choice(hash)?;
        if alive.contains(first) {
            return Some(first);
        }
        heaviest(hash, self.nodes.iter().copied().filter(|node| alive.contains(*node)))
    }
}

/// The node with the highest weight for a hash. `None`: there are no nodes.
fn heaviest(hash: u64, nodes: impl Iterator<Item = NodeId>) -> Option<NodeId> {
    nodes.max_by_key(|node| weight(hash, *node))
}

/// The weight of a node for a hash. Different nodes have different weights, as `mix` is a bijection.
const fn weight(hash: u64, node: NodeId) -> u64 {
    mix(mix(hash) ^ node.0 as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    const FLOWS: u64 = 2000;

    fn nodes(count: u8) -> NodeSet {
        (0..count).map(NodeId).collect()
    }

    fn hashes() -> impl Iterator<Item = u64> {
        (0..FLOWS).map(mix)
    }

    fn placement(ecmp: &Ecmp) -> Vec<Option<NodeId>> {
        hashes().map(|hash| ecmp.select(hash)).collect()
    }

    proptest! {
        #[test]
        fn a_failure_moves_only_flows_of_the_failed_node(
            count in 1u8..=64, failures in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        ) {
            let mut ecmp = Ecmp::new(nodes(count));
            for failure in failures {
                let failed = NodeId(failure.index(count.into()) as u8);
                let before = placement(&ecmp);
                ecmp.set_alive(failed, false);
                for (old, new) in before.into_iter().zip(placement(&ecmp)) {
                    prop_assert!(old == new || old == Some(failed), "{old:?} -> {new:?}");
                    prop_assert_eq!(new.is_none(), ecmp.alive().is_empty());
                    prop_assert!(new != Some(failed));
                }
            }
        }

        #[test]
        fn a_return_moves_flows_only_to_the_returning_node(
            count in 2u8..=64, failed in prop::collection::vec(any::<prop::sample::Index>(), 1..8),
        ) {
            let mut ecmp = Ecmp::new(nodes(count));
            let failed: NodeSet = failed.iter().map(|index| NodeId(index.index(count.into()) as u8)).collect();
            let whole = placement(&ecmp);
            failed.iter().for_each(|node| { ecmp.set_alive(node, false); });
            for node in failed.iter() {
                let before = placement(&ecmp);
                ecmp.set_alive(node, true);
                for (old, new) in before.into_iter().zip(placement(&ecmp)) {
                    prop_assert!(old == new || new == Some(node));
                }
            }
            prop_assert_eq!(placement(&ecmp), whole, "all are back where they were");
        }

        #[test]
        fn a_further_node_receives_its_share_and_no_other_flow_moves(count in 1u8..=63, further in 0u8..=63) {
            let (with, further) = (nodes(count + 1), NodeId(further.min(count)));
            let without = with.without([further].into_iter().collect());
            let (before, after) = (Ecmp::new(without), Ecmp::new(with));
            for (old, new) in placement(&before).into_iter().zip(placement(&after)) {
                prop_assert!(old == new || new == Some(further), "{old:?} -> {new:?}");
            }
            let moved = before.entries.iter().zip(&after.entries).filter(|(old, new)| old != new).count();
            let share = after.entries.len() / usize::from(count + 1);
            prop_assert!((share / 3..=share * 2).contains(&moved), "{moved} of {share}");
        }

        #[test]
        fn a_prediction_is_what_happens(
            count in 1u8..=64, failed in prop::collection::vec(any::<prop::sample::Index>(), 0..8), hash: u64,
        ) {
            let failed: NodeSet = failed.iter().map(|index| NodeId(index.index(count.into()) as u8)).collect();
            let mut ecmp = Ecmp::new(nodes(count));
            let predicted = ecmp.predict(hash, failed);
            failed.iter().for_each(|node| { ecmp.set_alive(node, false); });
            prop_assert_eq!(ecmp.select(hash), predicted);
        }
    }

    #[test]
    fn flows_spread_evenly_before_and_after_a_failure() {
        let mut ecmp = Ecmp::new(nodes(8));
        let share = |ecmp: &Ecmp, node| placement(ecmp).iter().filter(|at| **at == Some(NodeId(node))).count();
        for node in 0..8 {
            assert!((190..=310).contains(&share(&ecmp, node)), "node {node} has {}", share(&ecmp, node));
        }
        ecmp.set_alive(NodeId(3), false);
        for node in (0..8).filter(|node| *node != 3) {
            assert!((210..=360).contains(&share(&ecmp, node)), "node {node} has {}", share(&ecmp, node));
        }
    }

    #[test]
    fn unknown_nodes_change_nothing() {
        let mut ecmp = Ecmp::new(nodes(2));
        assert!(!ecmp.set_alive(NodeId(2), true) && !ecmp.set_alive(NodeId(0), true));
        assert_eq!(ecmp.alive(), nodes(2));
        assert_eq!(Ecmp::new(NodeSet::EMPTY).select(7), None);
    }
}
