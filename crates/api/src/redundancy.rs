//! The status of the tunnel to another site.

use serde::{Deserialize, Serialize};

use crate::mirror::RedundancyMirror;
use crate::report::Report;

/// The tunnel to another site.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, Report)]
pub struct RedundancyStatus {
    /// Reason why packets bypass the tunnel now.
    #[report(gauge("redundancy_open", value = self.bypass.is_none(),
        help = "1 while the tunnel to the other site carries packets."))]
    pub bypass: Option<String>,
    /// Whether session keys are established. Without `[redundancy.security]` it is null.
    #[serde(default)]
    pub encrypted: Option<bool>,
    /// Round-trip time of the path in milliseconds.
    pub round_trip_ms: Option<f64>,
    /// Largest datagram that the path passes, in bytes.
    pub datagram_bytes: Option<u16>,
    /// Sampling period in bytes. It grows while the processor is overloaded.
    #[report(gauge(
        "redundancy_period_bytes",
        help = "Bytes of payload per fingerprint that is looked up. The period grows while the processor is overloaded."
    ))]
    pub period_bytes: u64,
    /// Memory of the caches and their indexes, in bytes.
    #[report(gauge("redundancy_memory_bytes"))]
    pub memory_bytes: u64,
    /// Sessions that were opened with the other site.
    #[report(counter("redundancy_sessions_total"))]
    pub sessions: u64,
    /// Traffic to the other site.
    #[report(nested)]
    pub sent: RedundancySent,
    /// Traffic from the other site.
    #[report(nested)]
    pub received: RedundancyReceived,
    /// Mirrors of the caches. It is null where `redundancy.mirror` is `false`, or where the site has one node.
    #[report(nested)]
    pub mirror: Option<RedundancyMirror>,
}

/// Traffic to the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct RedundancySent {
    /// Packets that entered the tunnel.
    #[report(counter(
        "redundancy_packets_total",
        direction = "sent",
        help = "Packets that the tunnel `sent` or `received`."
    ))]
    pub packets: u64,
    /// Bytes of these packets.
    #[report(counter(
        "redundancy_packet_bytes_total",
        direction = "sent",
        help = "Bytes of the packets that the tunnel `sent` or `received`."
    ))]
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    #[report(counter(
        "redundancy_datagram_bytes_total",
        direction = "sent",
        help = "Bytes of the datagrams that the tunnel `sent` or `received`, with their IP and UDP headers."
    ))]
    pub datagram_bytes: u64,
    /// `packet_bytes` less `datagram_bytes`. It is negative when nothing was redundant.
    pub saved_bytes: i64,
    /// Bytes of payload that were sent as references.
    #[report(counter("redundancy_matched_bytes_total"))]
    pub matched_bytes: u64,
    /// Datagrams that were sent.
    #[report(counter(
        "redundancy_datagrams_total",
        outcome = "sent",
        help = "Datagrams of the tunnel that were `sent`, retransmitted (`retransmitted`), sent as redundant copies (`copied`) or never acknowledged (`given_up`); and that were `received`, received by retransmission (`recovered`), `lost` or `refused`."
    ))]
    pub datagrams: u64,
    /// Datagrams that were retransmitted.
    #[report(counter("redundancy_datagrams_total", outcome = "retransmitted"))]
    pub datagrams_retransmitted: u64,
    /// Redundant datagram copies.
    #[serde(default)]
    #[report(counter("redundancy_datagrams_total", outcome = "copied"))]
    pub datagrams_copied: u64,
    /// Lost datagrams that were not retransmitted any more.
    #[report(counter("redundancy_datagrams_total", outcome = "given_up"))]
    pub datagrams_given_up: u64,
    /// Bytes of headers that encoding saved.
    #[serde(default)]
    #[report(counter(
        "redundancy_saved_bytes_total",
        by = "headers",
        help = "Bytes saved besides those of payload: by encoded `headers`, and by the `second_stage`."
    ))]
    pub header_bytes_saved: u64,
    /// Bytes that the second stage saved.
    #[serde(default)]
    #[report(counter("redundancy_saved_bytes_total", by = "second_stage"))]
    pub second_stage_bytes_saved: u64,
    /// Granules (64 bytes) that the other site lacked and this one sent.
    #[report(counter(
        "redundancy_repaired_pieces_total",
        direction = "sent",
        help = "Granules (64 bytes) that the other site lacked and this one sent (`sent`), or that this site requested and received (`received`)."
    ))]
    pub repaired: u64,
    /// Packets that were dropped because too many waited for the path.
    #[report(counter(
        "redundancy_dropped_packets_total",
        reason = "backlog",
        help = "Packets lost in the tunnel: too many waited (`backlog`), their references could not be resolved (`abandoned`), or they were malformed (`broken`)."
    ))]
    pub backlog_drops: u64,
    /// Packets that bypassed the tunnel, by reason. Reasons without packets are left out.
    pub bypassed: Vec<BypassCount>,
}

/// Traffic from the other site.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
pub struct RedundancyReceived {
    /// Packets that left the tunnel.
    #[report(counter("redundancy_packets_total", direction = "received"))]
    pub packets: u64,
    /// Bytes of these packets.
    #[report(counter("redundancy_packet_bytes_total", direction = "received"))]
    pub packet_bytes: u64,
    /// Bytes of all datagrams, with their IP and UDP headers.
    #[report(counter("redundancy_datagram_bytes_total", direction = "received"))]
    pub datagram_bytes: u64,
    /// Datagrams that were received.
    #[report(counter("redundancy_datagrams_total", outcome = "received"))]
    pub datagrams: u64,
    /// Datagrams that arrived after later ones: retransmitted, or overtaken.
    #[report(counter("redundancy_datagrams_total", outcome = "recovered"))]
    pub datagrams_recovered: u64,
    /// Datagrams that never arrived.
    #[report(counter("redundancy_datagrams_total", outcome = "lost"))]
    pub datagrams_lost: u64,
    /// Datagrams that were malformed, or of no present session.
    #[report(counter("redundancy_datagrams_total", outcome = "refused"))]
    pub datagrams_refused: u64,
    /// Packets with references to bytes that were not in the cache when they arrived.
    #[report(counter("redundancy_misses_total"))]
    pub misses: u64,
    /// Granules (64 bytes) that were requested and received.
    #[report(counter("redundancy_repaired_pieces_total", direction = "received"))]
    pub repaired: u64,
    /// Packets that could not be restored, or found no room afterwards.
    #[report(counter("redundancy_dropped_packets_total", reason = "abandoned"))]
    pub abandoned: u64,
    /// Packets that were malformed or had a wrong checksum.
    #[report(counter("redundancy_dropped_packets_total", reason = "broken"))]
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
