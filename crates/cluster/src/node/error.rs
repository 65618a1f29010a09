//! Why a node cannot be made, does not take another configuration, or does not take a datagram.

use flow::NodeId;
use network_functions::restoration::ChainUnrestorable;
use network_functions::shared_values::SharingError;
use replication::PeerError;
use replication::compact::{CompactConfigError, CompactError};
use replication::secure::{ChannelError, UnnamedPeer};
use state_service::index::ShapeError;
use state_service::message::MessageError;
use tunnel::mirror::MirrorError;

use crate::failure_detector::{self, BfdError};
use crate::forwarding;
use crate::group::{GROUPS_MAX, GroupId};
use crate::role;

/// Why a datagram from a peer was not taken.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NodeError {
    /// No such peer is configured.
    #[error("node {} is not among the configured peers", .0.0)]
    UnknownPeer(NodeId),
    /// The failure detector discarded it.
    #[error(transparent)]
    Detection(#[from] BfdError),
    /// The replication session discarded it.
    #[error(transparent)]
    Replication(#[from] PeerError),
    /// The peer divides its packets otherwise.
    #[error(
        "node {} runs {theirs} workers, this node {ours}: give both the same workers.count, and the same release", .peer.0
    )]
    WorkersDiffer {
        /// The peer.
        peer: NodeId,
        /// Its number of workers.
        theirs: u8,
        /// This node's number of workers.
        ours: u8,
    },
    /// A heartbeat that cannot be read.
    #[error(transparent)]
    Heartbeat(#[from] role::HeartbeatError),
    /// A heartbeat in the name of another node.
    #[error("node {} sends a heartbeat as node {}: give each node its own node.id", .peer.0, .named.0)]
    NotItsOwn {
        /// Who said it.
        peer: NodeId,
        /// For whom.
        named: NodeId,
    },
    /// The peer uses compact replication, and this node does not.
    #[error("node {} replicates its connections by a filter, this node does not: give both the same replication.representation", .0.0)]
    NotCompact(NodeId),
    /// A compact datagram was refused.
    #[error(transparent)]
    Compact(#[from] CompactError),
    /// The peer is standby for a tunnel to another site, and this node has none.
    #[error("node {} mirrors the caches of a tunnel to another site, this node has none: give both the same [redundancy]", .0.0)]
    NoTunnel(NodeId),
    /// A datagram about the tunnel's caches was refused.
    #[error(transparent)]
    Mirror(#[from] MirrorError),
    /// The peer shares values of a function, and no function of this node does.
    #[error("node {} shares the answers of its url_filter.server, this node asks none: give both the same [url_filter]", .0.0)]
    NoSharedValues(NodeId),
    /// A datagram with shared values was refused.
    #[error(transparent)]
    SharedValues(#[from] SharingError),
    /// The peer looks connections up, and this node does not.
    #[error("node {} looks connections up at this node, which has no state service: give both the same [replication.backups]", .0.0)]
    NoStateService(NodeId),
    /// A message of the state service was refused.
    #[error(transparent)]
    StateService(#[from] MessageError),
    /// The secure channel refused it.
    #[error(transparent)]
    Channel(#[from] ChannelError),
    /// A packet of failure detection that is of another path.
    #[error("a packet of failure detection that was made for another path; somebody moves packets between links")]
    OtherPath,
    /// A service path carries failure detection, heartbeats, handshakes and encrypted updates only.
    #[error(
        "something else than failure detection, a heartbeat or an encrypted update on a service port; somebody pretends to be \
         the node"
    )]
    NotOnServicePath,
    /// The peer is up at another link address of the service port.
    #[error(
        "a heartbeat in plain text from another link address than that of the node: somebody pretends to be the node"
    )]
    OtherLinkAddress,
    /// The peer encrypts, and this node does not.
    #[error("it encrypts its datagrams, this node does not: give this node the same [replication.security]")]
    NotSecured,
}

/// Why a node cannot be made from its configuration: the part that is unsound.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// Ports, addresses or routes.
    #[error(transparent)]
    Forwarding(#[from] forwarding::ConfigError),
    /// Replication.
    #[error(transparent)]
    Replication(#[from] replication::ConfigError),
    /// Failure detection.
    #[error(transparent)]
    Detection(#[from] failure_detector::ConfigError),
    /// More groups of addresses than a cluster can have.
    #[error("{0} groups of shared addresses are too many: {GROUPS_MAX} at most")]
    TooManyGroups(usize),
    /// Two groups that the nodes could not distinguish.
    #[error("two groups of shared addresses have the same identity; give one of them another name")]
    DuplicateGroup,
    /// A shared address is of a group that there is not.
    #[error("a shared address is of group {}, which is not configured", .0.0)]
    UnknownGroup(GroupId),
    /// A peer has the node's own number, or two peers share one.
    #[error("node {} is among the peers twice, or is this node itself", .0.0)]
    DuplicatePeer(NodeId),
    /// Its certificate cannot be distinguished from others.
    #[error(transparent)]
    UnnamedPeer(#[from] UnnamedPeer),
    /// The stream of filters.
    #[error(transparent)]
    Compact(#[from] CompactConfigError),
    /// What cannot be had together with compact replication.
    #[error(
        "connections that are replicated by a filter cannot be had with {0}: use a precise representation, or do without"
    )]
    NotWithCompact(&'static str),
    /// The index of connections.
    #[error("the index of connections: {0}: lower limits.connections_max, or give the node more workers")]
    StateService(#[from] ShapeError),
    /// What cannot be had where each connection has some of the peers as backups.
    #[error(
        "connections cannot have some of the peers as backups with {0}: replicate all connections to all peers, or do without"
    )]
    NotWithBackups(&'static str),
    /// A function's state cannot be had from tuples.
    #[error("connections cannot be replicated by a filter: {0}")]
    Unrestorable(#[from] ChainUnrestorable),
}

/// Why a node did not take another configuration. Nothing has changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReloadError {
    /// Addresses or routes.
    #[error(transparent)]
    Forwarding(#[from] forwarding::ReconfigureError),
    /// Failure detection.
    #[error(transparent)]
    Detection(#[from] failure_detector::ConfigError),
    /// Replication.
    #[error(transparent)]
    Replication(#[from] replication::ConfigError),
    /// The chain would look for states where they are not.
    #[error("the chain is not laid out for the connections that there are: restart the node")]
    ChainLayout,
    /// Encryption begins or ends.
    #[error("[replication.security] begins or ends to encrypt: restart the node")]
    SecurityDiffers,
    /// Groups of shared addresses were added, removed or renamed.
    #[error("the groups of shared addresses are not those that the node began with: restart the node")]
    GroupsDiffer,
    /// Addresses are of a group that there is not, or a peer's certificate cannot be distinguished from others.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The list of peers is not one of a cluster.
    #[error("the peers include this node, or one of them twice: correct the list")]
    PeersDiffer,
    /// Connections begin or cease to have backups of their own.
    #[error("[replication.backups] was added or removed: restart the node")]
    BackupsDiffer,
    /// Streams to the peers are divided when the filter is made.
    #[error("peers cannot be added or removed under compact replication: restart the node")]
    PeersOfFilter,
}
