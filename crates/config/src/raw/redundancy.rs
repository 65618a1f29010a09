//! `[redundancy]` as written.

use serde::Deserialize;
use toml::Spanned;

use crate::value::{ProtocolText, SizeText};

/// The `[redundancy]` section as written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancy {
    /// The shared address and UDP port that the tunnel ends at.
    pub local: Spanned<String>,
    /// The same of the other site.
    pub peer: Spanned<String>,
    /// The size of each cache.
    pub cache: Option<Spanned<SizeText>>,
    /// How long packets wait for company.
    pub gather: Option<Spanned<String>>,
    /// Bits that the path takes in a second.
    pub rate_bits_per_second: Option<Spanned<u64>>,
    /// How long what was lost is sent again.
    pub recover_within: Option<Spanned<String>>,
    /// Bytes that may be sent again for each thousand.
    pub recovery_per_mille: Option<Spanned<u16>>,
    /// Bytes of copies for each thousand that encoding saved.
    pub copies_per_mille: Option<Spanned<u16>>,
    /// `"none"`, `"lz4"` or `"zstd"`.
    pub second_stage: Option<Spanned<String>>,
    /// The largest datagram. Default: `1472`, over IPv6 `1452`.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// After how long in silence the other site is held to be away.
    pub peer_timeout: Option<Spanned<String>>,
    /// Whether nodes that stand by mirror the caches.
    pub mirror: Option<bool>,
    /// Bits that each mirror is told a second, at most.
    pub mirror_bits_per_second: Option<Spanned<u64>>,
    /// `[redundancy.security]`.
    pub security: Option<Spanned<RawRedundancySecurity>>,
    /// `[[redundancy.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawRedundancyRule>>,
}

/// `[redundancy.security]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancySecurity {
    /// Files that hold a key each; the first is begun with, all are accepted.
    #[serde(default)]
    pub pre_shared_keys: Vec<Spanned<String>>,
}

/// `[[redundancy.rule]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancyRule {
    /// Where the source lies.
    pub source: Option<Spanned<String>>,
    /// Where the destination lies.
    pub destination: Option<Spanned<String>>,
    /// The protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// The port of either end.
    pub port: Option<Spanned<u16>>,
}
