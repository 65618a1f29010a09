//! What is counted of mirroring.

/// What mirroring did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MirrorCounters {
    /// Bytes sent to nodes that follow.
    pub bytes_sent: u64,
    /// Blocks that passed while a node followed.
    pub blocks_passed: u64,
    /// Blocks that were not sent to a node for want of room: it has been asking for them since.
    pub blocks_left_out: u64,
    /// Pieces of 64 bytes that nodes lacked and were given.
    pub granules_given: u64,
    /// Bytes received from the node that is followed.
    pub bytes_received: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Pieces of 64 bytes that were lacking here and were given.
    pub granules_given_here: u64,
    /// Caches taken over from a mirror.
    pub caches_taken_over: u64,
}
