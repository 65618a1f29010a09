//! The status of the tunnel to another site.

use serde::{Deserialize, Serialize};

use crate::mirror::RedundancyMirror;

/// The tunnel to another site.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyStatus {
    /// Reason why packets bypass the tunnel now.
    pub bypass: Option<String>,
    /// Whether session keys are established. Without `[redundancy.security]` it is null.
    #[serde(default)]
    pub encrypted: Option<bool>,
    /// Round-trip time of the path in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Largest datagram that the path passes, in bytes.
    pub datagram_bytes: Option<u16>,
    /// Sampling period in bytes. It grows while the processor is overloaded.
    pub period_bytes: u64,
    /// Memory of the caches and their indexes, in bytes.
    pub memory_bytes: u64,
    /// Sessions that were opened with the other site.
    pub sessions: u64,
    /// Traffic to the other site.
    pub sent: RedundancySent,
    /// Traffic from the other site.
    pub received: RedundancyReceived,
    /// Mirrors of the caches. It is null where `redundancy.mirror` is `false`, or where the site has one node.
    pub mirror: Option<RedundancyMirror>,
}

/// Traffic to the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancySent {
    /// Packets that entered the tunnel.
    pub packets: u64,
    /// Bytes of these packets.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// `packet_bytes` less `datagram_bytes`. It is negative when nothing was redundant.
    pub saved_bytes: i64,
    /// Bytes of payload that were sent as references.
    pub matched_bytes: u64,
    /// Datagrams that were sent.
    pub datagrams: u64,
    /// Datagrams that were retransmitted.
    pub datagrams_retransmitted: u64,
    /// Redundant datagram copies.
    #[serde(default)]
    pub datagrams_copied: u64,
    /// Lost datagrams that were not retransmitted any more.
    pub datagrams_given_up: u64,
    /// Bytes of headers that encoding saved.
    #[serde(default)]
    pub header_bytes_saved: u64,
    /// Bytes that the second stage saved.
    #[serde(default)]
    pub second_stage_bytes_saved: u64,
    /// Granules (64 bytes) that the other site lacked and this one sent.
    pub repaired: u64,
    /// Packets that were dropped because too many waited for the path.
    pub backlog_drops: u64,
    /// Packets that bypassed the tunnel, by reason. Reasons without packets are left out.
    pub bypassed: Vec<BypassCount>,
}

/// Traffic from the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RedundancyReceived {
    /// Packets that left the tunnel.
    pub packets: u64,
    /// Bytes of these packets.
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    pub datagram_bytes: u64,
    /// Datagrams that were received.
    pub datagrams: u64,
    /// Datagrams that arrived after later ones: retransmitted, or overtaken.
    pub datagrams_recovered: u64,
    /// Datagrams that never arrived.
    pub datagrams_lost: u64,
    /// Datagrams that were malformed, or of no present session.
    pub datagrams_refused: u64,
    /// Packets with references to bytes that were not in the cache when they arrived.
    pub misses: u64,
    /// Granules (64 bytes) that were requested and received.
    pub repaired: u64,
    /// Packets that could not be restored, or found no room afterwards.
    pub abandoned: u64,
    /// Packets that were malformed or had a wrong checksum.
    pub broken: u64,
}

/// Packets that bypassed the tunnel for one reason.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BypassCount {
    /// Reason: `peer_away`, `path_too_small`, `processor` or `too_long`.
    pub reason: String,
    /// Packets that bypassed the tunnel for it.
    pub packets: u64,
}
