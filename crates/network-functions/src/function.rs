//! The interface of a network function (TRIPOD, section III-A2).

use alloc::string::String;
use alloc::vec::Vec;

use flow::table::Table;
use flow::wire::tlv::TlvError;
use flow::wire::{Packet, QuotedTcp, TcpSegment, TunnelEnd, ip_protocol};
use flow::{Direction, DropReason, Instant, NodeId, PortId, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::class::Class;
use crate::expectation::{Expectation, Expectations, PortShare, Refusal};
use crate::inspect::assembly::Assemblies;
use crate::log::Log;
use crate::restoration::{Restoring, Unrestorable};
use crate::shared_values::SharedValues;
use crate::syn_cookie::{ClientOptions, Cookie};

/// The verdict on a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It continues to the next function and then leaves.
    Forward,
    /// It is dropped.
    Drop(DropReason),
    /// The function turned the packet into a response, which leaves through the port that it came in on.
    SendBack,
    /// The function holds the packet for now.
    Queued,
}

/// Why a connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CloseReason {
    /// The protocol closed it.
    TcpClosed,
    /// It timed out.
    Timeout,
    /// A function, an operator or the cluster terminated it.
    Terminated,
    /// Its server has failed.
    Failed,
}

/// What a function knows of a TCP segment that belongs to no connection and begins none.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stray {
    /// The rules would refuse its connection.
    Denied,
    /// The function would translate its connection, so without the record it never reaches the other end.
    Served,
    /// Nothing.
    Unknown,
}

/// The tuples of a connection that is re-evaluated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TranslatedTuples {
    /// That of its packets in the original direction, as they come in.
    pub original: Tuple,
    /// The same, as they leave the chain.
    pub outgoing: Tuple,
    /// No function before the one that is asked translates: it saw `original`.
    pub is_untouched: bool,
}

impl TranslatedTuples {
    /// The flow has no end of its own: it ends by its timeout, which each datagram renews.
    #[must_use]
    pub const fn is_of_datagrams(&self) -> bool {
        !matches!(self.original.protocol, ip_protocol::TCP | ip_protocol::SCTP)
    }
}

/// The result of re-evaluating a connection that began under an earlier configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReevaluationOutcome {
    /// It continues.
    Allowed,
    /// The configuration no longer permits it.
    Denied,
}

/// A function's state of one connection: a plain value of fixed size in the connection's record.
///
/// It is replicated as attributes, not as bytes, so that nodes of different versions understand each other: an unknown
/// attribute is skipped, an absent one keeps its default.
pub trait FlowState: FromBytes + IntoBytes + Immutable + KnownLayout + Default + Copy {
    /// The attribute type of the state; unique among functions, never reused.
    const ATTRIBUTE: u16;

    /// Appends the state's attributes to `out`. Nothing appended means the default.
    fn encode(&self, out: &mut Vec<u8>);

    /// Decodes the output of `encode`, possibly of another version.
    ///
    /// # Errors
    /// The attributes are malformed.
    fn decode(attributes: &[u8]) -> Result<Self, TlvError>;
}

/// Whether a tuple is in use: how a function that chooses tuples (NAT) queries the table.
pub trait TupleUse {
    /// Whether a connection has `tuple`, in either direction.
    fn is_used(&self, tuple: &Tuple) -> bool;

