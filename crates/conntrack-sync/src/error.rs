//! Why a peer's datagram is not taken.

use cluster::role::HeartbeatError;
use flow::NodeId;
use replication::PeerError;
use replication::conntrackd::FtfwError;
use replication::secure::ChannelError;

/// Why a datagram of a peer was not taken; the node goes on.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SyncError {
    /// No such peer is configured.
    #[error("node {} is not among the configured peers", .0.0)]
    UnknownPeer(NodeId),
    /// The session discarded it.
    #[error(transparent)]
    Replication(#[from] PeerError),
    /// The session with a conntrackd discarded it, or a part of it.
    #[error(transparent)]
    Conntrackd(#[from] FtfwError),
    /// A heartbeat that cannot be read.
    #[error(transparent)]
    Heartbeat(#[from] HeartbeatError),
    /// A heartbeat that speaks for another node.
    #[error("node {} says a heartbeat as node {}: give each node its own node.id", .peer.0, .named.0)]
    NotItsOwn {
        /// Who said it.
        peer: NodeId,
        /// For whom.
        named: NodeId,
    },
    /// The secure channel refused it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// The peer encrypts, and this node does not.
    #[error("it encrypts what it says, this node does not: give this node the same [replication.security]")]
    NotSecured,
}
