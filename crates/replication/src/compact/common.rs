//! What peers of one filter have in common.

use super::budget::Budget;
use super::held::Held;
use super::wire::Announcement;
use crate::symbol::Coding;

/// What is the same for all peers.
pub(super) struct Common {
    pub(super) announcement: Announcement,
    pub(super) epoch: u64,
    pub(super) coding: Coding,
    pub(super) words: u32,
    pub(super) section_words: u32,
    pub(super) datagram_bytes_max: usize,
    pub(super) budget_of_a_peer: Option<u64>,
}

impl Common {
    /// A filter of nothing.
    pub(super) fn empty(&self) -> Held {
        Held::new(self.announcement.shape).expect("a filter of this shape was built already")
    }

    pub(super) fn budget(&self) -> Option<Budget> {
        self.budget_of_a_peer.map(|bytes| Budget::new(bytes, self.datagram_bytes_max))
    }
}
