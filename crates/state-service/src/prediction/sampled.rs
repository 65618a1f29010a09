//! A prediction from samples: the answers to forged packets, one for each number of failed nodes [TRIPOD, section V-C].
//!
//! The switch has an ECMP group for each number of failures, of that many nodes fewer. A node sends a packet with the connection's
//! tuple into each group. The receiver confirms the entry of the group that the packet came by: its rank. The switch selects
//! among all sets of surviving nodes of one size in the same way, so the rank predicts all failures of that many nodes:
//!
//! ```text
//! b(c, e) = the node of the first stage, if it is alive (with two stages)
//!           else the survivor with number rank[|e|], in the order of node numbers
//! ```

use alloc::boxed::Box;
use alloc::vec;

use arrayvec::ArrayVec;
use flow::{NODES_MAX, NodeId, NodeSet};

use super::{FAILURES_MAX, FailureModel, Landings, Prediction};

/// No answer has arrived.
const UNKNOWN: u8 = u8::MAX;

/// Whether the distribution keeps the connections of live nodes in place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stages {
    /// One table: any failure may move any connection.
    One,
    /// Two: only connections of a failed node move, by the second table.
    Two,
}

/// Why an answer was rejected: a peer with another configuration, or a misbehaving one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum AnswerError {
    /// There is no such group.
    #[error("an answer for {0} failures: the peer predicts more than {FAILURES_MAX} or all nodes' failures")]
    Group(u8),
    /// The group has fewer entries.
    #[error("an answer with rank {rank} in a group of {entries} nodes: the peer has other nodes in its configuration")]
    Rank {
        /// The rejected rank.
        rank: u8,
        /// Entries of the group.
        entries: usize,
    },
}

/// The ranks of one connection, by the number of failures. The first is that of the present node.
#[derive(Clone, Copy)]
struct Ranks {
    hash: u64,
    ranks: [u8; FAILURES_MAX + 1],
}

/// The answers about many connections. Each hash has one place in the table. A later connection replaces an earlier one there, whose
/// prediction is then unknown.
#[derive(Clone)]
pub struct Sampled {
    nodes: ArrayVec<NodeId, NODES_MAX>,
    stages: Stages,
    table: Box<[Ranks]>,
}

impl Sampled {
    /// A table with places for `places` connections, at least one, for the distribution of flows to these nodes.
    #[must_use]
    pub fn new(nodes: NodeSet, stages: Stages, places: usize) -> Self {
        let free = Ranks { hash: 0, ranks: [UNKNOWN; FAILURES_MAX + 1] };
        Self { nodes: nodes.iter().collect(), stages, table: vec![free; places.max(1)].into_boxed_slice() }
    }

    /// Sets the nodes, once a failure is known to last or a node was added. All answers are forgotten: they are of other groups.
    pub fn set_nodes(&mut self, nodes: NodeSet) {
        self.nodes = nodes.iter().collect();
        self.table.fill(Ranks { hash: 0, ranks: [UNKNOWN; FAILURES_MAX + 1] });
    }

    const fn place(&self, hash: u64) -> usize {
        ((hash as u128 * self.table.len() as u128) >> 64) as usize
    }

    fn known(&self, hash: u64) -> Option<&Ranks> {
        Some(&self.table[self.place(hash)]).filter(|ranks| ranks.hash == hash)
    }

    /// The node of a rank among the survivors.
    fn survivor(&self, failed: NodeSet, rank: u8) -> Option<NodeId> {
        self.nodes.iter().copied().filter(|node| !failed.contains(*node)).nth(rank.into())
    }

    /// Records the answer for a connection: a forged packet came by entry `rank` of the group for `failures` failures. 0
    /// failures is the group that packets use now.
    ///
    /// # Errors
    /// No group has this answer.
    pub fn handle_answer(&mut self, hash: u64, failures: u8, rank: u8) -> Result<(), AnswerError> {
        let group = usize::from(failures);
        let entries = self.nodes.len().saturating_sub(group);
        if group > FAILURES_MAX || entries == 0 {
            return Err(AnswerError::Group(failures));
        }
        if usize::from(rank) >= entries {
            return Err(AnswerError::Rank { rank, entries });
        }
        let place = self.place(hash);
        let ranks = &mut self.table[place];
        if ranks.hash != hash {
            *ranks = Ranks { hash, ranks: [UNKNOWN; FAILURES_MAX + 1] };
        }
        ranks.ranks[group] = rank;
        Ok(())
    }

