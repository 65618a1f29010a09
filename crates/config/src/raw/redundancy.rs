//! `[redundancy]` as written.

use serde::Deserialize;
use toml::Spanned;

use super::Text;
use crate::value::{DurationText, PathText, PrefixText, ProtocolText, SizeText, SocketAddressText};

/// The section configures the tunnel to another site's gateway. Both sites have it, with `local` and `peer` exchanged. All nodes of a site
/// have the same section; the one that holds the address of `local` is the tunnel's end. It needs `workers.count = 1`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancy {
    /// Shared address towards the other site, with a UDP port that is used for nothing else.
    pub local: SocketAddressText,
    /// The other site's `redundancy.local`, of the same family.
    pub peer: SocketAddressText,
    /// Size of each of the two caches, one per direction. The sites use the smaller of their two values.
    pub cache: Option<Spanned<SizeText>>,
    /// Time that packets wait for others to share a datagram. They do not wait if nothing was sent for that long.
    pub gather: Option<DurationText>,
    /// Rate of the path in bits per second. Datagrams leave at this rate, and packets that would wait longer than 100 ms are dropped, so
    /// that TCP slows down. The value should be a little below the path's rate. Default: no limit, and nothing waits.
    pub rate_bits_per_second: Option<Spanned<u64>>,
    /// Longest time in which lost datagrams are retransmitted, so that end points do not notice the loss. `"0ms"` disables it.
    pub recover_within: Option<DurationText>,
    /// Bytes that may be retransmitted per thousand bytes sent. Losses beyond that are congestion and are not repaired.
    pub recovery_per_mille: Option<Spanned<u16>>,
    /// Bytes of redundant datagram copies per thousand bytes that encoding saved. On a path that lost a datagram in the last minute, a
    /// copy of each datagram follows after 2 ms. Copies have the lowest priority. `0` disables them.
    pub copies_per_mille: Option<Spanned<u16>>,
    /// Compression of the remaining bytes, of everything that `gather` collects together. The sites may differ in it.
    pub second_stage: Option<Spanned<String>>,
    /// Largest datagram in bytes, without IP and UDP headers. Probes find the path's limit, so the value need not be exact. Default: `1472`,
    /// or `1452` over IPv6.
    pub datagram_bytes_max: Option<Spanned<u16>>,
    /// Silence after which the other site counts as away.
    pub peer_timeout: Option<DurationText>,
    /// Whether standby nodes mirror the caches of the tunnel's end, so that savings survive it. A mirror takes the memory of two caches.
    /// On the replication link it takes the encoded blocks of both directions, without the second stage, and what it lacks:
    /// `mirror_bits_per_second` at most.
    pub mirror: Option<bool>,
    /// Largest rate to each mirror in bits per second. Granules that a mirror lacks may take a quarter of it, less
    /// what the blocks take.
    pub mirror_bits_per_second: Option<Spanned<u64>>,
    /// `[redundancy.security]`.
    pub security: Option<Spanned<RawRedundancySecurity>>,
    /// `[[redundancy.rule]]`.
    #[serde(default)]
    pub rule: Vec<Spanned<RawRedundancyRule>>,
}

/// The section encrypts and authenticates the tunnel's datagrams, which become 33 bytes longer. It is required where `peer` is not a
/// loopback address. Both sites have the same mode.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancySecurity {
    /// Protection of datagrams between the sites. `"plain"` is for paths that no other host can reach.
    pub mode: Option<Text>,
    /// Paths of 1 to 4 files with a pre-shared key each, mode 0600, the same at both sites. Handshakes begin with the first key, and all
    /// keys are accepted.
    #[serde(default)]
    pub pre_shared_keys: Vec<PathText>,
}

/// Each section is a rule that selects packets for the tunnel. Rules match packets as they leave the chain, and there are at most 64.
/// Without a rule, the tunnel carries all packets that leave by the port that leads to `peer`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawRedundancyRule {
    /// Prefix that contains the source address. Default: any address.
    pub source: Option<PrefixText>,
    /// Prefix that contains the destination address. Default: any address.
    pub destination: Option<PrefixText>,
    /// IP protocol of the packet. Default: any protocol.
    pub protocol: Option<Spanned<ProtocolText>>,
    /// Source or destination port. Default: any port.
    pub port: Option<Spanned<u16>>,
}
