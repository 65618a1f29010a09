//! What the secure channels tell operators.

use flow::Instant;
use replication::secure::Refusal;

use crate::control::channel_status::{ChannelStatus, RefusedCount};

/// How the channel with a peer is secured.
pub(super) fn channel_status(peer: &cluster::node::PeerStatus) -> ChannelStatus {
    let Some(channel) = &peer.channel else {
        return ChannelStatus { secured_by: "plain".into(), ..ChannelStatus::default() };
    };
    let keys = channel.keys.as_ref();
    let parts = keys.map(|keys| {
        let certificate = keys.peer_name.as_ref().map(|name| format!("certificate {name}"));
        let key = keys.key.map(|key| format!("pre-shared key {key}"));
        certificate.into_iter().chain(key).collect::<Vec<_>>().join(" and ")
    });
    let refused = Refusal::ALL.iter().zip(channel.refused).filter(|(_, datagrams)| *datagrams > 0);
    ChannelStatus {
        secured_by: parts.unwrap_or_else(|| "establishing".into()),
        keys_since_ns: keys.map(|keys| Instant::as_nanos(keys.since)),
        handshakes: channel.handshakes,
        refused: refused.map(|(reason, datagrams)| RefusedCount { reason: reason.label().into(), datagrams }).collect(),
    }
}
