//! A packet's way as it goes over the control socket.

use serde::{Deserialize, Serialize};

use crate::ends::Ends;

/// A packet's way through a node.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Trace {
    /// When it was handled, in nanoseconds of the monotonic clock.
    pub monotonic_ns: u64,
    /// The same in nanoseconds since 1970.
    pub unix_ns: u64,
    /// The worker that handled it.
    pub worker: u8,
    /// The port that it came in on.
    pub ingress: String,
    /// The frame's length from the link header on.
    pub frame_bytes: u32,
    /// What it was when it came in.
    pub packet: TracedPacket,
    /// What was done with it, in order.
    pub steps: Vec<TracedStep>,
    /// Its outcome.
    pub outcome: TracedOutcome,
}

/// What a packet was when it came in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum TracedPacket {
    /// An IP packet.
    Ip {
        /// The protocol's name or number.
        protocol: String,
        /// Its ends.
        #[serde(flatten)]
        ends: Ends,
        /// Time to live, or hop limit.
        ttl: u8,
        /// Length from the IP header on, in bytes.
        length_bytes: u32,
        /// It is a fragment.
        fragment: bool,
        /// TCP flags (`SYN,ACK`), or the type and code of an ICMP message (`3/1`).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// TCP's sequence number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        sequence: Option<u32>,
        /// TCP's acknowledgement, if the segment has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        acknowledgement: Option<u32>,
    },
    /// ARP.
    Arp,
    /// It cannot be read; the outcome has the reason.
    Unreadable,
}

/// Something that was done with a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum TracedStep {
    /// Its connection is known.
    Known {
        /// `original` or `reply`.
        direction: String,
        /// Where its automaton stands.
        state: String,
        /// The connection's ends in the original direction.
        #[serde(flatten)]
        connection: Ends,
        /// The node that is its master.
        master: u8,
        /// This node has a copy of it.
        copy: bool,
    },
    /// No connection has its tuple.
    Unknown,
    /// It is an ICMP error about a packet of this connection.
    QuotesPacketOf {
        /// The connection's ends in the original direction.
        #[serde(flatten)]
        connection: Ends,
    },
    /// It is a fragment and goes the way of its packet's first.
    FollowsFirstFragment,
    /// Its connection has ended, as the rules in force do not allow it.
    Disallowed,
    /// It is a first reply, kept back until a backup knows the connection.
    HeldForBackup,
    /// It waits for a peer's update of its connection.
    WaitsForPeer,
    /// It waits for the category of its host.
    WaitsForAnswer,
    /// This node became the connection's master.
    TakenOver {
        /// The master before.
        from: u8,
    },
    /// Connection tracking looked at it.
    Tracked {
        /// The state before; empty for protocols without states.
        before: String,
        /// The state behind it.
        after: String,
        /// Why it may not pass, if it may not.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
        /// What becomes of the connection, unless it goes on: `closes` or `reopens`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        connection: Option<String>,
    },
    /// It begins a connection.
    Begins {
        /// In which state; empty for protocols without states.
        state: String,
    },
    /// A function was called.
    Function {
        /// Its name.
        name: String,
        /// `begin`: for a connection that begins. `packet`: for the packet.
        call: String,
        /// `accept`, `forward`, `reply`, `queue`, or the reason for which it dropped it.
        verdict: String,
        /// What it counted, for example the rule that matched (`rule/accept/web`).
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        counted: Vec<String>,
        /// The ends before, if it changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<Ends>,
        /// The ends behind it, if it changed them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        after: Option<Ends>,
    },
    /// It belongs to another worker and was handed over.
    HandedOver {
        /// That worker.
        worker: u8,
    },
    /// A way to its destination was looked for.
    Routed {
        /// The port that it leaves by, if there is a way.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        egress: Option<String>,
        /// Who takes it there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        next_hop: Option<String>,
    },
}

/// What became of a packet.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum TracedOutcome {
    /// It was sent.
    Sent {
        /// The port that it left by.
        egress: String,
        /// The frame's length from the link header on.
        frame_bytes: u32,
        /// Its ends, if it is an IP packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ends: Option<Ends>,
        /// Its time to live, if it is an IP packet.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ttl: Option<u8>,
    },
    /// It was dropped.
    Dropped {
        /// Why, as in metrics.
        reason: String,
    },
    /// It was for the node itself, or waits for something.
    Consumed,
}
