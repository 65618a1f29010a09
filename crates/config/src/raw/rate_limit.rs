//! `[rate_limit]` as it is written.

use serde::Deserialize;
use toml::Spanned;

use super::super::value::{DurationText, PortText, PrefixText, ProtocolText, SizeText};
use super::Text;

/// The section limits the packets, bytes and new connections of sources, of traffic classes and of rules. Each node limits what it
/// forwards itself.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRateLimit {
    /// `[[rate_limit.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawRateLimitRule>>,
}

/// Each section selects connections by addresses and ports as their clients know them. The first section that matches a connection
/// decides. A rule matches if all its conditions hold. A rule without limits exempts its connections from later rules.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRateLimitRule {
    /// Name of the rule in status and metrics. It is unique; a rule keeps its buckets across a reload by it.
    pub name: Text,
    /// Prefixes, one of which contains the source address. Default: any address.
    #[serde(default)]
    pub source: Vec<PrefixText>,
    /// Prefixes, one of which contains the destination address. Default: any address.
    #[serde(default)]
    pub destination: Vec<PrefixText>,
    /// IP protocol of the connection. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Ports and ranges, one of which contains the source port. The key needs `protocol` `"tcp"`, `"udp"` or `"sctp"`. Default: any port.
    #[serde(default)]
    pub source_ports: Vec<Spanned<PortText>>,
    /// Ports and ranges, one of which contains the destination port. The key needs `protocol` `"tcp"`, `"udp"` or `"sctp"`. Default: any
    /// port.
    #[serde(default)]
    pub destination_ports: Vec<Spanned<PortText>>,
    /// Traffic classes, one of which is the connection's. `classifier` must precede `rate_limit` in `chain`. The connection gets another
    /// rule when its class changes. Default: any class.
    #[serde(default)]
    pub class: Vec<Text>,
    /// `[[rate_limit.rule.limit]]`.
    #[serde(default)]
    pub limit: Vec<Spanned<RawRateLimitLimit>>,
}

/// Each section is a limit of the rule above it. Limits apply in their order.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRateLimitLimit {
    /// What shares the limit: all connections of the rule (`"rule"`), those from one source (`"source"`), those of one traffic class
    /// (`"class"`), or nothing (`"connection"`, for quotas only).
    pub per: Option<Text>,
    /// Packets and bytes that count: those from the client (`"original"`), those to it (`"reply"`), or `"both"`.
    pub direction: Option<Text>,
    /// Packets per second. Default: no limit.
    pub packets_per_s: Option<Spanned<u64>>,
    /// Packets that may pass at once. Default: those of one second.
    pub burst_packets: Option<Spanned<u64>>,
    /// Bytes per second, from the IP header on. Default: no limit.
    pub bytes_per_s: Option<Spanned<SizeText>>,
    /// Bytes that may pass at once. Default: those of one second.
    pub burst_bytes: Option<Spanned<SizeText>>,
    /// New connections per second; those beyond are refused. Default: no limit.
    pub connections_per_s: Option<Spanned<u64>>,
    /// Connections that may begin at once. Default: those of one second.
    pub burst_connections: Option<Spanned<u64>>,
    /// Bytes in a `period`, from the IP header on. A rule may have one quota, not `per = "class"`. Default: no quota.
    pub quota_bytes: Option<Spanned<SizeText>>,
    /// As `quota_bytes`, in packets.
    pub quota_packets: Option<Spanned<u64>>,
    /// Period of the quota: its whole multiples since 1970 in UTC, so `"24h"` begins at midnight.
    pub period: Option<DurationText>,
    /// Treatment of packets beyond the limit. `"drop"` drops them. `"mark"` forwards them with the code point `dscp`.
    pub action: Option<Text>,
    /// Differentiated services code point (DSCP) of packets beyond the limit. The key is needed with `action = "mark"`.
    pub dscp: Option<Spanned<u8>>,
    /// Length of the prefix that is one IPv4 source, with `per = "source"`.
    pub ipv4_prefix: Option<Spanned<u8>>,
    /// Length of the prefix that is one IPv6 source, with `per = "source"`.
    pub ipv6_prefix: Option<Spanned<u8>>,
    /// Sources whose buckets are kept, with `per = "source"`; each takes 48 bytes of memory. A new source evicts one that loses
    /// little.
    pub sources_max: Option<Spanned<u32>>,
}
