//! The mirrors of the tunnel's caches in a status.

use serde::{Deserialize, Serialize};

/// The mirrors of the tunnel's caches at the nodes of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyMirror {
    /// Nodes that mirror this one's caches.
    pub followers: u64,
    /// The node whose caches this one mirrors.
    pub follows: Option<u8>,
    /// What this node holds of what that node sent.
    pub sent: MirroredCache,
    /// What this node holds of what that node received.
    pub received: MirroredCache,
    /// Bytes sent to followers.
    pub told_bytes: u64,
    /// Blocks that passed while a node followed.
    pub blocks: u64,
    /// Blocks that were not sent to a follower because of its rate limit.
    pub blocks_left_out: u64,
    /// Pieces of 64 bytes that followers lacked and were given.
    pub pieces_given: u64,
    /// Bytes received from the node that is followed.
    pub heard_bytes: u64,
    /// Blocks received.
    pub blocks_heard: u64,
    /// Of those, the ones that could not be followed when they came.
    pub blocks_missed: u64,
    /// Pieces of 64 bytes that were lacking here and were given.
    pub pieces_taken: u64,
    /// Caches that this node went on with when it became the tunnel's end.
    pub caches_taken_over: u64,
}

/// A cache that is mirrored.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct MirroredCache {
    /// Bytes held now that a take-over would keep.
    pub held_bytes: u64,
    /// Bytes that there were to hold.
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
