//! The rules of a SYN proxy.

use serde::{Deserialize, Serialize};

use crate::report::Report;

/// A rule of the SYN proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(rule = self.name))]
pub struct SynProxyStatus {
    /// Name of the rule.
    pub name: String,
    /// When the gateway answers in place of servers: `off`, `auto` or `always`.
    pub mode: String,
    /// Whether it answers now.
    #[report(gauge("syn_proxy_active", help = "1 while the rule of the SYN proxy answers in place of servers."))]
    pub active: bool,
    /// How often the rule was switched on because a threshold was reached.
    #[report(counter("syn_proxy_activations_total"))]
    pub activations: u64,
    /// SYNs in the last whole second.
    pub syns_per_s: u32,
    /// Half-open connections in the table, replicas included. They are counted where they are a threshold.
    #[report(gauge("syn_proxy_half_open"))]
    pub half_open: u32,
    /// SYN/ACKs with a cookie that were sent.
    #[report(counter("syn_proxy_syn_acks_total"))]
    pub answered: u64,
    /// Cookies that were accepted.
    #[report(counter("syn_proxy_cookies_accepted_total"))]
    pub accepted: u64,
    /// Segments that were dropped, by reason.
    #[report(nested)]
    pub rejected: Vec<SynProxyRejection>,
    /// Handshakes with servers, by outcome.
    #[report(nested)]
    pub handshakes: Vec<SynProxyHandshakes>,
}

/// Segments that a rule of the SYN proxy dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(reason = self.reason))]
pub struct SynProxyRejection {
    /// `invalid` (no cookie of this cluster), `expired` (a cookie that is too old) or `reset` (a reset of no connection).
    pub reason: String,
    /// Number of segments.
    #[report(counter(
        "syn_proxy_rejected_total",
        help = "Segments of no connection that the rule dropped: the cookie was `invalid` or `expired`, or it was a `reset`."
    ))]
    pub segments: u64,
}

/// Handshakes with servers that ended alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, Report)]
#[report(labels(outcome = self.outcome))]
pub struct SynProxyHandshakes {
    /// `opened`, `refused` (by a reset), `unanswered`, or `mismatched` (opened, but the server lacks timestamps that the client was
    /// offered).
    pub outcome: String,
    /// Number of handshakes.
    #[report(counter(
        "syn_proxy_handshakes_total",
        help = "Handshakes with servers of the rule: `opened`, `refused`, `unanswered` or `mismatched`."
    ))]
    pub handshakes: u64,
}
