//! Several forwarders of one node, of which one exchanges packets with the neighbours.
//!
//! ARP and neighbour discovery come to the lead alone. The lead passes what it learns to the others, which learn it by the same
//! rules. The others send their own requests, and the answer reaches them through the lead.

use flow::Instant;

use super::forwarder::Forwarder;
use super::learning::{Learning, Sharing};

/// What waits for the other forwarders at most; when there is more, the newest is left out: a forwarder that misses it asks.
pub const LEARNINGS_WAITING_MAX: usize = 1024;

impl Forwarder {
    /// Makes this forwarder one of several. Before the first packet.
    pub fn set_sharing(&mut self, sharing: Sharing) {
        self.sharing = sharing;
        if sharing == Sharing::Follower {
            // The lead has link addresses confirmed for all.
            self.warming = None;
        }
    }

    /// The next thing that the other forwarders are to learn.
    pub fn poll_learning(&mut self) -> Option<Learning> {
        self.learnings.pop_front()
    }

    /// Learns what the lead has learnt.
    pub fn handle_learning(&mut self, now: Instant, learning: &Learning) {
        let Learning { port, address, mac, how } = *learning;
        self.learn(now, (port, address), mac, how);
    }

    pub(super) fn note_learning(&mut self, learning: Learning) {
        if self.sharing == Sharing::Lead && self.learnings.len() < LEARNINGS_WAITING_MAX {
            self.learnings.push_back(learning);
        }
    }
}