    /// The groups, as numbers of failures up to `failures_max`, for which a packet of the connection must be forged.
    pub fn missing(&self, hash: u64, failures_max: usize) -> impl Iterator<Item = u8> + use<> {
        let ranks = self.known(hash).map_or([UNKNOWN; FAILURES_MAX + 1], |known| known.ranks);
        let last = failures_max.min(FAILURES_MAX).min(self.nodes.len().saturating_sub(1));
        (0..=last as u8).filter(move |group| ranks[usize::from(*group)] == UNKNOWN)
    }
}

impl Prediction for Sampled {
    fn node(&self, hash: u64, failed: NodeSet) -> Option<NodeId> {
        let ranks = &self.known(hash)?.ranks;
        let first = self.survivor(NodeSet::EMPTY, ranks[0]);
        if self.stages == Stages::Two && first.is_some_and(|node| !failed.contains(node)) {
            return first;
        }
        let failures = self.nodes.iter().filter(|node| failed.contains(**node)).count();
        self.survivor(failed, *ranks.get(failures)?)
    }

    /// By the number of failed nodes before each survivor. A survivor at place p has rank r if exactly p − r of the p nodes
    /// before it have failed. The others of the i failed nodes are behind it.
    fn landings(&self, hash: u64, failures: &FailureModel) -> Landings {
        let mut landings = Landings::new();
        let Some(known) = self.known(hash) else { return landings };
        let Some(owner) = self.survivor(NodeSet::EMPTY, known.ranks[0]) else { return landings };
        // With two stages the owner must fail: it is one of the failures, and not in the row of the others.
        let (row, owner_failures, certain): (ArrayVec<NodeId, NODES_MAX>, _, _) = match self.stages {
            Stages::One => (self.nodes.clone(), 0, 1.0),
            Stages::Two => (self.nodes.iter().copied().filter(|node| *node != owner).collect(), 1, failures.of(owner)),
        };
        let counts = FailedCounts::of(&row, failures);
        let last = failures.failures_max().min(self.nodes.len().saturating_sub(1));
        for group in 1..=last {
            let (others, rank) = (group - owner_failures, known.ranks[group]);
            if rank == UNKNOWN {
                continue;
            }
            for before in 0..=others {
                let place = usize::from(rank) + before;
                let Some(&node) = row.get(place) else { break };
                let probability = certain * counts.survives(&row, failures, place, before, others);
                add(&mut landings, node, owner, probability);
            }
        }
        landings
    }
}

/// Adds a probability. The owner is left out: it has the state.
fn add(landings: &mut Landings, node: NodeId, owner: NodeId, probability: f64) {
    if node == owner || probability <= 0.0 {
        return;
    }
    match landings.iter_mut().find(|(known, _)| *known == node) {
        Some((_, sum)) => *sum += probability,
        // There is room for all nodes that a failure of the model may lead to.
        None => landings.push((node, probability)),
    }
}

/// Probabilities that a number of nodes has failed, for each beginning and each end of a row of nodes.
struct FailedCounts {
    before: [[f64; FAILURES_MAX + 1]; NODES_MAX + 1],
    from: [[f64; FAILURES_MAX + 1]; NODES_MAX + 1],
}

impl FailedCounts {
    fn of(row: &[NodeId], failures: &FailureModel) -> Self {
        let mut counts =
            Self { before: [[0.0; FAILURES_MAX + 1]; NODES_MAX + 1], from: [[0.0; FAILURES_MAX + 1]; NODES_MAX + 1] };
        counts.before[0][0] = 1.0;
        counts.from[row.len()][0] = 1.0;
        for (place, node) in row.iter().enumerate() {
            counts.before[place + 1] = one_more(&counts.before[place], failures.of(*node));
        }
        for (place, node) in row.iter().enumerate().rev() {
            counts.from[place] = one_more(&counts.from[place + 1], failures.of(*node));
        }
        counts
    }

    /// The probability that the node at `place` survives, `before` nodes before it have failed, and `all` in the row.
    fn survives(&self, row: &[NodeId], failures: &FailureModel, place: usize, before: usize, all: usize) -> f64 {
        self.before[place][before] * (1.0 - failures.of(row[place])) * self.from[place + 1][all - before]
    }
}

