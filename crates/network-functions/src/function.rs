//! What a network function is (seed 003, section III-A2).

use alloc::string::String;
use alloc::vec::Vec;

use flow::wire::Packet;
use flow::wire::tlv::TlvError;
use flow::{Direction, DropReason, Instant, NodeId, PortId, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// What is to be done with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// On to the next function, then out.
    Forward,
    /// Not passed on.
    Drop(DropReason),
    /// The function turned the packet into its own answer: back to where it came from.
    Reply,
    /// The function keeps the packet for now.
    Queued,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// Its protocol closed it.
    TcpClosed,
    /// Nothing came for too long.
    Timeout,
    /// A function, an operator or the cluster ended it.
    Terminated,
}

/// A function's state of one connection: a plain value of fixed size that lies in the connection's record.
///
/// On the wire it is attributes, not its bytes, so that nodes of different versions understand each other: an unknown
/// attribute is skipped, an absent one keeps its default.
pub trait FlowState: FromBytes + IntoBytes + Immutable + KnownLayout + Default + Copy {
    /// The attribute type under which the state travels; unique among functions, never reused.
    const ATTRIBUTE: u16;

    /// Appends the state's attributes to `out`. Nothing appended means the default.
    fn encode(&self, out: &mut Vec<u8>);

    /// Reads what `encode` wrote, perhaps by another version.
    ///
    /// # Errors
    /// The attributes are malformed.
    fn decode(attributes: &[u8]) -> Result<Self, TlvError>;
}

/// Whether a tuple is taken: how a function that chooses tuples (NAT) asks the table.
pub trait TupleUse {
    /// A connection has `tuple`, in either direction.
    fn is_used(&self, tuple: &Tuple) -> bool;
}

/// Something that an operator asked to be told of (a firewall rule with `log`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogEntry {
    /// The function that says it.
    pub function: &'static str,
    /// What it says.
    pub message: String,
    /// The packet's tuple.
    pub tuple: Tuple,
}

/// What a function is given beside packet and state.
pub struct Context<'a> {
    /// Now.
    pub now: Instant,
    /// This node.
    pub node: NodeId,
    /// Port that the packet came in on.
    pub ingress: PortId,
    /// The connection's tuple in the original direction, as packets come in.
    pub original: Tuple,
    /// The connection's tuple in the reply direction, as packets come in. A function that translates changes it in
    /// `on_init`; later changes are ignored.
    pub reply: Tuple,
    /// Which tuples are taken.
    pub tuples: &'a dyn TupleUse,
    /// The function's own counters, as many as it named.
    pub counters: &'a mut [u64],
    /// Where entries for the operator go; bounded by the chain.
    pub log: &'a mut Vec<LogEntry>,
}

/// A network function. It reads its configuration, is handed its connection's state, and keeps nothing else.
pub trait NetworkFunction {
    /// Its state of one connection.
    type State: FlowState;

    /// Its name, as in the configuration and in metrics.
    fn name(&self) -> &'static str;

    /// Names of its counters (`rule_0_hits`, say), in the order of [`Context::counters`].
    fn counter_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// A connection begins with this packet. `on_packet` is called for the same packet afterwards.
    ///
    /// # Errors
    /// The connection may not begin; the packet is dropped.
    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<Self::State, DropReason>;

    /// A packet of a connection.
    fn on_packet(
        &self,
        state: &mut Self::State,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict;

    /// The connection has ended.
    fn on_close(&self, state: &Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}
