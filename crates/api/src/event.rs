//! What happened to a node, in the words of the control API.

use serde::{Deserialize, Serialize};

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Counts events from the start of the gateway, from 0; a gap means that older ones were forgotten.
    pub number: u64,
    /// When, in nanoseconds of the monotonic clock (the same on all nodes of one machine).
    pub monotonic_ns: u64,
    /// When, by the machine's wall clock as it stood then: RFC 3339, UTC, to the microsecond. Empty from older gateways.
    #[serde(default)]
    pub time: String,
    /// What.
    pub kind: EventKind,
    /// Particulars, for people.
    pub detail: String,
}

/// What can happen.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The gateway started.
    Started,
    /// The failure detector receives a peer.
    PeerUp,
    /// The failure detector no longer receives a peer.
    PeerDown,
    /// A port's interface was switched off or lost carrier.
    PortDown,
    /// It has both again.
    PortUp,
    /// A tracked next hop no longer answers.
    NextHopLost,
    /// It answers again.
    NextHopReached,
    /// A path to a peer is up.
    PathUp,
    /// A path to a peer is down; others may be up.
    PathDown,
    /// A peer is reachable over service ports alone.
    Degraded,
    /// The node became active.
    BecameActive,
    /// The node became standby.
    BecameStandby,
    /// The node said on its ports that the shared addresses are here.
    Announced,
    /// The first packet was forwarded after a take-over.
    FirstPacketForwarded,
    /// Replication with a peer runs.
    ReplicationUp,
    /// The traffic to a peer is encrypted from now on.
    ChannelSecured,
    /// It is encrypted under new session keys.
    SessionKeysExchanged,
    /// A peer's replication is silent.
    ReplicationDown,
    /// A peer was restarted and knows nothing.
    PeerRestarted,
    /// This node and a peer are synchronised.
    Synchronised,
    /// A peer's connections are being fetched.
    ResyncStarted,
    /// They are all here.
    ResyncEnded,
    /// Replicas of a peer's connections differ from what the peer sent; they are being repaired.
    ReplicasDiffer,
    /// After that: they are what the peer sent.
    ReplicasAgree,
    /// A node that has taken over asks the filters of those that had the connections.
    RecoveryBegan,
    /// It no longer does.
    RecoveryEnded,
    /// The configuration file was read again and is in force.
    Reloaded,
    /// The configuration file was read again and could not be used.
    ReloadRefused,
    /// All connections were held against the rules in force.
    Reevaluated,
    /// An operator wants the node to take no part any more.
    Draining,
    /// An operator wants it back.
    Undrained,
    /// The node's role was changed, by keepalived or an operator.
    RoleChanged,
    /// The kernel found no room for events.
    EventsLost,
    /// The changes in those events have been found by comparison.
    EventsRecovered,
    /// The node takes no shared addresses: another host has them, or a peer's packets cannot be accepted.
    Passive,
    /// It may again.
    PassiveEnded,
    /// Another host claims an address that this node holds.
    AddressConflict,
    /// Two nodes hold that they are primary.
    SplitBrain,
    /// No longer.
    SplitBrainEnded,
    /// Something that an operator should look at.
    Warning,
    /// The gateway is stopping.
    Stopping,
}

impl EventKind {
    /// The kind in words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::PeerUp => "peer up",
            Self::PeerDown => "peer down",
            Self::PortDown => "port down",
            Self::PortUp => "port up",
            Self::NextHopLost => "next hop lost",
            Self::NextHopReached => "next hop reached",
            Self::PathUp => "path up",
            Self::PathDown => "path down",
            Self::Degraded => "degraded",
            Self::BecameActive => "became active",
            Self::BecameStandby => "became standby",
            Self::Announced => "addresses announced",
            Self::FirstPacketForwarded => "first packet forwarded",
            Self::ReplicationUp => "replication up",
            Self::ChannelSecured => "channel secured",
            Self::SessionKeysExchanged => "session keys exchanged",
            Self::ReplicationDown => "replication down",
            Self::PeerRestarted => "peer restarted",
            Self::Synchronised => "synchronised",
            Self::ResyncStarted => "resynchronisation started",
            Self::ResyncEnded => "resynchronisation ended",
            Self::ReplicasDiffer => "copies differ",
            Self::ReplicasAgree => "copies agree again",
            Self::RecoveryBegan => "connections are looked for in peers' filters",
            Self::RecoveryEnded => "connections are no longer looked for in filters",
            Self::Reloaded => "configuration reloaded",
            Self::ReloadRefused => "configuration not reloaded",
            Self::Reevaluated => "connections held against the rules",
            Self::Draining => "draining",
            Self::Undrained => "undrained",
            Self::RoleChanged => "role changed",
            Self::EventsLost => "kernel events lost",
            Self::EventsRecovered => "lost events made good",
            Self::Passive => "takes no addresses",
            Self::PassiveEnded => "may take addresses again",
            Self::AddressConflict => "address conflict",
            Self::SplitBrain => "split brain",
            Self::SplitBrainEnded => "split brain over",
            Self::Warning => "warning",
            Self::Stopping => "stopping",
        }
    }
}