/// The probabilities of each number of failures with one more node.
fn one_more(counts: &[f64; FAILURES_MAX + 1], probability: f64) -> [f64; FAILURES_MAX + 1] {
    core::array::from_fn(|failed| {
        let fails = failed.checked_sub(1).map_or(0.0, |others| counts[others] * probability);
        counts[failed] * (1.0 - probability) + fails
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::random::mix;
    use std::vec::Vec;

    fn nodes(count: u8) -> NodeSet {
        (0..count).map(NodeId).collect()
    }

    /// A switch whose groups select by the hash's remainder, asked for all groups.
    fn asked(count: u8, stages: Stages, hash: u64, failures_max: usize) -> Sampled {
        let mut sampled = Sampled::new(nodes(count), stages, 16);
        let groups: Vec<u8> = sampled.missing(hash, failures_max).collect();
        for group in groups {
            sampled.handle_answer(hash, group, switch(count, stages, hash, group)).expect("a rank of the group");
        }
        sampled
    }

    /// The rank that the group selects.
    fn switch(count: u8, stages: Stages, hash: u64, group: u8) -> u8 {
        let hash = if group > 0 && stages == Stages::Two { mix(hash) } else { hash };
        (hash % u64::from(count - group)) as u8
    }

    /// What the switch would do with real failures.
    fn lands(count: u8, stages: Stages, hash: u64, failed: NodeSet) -> Option<NodeId> {
        let first = NodeId(switch(count, stages, hash, 0));
        if stages == Stages::Two && !failed.contains(first) {
            return Some(first);
        }
        let alive: Vec<NodeId> = nodes(count).without(failed).iter().collect();
        alive.get(usize::from(switch(count, stages, hash, failed.len() as u8))).copied()
    }

    fn sets(count: u8, failures_max: u32) -> impl Iterator<Item = NodeSet> {
        let sets = (0_u32..1 << count).filter(move |bits| bits.count_ones() <= failures_max);
        sets.map(move |bits| (0..count).filter(|node| bits >> node & 1 == 1).map(NodeId).collect())
    }

    #[test]
    fn answers_predict_what_the_switch_does_with_every_failure() {
        for stages in [Stages::One, Stages::Two] {
            for hash in (0..200).map(mix) {
                let sampled = asked(9, stages, hash, 3);
                assert_eq!(sampled.missing(hash, 3).count(), 0);
                for failed in sets(9, 3) {
                    assert_eq!(sampled.node(hash, failed), lands(9, stages, hash, failed), "{hash:x} {failed:?}");
                }
            }
        }
    }

    #[test]
    fn landings_are_the_sums_over_all_failures() {
        let mut model = FailureModel::uniform(0.05, 3).expect("in range");
        model.set(NodeId(2), 0.3).expect("in range");
        model.set(NodeId(5), 0.01).expect("in range");
        for stages in [Stages::One, Stages::Two] {
            for hash in (0..100).map(mix) {
                let landings = asked(8, stages, hash, 3).landings(hash, &model);
                let owner = lands(8, stages, hash, NodeSet::EMPTY).expect("all are alive");
                for node in nodes(8).iter().filter(|node| *node != owner) {
                    let probability = |failed: &NodeSet| {
                        nodes(8).iter().fold(1.0, |product, node| {
                            product * if failed.contains(node) { model.of(node) } else { 1.0 - model.of(node) }
                        })
                    };
                    let here = |failed: &NodeSet| !failed.is_empty() && lands(8, stages, hash, *failed) == Some(node);
                    let expected: f64 = sets(8, 3).filter(here).map(|failed| probability(&failed)).sum();
                    let found = landings.iter().find(|(landing, _)| *landing == node).map_or(0.0, |(_, sum)| *sum);
                    assert!((found - expected).abs() < 1e-12, "{stages:?} {node:?}: {found} instead of {expected}");
                }
            }
        }
    }

    #[test]
    fn unknown_and_replaced_connections_have_no_prediction() {
        let mut sampled = Sampled::new(nodes(4), Stages::Two, 1);
        assert_eq!(sampled.node(7, NodeSet::EMPTY), None);
        for group in 0..=2 {
            sampled.handle_answer(7, group, 1).expect("a rank of the group");
        }
        assert_eq!(sampled.backups(7, 2).len(), 2);
        sampled.handle_answer(8, 0, 3).expect("a rank of the group");
        assert_eq!((sampled.node(7, NodeSet::EMPTY), sampled.node(8, NodeSet::EMPTY)), (None, Some(NodeId(3))));
        assert!(sampled.backups(8, 2).is_empty(), "the groups of failures have not answered");
        sampled.set_nodes(nodes(3));
        assert_eq!(sampled.node(8, NodeSet::EMPTY), None);
    }

    #[test]
    fn answers_that_no_group_has_are_rejected() {
        let mut sampled = Sampled::new(nodes(4), Stages::One, 8);
        assert_eq!(sampled.handle_answer(1, 0, 4), Err(AnswerError::Rank { rank: 4, entries: 4 }));
        assert_eq!(sampled.handle_answer(1, 3, 1), Err(AnswerError::Rank { rank: 1, entries: 1 }));
        assert_eq!(sampled.handle_answer(1, 4, 0), Err(AnswerError::Group(4)));
        assert_eq!(sampled.handle_answer(1, 200, 0), Err(AnswerError::Group(200)));
    }
}
