//! What a network function is (TRIPOD, section III-A2).

use alloc::string::String;
use alloc::vec::Vec;

use flow::table::Table;
use flow::wire::tlv::TlvError;
use flow::wire::{Packet, TcpSegment};
use flow::{Direction, DropReason, Instant, NodeId, PortId, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::expectation::{Expectation, Expectations, PortShare, Refusal};
use crate::log::Log;
use crate::restoration::{Restoring, Unrestorable};

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

/// What becomes of a connection that began under an earlier configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Judgement {
    /// It goes on.
    Stays,
    /// The configuration does not allow it any more.
    Ends,
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

    /// The packets with `tuple` would come to another of the node's workers: rather choose a tuple whose packets come here.
    /// Cheaper to ask than [`TupleUse::is_used`].
    fn is_elsewhere(&self, tuple: &Tuple) -> bool {
        let _ = tuple;
        false
    }
}

impl TupleUse for Table {
    fn is_used(&self, tuple: &Tuple) -> bool {
        self.lookup(self.hash(tuple), tuple).is_some()
    }
}

pub mod state_attribute {
    //! The attribute types under which the states of the functions in this crate travel ([`super::FlowState::ATTRIBUTE`]).
    //! Numbers from [`PRIVATE_FIRST`] on are for functions that live elsewhere.
    /// The firewall.
    pub const FIREWALL: u16 = 1;
    /// Network address translation.
    pub const NAT: u16 = 2;
    /// The FTP helper.
    pub const FTP: u16 = 3;
    /// The first number for functions outside this crate.
    pub const PRIVATE_FIRST: u16 = 0x8000;
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
    /// `on_init`; changes made in `on_packet` are not kept.
    pub reply: Tuple,
    /// Which tuples are taken. Only `on_init` may choose one: in `on_packet` every tuple counts as taken.
    pub tuples: &'a dyn TupleUse,
    /// The function's own counters, as many as it named.
    pub counters: &'a mut [u64],
    /// Where entries for the operator go.
    pub log: &'a mut Log,
    /// In `on_init`: the connection was expected, and is to leave as this says. `None` in `on_packet`.
    pub expected: Option<Expectation>,
    /// The node's expected connections; functions come to them by [`Context::expect`].
    pub(crate) expectations: &'a mut Expectations,
    /// The function expected something: the backups must be told.
    pub(crate) has_expected: bool,
}

impl Context<'_> {
    /// Expects a connection on behalf of this one, which becomes its master (see [`crate::expectation`]). For `on_packet`
    /// only: a connection that is not yet in the table cannot be a master.
    ///
    /// # Errors
    /// [`Refusal`]; nothing is expected then.
    pub fn expect(&mut self, expectation: Expectation) -> Result<(), Refusal> {
        self.expectations.expect(self.now, &self.original, expectation)?;
        self.has_expected = true;
        Ok(())
    }

    /// The part of the ports that this worker may announce on translated addresses.
    #[must_use]
    pub const fn port_share(&self) -> PortShare {
        self.expectations.port_share()
    }

    /// Takes back what the function (by its [`FlowState::ATTRIBUTE`]) expected on behalf of this connection.
    pub fn forget_expected(&mut self, function: u16) {
        if self.expectations.has(&self.original) {
            self.expectations.forget_function(&self.original, function);
            self.has_expected = true;
        }
    }

    /// Adds one to the function's counter `index`, in the order of [`NetworkFunction::counter_names`]. A counter that
    /// was not named is not counted.
    pub fn count(&mut self, index: usize) {
        if let Some(counter) = self.counters.get_mut(index) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// The connection's tuple as its packets in the original direction leave the functions that have run so far.
    #[must_use]
    pub const fn outgoing(&self) -> Tuple {
        self.reply.inverse()
    }
}

/// A network function. It reads its configuration, is handed its connection's state, and keeps nothing else.
pub trait NetworkFunction {
    /// Its state of one connection.
    type State: FlowState;

    /// Whether its `on_packet` does anything. A function that decides when a connection begins and forwards every packet
    /// from then on says false, and is then not asked.
    const HANDLES_PACKETS: bool = true;

    /// Whether it changes the numbers of TCP segments. It then says in [`NetworkFunction::as_sent`] what connection tracking
    /// is to see, and is asked for every segment.
    const RENUMBERS: bool = false;

    /// Whether the functions behind it see other tuples than those before it: it translates.
    const TRANSLATES: bool = false;

    /// Whether its `on_packet` looks at the connection's state. One that goes by the connection's tuples alone says false: it
    /// is handed a default state, what it writes there is lost, and the state need not be fetched for packets.
    const PACKETS_USE_STATE: bool = true;

    /// Its name, as in the configuration and in metrics; unique within a chain.
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

    /// A segment as it comes in, before connection tracking looks at it: gives what it acknowledges (also selectively) the
    /// numbers under which the other side sent it. Sequence numbers are looked at as their sender writes them.
    fn as_sent(&self, state: &Self::State, segment: &mut TcpSegment, direction: Direction) {
        let _ = (state, segment, direction);
    }

    /// The configuration is a new one, and the operator wants connections that began under earlier ones to be held
    /// against it: whether this one may go on. `outgoing` is its tuple as its packets in the original direction reach this
    /// function. A function that has nothing against connections that go on need not answer.
    fn reevaluate(&self, state: &mut Self::State, outgoing: &Tuple) -> Judgement {
        let _ = (state, outgoing);
        Judgement::Stays
    }

    /// Whether its state of a connection follows from the connection's tuple and the configuration, so that a node that was
    /// told no more than the tuple can make it again with [`NetworkFunction::restore`]. A function without a state of its
    /// own that translates nothing can; any other has to say so.
    ///
    /// # Errors
    /// Why not.
    fn restorable(&self) -> Result<(), Unrestorable> {
        if size_of::<Self::State>() == 0 && !Self::TRANSLATES {
            return Ok(());
        }
        Err(Unrestorable {
            reason: "keeps of a connection what does not follow from its tuple",
            cure: "tell connections precisely, or take the function out of the chain",
        })
    }

    /// Whether `restore` makes up for this state of a connection that goes on, where [`NetworkFunction::restorable`].
    fn is_restorable(&self, state: &Self::State) -> bool {
        let _ = state;
        true
    }

    /// Its state of a connection as `on_init` would make it from the tuple; a function that translates changes
    /// [`Restoring::reply`]. `None` when it would not let the connection begin, or cannot tell. Nothing is counted.
    fn restore(&self, restoring: &mut Restoring) -> Option<Self::State> {
        let _ = restoring;
        self.restorable().is_ok().then(Self::State::default)
    }

    /// A function that translates: adds to `incoming` the tuples that it may have translated into `outgoing`, both as packets
    /// of the original direction have them, each once. Whoever asks tries each with `restore`, so there may be some that are
    /// none. Where there are more than [`CANDIDATES_MAX`](crate::restoration::CANDIDATES_MAX), none is tried, and it may stop.
    fn incoming_of(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        incoming.push(*outgoing);
    }

    /// The connection has ended.
    fn on_close(&self, state: &Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}
