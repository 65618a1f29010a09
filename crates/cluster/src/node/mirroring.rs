//! Mirrors of the tunnel's caches at the nodes of a site: what they say to each other goes by the replication channel, encrypted
//! where that is, after all that replication has to say.

use alloc::vec::Vec;

use flow::{Instant, NodeId};

use super::{Node, NodeError};

impl Node {
    /// A mirror's datagram from a peer.
    pub(super) fn handle_mirror(&mut self, now: Instant, from: NodeId, datagram: &[u8]) -> Result<(), NodeError> {
        self.replication.peers.place(from)?;
        let site = self.site.as_mut().ok_or(NodeError::NoTunnel(from))?;
        Ok(site.tunnel_mut().handle_mirror(now, from, datagram)?)
    }

    /// The next mirror's datagram for a peer.
    pub(super) fn poll_mirror(&mut self, now: Instant, buffer: &mut Vec<u8>) -> Option<NodeId> {
        let tunnel = self.site.as_mut()?.tunnel_mut();
        for peer in &self.replication.peers {
            if !peer.can_be_told() || peer.refused.is_some() {
                tunnel.forget_mirror(peer.id);
            } else if tunnel.poll_mirror(now, peer.id, buffer) {
                return Some(peer.id);
            }
        }
        None
    }
}
