//! A compact stream's figures.

/// The figures of a [`super::CompactSender`], of all peers together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactSenderStatus {
    /// What is in the filter: connections, or pairs of hosts.
    pub entries: u64,
    /// Insertions that found no room in a filter with fingerprints.
    pub refused: u64,
    /// Of those, what is not in it to this day.
    pub absent: u64,
    /// Insertions into a Bloom filter that had as many items as it was made for.
    pub beyond: u64,
    /// Bytes of datagrams.
    pub bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Updates that sent the whole filter to a peer, because that was smaller,
    pub whole_updates: u64,
    /// and those that sent what had changed.
    pub incremental_updates: u64,
    /// Words sent.
    pub words: u64,
    /// Datagrams that did not arrive.
    pub lost: u64,
    /// Questions for an acknowledgement.
    pub probes: u64,
    /// Sections that a peer found to be different and that were sent again.
    pub drifts: u64,
    /// Times that a peer knew nothing of the filter and was sent all of it.
    pub beginnings: u64,
    /// Answers of peers that could not be used.
    pub bad_datagrams: u64,
    /// Peers that have a whole filter of this node.
    pub peers_with_filter: u64,
    /// Peers that refuse the filter, as it is larger than they take.
    pub peers_refusing: u64,
    /// What the filter and what is kept for the peers take, in bytes.
    pub memory_bytes: u64,
}

/// The figures of a [`super::CompactReceiver`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CompactReceiverStatus {
    /// What the peer said is in its filter.
    pub entries: u64,
    /// Datagrams received.
    pub datagrams: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Datagrams that came late or twice and were not used.
    pub late: u64,
    /// Datagrams that were missing when what was received was acknowledged.
    pub missed: u64,
    /// Datagrams that could not be used.
    pub bad_datagrams: u64,
    /// Sections compared with the peer's,
    pub compared: u64,
    /// and those found to be different and asked for.
    pub drifts: u64,
    /// Filters of the peer that became whole.
    pub filters: u64,
    /// Bytes sent.
    pub bytes_sent: u64,
}
