//! The status of the mirrors of the tunnel's caches.

use serde::{Deserialize, Serialize};

/// Mirrors of the tunnel's caches at the nodes of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyMirror {
    /// Nodes that mirror this node's caches.
    pub followers: u64,
    /// Number of the node whose caches this one mirrors.
    pub follows: Option<u8>,
    /// Mirror of the cache of sent blocks.
    pub sent: MirroredCache,
    /// Mirror of the cache of received blocks.
    pub received: MirroredCache,
    /// Bytes that were sent to mirrors.
    pub sent_bytes: u64,
    /// Blocks that the caches took while they were mirrored.
    pub blocks: u64,
    /// Blocks that were not sent to a mirror because its rate was exceeded.
    pub blocks_left_out: u64,
    /// Granules (64 bytes) that mirrors lacked and received.
    pub pieces_given: u64,
    /// Bytes that were received from the mirrored node.
    pub received_bytes: u64,
    /// Blocks that were received from the mirrored node.
    pub blocks_received: u64,
    /// Received blocks that could not be applied when they arrived.
    pub blocks_missed: u64,
    /// Granules (64 bytes) that this mirror lacked and received.
    pub pieces_taken: u64,
    /// Caches that this node continued with when it became the tunnel's end.
    pub caches_taken_over: u64,
}

/// A mirrored cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MirroredCache {
    /// Bytes of the mirror that a take-over now would keep.
    pub held_bytes: u64,
    /// Bytes of the mirrored cache, as the mirrored node reported them last.
    pub bytes: u64,
}

impl RedundancyMirror {
    /// This node would go on with all that the tunnel's end has.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.follows.is_some()
            && self.sent.held_bytes == self.sent.bytes
            && self.received.held_bytes == self.received.bytes
    }
}
