//! `[limits]` as written.

use serde::Deserialize;
use toml::Spanned;

/// The `[limits]` section as written.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Connections held at most.
    pub connections_max: Option<Spanned<u64>>,
    /// Connections that one source may have.
    pub connections_per_source_max: Option<Spanned<u64>>,
    /// Connections that one source may begin in a second.
    pub connections_per_source_per_second_max: Option<Spanned<u64>>,
    /// Leading bits of an IPv4 address that name a source.
    pub source_prefix_ipv4_bits: Option<Spanned<u64>>,
    /// Leading bits of an IPv6 address that name a source.
    pub source_prefix_ipv6_bits: Option<Spanned<u64>>,
    /// Packets in fragments that are under way at a time.
    pub fragmented_packets_max: Option<Spanned<u64>>,
    /// Packets in fragments of one source.
    pub fragmented_packets_per_source_max: Option<Spanned<u64>>,
    /// Bytes of fragments that wait for the first of their packet.
    pub fragment_bytes_max: Option<Spanned<u64>>,
    /// Bytes of one source's fragments that wait.
    pub fragment_bytes_per_source_max: Option<Spanned<u64>>,
    /// How long the fragments of a packet may take to come.
    pub fragment_timeout: Option<Spanned<String>>,
}
