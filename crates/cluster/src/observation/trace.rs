//! A packet's way through the node, step by step.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use flow::connection::flags;
use flow::conntrack::{Advance, Next, ProtocolState, state_name};
use flow::wire::{Headers, Transport};
use flow::{Connection, Direction, DropReason, Instant, NodeId, PortId, Tuple, WorkerId};
use network_functions::chain::CallOutcome;

/// Steps that are recorded of a packet; what comes behind them is left out.
pub const STEPS_MAX: usize = 64;

/// A packet's way through the node.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketTrace {
    /// When it was handled.
    pub at: Instant,
    /// The port that it came in on.
    pub ingress: PortId,
    /// The frame's length from the link header on, in bytes.
    pub frame_bytes: u32,
    /// What it was when it came in.
    pub arrival: Arrival,
    /// What was done with it, in order.
    pub steps: Vec<Step>,
    /// Its outcome.
    pub outcome: Outcome,
}

impl PacketTrace {
    pub(super) fn step(&mut self, step: Step) {
        if self.steps.len() < STEPS_MAX {
            self.steps.push(step);
        }
    }
}

/// What a packet was when it came in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrival {
    /// It is no packet that the node takes, for this reason.
    Refused(DropReason),
    /// ARP.
    Arp,
    /// An IP packet.
    Ip(Headers),
}

/// Where a packet is sent on to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RoutedTo {
    /// The port that it leaves by.
    pub port: PortId,
    /// Who takes it there: the gateway, or the destination itself.
    pub next_hop: IpAddr,
}

/// Something that was done with a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Its connection is known.
    Known {
        /// Which way the packet goes on it.
        direction: Direction,
        /// The state of its protocol's automaton.
        state: &'static str,
        /// The connection's name.
        original: Tuple,
        /// Its owner. If that is another node, this one has a replica.
        master: NodeId,
        /// It is a replica.
        is_copy: bool,
    },
    /// No connection has its tuple.
    Unknown,
    /// It is an ICMP error, about a packet of this connection.
    QuotesPacketOf {
        /// The connection's name.
        original: Tuple,
    },
    /// It is a fragment behind the first of its packet, and goes the way of that one.
    FollowsFirstFragment,
    /// The configuration does not allow its connection any more, which has ended.
    Disallowed,
    /// It is the first answer, and is kept back until a backup knows the connection.
    HeldForBackup,
    /// It can be decided only with an update that a peer is about to send, and waits for that.
    WaitsForPeer,
    /// It waits for an answer of another program: the category of its host.
    WaitsForAnswer,
    /// With it this node became its connection's owner.
    TakenOver {
        /// The owner before.
        from: NodeId,
    },
    /// It moved the automaton on, or was refused by it.
    Tracked {
        /// The state before.
        before: &'static str,
        /// The state behind it.
        after: &'static str,
        /// Whether it may pass.
        verdict: Result<(), DropReason>,
        /// The function's effect on the connection.
        next: Next,
    },
    /// It begins a connection, as far as connection tracking is concerned.
    Begins {
        /// The state in which the connection begins.
        state: &'static str,
    },
    /// A function was called.
    Function {
        /// Its name.
        name: &'static str,
        /// What it said.
        outcome: CallOutcome,
        /// What it counted, for example the rule that matched.
        counted: Vec<String>,
        /// The tuple before: the connection's as it is to leave if the connection begins, else the packet's.
        before: Tuple,
        /// The same behind it.
        after: Tuple,
    },
    /// It belongs to another worker, and was handed over.
    HandedOver(WorkerId),
    /// There is a way to its destination, or none.
    Routed(Option<RoutedTo>),
}

impl Step {
    /// A packet was looked up. `found` is its connection, and which way the packet goes on it.
    pub(crate) fn looked_up(headers: &Headers, found: Option<(&Connection, Direction)>) -> Self {
        let Some((connection, direction)) = found else { return Self::Unknown };
        let original = connection.original;
        if matches!(headers.transport, Transport::IcmpError(_)) {
            return Self::QuotesPacketOf { original };
        }
        Self::Known {
            direction,
            state: state_name(original.protocol, &connection.protocol),
            original,
            master: connection.owner,
            is_copy: connection.flags & flags::REPLICA != 0,
        }
    }

    /// A packet moved the automaton of its connection on, from the state `before`.
    pub(crate) fn tracked(connection: &Connection, before: u8, advance: &Advance) -> Self {
        let protocol = connection.original.protocol;
        Self::Tracked {
            before: state_name(protocol, &ProtocolState { state: before, ..ProtocolState::default() }),
            after: state_name(protocol, &connection.protocol),
            verdict: advance.verdict,
            next: advance.next,
        }
    }

    /// A packet was a plain segment, which moves windows and no state.
    pub(crate) fn plain_segment(connection: &Connection) -> Self {
        let state = state_name(connection.original.protocol, &connection.protocol);
        Self::Tracked { before: state, after: state, verdict: Ok(()), next: Next::Keep }
    }
}

/// The outcome of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is sent.
    Sent {
        /// The port that it leaves by.
        port: PortId,
        /// The frame's length from the link header on, in bytes.
        frame_bytes: u32,
        /// Its tuple and time to live as it leaves; `None` for what is no IP packet.
        ip: Option<(Tuple, u8)>,
    },
    /// It is dropped.
    Dropped(DropReason),
    /// It was for the node itself, or waits for something.
    Consumed,
}
