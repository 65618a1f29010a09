//! What a chain counts.

use alloc::vec::Vec;

/// The counters of all functions of a chain, for one worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainCounters {
    pub(super) values: Vec<u64>,
    pub(super) functions: Vec<FunctionCounters>,
}

/// The chain's counters of one of its functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FunctionCounters {
    /// The number of connections for which it was called.
    pub connections: u64,
    /// Of those, the ones that it refused.
    pub connections_refused: u64,
    /// Packets passed to it; none where it handles none
    /// ([`HANDLES_PACKETS`](crate::function::NetworkFunction::HANDLES_PACKETS)).
    pub packets: u64,
    /// Of those, the ones that it did not forward.
    pub packets_stopped: u64,
}

impl ChainCounters {
    /// The values, in the order of [`counter_names`](super::Chain::counter_names).
    #[must_use]
    pub fn values(&self) -> &[u64] {
        &self.values
    }

    /// The counter values of each function, in chain order.
    #[must_use]
    pub fn functions(&self) -> &[FunctionCounters] {
        &self.functions
    }
}
