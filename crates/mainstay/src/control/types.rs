//! What goes over the control socket. Version 1.
//!
//! A request is one line; an answer is the lines of [`Line`] up to and including [`Line::End`] or [`Line::Error`].
//!
//! ```json
//! {"version":1,"query":"flows","filter":{"protocol":"tcp"},"limit":10}
//! {"line":"flow","protocol":"tcp","state":"ESTABLISHED", …}
//! {"line":"end","version":1,"lines":1,"truncated":false}
//! ```

use serde::{Deserialize, Serialize};

pub use super::channel_status::{ChannelStatus, RefusedCount};
pub use super::compact_status::{FilterStatus, PeerFilterStatus, RecoveryStatus};
pub use super::lazy_status::LazyStatus;
pub use super::orders::ReloadReport;
pub use super::redundancy::RedundancyStatus;
pub use super::sync::{KernelStatus, RefusedRequests, SyncOrder, SyncReadiness, SyncStatus};
pub use super::trace::Trace;
pub use super::watching::PacketFilterText;
use crate::metrics::Sample;

/// The version of requests and answers that this program speaks.
pub const VERSION: u16 = 1;

/// A request.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub version: u16,
    /// What is wanted.
    #[serde(flatten)]
    pub query: Query,
}

/// What is wanted.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "query", rename_all = "snake_case")]
pub enum Query {
    /// How the node is.
    Status,
    /// Its connections.
    Flows {
        /// Which of them.
        #[serde(default)]
        filter: FlowFilterText,
        /// How many at most.
        #[serde(default = "flows_limit_default")]
        limit: u64,
    },
    /// Its counters.
    Counters,
    /// What happened lately.
    Events,
    /// The configuration file is to be read again.
    Reload {
        /// Only say what would change.
        #[serde(default)]
        check_only: bool,
    },
    /// The node is to hand its addresses over and take no part any more.
    Drain {
        /// Even if connections are lost.
        #[serde(default)]
        force: bool,
    },
    /// The node is to take part again.
    Undrain,
    /// A node that replicates the kernel's connections is to change its role, or only to say how ready it is.
    Sync {
        /// What is wanted.
        order: SyncOrder,
    },
    /// The ways of packets, as they pass.
    Trace {
        /// Which packets.
        #[serde(default)]
        filter: PacketFilterText,
        /// How many at most.
        count: u64,
        /// For how long at most.
        seconds: f64,
    },
    /// Frames, as they pass a point of their way.
    Capture {
        /// Where: `ingress`, `after:FUNCTION`, `egress` or `drop`.
        at: String,
        /// Which packets.
        #[serde(default)]
        filter: PacketFilterText,
        /// How many at most.
        count: u64,
        /// For how long at most.
        seconds: f64,
        /// Bytes that are kept of each.
        #[serde(default = "snapshot_bytes_default")]
        snapshot_bytes: u32,
    },
    /// What happens to connections, as it happens.
    Follow {
        /// Which connections, without their state and role.
        #[serde(default)]
        filter: FlowFilterText,
        /// How many things at most.
        count: u64,
        /// For how long at most.
        seconds: f64,
    },
}

/// Bytes that are kept of captured frames unless the request says otherwise: all.
#[must_use]
pub const fn snapshot_bytes_default() -> u32 {
    u32::MAX
}

/// Flows that are returned unless the request says otherwise.
#[must_use]
pub const fn flows_limit_default() -> u64 {
    1000
}

/// Conditions on flows, all of which must hold; an absent one always does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FlowFilterText {
    /// Protocol, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// State, by its name (any case).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Prefix of the source, before or after translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Prefix of the destination, before or after translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Port of either end, before or after translation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// `master` or `backup`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
}

/// A line of an answer.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
pub enum Line {
    /// How the node is.
    Status(Box<Status>),
    /// A connection.
    Flow(Flow),
    /// A counter or gauge.
    Sample(Sample),
    /// Something that happened.
    Event(Event),
    /// What became of a reload.
    Reload(ReloadReport),
    /// How ready a node is.
    Readiness(SyncReadiness),
    /// A packet's way.
    Trace(Box<Trace>),
    /// A captured frame.
    Frame(FrameLine),
    /// Something that happened to a connection.
    FlowEvent(Box<FlowEvent>),
    /// A worker saw more before the next line than could be passed on.
    Missed {
        /// The worker.
        worker: u8,
        /// How many things.
        count: u64,
    },
    /// The answer is complete.
    End {
        /// [`VERSION`].
        version: u16,
        /// Lines before this one.
        lines: u64,
        /// There would have been more than the limit.
        truncated: bool,
    },
    /// The request cannot be answered; nothing follows.
    Error {
        /// [`VERSION`].
        version: u16,
        /// Whose fault it is.
        error: ErrorKind,
        /// A sentence for people.
        message: String,
    },
}

