//! What the channels of a node are made from.

use alloc::sync::Arc;
use core::time::Duration;

use flow::{Instant, NodeId, WorkerId};

use super::{Channel, ChannelConfig, Credentials, Rotation, Seed};

/// What the channels to the peers are secured by.
#[derive(Clone, Debug)]
pub struct Security {
    /// Keys, certificates, or both.
    pub credentials: Arc<Credentials>,
    /// When session keys are exchanged.
    pub rotation: Rotation,
    /// What the channels' randomness grows from; differs from start to start and from worker to worker, and is drawn from a
    /// generator that is fit for keys.
    pub seed: Seed,
    /// The time since 1970.
    pub unix_time: Duration,
}

/// What of [`Security`] can change while a node works.
#[derive(Clone, Debug)]
pub struct SecurityReconfiguration {
    /// Keys, certificates, or both.
    pub credentials: Arc<Credentials>,
    /// When session keys are exchanged.
    pub rotation: Rotation,
}

/// A peer's certificate cannot be distinguished from others.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no certificate_name is given for node {}: write the name that its certificate was issued for", .0.0)]
pub struct UnnamedPeer(pub NodeId);

impl Security {
    /// The channel with a peer.
    ///
    /// # Errors
    /// The credentials lack the name by which the peer is known.
    pub fn channel(&self, local: NodeId, peer: NodeId, now: Instant) -> Result<Channel, UnnamedPeer> {
        if !self.credentials.knows(peer) {
            return Err(UnnamedPeer(peer));
        }
        // The lead's, unless the node is said to be another worker.
        let config = ChannelConfig { local, peer, worker: WorkerId::LEAD, rotation: self.rotation };
        let seed = self.seed.derive(&[local.0, peer.0]);
        Ok(Channel::new(config, Arc::clone(&self.credentials), seed, now, self.unix_time))
    }
}
