//! Between whom a channel is, and how long its keys are used.

use core::time::Duration;

use flow::{NodeId, WorkerId};

/// When session keys are exchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rotation {
    /// After this time,
    pub interval: Duration,
    /// or after so many datagrams sent, whichever is first.
    pub datagrams: u64,
}

impl Default for Rotation {
    /// Ten minutes, and as many datagrams as TLS 1.3 sends under an AES-GCM key (RFC 8446 section 5.5).
    fn default() -> Self {
        Self { interval: Duration::from_secs(600), datagrams: 1 << 24 }
    }
}

/// Between whom a channel is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChannelConfig {
    /// This node.
    pub local: NodeId,
    /// The peer.
    pub peer: NodeId,
    /// The worker that exchanges datagrams with the peer's worker of the same number.
    pub worker: WorkerId,
    /// When session keys are exchanged.
    pub rotation: Rotation,
}
