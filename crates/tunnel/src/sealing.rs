//! The tunnel's datagrams encrypted and authenticated: by the secure channel that nodes use, under keys of their own.
//!
//! A channel incarnations as long as this node is the tunnel's end. A node that becomes the end begins with a handshake, and the
//! other end, which has keys of the former end, takes the new ones as it does from a peer that was restarted.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use flow::{Instant, NodeId, WorkerId};
use replication::secure::{Channel, ChannelConfig, ChannelError, Content, Credentials, OVERHEAD_BYTES, Rotation, Seed};

/// What a tunnel is secured by.
#[derive(Clone, Debug)]
pub struct SealingConfig {
    /// Keys that both sites have, and that are used for nothing else.
    pub credentials: Arc<Credentials>,
    /// When session keys are exchanged.
    pub rotation: Rotation,
    /// What the channel's randomness grows from: differs from start to start, and is drawn from a generator that is fit for keys.
    pub seed: Seed,
    /// Which of the two ends this is; the other is the other.
    pub is_lower: bool,
    /// The time since 1970 when the tunnel's clock showed `now`.
    pub unix_time: (Instant, Duration),
}

/// One end of the channel.
pub(super) struct Sealing {
    config: SealingConfig,
    channel: Channel,
    /// Lives as the tunnel's end so far.
    incarnations: u64,
    plain: Vec<u8>,
}

impl core::fmt::Debug for Sealing {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Sealing").field("is_ready", &self.channel.is_ready()).finish_non_exhaustive()
    }
}

impl Sealing {
    pub(super) fn new(config: SealingConfig) -> Self {
        let channel = channel(&config, config.unix_time.0, 0);
        Self { config, channel, incarnations: 0, plain: Vec::new() }
    }

    /// This node becomes the tunnel's end.
    pub(super) fn restart(&mut self, now: Instant) {
        self.incarnations += 1;
        self.channel = channel(&self.config, now, self.incarnations);
    }

    /// The time since 1970 at `now`.
    pub(super) fn set_unix_time(&mut self, now: Instant, unix_time: Duration) {
        self.config.unix_time = (now, unix_time);
        self.channel.set_unix_time(now, unix_time);
    }

    /// Puts what was sealed into `out`. False: it was the channel's own.
    ///
    /// # Errors
    /// It was not sealed by the other end, or came before.
    pub(super) fn open(&mut self, now: Instant, datagram: &[u8], out: &mut Vec<u8>) -> Result<bool, ChannelError> {
        let content = self.channel.handle_datagram(now, datagram, out)?;
        // What happened is seen by the tunnel opening.
        while self.channel.poll_event().is_some() {}
        Ok(content == Some(Content::Replication))
    }

    /// Seals what is in `datagram`, in its place. False: there are no keys, and it is lost.
    pub(super) fn seal(&mut self, now: Instant, datagram: &mut Vec<u8>) -> bool {
        core::mem::swap(datagram, &mut self.plain);
        self.channel.seal(now, Content::Replication, &mut self.plain, datagram)
    }

    /// The next datagram of a handshake.
    pub(super) fn poll_transmit(&mut self, out: &mut Vec<u8>) -> bool {
        self.channel.poll_transmit(out)
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.channel.is_ready()
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.channel.handle_timeout(now);
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.channel.poll_timeout()
    }
}

/// Creates the channel of an incarnation.
fn channel(config: &SealingConfig, now: Instant, incarnations: u64) -> Channel {
    let (local, peer) = if config.is_lower { (NodeId(0), NodeId(1)) } else { (NodeId(1), NodeId(0)) };
    let (at, unix_time) = config.unix_time;
    let unix_time = unix_time + now.saturating_since(at);
    let seed = config.seed.derive(&incarnations.to_be_bytes());
    let rotation = config.rotation;
    let config_of_channel = ChannelConfig { local, peer, worker: WorkerId::LEAD, rotation };
    Channel::new(config_of_channel, Arc::clone(&config.credentials), seed, now, unix_time)
}

/// Bytes that sealing adds to a datagram.
pub(super) const SEAL_BYTES: u16 = OVERHEAD_BYTES as u16;
