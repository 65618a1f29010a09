//! The tunnel to another site in a status.

use serde::{Deserialize, Serialize};

use crate::mirror::RedundancyMirror;

/// The tunnel to another site.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyStatus {
    /// Why packets go past the tunnel now, if they do.
    pub bypass: Option<String>,
    /// Where datagrams are encrypted: whether there are session keys.
    #[serde(default)]
    pub encrypted: Option<bool>,
    /// How long a datagram and its acknowledgement take, in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Bytes of a datagram that the path takes.
    pub datagram_bytes: Option<u16>,
    /// The sampling period, in bytes; longer than configured while the processor is short.
    pub period_bytes: u64,
    /// Bytes of the caches and their indexes.
    pub memory_bytes: u64,
    /// Sessions begun with the other site.
    pub sessions: u64,
    /// Towards the other site.
    pub sent: RedundancySent,
    /// From the other site.
    pub received: RedundancyReceived,
    /// Mirrors of the caches, so that they survive this node; none: they are not mirrored.
    pub mirror: Option<RedundancyMirror>,
}

/// What went to the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancySent {
    /// Packets that the tunnel took.
    pub packets: u64,
    /// Their bytes.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// The difference; negative when nothing was redundant.
    pub saved_bytes: i64,
    /// Bytes of payload for which pointers stand.
    pub matched_bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Of those, the ones sent again.
    pub datagrams_again: u64,
    /// Copies of datagrams, in case that the first is lost.
    #[serde(default)]
    pub datagrams_copied: u64,
    /// Datagrams lost for good.
    pub datagrams_given_up: u64,
    /// Bytes of headers that were not sent, for they follow from earlier ones.
    #[serde(default)]
    pub header_bytes_saved: u64,
    /// Bytes that the second stage took away.
    #[serde(default)]
    pub second_stage_bytes_saved: u64,
    /// Pieces of 64 bytes that the other site lacked and was given.
    pub repaired: u64,
    /// Packets dropped because too much waited for the path.
    pub backlog_drops: u64,
    /// Packets that went past the tunnel, by reason; reasons that never occurred are left out.
    pub bypassed: Vec<BypassCount>,
}

/// What came from the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyReceived {
    /// Packets that came out of the tunnel.
    pub packets: u64,
    /// Their bytes.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// Datagrams.
    pub datagrams: u64,
    /// Datagrams that came after later ones: sent again, or overtaken.
    pub datagrams_recovered: u64,
    /// Datagrams that were waited for in vain.
    pub datagrams_lost: u64,
    /// Datagrams that were none, or of no present session.
    pub datagrams_refused: u64,
    /// Packets that pointed to bytes that were not here when they came.
    pub misses: u64,
    /// Pieces of 64 bytes that were asked for and came.
    pub repaired: u64,
    /// Packets that could not be restored or found no room once they were, and are as good as lost.
    pub abandoned: u64,
    /// Packets that made no sense, or had a wrong checksum.
    pub broken: u64,
}

/// Packets that went past the tunnel for a reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BypassCount {
    /// The reason.
    pub reason: String,
    /// How many.
    pub packets: u64,
}
