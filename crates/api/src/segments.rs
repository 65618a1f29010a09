//! The status of the replication of unacknowledged segments.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// Replication of unacknowledged segments: a peer that takes over resends them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct SegmentsStatus {
    /// Segments held of connections that this node owns.
    #[report(
        sum,
        gauge(
            "segments_held",
            of = "own",
            help = "Unacknowledged segments that are held, of own connections (`own`) and of peers' (`peers`)."
        )
    )]
    pub own: u64,
    /// Segments held of peers' connections.
    #[report(sum, gauge("segments_held", of = "peers"))]
    pub of_peers: u64,
    /// Memory that they take, in bytes.
    #[report(sum)]
    pub memory_bytes: u64,
    /// Segments of own connections that were held, retransmissions included.
    #[report(sum, counter("segments_held_total"))]
    pub held: u64,
    /// Segments that were not held because of urgent data, a signature or unusual headers.
    #[report(sum, counter("segments_unholdable_total"))]
    pub unholdable: u64,
    /// Held segments that were dropped because the memory was full.
    #[report(sum, counter("segments_evicted_total"))]
    pub evicted: u64,
    /// Messages sent. One to several peers counts once.
    #[report(
        sum,
        counter(
            "segment_messages_total",
            outcome = "sent",
            help = "Messages about unacknowledged segments: sent to peers (`sent`), or of peers, where they were used (`received`) or could not be (`refused`)."
        )
    )]
    pub sent_messages: u64,
    /// Bytes of these messages.
    #[report(
        sum,
        counter(
            "segment_sent_bytes_total",
            help = "Bytes of messages about unacknowledged segments that were sent to peers."
        )
    )]
    pub sent_bytes: u64,
    /// Segments of peers that were held.
    #[report(sum, counter("segment_messages_total", outcome = "received"))]
    pub received: u64,
    /// Messages of peers that could not be used.
    #[report(sum, counter("segment_messages_total", outcome = "refused"))]
    pub refused: u64,
    /// SYNs resent after a take-over.
    #[report(
        sum,
        counter(
            "segments_resent_total",
            kind = "syn",
            help = "Segments that this node resent after it took over: each a `syn` or a `segment`."
        )
    )]
    pub resent_syns: u64,
    /// Other segments resent after a take-over.
    #[report(sum, counter("segments_resent_total", kind = "segment"))]
    pub resent_segments: u64,
}
