//! The other nodes: what is replicated to them, and how their failures are detected.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use filters::Insertion;
use flow::{Affinity, NodeId, NodeSet};
use replication::compact;
use replication::representation::Start;

use super::{Compact, Security};

/// The other nodes, replication and failure detection.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// Replication of connection state.
    pub replication: Replication,
    /// Detection of dead peers.
    pub failure_detection: FailureDetection,
}

/// How connections are replicated to their backups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Representation {
    /// Changes of the automaton's state.
    #[default]
    PreciseSelective,
    /// Every change.
    PreciseEager,
    /// Nothing: peers are watched, but know no connections.
    None,
    /// Connections as entries of a filter; see [`Compact`].
    Compact(compact::Representation),
}

impl Representation {
    /// All representations, with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("precise-selective", Self::PreciseSelective),
        ("precise-eager", Self::PreciseEager),
        ("none", Self::None),
        ("host-aggregate", Self::Compact(compact::Representation::HostAggregate)),
        ("flow-digest", Self::Compact(compact::Representation::FlowDigest)),
        ("multi-level", Self::Compact(compact::Representation::MultiLevel(Insertion::FirstAvailable))),
        ("multi-level-least-load", Self::Compact(compact::Representation::MultiLevel(Insertion::LeastLoad))),
    ];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, known)| *known == self).map_or("none", |(name, _)| *name)
    }

    /// Whether established connections may break at a take-over.
    #[must_use]
    pub const fn is_experimental(self) -> bool {
        matches!(self, Self::Compact(filter) if filter.is_experimental())
    }

    /// Whether connections are replicated as entries of a filter.
    #[must_use]
    pub const fn is_compact(self) -> bool {
        matches!(self, Self::Compact(_))
    }
}

/// Replication of connection state.
#[derive(Clone, PartialEq, Debug)]
pub struct Replication {
    /// Own address and UDP port.
    pub local: SocketAddr,
    /// How connections are replicated.
    pub representation: Representation,
    /// The filter of compact replication.
    pub compact: Option<Compact>,
    /// From which packet on connections are replicated, unless peers need them earlier.
    pub start: Start,
    /// How long at most the first reply of a connection waits until a peer has confirmed the connection; zero: not at all.
    pub hold_first_reply: Duration,
    /// Where nodes forward at the same time: how long at most a packet waits that cannot be handled without a peer's update.
    /// Zero: not at all.
    pub wait_for_peer: Duration,
    /// Where nodes forward at the same time: both directions of a connection come to one node.
    pub is_symmetric: bool,
    /// Largest datagram, without IP and UDP headers.
    pub datagram_bytes_max: u16,
    /// Bytes per second of updates over service paths; 0: none.
    pub service_path_bytes_per_s: u32,
    /// Messages sent and not yet acknowledged, at most.
    pub in_flight_messages_max: u16,
    /// Messages received until an acknowledgement is sent.
    pub ack_every_messages: u16,
    /// Longest time until an acknowledgement is sent.
    pub ack_delay: Duration,
    /// Time between keep-alives on an idle link.
    pub alive_interval: Duration,
    /// Silence after which a peer counts as away.
    pub peer_timeout: Duration,
    /// The deferral of replication; `None`: none is deferred.
    pub lazy: Option<replication::deferral::Config>,
    /// The backups of each connection; `None`: every peer has every connection.
    pub backups: Option<Backups>,
    /// The other nodes; never empty, unless they come from the source of [`super::Membership`].
    pub peers: Vec<Peer>,
    /// What all that is said to them is secured by; `None`: nothing, it is plain text.
    pub security: Option<Security>,
}

/// The backups of each connection: the nodes that its packets land on after failures.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Backups {
    /// Replicas of a connection, below the number of `edge_nodes`.
    pub count: u8,
    /// The nodes that the edges distribute packets to.
    pub edge_nodes: NodeSet,
    /// The file of the secret under which the edges hash flows.
    pub edge_hash_key: PathBuf,
    /// What the edges keep the packets of a connection on one node by.
    pub edge_affinity: Affinity,
    /// How connections are found that a node does not have.
    pub lookup: BackupLookup,
}

/// How connections are found that a node does not have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BackupLookup {
    /// Nodes advertise which connections they have.
    pub broadcast: bool,
    /// Queries a second for connections that no advertisement has.
    pub queries_per_s: u32,
    /// Requests a second for states.
    pub pulls_per_s: u32,
}

/// Another node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its number.
    pub id: NodeId,
    /// Its address and UDP port for replication.
    pub address: SocketAddr,
    /// Its address and UDP port for failure detection.
    pub failure_detection_address: SocketAddr,
}

/// Detection of dead peers (BFD, RFC 5880), and what follows from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FailureDetection {
    /// Own address and UDP port.
    pub local: SocketAddr,
    /// Time between control packets.
    pub interval: Duration,
    /// Intervals without a packet until a peer counts as down.
    pub multiplier: u8,
    /// Time between control packets while a peer is down.
    pub interval_while_down: Duration,
    /// How long a starting node listens before it becomes active without having received a peer.
    pub startup_hold: Duration,
    /// Whether a node of higher priority takes over from a healthy active one.
    pub preempt: bool,
    /// Whether failures are detected over the links of the ports as well.
    pub service_paths: bool,
    /// Edges that are answered at most.
    pub edges_max: u8,
    /// Edges are taken in plain text although there are pre-shared keys.
    pub plain_edges: bool,
}

impl FailureDetection {
    /// How long after its last packet a peer counts as down.
    #[must_use]
    pub fn detection_time(&self) -> Duration {
        self.interval * u32::from(self.multiplier)
    }
}