    /// Whether packets with `tuple` would reach another of the node's workers: functions prefer tuples whose packets
    /// reach this one. Cheaper than [`TupleUse::is_used`].
    fn belongs_to_other_worker(&self, tuple: &Tuple) -> bool {
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
    //! The attribute types of the states of this crate's functions ([`super::FlowState::ATTRIBUTE`]). Numbers from
    //! [`PRIVATE_FIRST`] on are for functions of other crates.
    /// The firewall.
    pub const FIREWALL: u16 = 1;
    /// Network address translation.
    pub const NAT: u16 = 2;
    /// The FTP helper.
    pub const FTP: u16 = 3;
    /// The load balancer.
    pub const LOAD_BALANCER: u16 = 4;
    /// The SYN proxy.
    pub const SYN_PROXY: u16 = 5;
    /// The classifier.
    pub const CLASSIFIER: u16 = 6;
    /// The URL filter.
    pub const URL_FILTER: u16 = 8;
    /// Rate limits.
    pub const RATE_LIMIT: u16 = 7;
    /// The first number for functions outside this crate.
    pub const PRIVATE_FIRST: u16 = 0x8000;
}

/// A client that has shown by its acknowledgement of a cookie that it receives what is sent to its address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AcceptedClient {
    /// The identifier of the SYN proxy's rule.
    pub rule: u16,
    /// The cookie.
    pub cookie: Cookie,
    /// The client's first sequence number.
    pub sequence: u32,
    /// The client's timestamp value; 0 without timestamps.
    pub timestamp: u32,
    /// The window that its SYN to the server advertises, not scaled.
    pub window: u16,
    /// What client and proxy have agreed on.
    pub options: ClientOptions,
}

/// The acknowledgement of a server's SYN/ACK.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ServerAcknowledgement {
    /// Its sequence number.
    pub sequence: u32,
    /// What it acknowledges.
    pub acknowledgement: u32,
    /// Its timestamps: (value, echo reply).
    pub timestamps: Option<(u32, u32)>,
}

/// What a server is to be sent in place of its client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToServer {
    /// The acknowledgement of its SYN/ACK.
    Acknowledgement(ServerAcknowledgement),
    /// It answered the SYN by an acknowledgement of this number: it holds an older connection, which is to be reset at that number. The SYN
    /// is to be sent once more (RFC 9293 section 3.5.2, RFC 5961 section 4.2).
    ResetOlder(u32),
}

/// A connection that a function has refused after it began: the function has answered its client, or is about to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedConnection {
    /// The sequence number of the reset that the server is to be sent: the client's next one, as the server expects it.
    pub reset_sequence: u32,
    /// What the client was sent in the server's place, which ends the stream: connection tracking is to see it. `None`: it has seen it.
    pub last_sent: Option<LastSent>,
}

/// The last segment that a client is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastSent {
    /// Its sequence number.
    pub sequence: u32,
    /// Its payload.
    pub payload_bytes: u32,
    /// What it acknowledges.
    pub acknowledgement: u32,
}

/// What a function that answers in place of an end point exchanges with the caller of the chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandshakeExchange {
    /// To the function: the connection that begins is that of this client.
    pub accepted: Option<AcceptedClient>,
    /// From the function: the server is to be sent this.
    pub to_server: Option<ToServer>,
    /// From the function: the connection is refused.
    pub refused: Option<RefusedConnection>,
    /// From the function, with [`DropReason::UrlAwaiting`]: the packet can be decided later. It is to be handled once more when an answer has come,
    /// or then.
    pub waits_until: Option<Instant>,
}

impl HandshakeExchange {
    /// Nothing.
    pub const NONE: Self = Self { accepted: None, to_server: None, refused: None, waits_until: None };
}

/// A function that answers handshakes for servers, without a connection: the SYN proxy.
pub trait HandshakeProxy {
    /// Checks a packet of no connection. `None`: it does not concern the proxy. An accepted client's connection begins by a SYN to the
    /// server in place of the packet, with the client in [`HandshakeExchange::accepted`].
    fn check(&self, now: Instant, packet: &Packet<'_, '_>) -> Option<Result<AcceptedClient, DropReason>>;

    /// Whether a SYN is answered now, were it of no connection. Nothing is counted.
    fn guards(&self, now: Instant, packet: &Packet<'_, '_>) -> bool;

    /// The client of a packet on a connection, if the packet acknowledges a valid cookie. Nothing is counted.
    fn client(&self, now: Instant, packet: &Packet<'_, '_>) -> Option<AcceptedClient>;

    /// Another connection of this rule begins with the tuple of the one that such a packet came on.
    fn note_accepted(&self, rule: u16);

    /// Turns a SYN, for which `on_init` returned [`DropReason::SynProxied`], into the SYN/ACK to its sender. False if its frame has no
    /// room.
    fn answer(&self, now: Instant, packet: &mut Packet<'_, '_>) -> bool;

