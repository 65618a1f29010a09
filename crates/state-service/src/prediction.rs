//! Where the packets of a connection land when nodes fail: b(c, e) [TRIPOD, section V].
//!
//! A connection is given by the hash that the distribution selects its node with ([`flow::Affinity::hash`]). A set of failed
//! nodes is a failure `e`.

mod sampled;

use arrayvec::ArrayVec;
use flow::{Ecmp, NODES_MAX, NodeId, NodeSet};

pub use sampled::{AnswerError, Sampled, Stages};

/// The most simultaneous failures that are predicted (K), and so the most backups of a connection.
pub const FAILURES_MAX: usize = 8;
/// The most nodes where a connection may land within [`FAILURES_MAX`] failures: Σ(i + 1) [TRIPOD, section V-A].
pub const LANDINGS_MAX: usize = FAILURES_MAX * (FAILURES_MAX + 3) / 2;

/// The nodes that a connection is replicated to, in the order in which its packets reach them.
pub type Backups = ArrayVec<NodeId, FAILURES_MAX>;

/// Nodes where packets of a connection may land, with the probability of that: the b of equation 4, above zero.
pub type Landings = ArrayVec<(NodeId, f64), LANDINGS_MAX>;

/// How likely nodes fail, and how many at a time are prepared for.
#[derive(Clone, Debug)]
pub struct FailureModel {
    probability: [f64; NODES_MAX],
    failures_max: usize,
}

/// Why a failure model is invalid: misuse, or a mistake of the configuration.
#[derive(Clone, Copy, PartialEq, Debug, thiserror::Error)]
pub enum FailureModelError {
    /// It is no probability.
    #[error("the probability of a failure is {0}: choose a number above 0 and below 1")]
    Probability(f64),
    /// Too many or too few failures.
    #[error("{0} simultaneous failures: choose 1 to {FAILURES_MAX}")]
    Failures(usize),
}

impl FailureModel {
    /// All nodes fail with this probability, independently; up to `failures_max` at a time are prepared for.
    ///
    /// # Errors
    /// A number is out of range.
    pub fn uniform(probability: f64, failures_max: usize) -> Result<Self, FailureModelError> {
        if !(1..=FAILURES_MAX).contains(&failures_max) {
            return Err(FailureModelError::Failures(failures_max));
        }
        Self { probability: [0.5; NODES_MAX], failures_max }.with_all(probability)
    }

    fn with_all(mut self, probability: f64) -> Result<Self, FailureModelError> {
        self.probability = [checked(probability)?; NODES_MAX];
        Ok(self)
    }

    /// Sets the probability of one node. A number of [`NODES_MAX`] or more is ignored.
    ///
    /// # Errors
    /// It is no probability.
    pub fn set(&mut self, node: NodeId, probability: f64) -> Result<(), FailureModelError> {
        let probability = checked(probability)?;
        if let Some(place) = self.probability.get_mut(usize::from(node.0)) {
            *place = probability;
        }
        Ok(())
    }

    /// The probability that a node fails.
    #[must_use]
    pub fn of(&self, node: NodeId) -> f64 {
        self.probability.get(usize::from(node.0)).copied().unwrap_or_default()
    }

    /// The most simultaneous failures that are prepared for (k).
    #[must_use]
    pub const fn failures_max(&self) -> usize {
        self.failures_max
    }
}

fn checked(probability: f64) -> Result<f64, FailureModelError> {
    // Not a number is out of the range, too.
    if probability > 0.0 && probability < 1.0 {
        Ok(probability)
    } else {
        Err(FailureModelError::Probability(probability))
    }
}

/// A prediction of the node that receives the packets of a connection.
pub trait Prediction {
    /// The node where packets with this hash land while the nodes of `failed` have failed: b(c, e). `None`: no node is
    /// alive, or nothing is known about the connection.
    fn node(&self, hash: u64, failed: NodeSet) -> Option<NodeId>;

