//! What the secure channels tell operators.

use crate::control::channel_status::ChannelStatus;

/// How the channel with a peer is secured.
pub(super) fn channel_status(peer: &cluster::node::PeerStatus) -> ChannelStatus {
    ChannelStatus::of(peer.channel.as_ref())
}