/// Whose fault it is that a request is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request is not JSON, or not a request.
    Malformed,
    /// The request is of another version.
    Incompatible,
    /// The request is too long, or the client too slow, or one of too many.
    Limit,
    /// The data path is too busy to answer, or going down.
    Busy,
    /// It would do harm, or cannot be done as the gateway is now.
    Refused,
    /// The client has not shown that it may.
    Denied,
}

/// A captured frame.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FrameLine {
    /// When it was handled, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The port that it came in on; of one that leaves, the port that it leaves by.
    pub port: String,
    /// Its length, of which less may have been kept.
    pub length_bytes: u32,
    /// Why it was dropped, if it was captured there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// The frame from its link header on, in hexadecimal digits.
    pub bytes: String,
}

/// Something that happened to a connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FlowEvent {
    /// When, in nanoseconds since 1970.
    pub unix_ns: u64,
    /// `began`, `changed`, `taken_over` or `ended`.
    pub change: String,
    /// The connection behind it, or as it was at its end.
    pub flow: Flow,
}

/// How a node is.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// The program's version.
    pub program_version: String,
    /// This node.
    pub node: NodeStatus,
    /// When this was said, in nanoseconds of the monotonic clock.
    pub monotonic_now_ns: u64,
    /// Seconds since the gateway started.
    pub uptime_s: f64,
    /// Fingerprint of the configuration, as far as nodes must agree in it.
    #[serde(default)]
    pub configuration: String,
    /// Whether a peer could take over without losing connections.
    pub takeover: TakeoverStatus,
    /// The connection table.
    pub connections: ConnectionsStatus,
    /// Connections that are told only once they have lived for a while, where that is so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lazy: Option<LazyStatus>,
    /// What goes through, over the last second or so.
    pub rates: Rates,
    /// The other nodes.
    pub peers: Vec<PeerStatus>,
    /// The ports.
    pub ports: Vec<PortStatus>,
    /// Dropped packets, by reason; reasons that never occurred are left out.
    pub drops: Vec<DropCount>,
    /// The threads that move packets, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerStatus>,
    /// The tunnel to another site, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redundancy: Option<Box<RedundancyStatus>>,
    /// What this node tells of its connections by a filter, where connections are told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<Box<FilterStatus>>,
    /// The kernel's connections, where this node replicates those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sync: Option<Box<SyncStatus>>,
}

/// A thread that moves packets.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Its number; 0 leads.
    pub number: u8,
    /// Connections that it holds.
    pub connections: u64,
    /// Share of its time that it worked, 0 to 1, over the last second or so.
    pub load: f64,
    /// Packets that it forwarded.
    pub forwarded: u64,
    /// Packets that came to it and belong to another worker.
    pub handed_over: u64,
    /// Packets that other workers handed to it.
    pub taken: u64,
    /// Connections of other workers whose replies come to it.
    pub redirects: u64,
}

/// A node and its role.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// Its number.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// `init`, `standby`, `taking_over`, `active`, `leaving` or, when it is drained, `left`.
    pub role: String,
    /// Since when it has the role, in nanoseconds of the monotonic clock.
    pub role_since_ns: u64,
    /// Its role in each group of shared addresses, where there are several; `role` then says the most telling of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
}

/// A node's role in a group of shared addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct GroupStatus {
    /// The group's name.
    pub name: String,
    /// As the node's role.
    pub role: String,
    /// Since when it has the role, in nanoseconds of the monotonic clock.
    pub role_since_ns: u64,
    /// Its priority for the group: the highest wins.
    pub priority: u8,
    /// The number of the group's latest take-over that it knows of.
    pub term: u64,
}

/// Whether a peer could take over.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct TakeoverStatus {
    /// Every connection worth keeping is on another node that is up.
    pub ready: bool,
    /// What is in the way, a clause each; empty when ready.
    pub why_not: Vec<String>,
}

/// The connection table.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ConnectionsStatus {
    /// Connections held.
    pub count: u64,
    /// Connections held at most.
    pub max: u64,
    /// Connections that this node is master of, when it counts them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub master: Option<u64>,
}

/// What goes through.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Rates {
    /// Packets forwarded a second.
    pub packets_per_s: f64,
    /// Bits forwarded a second.
    pub bits_per_s: f64,
    /// Connections begun a second.
    pub connections_per_s: f64,
}

/// How a node's copies of a peer's connections stand to what the peer told.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Agreement {
    /// When they were last found to be the same, in nanoseconds of the monotonic clock; `None`: never, or the peer is of a
    /// release that does not compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agreed_ns: Option<u64>,
    /// Connections known to differ now.
    pub divergent: u64,
    /// Comparisons that the peer answered.
    pub rounds: u64,
    /// Connections found to differ.
    pub found: u64,
    /// Missing and wrong copies that were told again.
    pub repaired: u64,
    /// Copies removed because the peer had no such connection.
    pub ghosts_removed: u64,
    /// Copies that were not in the table as they had been entered.
    pub changed_silently: u64,
}

