//! What an operator sees of the comparison.

use flow::Instant;

/// How this node's replicas of the peer's connections compare with what the peer sent. Counters count since the session was
/// made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct AntiEntropyStatus {
    /// When all replicas were last found to be what the peer sent; `None` if never: the peer may be of a release that does not
    /// compare.
    pub agreed_at: Option<Instant>,
    /// Connections on which the two are known to differ now.
    pub divergent: u32,
    /// Comparisons that the peer answered.
    pub rounds_compared: u64,
    /// Connections found to differ.
    pub divergent_found: u64,
    /// Missing and wrong replicas that were retransmitted.
    pub repaired: u64,
    /// Replicas removed because their owner had no such connection.
    pub extra_removed: u64,
    /// Replicas that were not in the table as they had been entered: something changed them without a message.
    pub unnoted_changes: u64,
    /// Rounds asked for because too much differed to be put right one by one.
    pub rounds_asked: u64,
}
