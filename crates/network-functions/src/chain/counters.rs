//! What a chain counts.

use alloc::vec::Vec;

/// The counters of all functions of a chain, as one worker counts them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainCounters {
    pub(super) values: Vec<u64>,
    pub(super) functions: Vec<FunctionCounters>,
}

/// What the chain counts of one of its functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionCounters {
    /// Connections that it was asked about.
    pub connections: u64,
    /// Those of them that it did not let begin.
    pub connections_refused: u64,
    /// Packets that it was handed; none where it handles none ([`HANDLES_PACKETS`](crate::function::NetworkFunction::HANDLES_PACKETS)).
    pub packets: u64,
    /// Those of them that it did not forward.
    pub packets_stopped: u64,
}

impl ChainCounters {
    /// The values, in the order of [`counter_names`](super::Chain::counter_names).
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// What was counted of each function, in chain order.
    #[must_use]
    pub fn functions(&self) -> &[FunctionCounters] {
        &self.functions
    }
}
