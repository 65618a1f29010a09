//! Rate limits.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// A limit of a rule of `[rate_limit]`.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(rule = self.rule, limit = self.limit))]
pub struct RateLimitStatus {
    /// Name of the rule.
    pub rule: String,
    /// Number of the limit within the rule, from 1.
    pub limit: u32,
    /// What shares the limit: `rule`, `source`, `class` or `connection`.
    pub per: String,
    /// Packets and bytes that count: `both`, `original` or `reply`.
    pub direction: String,
    /// What is done with packets beyond the limit: `drop` or `mark`.
    pub action: String,
    /// Packets per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets_per_s: Option<u64>,
    /// Bytes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_per_s: Option<u64>,
    /// New connections per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections_per_s: Option<u64>,
    /// Amount in a period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quota: Option<RateLimitQuota>,
    /// What was beyond the limit.
    #[report(counter("rate_limited_packets_total", action = self.action, value = self.beyond.packets,
        help = "Packets beyond a limit of the rule of the rate limits, which were dropped (`drop`) or marked (`mark`)."))]
    #[report(counter("rate_limited_bytes_total", action = self.action, value = self.beyond.bytes,
        help = "Bytes of these packets, from the IP header on."))]
    #[report(counter("rate_limited_connections_total", value = self.beyond.connections,
        help = "New connections that were refused because they were beyond a limit of the rule."))]
    pub beyond: RateLimited,
    /// Sources in the table, with `per` `source`.
    #[report(gauge("rate_limit_sources", value = self.sources_max.map(|_| self.sources)))]
    pub sources: u64,
    /// Sources for which the table has room, with `per` `source`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sources_max: Option<u32>,
    /// Sources that were evicted from the table before they had full buckets, or while they had used of their quota.
    #[report(counter("rate_limit_sources_evicted_total", value = self.sources_max.map(|_| self.sources_evicted)))]
    pub sources_evicted: u64,
    /// Sources that were beyond the limit most often, up to 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exceeded_by: Vec<RateLimitSource>,
}

/// An amount in a period.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateLimitQuota {
    /// `bytes` or `packets`.
    pub unit: String,
    /// The amount.
    pub amount: u64,
    /// Length of the period, in seconds. It begins at a multiple of it since 1970.
    pub period_s: u64,
    /// Amount that was used in the present period. It is absent unless all connections of the rule share the quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<u64>,
}

/// A source that exceeds a limit.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateLimitSource {
    /// Address of the source.
    pub source: String,
    /// Packets and new connections beyond the limit, at least.
    pub beyond: u64,
}

/// What was beyond a rate limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RateLimited {
    /// Packets that were dropped or marked.
    pub packets: u64,
    /// Their bytes, from the IP header on.
    pub bytes: u64,
    /// New connections that were refused.
    pub connections: u64,
}
