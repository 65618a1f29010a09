//! A packet's way as it goes over the control socket.

use cluster::observation::{Arrival, Outcome, PacketTrace, Step};
use flow::conntrack::Next;
use flow::wire::{Headers, Transport, tcp_flags};
use flow::{Direction, PortId, Tuple};
use network_functions::chain::CallOutcome;
use network_functions::function::Verdict;
use serde::{Deserialize, Serialize};

use super::flows::{FlowDescriber, ends};
use super::types::Ends;
use crate::config::value::protocol_name;

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
    /// What became of it.
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
    /// It cannot be read; the outcome says why.
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
    /// It waits for what a peer is about to tell of its connection.
    WaitsForPeer,
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
        /// What it counted: the rule that matched (`rule/accept/web`), say.
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

impl Trace {
    /// Describes a trace. `unix_offset_ns` is what the monotonic clock lacks.
    #[must_use]
    pub fn describe(trace: &PacketTrace, describer: &FlowDescriber, worker: u8, unix_offset_ns: u64) -> Self {
        Self {
            monotonic_ns: trace.at.as_nanos(),
            unix_ns: trace.at.as_nanos() + unix_offset_ns,
            worker,
            ingress: describer.port(trace.ingress),
            frame_bytes: trace.frame_bytes,
            packet: packet(&trace.arrival),
            steps: trace.steps.iter().map(|step| describe_step(step, describer)).collect(),
            outcome: match trace.outcome {
                Outcome::Consumed => TracedOutcome::Consumed,
                Outcome::Dropped(reason) => TracedOutcome::Dropped { reason: reason.label().to_owned() },
                Outcome::Sent { port, frame_bytes, ip } => TracedOutcome::Sent {
                    egress: describer.port(port),
                    frame_bytes,
                    ends: ip.map(|(tuple, _)| ends(&tuple)),
                    ttl: ip.map(|(_, ttl)| ttl),
                },
            },
        }
    }
}

impl FlowDescriber {
    /// The name of a port.
    #[must_use]
    pub fn port(&self, port: PortId) -> String {
        self.port_names.get(usize::from(port.0)).cloned().unwrap_or_else(|| port.0.to_string())
    }
}

fn packet(arrival: &Arrival) -> TracedPacket {
    match arrival {
        Arrival::Refused(_) => TracedPacket::Unreadable,
        Arrival::Arp => TracedPacket::Arp,
        Arrival::Ip(headers) => {
            let segment = if let Transport::Tcp(segment) = headers.transport { Some(segment) } else { None };
            TracedPacket::Ip {
                protocol: protocol_name(headers.tuple.protocol),
                ends: ends(&headers.tuple),
                ttl: headers.ttl,
                length_bytes: headers.l3_bytes,
                fragment: headers.is_fragment,
                detail: detail(headers),
                sequence: segment.map(|segment| segment.sequence),
                acknowledgement: segment
                    .filter(|segment| segment.has(tcp_flags::ACK))
                    .map(|segment| segment.acknowledgement),
            }
        }
    }
}

fn detail(headers: &Headers) -> Option<String> {
    const FLAGS: [(u8, &str); 6] = [
        (tcp_flags::SYN, "SYN"),
        (tcp_flags::FIN, "FIN"),
        (tcp_flags::RST, "RST"),
        (tcp_flags::PSH, "PSH"),
        (tcp_flags::ACK, "ACK"),
        (tcp_flags::URG, "URG"),
    ];
    match headers.transport {
        Transport::Tcp(segment) => {
            let set = FLAGS.iter().filter(|(flag, _)| segment.has(*flag)).map(|(_, name)| *name);
            Some(set.collect::<Vec<_>>().join(","))
        }
        Transport::IcmpQuery(query) => Some(format!("{}/{}", query.kind, query.code)),
        Transport::IcmpError(error) => Some(format!("{}/{}", error.kind, error.code)),
        Transport::IcmpOther(kind, code) => Some(format!("{kind}/{code}")),
        Transport::Udp | Transport::Sctp(_) | Transport::Other => None,
    }
}

fn describe_step(step: &Step, describer: &FlowDescriber) -> TracedStep {
    match step {
        Step::Known { direction, state, original, master, is_copy } => TracedStep::Known {
            direction: if *direction == Direction::Original { "original" } else { "reply" }.to_owned(),
            state: (*state).to_owned(),
            connection: ends(original),
            master: master.0,
            copy: *is_copy,
        },
        Step::Unknown => TracedStep::Unknown,
        Step::QuotesPacketOf { original } => TracedStep::QuotesPacketOf { connection: ends(original) },
        Step::FollowsFirstFragment => TracedStep::FollowsFirstFragment,
        Step::Disallowed => TracedStep::Disallowed,
        Step::HeldForBackup => TracedStep::HeldForBackup,
        Step::WaitsForPeer => TracedStep::WaitsForPeer,
        Step::TakenOver { from } => TracedStep::TakenOver { from: from.0 },
        Step::Tracked { before, after, verdict, next } => TracedStep::Tracked {
            before: (*before).to_owned(),
            after: (*after).to_owned(),
            refused: verdict.err().map(|reason| reason.label().to_owned()),
            connection: match next {
                Next::Keep => None,
                Next::Close => Some("closes".to_owned()),
                Next::Reopen => Some("reopens".to_owned()),
            },
        },
        Step::Begins { state } => TracedStep::Begins { state: (*state).to_owned() },
        Step::Function { name, outcome, counted, before, after } => function(name, *outcome, counted, before, after),
        Step::HandedOver(worker) => TracedStep::HandedOver { worker: worker.0 },
        Step::Routed(way) => TracedStep::Routed {
            egress: way.map(|way| describer.port(way.port)),
            next_hop: way.map(|way| way.next_hop.to_string()),
        },
    }
}

fn function(name: &str, outcome: CallOutcome, counted: &[String], before: &Tuple, after: &Tuple) -> TracedStep {
    let (call, verdict) = match outcome {
        CallOutcome::Began(Ok(())) => ("begin", "accept"),
        CallOutcome::Began(Err(reason)) => ("begin", reason.label()),
        CallOutcome::Handled(Verdict::Forward) => ("packet", "forward"),
        CallOutcome::Handled(Verdict::Reply) => ("packet", "reply"),
        CallOutcome::Handled(Verdict::Queued) => ("packet", "queue"),
        CallOutcome::Handled(Verdict::Drop(reason)) => ("packet", reason.label()),
    };
    let is_changed = before != after;
    TracedStep::Function {
        name: name.to_owned(),
        call: call.to_owned(),
        verdict: verdict.to_owned(),
        counted: counted.to_vec(),
        before: is_changed.then(|| ends(before)),
        after: is_changed.then(|| ends(after)),
    }
}