    /// The server of a rule's connection did not answer, and the handshake was given up.
    fn note_unanswered(&self, rule: u16);
}

/// The inverses of a function that changes the numbers of TCP segments. Both are needed: without the first, connection tracking drops
/// segments; without the second, end points ignore ICMP errors, path MTU discovery among them.
pub trait Renumbering<S> {
    /// Prepares an incoming segment for connection tracking, before the function has seen it: converts its acknowledgements (also selective
    /// ones) to the numbers that the other side used. Sequence numbers stay as sent. It is called for every segment.
    fn as_sent(&self, state: &S, segment: &mut TcpSegment, direction: Direction);

    /// Gives the header of a segment that left the function in `direction` the numbers, timestamps and window with which it came: an ICMP
    /// error quotes it. The quotation may end behind the sequence number.
    fn restore(&self, state: &S, quoted: &mut QuotedTcp<'_>, direction: Direction);
}

/// The permission to take from values that connections share (the tokens of a rate limit), and to count in them (the connections of a
/// backend). A chain gives it to its functions while a packet begins a connection. A rehearsal has none.
#[derive(Clone, Copy, Debug)]
pub struct Taking(());

impl Taking {
    /// For [`Chain::init`](crate::chain::Chain::init) alone.
    pub(crate) const fn granted() -> Self {
        Self(())
    }
}

/// The context of a call beside packet and state.
pub struct Context<'a> {
    /// Now.
    pub now: Instant,
    /// This node.
    pub node: NodeId,
    /// The ingress port of the packet.
    pub ingress: PortId,
    /// The connection's incoming tuple in the original direction.
    pub original: Tuple,
    /// The connection's incoming tuple in the reply direction. A function that translates changes it in `on_init`;
    /// changes made in `on_packet` are discarded.
    pub reply: Tuple,
    /// Queries which tuples are in use. Only `on_init` may choose one: in `on_packet` every tuple counts as in use.
    pub tuples: &'a dyn TupleUse,
    /// The class of the connection, as far as it is known: the classifier writes it, functions behind it read it.
    pub class: Class,
    /// The function's counters, as many as it named.
    pub counters: &'a mut [u64],
    /// The log for the operator.
    pub log: &'a mut Log,
    /// In `on_init`: the expectation that the connection matched, with its outgoing tuple. `None` in `on_packet`.
    pub expected: Option<Expectation>,
    /// In `on_init`: the permission to take from what connections share. `None` in a rehearsal, which only asks whether the connection
    /// could begin, and in `on_packet`.
    pub taking: Option<Taking>,
    /// What a function that answers in place of an end point exchanges with the caller.
    pub handshake: HandshakeExchange,
    /// Beginnings of streams that functions wait for the rest of.
    pub(crate) assemblies: &'a mut Assemblies,
    /// The node's expected connections; functions access them by [`Context::expect`].
    pub(crate) expectations: &'a mut Expectations,
    /// Set in `on_init` by a function that sends the connection's packets into a tunnel ([`NetworkFunction::tunnel`]): no function may
    /// translate it then, as its replies do not come here.
    pub is_tunnelled: bool,
    /// The function created an expectation, which must be replicated.
    pub(crate) has_expected: bool,
}

impl Context<'_> {
    /// Expects a connection on behalf of this one, which becomes its master (see [`crate::expectation`]). For
    /// `on_packet` only: a connection that is not yet in the table cannot be a master.
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

    /// Removes the expectations that the function (by its [`FlowState::ATTRIBUTE`]) created on behalf of this
    /// connection.
    pub fn remove_expected(&mut self, function: u16) {
        if self.expectations.has(&self.original) {
            self.expectations.forget_function(&self.original, function);
            self.has_expected = true;
        }
    }

    /// Increments the function's counter `index`, in the order of [`NetworkFunction::counter_names`]. An unnamed
    /// counter is ignored.
    pub fn count(&mut self, index: usize) {
        if let Some(counter) = self.counters.get_mut(index) {
            *counter = counter.wrapping_add(1);
        }
    }

    /// The connection's tuple as its packets in the original direction leave the functions called so far.
    #[must_use]
    pub const fn outgoing(&self) -> Tuple {
        self.reply.inverse()
    }
}

