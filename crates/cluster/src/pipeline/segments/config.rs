//! What the replication of segments is made from, and what it counts.

/// Which segments are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SegmentPolicy {
    /// SYN segments.
    SynOnly,
    /// All segments with data, SYN or FIN.
    Always,
}

/// The replication of unacknowledged segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentsConfig {
    /// Which segments are held.
    pub policy: SegmentPolicy,
    /// Bytes of memory for held segments at most: a half for own connections, a half for those of peers. When either is full, the
    /// segment that was held first is the victim.
    pub memory_bytes_max: usize,
    /// Bytes of messages a second that each peer is sent at most.
    pub bytes_per_s_max: u32,
    /// Segments a second that are resent at most after a take-over.
    pub resends_per_s_max: u32,
}

impl Default for SegmentsConfig {
    fn default() -> Self {
        Self {
            policy: SegmentPolicy::Always,
            memory_bytes_max: 64 << 20,
            bytes_per_s_max: 8 << 20,
            resends_per_s_max: 20_000,
        }
    }
}

/// What the replication of segments did so far.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentCounters {
    /// Segments of own connections that were held, retransmissions included.
    pub held: u64,
    /// Segments that were not held because of urgent data, a signature or unusual headers.
    pub unholdable: u64,
    /// Held segments, own and of peers, that gave way to others because the memory was full.
    pub evicted: u64,
    /// Messages sent, one for all peers.
    pub sent: u64,
    /// Bytes of these messages.
    pub sent_bytes: u64,
    /// Segments of peers that were held.
    pub received: u64,
    /// Messages of peers that no honest node sends.
    pub refused: u64,
    /// SYNs resent after a take-over.
    pub syns_resent: u64,
    /// Other segments resent after a take-over.
    pub segments_resent: u64,
}

/// How the replication of segments stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SegmentStatus {
    /// What it did.
    pub counters: SegmentCounters,
    /// Own segments held.
    pub own: u32,
    /// Segments of peers held.
    pub of_peers: u32,
    /// Bytes of memory that they take.
    pub memory_bytes: usize,
}

/// What was resent after a take-over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SegmentsResent {
    /// SYNs.
    pub syns: u64,
    /// Other segments.
    pub segments: u64,
    /// Held segments that were dropped instead: acknowledged, or of no open connection.
    pub dropped: u64,
}
