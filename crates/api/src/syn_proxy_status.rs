//! The rules of a SYN proxy.

use serde::{Deserialize, Serialize};

/// A rule of the SYN proxy.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SynProxyStatus {
    /// Name of the rule.
    pub name: String,
    /// When the gateway answers in place of servers: `off`, `auto` or `always`.
    pub mode: String,
    /// Whether it answers now.
    pub active: bool,
    /// How often the rule was switched on because a threshold was reached.
    pub activations: u64,
    /// SYNs in the last whole second.
    pub syns_per_s: u32,
    /// Half-open connections in the table, replicas included. They are counted where they are a threshold.
    pub half_open: u32,
    /// SYN/ACKs with a cookie that were sent.
    pub answered: u64,
    /// Cookies that were accepted.
    pub accepted: u64,
    /// Segments that were dropped, by reason.
    pub rejected: Vec<SynProxyRejection>,
    /// Handshakes with servers, by outcome.
    pub handshakes: Vec<SynProxyHandshakes>,
}

/// Segments that a rule of the SYN proxy dropped.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SynProxyRejection {
    /// `invalid` (no cookie of this cluster), `expired` (a cookie that is too old) or `reset` (a reset of no connection).
    pub reason: String,
    /// Number of segments.
    pub segments: u64,
}

/// Handshakes with servers that ended alike.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SynProxyHandshakes {
    /// `opened`, `refused` (by a reset), `unanswered`, or `mismatched` (opened, but the server lacks timestamps that the client was
    /// offered).
    pub outcome: String,
    /// Number of handshakes.
    pub handshakes: u64,
}