/// A network function. It has a configuration, receives its connection's state, and keeps nothing else.
pub trait NetworkFunction {
    /// Its state of one connection.
    type State: FlowState;

    /// Whether `on_packet` does anything. It is false for a function that decides when a connection begins and forwards
    /// all later packets; it is then not called.
    const HANDLES_PACKETS: bool = true;

    /// Whether it translates: later functions see other tuples than earlier ones.
    const TRANSLATES: bool = false;

    /// Whether `on_packet` only translates: it gives TCP and UDP packets the outgoing tuple of their direction (the inverse of
    /// the connection's other tuple) and forwards them. The chain, or a fast path, may then do so instead of calling it.
    const ONLY_TRANSLATES: bool = false;

    /// Whether `on_packet` uses the connection's state. It is false for a function that needs the connection's tuples
    /// only: it receives a default state, changes to it are lost, and packets do not fetch the state.
    const PACKETS_USE_STATE: bool = true;

    /// Whether it may count the connections in the table, in [`NetworkFunction::on_enter`] and [`NetworkFunction::on_leave`].
    const COUNTS_CONNECTIONS: bool = false;

    /// Whether it is the classifier. The first byte of its state is then the [class's number](Class::number).
    const CLASSIFIES: bool = false;

    /// Whether it may send packets into tunnels: [`NetworkFunction::tunnel`] is asked then. At most one function of a chain does.
    const USES_TUNNELS: bool = false;

    /// Its name, as in the configuration and in metrics; unique within a chain.
    fn name(&self) -> &'static str;

    /// Whether it counts the connections in the table as it is configured.
    fn counts_connections(&self) -> bool {
        Self::COUNTS_CONNECTIONS
    }

