//! The status of the replication of unacknowledged segments.

use serde::{Deserialize, Serialize};

/// Replication of unacknowledged segments: a peer that takes over resends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SegmentsStatus {
    /// Segments held of connections that this node owns.
    pub own: u64,
    /// Segments held of peers' connections.
    pub of_peers: u64,
    /// Memory that they take, in bytes.
    pub memory_bytes: u64,
    /// Segments of own connections that were held, retransmissions included.
    pub held: u64,
    /// Segments that were not held because of urgent data, a signature or unusual headers.
    pub unholdable: u64,
    /// Held segments that were dropped because the memory was full.
    pub evicted: u64,
    /// Messages sent. One to several peers counts once.
    pub sent_messages: u64,
    /// Bytes of these messages.
    pub sent_bytes: u64,
    /// Segments of peers that were held.
    pub received: u64,
    /// Messages of peers that could not be used.
    pub refused: u64,
    /// SYNs resent after a take-over.
    pub resent_syns: u64,
    /// Other segments resent after a take-over.
    pub resent_segments: u64,
}

impl SegmentsStatus {
    /// Adds the status of another worker.
    pub fn add(&mut self, other: &Self) {
        self.own += other.own;
        self.of_peers += other.of_peers;
        self.memory_bytes += other.memory_bytes;
        self.held += other.held;
        self.unholdable += other.unholdable;
        self.evicted += other.evicted;
        self.sent_messages += other.sent_messages;
        self.sent_bytes += other.sent_bytes;
        self.received += other.received;
        self.refused += other.refused;
        self.resent_syns += other.resent_syns;
        self.resent_segments += other.resent_segments;
    }
}
