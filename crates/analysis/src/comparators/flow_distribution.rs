//! Ways to distribute flows to nodes, and the flows that each moves when nodes fail. The edge has [`Method::TwoStage`].
//!
//! A flow that moves although its node is alive loses its state there, or must fetch it [TRIPOD, section III-A].

use core::fmt;

use flow::random::mix;
use flow::{Ecmp, NodeId, NodeSet};

/// A way to select the node of a flow among those that are alive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// `hash % live nodes`: ordinary ECMP.
    Modulo,
    /// Two stages, whose second is `hash % survivors` [TRIPOD, figure 3].
    TwoStageModulo,
    /// Consistent hashing (Karger et al., 1997): the next of the nodes' points on a ring.
    Ring {
        /// Points of each node.
        points: u32,
    },
    /// Two stages, whose second is the highest random weight: the edge's own.
    TwoStage,
}

/// All methods, with 100 points on the ring.
pub const METHODS: [Method; 4] =
    [Method::Modulo, Method::TwoStageModulo, Method::Ring { points: 100 }, Method::TwoStage];

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modulo => f.write_str("hash modulo nodes"),
            Self::TwoStageModulo => f.write_str("two stages, modulo"),
            Self::Ring { points } => write!(f, "ring, {points} points"),
            Self::TwoStage => f.write_str("two stages, highest weight"),
        }
    }
}

impl Method {
    /// The node of each flow; there are `nodes` nodes, and at least one of them is not in `failed`.
    fn placement(self, nodes: u8, failed: NodeSet, flows: u64) -> Vec<NodeId> {
        let all: NodeSet = (0..nodes).map(NodeId).collect();
        let alive: Vec<NodeId> = all.without(failed).iter().collect();
        let modulo = |hash: u64| alive[(hash % alive.len() as u64) as usize];
        let hashes = (0..flows).map(mix);
        match self {
            Self::Modulo => hashes.map(modulo).collect(),
            Self::TwoStageModulo => {
                let first = |hash: u64| NodeId((hash % u64::from(nodes)) as u8);
                // The second stage must not depend on the first one's remainder.
                hashes
                    .map(|hash| Some(first(hash)).filter(|node| alive.contains(node)).unwrap_or(modulo(mix(hash))))
                    .collect()
            }
            Self::Ring { points } => {
                let ring = ring(&alive, points);
                hashes.map(|hash| ring[ring.partition_point(|(point, _)| *point < hash) % ring.len()].1).collect()
            }
            Self::TwoStage => {
                let ecmp = Ecmp::new(all);
                hashes.filter_map(|hash| ecmp.predict(hash, failed)).collect()
            }
        }
    }
}

/// The points of the live nodes, in order.
fn ring(alive: &[NodeId], points: u32) -> Vec<(u64, NodeId)> {
    let point = |node: NodeId, number: u32| mix(mix(u64::from(node.0) << 32 | u64::from(number)) ^ 0x5bd1);
    let points = |node: &NodeId| (0..points).map(|number| (point(*node, number), *node)).collect::<Vec<_>>();
    let mut ring: Vec<_> = alive.iter().flat_map(points).collect();
    ring.sort_unstable();
    ring
}

/// Shares of the flows, from 0 to 1 for each failure.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Churn {
    /// Moves of flows.
    pub moved: f64,
    /// Moves of flows whose node was alive.
    pub moved_needlessly: f64,
    /// Flows of the node with the most, as a multiple of the mean, after the last failure.
    pub imbalance: f64,
}

/// What a method moves when the nodes `failures` of `nodes` nodes fail one after the other. The shares of several failures are
/// added.
///
/// # Panics
/// There are no flows, or no node is left.
#[must_use]
pub fn churn(method: Method, nodes: u8, failures: &[NodeId], flows: u64) -> Churn {
    let (mut failed, mut churn) = (NodeSet::EMPTY, Churn::default());
    let mut before = method.placement(nodes, failed, flows);
    for failure in failures {
        failed.insert(*failure);
        let after = method.placement(nodes, failed, flows);
        for (old, _) in before.iter().zip(&after).filter(|(old, new)| old != new) {
            churn.moved += 1.0 / flows as f64;
            churn.moved_needlessly += f64::from(u8::from(old != failure)) / flows as f64;
        }
        before = after;
    }
    let of = |node: u8| before.iter().filter(|at| **at == NodeId(node)).count();
    let most = (0..nodes).map(of).max().unwrap_or_default();
    churn.imbalance = most as f64 * f64::from(nodes - failures.len() as u8) / flows as f64;
    churn
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Prints the table: `cargo test -p analysis flow_distribution -- --nocapture`.
    #[test]
    fn only_ring_and_highest_weight_move_no_flow_of_a_live_node() {
        println!("{:<28} {:>8} {:>12} {:>10}", "8 nodes, 2 failures", "moved", "needlessly", "imbalance");
        let churns = METHODS.map(|method| {
            let churn = churn(method, 8, &[NodeId(3), NodeId(5)], 100_000);
            let Churn { moved, moved_needlessly, imbalance } = churn;
            println!("{method:<28} {:>7.1}% {:>11.1}% {imbalance:>10.2}", moved * 100.0, moved_needlessly * 100.0);
            churn
        });
        let [modulo, two_stage_modulo, ring, two_stage] = churns;
        assert!(modulo.moved_needlessly > 1.0, "most flows move at each failure");
        assert!((0.05..0.2).contains(&two_stage_modulo.moved_needlessly), "flows that were moved once move again");
        assert_eq!((ring.moved_needlessly, two_stage.moved_needlessly), (0.0, 0.0));
        assert!(two_stage.imbalance < 1.03 && ring.imbalance > two_stage.imbalance, "{ring:?} {two_stage:?}");
    }

    #[test]
    fn without_failures_nothing_moves() {
        for method in METHODS {
            assert_eq!(churn(method, 5, &[], 1000).moved, 0.0);
        }
    }
}
