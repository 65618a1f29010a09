//! How a tunnel works.

use core::time::Duration;

use redundancy::Sampling;

use super::bundles::SecondStage;
use super::sender::SenderConfig;

/// How a tunnel works.
#[derive(Clone, Debug)]
pub struct TunnelConfig {
    /// Bytes of each cache: one for each direction. The two sites use the smaller of what they are given.
    pub cache_bytes: usize,
    /// How payloads are sampled.
    pub sampling: Sampling,
    /// How datagrams are sent.
    pub sender: SenderConfig,
    /// How records are compressed together.
    pub second_stage: SecondStage,
    /// Bytes of a datagram from behind the UDP header on, at most.
    pub datagram_bytes_max: u16,
    /// Bytes around a datagram: of its IP and UDP headers, to be counted.
    pub envelope_bytes: u16,
    /// The other site is away when nothing was received from it for so long.
    pub peer_timeout: Duration,
    /// How nodes of the same site mirror the caches; none: they do not.
    pub mirror: Option<MirrorConfig>,
}

impl Default for TunnelConfig {
    /// Caches of 64 MiB, 2 ms to gather, 400 ms to recover what is lost with a tenth of what is sent, and copies for half of what was
    /// saved at most.
    fn default() -> Self {
        Self {
            cache_bytes: 64 << 20,
            sampling: Sampling::default(),
            sender: SenderConfig {
                gather: Duration::from_millis(2),
                recover_within: Duration::from_millis(400),
                recovery_per_mille: 100,
                copies_per_mille: 500,
                bits_per_second: None,
            },
            second_stage: SecondStage::default(),
            datagram_bytes_max: 1472,
            envelope_bytes: 28,
            peer_timeout: Duration::from_secs(1),
            mirror: Some(MirrorConfig::default()),
        }
    }
}

/// How mirrors are fed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MirrorConfig {
    /// Bits that are sent to each mirror a second, at most: a quarter of them for what it lacks.
    pub bits_per_second: u64,
}

impl Default for MirrorConfig {
    /// 200 Mbit/s.
    fn default() -> Self {
        Self { bits_per_second: 200_000_000 }
    }
}