impl From<&replication::AgreementStatus> for Agreement {
    fn from(status: &replication::AgreementStatus) -> Self {
        Self {
            agreed_ns: status.agreed_at.map(flow::Instant::as_nanos),
            divergent: status.divergent.into(),
            rounds: status.rounds_compared,
            found: status.divergent_found,
            repaired: status.repaired,
            ghosts_removed: status.ghosts_removed,
            changed_silently: status.changed_silently,
        }
    }
}

/// Another node, as this one sees it.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its number.
    pub id: u8,
    /// Its replication address.
    pub address: String,
    /// The failure detector's state: `up`, `down`, `init` or `admin_down`.
    pub detector: String,
    /// How what is said to it is secured.
    #[serde(default)]
    pub channel: ChannelStatus,
    /// The replication session's state.
    pub session: String,
    /// The role that it says it has; of several, the most telling.
    pub role: String,
    /// The groups of shared addresses whose addresses it says it holds, by name, where there are several groups.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<String>,
    /// The fingerprint of its configuration, if it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// It holds every connection that this node has told it of.
    pub synchronised: bool,
    /// Age of the oldest change that it has not acknowledged, in milliseconds.
    pub lag_ms: f64,
    /// Round-trip time, in milliseconds; `None` while not measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rtt_ms: Option<f64>,
    /// Changes waiting to be sent.
    pub queued: u64,
    /// Messages sent and not acknowledged.
    pub in_flight: u64,
    /// Messages sent.
    pub sent: u64,
    /// Messages received.
    pub received: u64,
    /// Changes sent again under a new number.
    pub resent: u64,
    /// Messages that this node has missed.
    pub lost: u64,
    /// How this node's copies of its connections stand to what it told.
    #[serde(default)]
    pub agreement: Agreement,
    /// What it told of its connections by a filter, where connections are told so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<PeerFilterStatus>,
    /// When it was last heard, in nanoseconds of the monotonic clock; `None`: never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_heard_ns: Option<u64>,
}

/// A port.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PortStatus {
    /// Its name.
    pub name: String,
    /// The system's interface.
    pub interface: String,
    /// Packets received.
    pub received_packets: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// Packets that the system dropped before the gateway saw them.
    pub missed_packets: u64,
}

/// Dropped packets of one reason.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DropCount {
    /// The reason, as in metrics.
    pub reason: String,
    /// Packets.
    pub packets: u64,
}

/// A connection.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// The protocol's name or number.
    pub protocol: String,
    /// Where its automaton stands.
    pub state: String,
    /// What this node is to it: `master` or `backup`.
    pub role: String,
    /// The node that is its master.
    pub owner: u8,
    /// Ends of packets of the original direction as they come in.
    pub original: Ends,
    /// Ends of the same packets as they go out, when they are translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translated: Option<Ends>,
    /// Packets seen.
    pub packets: BothWays,
    /// Bytes seen, from the IP header on.
    pub bytes: BothWays,
    /// Packets have been seen both ways.
    pub replied: bool,
    /// It will not be given up for a shortage of memory.
    pub assured: bool,
    /// Seconds until it ends unless a packet comes.
    pub expires_s: f64,
    /// Seconds since it began here, or since a peer told of it.
    #[serde(default)]
    pub age_s: f64,
    /// Port that packets of the original direction leave on, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// Counts its changes.
    pub version: u32,
    /// Ends of packets of the original direction, as they come in, of the connection that announced this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_to: Option<Box<Ends>>,
}

/// Source and destination, `address:port`, or the address alone for protocols without ports.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Ends {
    /// Who sends.
    pub source: String,
    /// Who receives.
    pub destination: String,
}

/// A count for each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BothWays {
    /// As the first packet went.
    pub original: u64,
    /// Against it.
    pub reply: u64,
}

/// Something that happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Event {
    /// Counts events from the start of the gateway, from 0; a gap means that older ones were forgotten.
    pub number: u64,
    /// When, in nanoseconds of the monotonic clock (the same on all nodes of one machine).
    pub monotonic_ns: u64,
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
    /// The failure detector heard a peer.
    PeerUp,
    /// The failure detector no longer hears a peer.
    PeerDown,
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
    /// What is said to a peer is encrypted from now on.
    ChannelSecured,
    /// It is encrypted under new session keys.
    SessionKeysExchanged,
    /// A peer's replication is silent.
    ReplicationDown,
    /// A peer was restarted and knows nothing.
    PeerRestarted,
    /// This node and a peer have told each other everything.
    Synchronised,
    /// A peer's connections are being fetched.
    ResyncStarted,
    /// They are all here.
    ResyncEnded,
    /// Copies of a peer's connections are not what the peer told; they are being put right.
    ReplicasDiffer,
    /// After that: they are what the peer told.
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
    /// What those told of has been found by comparison.
    EventsRecovered,
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
            Self::SplitBrain => "split brain",
            Self::SplitBrainEnded => "split brain over",
            Self::Warning => "warning",
            Self::Stopping => "stopping",
        }
    }
}
