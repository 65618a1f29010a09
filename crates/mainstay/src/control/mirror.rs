//! What operators are told of the mirrors of the tunnel's caches.

use serde::{Deserialize, Serialize};
use tunnel::mirror::MirrorStatus;

use crate::metrics::{Metric, Samples};
use crate::output::{counted, scaled};

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
    /// Bytes told to followers.
    pub told_bytes: u64,
    /// Blocks that passed while somebody followed.
    pub blocks: u64,
    /// Blocks that a follower was not told because it would have been too much at once.
    pub blocks_left_out: u64,
    /// Pieces of 64 bytes that followers lacked and were given.
    pub pieces_given: u64,
    /// Bytes heard from the node that is followed.
    pub heard_bytes: u64,
    /// Blocks heard.
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
    /// The status as it is told.
    #[must_use]
    pub fn of(status: &MirrorStatus) -> Self {
        let counters = &status.counters;
        let cache = |[held_bytes, bytes]: [u64; 2]| MirroredCache { held_bytes, bytes };
        Self {
            followers: status.followers as u64,
            follows: status.leader.map(|leader| leader.0),
            sent: cache(status.sent_bytes),
            received: cache(status.received_bytes),
            told_bytes: counters.bytes_told,
            blocks: counters.blocks_passed,
            blocks_left_out: counters.blocks_left_out,
            pieces_given: counters.granules_given,
            heard_bytes: counters.bytes_heard,
            blocks_heard: counters.blocks_heard,
            blocks_missed: status.blocks_missed,
            pieces_taken: counters.granules_given_here,
            caches_taken_over: counters.caches_taken_over,
        }
    }

    /// This node would go on with all that the tunnel's end has.
    #[must_use]
    pub const fn is_whole(&self) -> bool {
        self.follows.is_some()
            && self.sent.held_bytes == self.sent.bytes
            && self.received.held_bytes == self.received.bytes
    }

    /// Adds its samples.
    pub fn add_to(&self, samples: &mut Samples) {
        samples.add_count(Metric::RedundancyMirrors, &[], self.followers);
        samples.add_count(Metric::RedundancyMirrorBytes, &["told"], self.told_bytes);
        samples.add_count(Metric::RedundancyMirrorBytes, &["heard"], self.heard_bytes);
        for (cache, of) in [("sent", &self.sent), ("received", &self.received)] {
            samples.add_count(Metric::RedundancyMirrorHeld, &[cache], of.held_bytes);
            samples.add_count(Metric::RedundancyMirrorToHold, &[cache], of.bytes);
        }
        for (fate, count) in [
            ("passed", self.blocks),
            ("left_out", self.blocks_left_out),
            ("heard", self.blocks_heard),
            ("missed", self.blocks_missed),
        ] {
            samples.add_count(Metric::RedundancyMirrorBlocks, &[fate], count);
        }
        samples.add_count(Metric::RedundancyMirrorPieces, &["given"], self.pieces_given);
        samples.add_count(Metric::RedundancyMirrorPieces, &["taken"], self.pieces_taken);
        samples.add_count(Metric::RedundancyCachesTakenOver, &[], self.caches_taken_over);
    }

    /// A line for people.
    #[must_use]
    pub fn describe(&self) -> String {
        let bytes = |bytes: u64| scaled(bytes as f64, "B");
        let of = |cache: &MirroredCache| format!("{} of {}", bytes(cache.held_bytes), bytes(cache.bytes));
        match self.follows {
            Some(node) => format!(
                "             mirrors the caches of node {node}: {} sent, {} received\n",
                of(&self.sent),
                of(&self.received)
            ),
            None if self.followers > 0 => format!(
                "             caches mirrored by {}, {} told, {} left out\n",
                counted(self.followers as usize, "node"),
                bytes(self.told_bytes),
                counted(self.blocks_left_out as usize, "block")
            ),
            None => "             caches mirrored by no other node\n".to_owned(),
        }
    }
}