    /// The nodes where the packets land if 1, 2, …, `k` times the node fails that they land on, at most [`FAILURES_MAX`].
    /// Fewer if no more nodes are alive or known.
    fn backups(&self, hash: u64, k: usize) -> Backups {
        let mut failed = NodeSet::EMPTY;
        let mut backups = Backups::new();
        let Some(owner) = self.node(hash, failed) else { return backups };
        failed.insert(owner);
        while backups.len() < k.min(FAILURES_MAX) {
            let Some(next) = self.node(hash, failed) else { break };
            // A prediction from answers may be wrong about the failed nodes.
            if !failed.insert(next) {
                break;
            }
            backups.push(next);
        }
        backups
    }

    /// The nodes but the present one where the packets may land, each with its probability: Σ P(e) over the failures e of 1
    /// to k nodes that bring the packets there. `k` is that of the model.
    fn landings(&self, hash: u64, failures: &FailureModel) -> Landings;
}

impl Prediction for Ecmp {
    fn node(&self, hash: u64, failed: NodeSet) -> Option<NodeId> {
        self.predict(hash, failed)
    }

    /// Only the failure of the node that they land on moves the packets. So a node is reached if all before it have failed and it
    /// has not, whatever the others do, and `k` backups are perfect for `k` failures.
    fn landings(&self, hash: u64, failures: &FailureModel) -> Landings {
        let mut landings = Landings::new();
        let Some(owner) = self.node(hash, NodeSet::EMPTY) else { return landings };
        let mut all_failed = failures.of(owner);
        for node in self.backups(hash, failures.failures_max()) {
            landings.push((node, all_failed * (1.0 - failures.of(node))));
            all_failed *= failures.of(node);
        }
        landings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::random::mix;
    use proptest::prelude::*;

    fn nodes(count: u8) -> NodeSet {
        (0..count).map(NodeId).collect()
    }

    #[test]
    fn failure_models_are_validated() {
        assert_eq!(FailureModel::uniform(0.1, 9).err(), Some(FailureModelError::Failures(9)));
        assert_eq!(FailureModel::uniform(1.0, 2).err(), Some(FailureModelError::Probability(1.0)));
        let mut model = FailureModel::uniform(0.1, 2).expect("in range");
        assert!(model.set(NodeId(3), f64::NAN).is_err());
        model.set(NodeId(3), 0.2).expect("in range");
        model.set(NodeId(200), 0.2).expect("ignored");
        assert_eq!((model.of(NodeId(2)), model.of(NodeId(3)), model.of(NodeId(200))), (0.1, 0.2, 0.0));
    }

    #[test]
    fn landings_of_two_stages_are_a_chain_with_falling_probability() {
        let ecmp = Ecmp::new(nodes(5));
        let model = FailureModel::uniform(0.1, 3).expect("in range");
        let (hash, backups) = (mix(4), ecmp.backups(mix(4), 3));
        let landings = ecmp.landings(hash, &model);
        assert!(landings.iter().map(|(node, _)| *node).eq(backups));
        for ((_, measured), expected) in landings.iter().zip([0.09, 0.009, 0.0009]) {
            assert!((measured - expected).abs() < 1e-12, "{measured} instead of {expected}");
        }
    }

    proptest! {
        /// Whatever up to k nodes fail, the packets land on the owner or a backup.
        #[test]
        fn k_backups_of_two_stages_cover_every_failure_of_k_nodes(
            count in 2_u8..=64, k in 1_usize..=FAILURES_MAX, hash: u64,
            failures in proptest::collection::vec(any::<proptest::sample::Index>(), 0..=FAILURES_MAX),
        ) {
            let ecmp = Ecmp::new(nodes(count));
            let failed: NodeSet = failures.iter().take(k).map(|index| NodeId(index.index(count.into()) as u8)).collect();
            let backups = ecmp.backups(hash, k);
            prop_assert_eq!(backups.len(), k.min(usize::from(count) - 1));
            if let Some(node) = ecmp.node(hash, failed) {
                prop_assert!(Some(node) == ecmp.select(hash) || backups.contains(&node));
            }
        }
    }
}
