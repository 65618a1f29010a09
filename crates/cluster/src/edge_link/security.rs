//! What frames between edges and nodes are authenticated by: the secure channel that nodes use, under keys of its own that follow from
//! the pre-shared keys of the cluster.

use alloc::sync::Arc;
use alloc::vec::Vec;

use flow::{Instant, NodeId};
use replication::secure::{Channel, ChannelError, Content, Credentials, Security};

/// The purpose of the keys, by which they differ from those of replication.
const PURPOSE: &[u8] = b"edges";

/// What the channels of edges and nodes are made from.
pub struct LinkSecurity {
    security: Security,
    created_at: Instant,
    /// Channels made so far: each draws from a seed of its own.
    channels: u64,
}

impl LinkSecurity {
    /// The security of links, as it follows from that of a cluster; `security.unix_time` is the time since 1970 at `now`. `None` without
    /// pre-shared keys: certificates do not name edges.
    #[must_use]
    pub fn new(now: Instant, security: &Security) -> Option<Self> {
        let credentials = Arc::new(security.credentials.for_purpose(PURPOSE)?);
        let seed = security.seed.derive(PURPOSE);
        Some(Self { security: Security { credentials, seed, ..security.clone() }, created_at: now, channels: 0 })
    }

    /// The channel between an edge and a node. `None`: it cannot be had, which pre-shared keys preclude.
    pub(super) fn channel(&mut self, now: Instant, local: u8, peer: u8) -> Option<Channel> {
        self.channels += 1;
        let Security { credentials, rotation, seed, unix_time } = self.security.clone();
        let seed = seed.derive(&self.channels.to_be_bytes());
        let unix_time = unix_time + now.saturating_since(self.created_at);
        Security { credentials, rotation, seed, unix_time }.channel(NodeId(local), NodeId(peer), now).ok()
    }

    /// Other keys from now on, which follow from these credentials. Returns them for the channels that there are.
    pub(super) fn renew(&mut self, new: &Security) -> Option<Arc<Credentials>> {
        self.security.credentials = Arc::new(new.credentials.for_purpose(PURPOSE)?);
        self.security.rotation = new.rotation;
        Some(Arc::clone(&self.security.credentials))
    }
}

/// Opens what was sealed. `Ok(None)`: it was of the channel's handshake.
///
/// # Errors
/// The sender does not have the keys, or it was received before.
pub(super) fn open(channel: &mut Channel, now: Instant, datagram: &[u8]) -> Result<Option<Vec<u8>>, ChannelError> {
    let mut content = Vec::new();
    let opened = channel.handle_datagram(now, datagram, &mut content);
    // What happened is seen by the state of failure detection.
    while channel.poll_event().is_some() {}
    Ok((opened? == Some(Content::Detection)).then_some(content))
}

/// Seals a state with a packet behind it, in its place. False: there are no session keys, and it is lost.
pub(super) fn seal(channel: &mut Channel, now: Instant, datagram: &mut Vec<u8>) -> bool {
    let mut plain = core::mem::take(datagram);
    channel.seal(now, Content::Detection, &mut plain, datagram)
}
