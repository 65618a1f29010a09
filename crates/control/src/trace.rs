//! A packet's way as it goes over the control socket.

use cluster::observation::{Arrival, Outcome, PacketTrace, Step};
use flow::conntrack::Next;
use flow::wire::{Headers, Transport, tcp_flags};
use flow::{Direction, PortId, Tuple};
use network_functions::chain::CallOutcome;
use network_functions::function::Verdict;

use super::flows::{FlowDescriber, ends};
pub use api::{Trace, TracedOutcome, TracedPacket, TracedStep};
use config::value::protocol_name;

/// Describes a trace. `unix_offset_ns` is what the monotonic clock lacks.
#[must_use]
pub fn describe(trace: &PacketTrace, describer: &FlowDescriber, worker: u8, unix_offset_ns: u64) -> Trace {
    Trace {
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
        Step::WaitsForAnswer => TracedStep::WaitsForAnswer,
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
        CallOutcome::Handled(Verdict::SendBack) => ("packet", "reply"),
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
