//! `[redundancy]`: the tunnel to another site, and what goes through it.

use std::net::SocketAddr;
use std::time::Duration;

use ::cluster::node::TunnelEndpointConfig;
use network_functions::tuple_filter::TupleFilter;
use tunnel::mirror::MirrorConfig;
use tunnel::{SecondStage, SenderConfig, TunnelConfig};

use crate::compression::{self, Library};
use crate::security::Security;
use crate::value::Prefix;

/// Bytes of IP and UDP headers around a datagram.
const ENVELOPE_BYTES: [u16; 2] = [28, 48];

/// The tunnel to another site.
#[derive(Clone, PartialEq, Debug)]
pub struct Redundancy {
    /// The shared address and UDP port that the tunnel ends at.
    pub local: SocketAddr,
    /// The same of the other site.
    pub peer: SocketAddr,
    /// Bytes of each cache; there is one for each direction.
    pub cache_bytes: usize,
    /// How long packets wait for company.
    pub gather: Duration,
    /// Bits that the path takes in a second, if that is known.
    pub rate_bits_per_second: Option<u64>,
    /// How long what was lost is sent again.
    pub recover_within: Duration,
    /// Bytes that may be sent again for each thousand.
    pub recovery_per_mille: u16,
    /// Bytes of copies for each thousand that encoding saved.
    pub copies_per_mille: u16,
    /// What compresses what encoding leaves, if anything does.
    pub second_stage: Option<Library>,
    /// The largest datagram, from behind its UDP header on.
    pub datagram_bytes_max: u16,
    /// After how long in silence the other site is held to be away.
    pub peer_timeout: Duration,
    /// Bits a second sent to each standby node for its mirror, at most; none: there is no mirror.
    pub mirror_bits_per_second: Option<u64>,
    /// What the tunnel's datagrams are encrypted by, if they are.
    pub security: Option<Security>,
    /// What goes through the tunnel; none: whatever leaves by the port that leads to the other site.
    pub rules: Vec<RedundancyRule>,
}

/// Conditions on a packet, all of which must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RedundancyRule {
    /// Where the source lies.
    pub source: Option<Prefix>,
    /// Where the destination lies.
    pub destination: Option<Prefix>,
    /// The IP protocol's number.
    pub protocol: Option<u8>,
    /// The port of either end.
    pub port: Option<u16>,
}

impl Redundancy {
    /// As the node takes it, but for what encrypts it.
    #[must_use]
    pub fn site(&self) -> TunnelEndpointConfig {
        let rule = |rule: &RedundancyRule| TupleFilter {
            protocol: rule.protocol,
            source: rule.source,
            destination: rule.destination,
            port: rule.port,
        };
        let sender = SenderConfig {
            gather: self.gather,
            recover_within: self.recover_within,
            recovery_per_mille: self.recovery_per_mille,
            copies_per_mille: self.copies_per_mille,
            bits_per_second: self.rate_bits_per_second,
        };
        TunnelEndpointConfig {
            local: self.local,
            peer: self.peer,
            rules: self.rules.iter().map(rule).collect(),
            tunnel: TunnelConfig {
                cache_bytes: self.cache_bytes,
                sender,
                second_stage: SecondStage {
                    stage: self.second_stage.map(Library::stage),
                    gather: self.gather,
                    library: compression::library,
                },
                datagram_bytes_max: self.datagram_bytes_max,
                envelope_bytes: ENVELOPE_BYTES[usize::from(self.peer.is_ipv6())],
                peer_timeout: self.peer_timeout,
                mirror: self.mirror_bits_per_second.map(|bits_per_second| MirrorConfig { bits_per_second }),
                ..TunnelConfig::default()
            },
            sealing: None,
        }
    }
}
