//! The control API: the types of its requests and answers, and the catalogue of metrics. Version 1.
//!
//! A request is one line; an answer is the lines of [`Line`] up to and including [`Line::End`] or [`Line::Error`].
//!
//! ```json
//! {"version":1,"query":"flows","filter":{"protocol":"tcp"},"limit":10}
//! {"line":"flow","protocol":"tcp","state":"ESTABLISHED", …}
//! {"line":"end","version":1,"lines":1,"truncated":false}
//! ```

// What `report-derive` writes names this crate as its users do.
extern crate self as api;

pub mod channel_status;
mod class_status;
pub mod compact_status;
pub mod edge;
mod ends;
mod event;
mod lazy_status;
mod membership_status;
pub mod metrics;
pub mod mirror;
mod orders;
mod path;
mod rate_limit_status;
pub mod redundancy;
pub mod report;
mod role;
mod service_status;
mod state_service_status;
mod states;
mod status;
mod syn_proxy_status;
pub mod sync;
mod trace;
mod url_filter_status;

use serde::{Deserialize, Serialize};

pub use channel_status::{ChannelStatus, RefusedCount};
pub use class_status::ClassStatus;
pub use compact_status::{FilterStatus, PeerFilterStatus, RecoveryStatus};
pub use edge::{EdgeNodeStatus, EdgeStatus};
pub use ends::Ends;
pub use event::{Event, EventKind};
pub use lazy_status::LazyStatus;
pub use membership_status::{MemberStatus, MembershipStatus};
pub use metrics::Sample;
pub use orders::ReloadReport;
pub use path::{GatewayReason, PacketPath};
pub use rate_limit_status::{RateLimitQuota, RateLimitSource, RateLimitStatus, RateLimited};
pub use redundancy::RedundancyStatus;
pub use role::Role;
pub use service_status::{BackendStatus, CheckStatus, ServiceStatus};
pub use state_service_status::StateServiceStatus;
pub use states::{
    BackendState, DetectorState, MemberState, NextHopState, NodeRole, PathState, SessionState, SplitBrain,
};
pub use status::{
    AntiEntropy, ConnectionsStatus, DropCount, FastPathStatus, GroupStatus, NextHopStatus, NodeStatus, OutcomeCount,
    PathStatus, PeerStatus, PortStatus, Rates, Status, TakeoverStatus, WorkerStatus, catalogue,
};
pub use syn_proxy_status::{SynProxyHandshakes, SynProxyRejection, SynProxyStatus};
pub use sync::{KernelStatus, RefusedRequests, SyncOrder, SyncReadiness, SyncStatus, UnreplicatedConnections};
pub use trace::{Trace, TracedOutcome, TracedPacket, TracedStep};
pub use url_filter_status::{
    UrlAnswers, UrlCategoryStatus, UrlDecisions, UrlFilterStatus, UrlLookup, UrlRuleStatus, UrlServerStatus, UrlVerdict,
};

/// The version of requests and answers that this program supports.
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
    /// What the URL filter decides about a host.
    Url {
        /// The host, with a path or without.
        target: String,
    },
    /// The configuration file is to be read again.
    Reload {
        /// Only report what would change.
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
    /// An edge is to send a node no new connections, or to send them again. Its connections stay.
    DrainNode {
        /// Number of the node.
        node: u8,
        /// Whether it gets none.
        drained: bool,
    },
    /// A node that replicates the kernel's connections is to change its role, or only to report how ready it is.
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

/// Bytes that are kept of captured frames by default: all.
#[must_use]
pub const fn snapshot_bytes_default() -> u32 {
    u32::MAX
}

/// Flows that are returned by default.
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

/// Conditions on packets, all of which must hold; an absent one always does.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PacketFilterText {
    /// Protocol, by name or number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Prefix of the source, as the packet came in or leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// Prefix of the destination, as the packet came in or leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Port of either end, as the packet came in or leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Name of the gateway's port that the packet came in on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ingress: Option<String>,
    /// It is dropped: for this reason, or `any`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dropped: Option<String>,
    /// Whether frames that nodes and edges exchange among themselves are among the packets.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub own_frames: bool,
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
    /// What the URL filter decides about a host.
    Url(Box<UrlLookup>),
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

/// A connection, as `flows` and `follow` report it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Flow {
    /// Protocol, by name or number.
    pub protocol: String,
    /// State of the protocol, as connection tracking names it.
    pub state: String,
    /// `master` if this node is the owner of the connection, `backup` if it has a replica. At an edge it is `node N`, the node that gets
    /// the packets.
    pub role: String,
    /// Number of the owner.
    pub owner: u8,
    /// Addresses and ports of packets in the original direction as they arrive.
    pub original: Ends,
    /// Addresses and ports of the same packets as they leave, when they are translated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub translated: Option<Ends>,
    /// Whether packets, bytes and age are unknown, and 0, because the kernel forwards the connection.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uncounted: bool,
    /// Packets of each direction.
    pub packets: BothWays,
    /// Bytes of each direction, from the IP header on.
    pub bytes: BothWays,
    /// Whether packets were seen in both directions.
    pub replied: bool,
    /// Whether the connection is past its handshake. It is then not evicted when the table is full.
    pub assured: bool,
    /// Seconds until the connection ends if no packet arrives.
    pub expires_s: f64,
    /// Seconds since the connection began here, or since its first update from a peer.
    #[serde(default)]
    pub age_s: f64,
    /// Egress port of packets in the original direction, when it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub egress: Option<String>,
    /// Version of the connection's state.
    pub version: u32,
    /// Addresses and ports of the connection that announced this one, as its original packets arrive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub related_to: Option<Box<Ends>>,
    /// Traffic class, where the chain has a classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// What forwards the packets. It is absent where the node has no fast path, and in lines of `follow`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PacketPath>,
    /// Where the kernel sees the packets, where `path` is `kernel`: `tc` or `xdp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hook: Option<String>,
    /// Why the kernel does not forward the packets, where `path` is `gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_reason: Option<GatewayReason>,
}

/// A count for each direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BothWays {
    /// Count of the original direction, that of the first packet.
    pub original: u64,
    /// Count of the reply direction.
    pub reply: u64,
}
