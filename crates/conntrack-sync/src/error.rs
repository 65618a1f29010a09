//! Errors in a peer's datagrams.

use cluster::role::HeartbeatError;
use flow::NodeId;
use replication::PeerError;
use replication::conntrackd::FtfwError;
use replication::secure::ChannelError;

/// Why a peer's datagram was rejected; the node continues.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SyncError {
    /// The peer is not configured.
    #[error("node {} is not among the configured peers", .0.0)]
    UnknownPeer(NodeId),
    /// The session discarded it.
    #[error(transparent)]
    Replication(#[from] PeerError),
    /// The session with conntrackd discarded it, or a part of it.
    #[error(transparent)]
    Conntrackd(#[from] FtfwError),
    /// A malformed heartbeat.
    #[error(transparent)]
    Heartbeat(#[from] HeartbeatError),
    /// A heartbeat with the number of another node.
    #[error("node {} sent a heartbeat as node {}: give each node a distinct node.id", .peer.0, .named.0)]
    NotItsOwn {
        /// The sender.
        peer: NodeId,
        /// The node named in the heartbeat.
        named: NodeId,
    },
    /// The secure channel rejected it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The peer encrypts, and this node does not.
    #[error("the peer encrypts, this node does not: configure the same [replication.security] on both")]
    NotSecured,
}
