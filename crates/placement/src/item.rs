//! A connection to be placed.

use flow::NodeId;
use state_service::prediction::Landings;

/// A connection to be placed.
#[derive(Clone, Debug)]
pub struct Item {
    /// The hash that selects its node.
    pub hash: u64,
    /// The node that has it: it holds the original.
    pub owner: NodeId,
    /// The size of its state in bytes (s).
    pub size_bytes: u32,
    /// Where it may land (b).
    pub landings: Landings,
}

impl Item {
    /// The churn that is expected on the node of a landing if it has no replica, in bytes for each failure event.
    pub(crate) fn churn(&self, landing: usize) -> f64 {
        self.landings[landing].1 * f64::from(self.size_bytes)
    }
}
