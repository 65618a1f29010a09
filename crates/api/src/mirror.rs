//! The status of the mirrors of the tunnel's caches.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// Mirrors of the tunnel's caches at the nodes of a site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct RedundancyMirror {
    /// Nodes that mirror this node's caches.
    #[report(gauge("redundancy_mirrors"))]
    pub followers: u64,
    /// Number of the node whose caches this one mirrors.
    pub follows: Option<u8>,
    /// Mirror of the cache of sent blocks.
    #[report(nested(cache = "sent"))]
    pub sent: MirroredCache,
    /// Mirror of the cache of received blocks.
    #[report(nested(cache = "received"))]
    pub received: MirroredCache,
    /// Bytes that were sent to mirrors.
    #[report(counter(
        "redundancy_mirror_bytes_total",
        direction = "sent",
        help = "Bytes sent to mirrors (`sent`), or received from the mirrored node (`received`)."
    ))]
    pub sent_bytes: u64,
    /// Blocks that the caches took while they were mirrored.
    #[report(counter(
        "redundancy_mirror_blocks_total",
        outcome = "passed",
        help = "Blocks that the caches took while they were mirrored (`passed`), and those not sent to a mirror for lack of rate (`left_out`); blocks that this mirror received (`received`), and those that it could not apply (`missed`)."
    ))]
    pub blocks: u64,
    /// Blocks that were not sent to a mirror because its rate was exceeded.
    #[report(counter("redundancy_mirror_blocks_total", outcome = "left_out"))]
    pub blocks_left_out: u64,
    /// Granules (64 bytes) that mirrors lacked and received.
    #[report(counter(
        "redundancy_mirror_pieces_total",
        direction = "given",
        help = "Granules (64 bytes) that were sent to mirrors that lacked them (`given`), or received by this mirror (`taken`)."
    ))]
    pub pieces_given: u64,
    /// Bytes that were received from the mirrored node.
    #[report(counter("redundancy_mirror_bytes_total", direction = "received"))]
    pub received_bytes: u64,
    /// Blocks that were received from the mirrored node.
    #[report(counter("redundancy_mirror_blocks_total", outcome = "received"))]
    pub blocks_received: u64,
    /// Received blocks that could not be applied when they arrived.
    #[report(counter("redundancy_mirror_blocks_total", outcome = "missed"))]
    pub blocks_missed: u64,
    /// Granules (64 bytes) that this mirror lacked and received.
    #[report(counter("redundancy_mirror_pieces_total", direction = "taken"))]
    pub pieces_taken: u64,
    /// Caches that this node continued with when it became the tunnel's end.
    #[report(counter("redundancy_caches_taken_over_total"))]
    pub caches_taken_over: u64,
}

/// A mirrored cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct MirroredCache {
    /// Bytes of the mirror that a take-over now would keep.
    #[report(gauge(
        "redundancy_mirror_held_bytes",
        help = "Bytes of the `sent` and the `received` cache that this standby node mirrors."
    ))]
    pub held_bytes: u64,
    /// Bytes of the mirrored cache, as the mirrored node reported them last.
    #[report(gauge(
        "redundancy_mirror_to_hold_bytes",
        help = "Bytes of the `sent` and the `received` cache that a complete mirror has."
    ))]
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
