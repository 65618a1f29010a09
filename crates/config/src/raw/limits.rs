//! `[limits]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::value::DurationText;

/// Limits of connections and fragments. A change needs a restart. Packets of existing connections meet no limit of a source.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawLimits {
    /// Largest number of connections. Beyond it, an unanswered connection is evicted, else the new connection is dropped as
    /// `table_full`.
    pub connections_max: Option<Spanned<u64>>,
    /// Largest number of connections of one source. Beyond it, its new connections are dropped as `source_limit`. Replicas count and are
    /// never refused. The counters take up to 64 bytes of memory per connection of the table. Default: no limit.
    pub connections_per_source_max: Option<Spanned<u64>>,
    /// Largest number of connections that one source may open per second, and at once. Beyond it, its new connections are dropped as
    /// `source_rate`. At most 65 536 sources are counted; of more, those that open the fewest connections are not limited. Default: no
    /// limit.
    pub connections_per_source_per_second_max: Option<Spanned<u64>>,
    /// Leading bits of an IPv4 address that identify a source.
    pub source_prefix_ipv4_bits: Option<Spanned<u64>>,
    /// Leading bits of an IPv6 address that identify a source.
    pub source_prefix_ipv6_bits: Option<Spanned<u64>>,
    /// Largest number of fragmented packets at a time. Beyond it, the oldest is abandoned, and its held fragments are dropped as
    /// `fragment_table_full`.
    pub fragmented_packets_max: Option<Spanned<u64>>,
    /// Largest number of fragmented packets of one source at a time. Beyond it, its further packets are dropped as
    /// `fragment_source_limit`.
    pub fragmented_packets_per_source_max: Option<Spanned<u64>>,
    /// Bytes of fragments that are held until the first fragment of their packet arrives. Each held fragment counts 128 bytes more.
    /// Beyond the limit, further fragments are dropped as `fragment_table_full`.
    pub fragment_bytes_max: Option<Spanned<u64>>,
    /// Bytes of held fragments of one source. Beyond the limit, its further fragments are dropped as `fragment_source_limit`.
    pub fragment_bytes_per_source_max: Option<Spanned<u64>>,
    /// Longest time in which all fragments of a packet must arrive. After it, held fragments are dropped as `fragment_timeout`.
    pub fragment_timeout: Option<DurationText>,
}