    /// Names of its counters (for example `rule_0_hits`), in the order of [`Context::counters`].
    fn counter_names(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it shares with the same function of other nodes, beside the states of connections.
    fn shared_values(&self) -> Option<&dyn SharedValues> {
        None
    }

    /// Its part that answers handshakes for servers, if it has one.
    fn handshake_proxy(&self) -> Option<&dyn HandshakeProxy> {
        None
    }

    /// Begins a connection with this packet. `on_packet` is called for the same packet afterwards.
    ///
    /// Without [`Context::taking`] it is a rehearsal: the function decides as it would, and changes nothing that outlives the call but its
    /// counters and log, which are not the node's then.
    ///
    /// # Errors
    /// The connection is refused; the packet is dropped.
    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<Self::State, DropReason>;

    /// Processes a packet of a connection.
    fn on_packet(
        &self,
        state: &mut Self::State,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict;

    /// Whether it must see further packets of the connection with this state. Where no function must, a fast path may forward
    /// them; it translates by the connection's tuples. The answer may change with the state.
    fn needs_packets(&self, state: &Self::State) -> bool {
        let _ = state;
        Self::HANDLES_PACKETS && !Self::ONLY_TRANSLATES
    }

    /// Whether a change of its state, which `on_packet` made, must reach other nodes at once. Other changes do with the next that must.
    fn is_replicated_change(&self, before: &Self::State, after: &Self::State) -> bool {
        before.as_bytes() != after.as_bytes()
    }

    /// Records in the classifier's state whether a function denies the connection under its class. Packets of a denied one are dropped.
    fn set_denied(&self, state: &mut Self::State, is_denied: bool) {
        let _ = (state, is_denied);
    }

    /// Whether the connection is refused for good by what a packet of it showed. Its record stays then, even if that was its first packet:
    /// further packets are dropped without being examined again.
    fn is_refused(&self, state: &Self::State) -> bool {
        let _ = state;
        false
    }

    /// Whether [`NetworkFunction::reevaluate`] depends on the class.
    fn decides_by_class(&self) -> bool {
        false
    }

    /// Its part that undoes what it does to the numbers of TCP segments. `None`: `on_packet` forwards every segment with the numbers that
    /// it came with, which debug builds check.
    fn renumbering(&self) -> Option<&dyn Renumbering<Self::State>> {
        None
    }

    /// Re-evaluates a connection that began under an earlier configuration or class. `outgoing` is its tuple as its packets in
    /// the original direction reach this function. The default permits every connection.
    fn reevaluate(&self, state: &mut Self::State, outgoing: &Tuple, class: Class) -> ReevaluationOutcome {
        let _ = (state, outgoing, class);
        ReevaluationOutcome::Allowed
    }

    /// Whether a connection with this state may continue, after an input of the function has changed: a backend that has failed, or for
    /// a flow of datagrams a backend or a translation that a reload has removed. The default permits every connection.
    ///
    /// # Errors
    /// It must end; the reason is that of its further packets.
    fn may_continue(&self, state: &Self::State, tuples: &TranslatedTuples) -> Result<(), DropReason> {
        let _ = (state, tuples);
        Ok(())
    }

    /// What it knows of a TCP segment that belongs to no connection and begins none.
    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray {
        let _ = packet;
        Stray::Unknown
    }

    /// The tunnel that packets of the connection in the original direction leave in, once all functions have processed them. Their
    /// replies pass elsewhere. A translated connection never has one.
    ///
    /// # Errors
    /// There is one, and it is not known: the packet is dropped.
    fn tunnel(&self, state: &Self::State) -> Result<Option<TunnelEnd>, DropReason> {
        let _ = state;
        Ok(None)
    }

    /// A record with this state has entered the table: of a connection that began here, or of a replica, with each update of it. `original`
    /// and `reply` are its incoming tuples.
    fn on_enter(&self, state: &Self::State, original: &Tuple, reply: &Tuple) {
        let _ = (state, original, reply);
    }

    /// A record with this state has left the table, however its connection ended.
    fn on_leave(&self, state: &Self::State, original: &Tuple, reply: &Tuple) {
        let _ = (state, original, reply);
    }

    /// Whether its state of a connection follows from the connection's tuple and the configuration. A node that has
    /// only the tuple can then recompute it with [`NetworkFunction::restore`]. The default permits it for functions
    /// without state and translation.
    ///
    /// # Errors
    /// The reason why it does not.
    fn restorable(&self) -> Result<(), Unrestorable> {
        if size_of::<Self::State>() == 0 && !Self::TRANSLATES {
            return Ok(());
        }
        Err(Unrestorable {
            reason: "keeps of a connection what does not follow from its tuple",
            remedy: "replicate connections precisely, or take the function out of the chain",
        })
    }

    /// Whether `restore` yields an equivalent of this state of a live connection, where
    /// [`NetworkFunction::restorable`].
    fn is_restorable(&self, state: &Self::State) -> bool {
        let _ = state;
        true
    }

    /// As [`NetworkFunction::is_restorable`], where `restore` is given the connection's class ([`Restoring::known_class`]).
    fn is_restorable_by_class(&self, state: &Self::State) -> bool {
        self.is_restorable(state)
    }

    /// Its state of a connection as `on_init` would compute it from the tuple; a function that translates changes
    /// [`Restoring::reply`]. `None` when it would deny the connection, or cannot decide. Nothing is counted.
    fn restore(&self, restoring: &mut Restoring) -> Option<Self::State> {
        let _ = restoring;
        self.restorable().is_ok().then(Self::State::default)
    }

    /// For a function that translates: appends to `incoming` the distinct tuples that it may have translated into
    /// `outgoing`, both in the original direction. The caller checks each with `restore`, so false candidates are
    /// permitted. It may stop beyond [`CANDIDATES_MAX`](crate::restoration::CANDIDATES_MAX), as then none is tried.
    fn incoming_of(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        incoming.push(*outgoing);
    }

    /// The connection has ended.
    fn on_close(&self, state: &Self::State, reason: CloseReason) {
        let _ = (state, reason);
    }
}
