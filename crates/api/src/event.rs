//! Events of a node.

use serde::{Deserialize, Serialize};

/// Something that happened to the node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Number of the event, from 0 at the start of the process. A gap means that older events were forgotten.
    pub number: u64,
    /// Time of the event by the monotonic clock.
    pub monotonic_ns: u64,
    /// Time of the event by the wall clock: RFC 3339, UTC, to the microsecond. Older releases leave it empty.
    #[serde(default)]
    pub time: String,
    /// Kind of the event.
    pub kind: EventKind,
    /// Details for people. Events that a stranger can cause are merged by kind: number, times and detail are those of the last, and the detail
    /// ends with their count and the time of the first.
    pub detail: String,
}

/// Kinds of events.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// The process started.
    Started,
    /// The failure detector receives a peer.
    PeerUp,
    /// The failure detector no longer receives a peer.
    PeerDown,
    /// A port's interface was switched off or lost carrier.
    PortDown,
    /// A port's interface is switched on and has carrier again.
    PortUp,
    /// A tracked next hop no longer answers.
    NextHopLost,
    /// A tracked next hop answers again.
    NextHopReached,
    /// A path to a peer is up.
    PathUp,
    /// A path to a peer is down; others may be up.
    PathDown,
    /// A peer is reachable over service ports only, so nothing is replicated.
    Degraded,
    /// The node became active.
    BecameActive,
    /// The node became standby.
    BecameStandby,
    /// The node announced the shared addresses on its ports.
    Announced,
    /// The node forwarded the first packet after a take-over.
    FirstPacketForwarded,
    /// The replication session with a peer is open.
    ReplicationUp,
    /// Datagrams to a peer are encrypted from now on.
    ChannelSecured,
    /// The secure channel to a peer has new session keys.
    SessionKeysExchanged,
    /// The replication session with a peer is silent.
    ReplicationDown,
    /// A peer restarted and has no connections.
    PeerRestarted,
    /// This node and a peer have replicated everything to each other.
    Synchronised,
    /// A resynchronisation with a peer began.
    ResyncStarted,
    /// A resynchronisation with a peer is complete.
    ResyncEnded,
    /// Replicas of a peer's connections differ from what the peer sent. They are being repaired.
    ReplicasDiffer,
    /// Replicas of a peer's connections equal what the peer sent again.
    ReplicasAgree,
    /// A recovery began: peer filters are asked after a take-over.
    RecoveryBegan,
    /// A recovery ended.
    RecoveryEnded,
    /// A reload applied the configuration file.
    Reloaded,
    /// A reload refused the configuration file.
    ReloadRefused,
    /// The re-evaluation of all connections under the rules in force is complete.
    Reevaluated,
    /// An operator drains the node.
    Draining,
    /// An operator took the node back into service.
    Undrained,
    /// Keepalived or an operator changed the role of the node.
    RoleChanged,
    /// The kernel lost events because the buffer was full.
    EventsLost,
    /// The comparison with the whole table after lost events is complete.
    EventsRecovered,
    /// The node takes no shared addresses: another host has them, or it rejects a peer's packets.
    Passive,
    /// The node may take shared addresses again.
    PassiveEnded,
    /// Another host claims an address that this node holds.
    AddressConflict,
    /// Two nodes are active, or primary, at the same time.
    SplitBrain,
    /// The split brain ended.
    SplitBrainEnded,
    /// A backend of a service is up: new connections go to it.
    BackendUp,
    /// Checks of a backend of a service failed: new connections go to other backends.
    BackendDown,
    /// The categorisation server answers again.
    CategoriesAvailable,
    /// The categorisation server does not answer: hosts that are not cached are treated as `on_failure` states.
    CategoriesUnavailable,
    /// A node is a member of the cluster: it is a peer from now on.
    MemberJoined,
    /// A node is no member of the cluster any more.
    MemberLeft,
    /// The settings of the cluster changed, or a member is drained.
    SettingsChanged,
    /// The source of members is not reachable. The last known list stays in force.
    MembershipLost,
    /// The source of members is reachable again.
    MembershipRestored,
    /// A rule of the SYN proxy answers in place of servers: a threshold was reached.
    SynProxyActive,
    /// A rule of the SYN proxy no longer answers in place of servers.
    SynProxyInactive,
    /// An edge, or a node that took over, has resent what was lost with a failed node.
    Resent,
    /// The rate control of an edge changed.
    RateControl,
    /// An operator should look at the detail.
    Warning,
    /// The process is stopping.
    Stopping,
}

impl EventKind {
    /// Whether a stranger can cause such events, as often as it likes: by packets, or by what it answers.
    #[must_use]
    pub const fn can_be_caused_by_strangers(self) -> bool {
        matches!(
            self,
            Self::Warning
                | Self::AddressConflict
                | Self::SplitBrain
                | Self::SplitBrainEnded
                | Self::Passive
                | Self::PassiveEnded
                | Self::SynProxyActive
                | Self::SynProxyInactive
                | Self::EventsLost
                | Self::EventsRecovered
        )
    }

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
            Self::BackendUp => "backend up",
            Self::BackendDown => "backend down",
            Self::CategoriesAvailable => "categories available",
            Self::CategoriesUnavailable => "categories unavailable",
            Self::MemberJoined => "member joined",
            Self::MemberLeft => "member left",
            Self::SettingsChanged => "settings changed",
            Self::MembershipLost => "membership source unreachable",
            Self::MembershipRestored => "membership source reachable",
            Self::SynProxyActive => "SYN proxy active",
            Self::SynProxyInactive => "SYN proxy inactive",
            Self::RoleChanged => "role changed",
            Self::EventsLost => "kernel events lost",
            Self::EventsRecovered => "lost events made good",
            Self::Passive => "takes no addresses",
            Self::PassiveEnded => "may take addresses again",
            Self::AddressConflict => "address conflict",
            Self::SplitBrain => "split brain",
            Self::SplitBrainEnded => "split brain over",
            Self::Resent => "packets resent",
            Self::RateControl => "rate control",
            Self::Warning => "warning",
            Self::Stopping => "stopping",
        }
    }
}
