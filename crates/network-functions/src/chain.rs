//! The chain: functions in order, their states side by side in the connection's record.
//!
//! ```text
//!                 on_init (first packet only), then on_packet
//!   original ──▶ function 0 ──▶ function 1 ──▶ … ──▶ out
//!      reply ◀── function 0 ◀── function 1 ◀── … ◀── in
//!
//!   Connection.functions  [ state 0 | state 1 | … | unused ]   (TRIPOD, section IV-A: tuple-based layout)
//! ```
//!
//! One lookup finds the states of all functions. A chain is read-only while packets flow and may be shared by all
//! workers; mutable parts ([`ChainCounters`], [`Log`]) belong to the worker and are lent in a [`Runtime`].

mod beginning;
mod classes;
mod counters;
mod erased;
mod error;
mod layout;
mod placement;
mod renewal;
mod restoring;
mod stray;
#[cfg(test)]
mod tests;
mod watch;

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem;
use core::ops::Range;

use flow::connection::FUNCTION_STATE_BYTES_MAX;
use flow::wire::tlv::{self, TlvError};
use flow::wire::{Headers, Packet, QuotedTcp, Transport, TunnelEnd};
use flow::{Connection, Direction, DropReason, Instant, NodeId, Tuple};

use crate::expectation::Expectations;
use crate::function::{
    CloseReason, Context, FlowState, HandshakeExchange, HandshakeProxy, NetworkFunction, TupleUse, Verdict,
};
use crate::inspect::assembly::Assemblies;
use crate::log::Log;
use crate::shared_values::SharedValues;
pub use counters::{ChainCounters, FunctionCounters};
pub use erased::Processed;
use erased::{Erased, ErasedFunction};
pub use error::{CHAIN_FUNCTIONS_MAX, ChainError};
pub use layout::{STATE_ALIGN_BYTES_MAX, state_bytes};
pub use placement::ChainLayout;
pub use watch::{Call, CallOutcome, Unwatched, Watch};

/// Gives a packet the outgoing tuple of its direction.
#[inline]
fn translate(connection: &Connection, packet: &mut Packet<'_, '_>, direction: Direction) {
    let outgoing = match direction {
        Direction::Original => connection.reply.inverse(),
        Direction::Reply => connection.original.inverse(),
    };
    if packet.headers.tuple != outgoing {
        packet.rewrite(&outgoing);
    }
}

/// Collects the functions of a chain.
#[derive(Default)]
pub struct ChainBuilder {
    functions: Vec<Box<dyn ErasedFunction>>,
}

impl ChainBuilder {
    /// No functions yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a function behind those already there, as packets in the original direction pass them.
    #[must_use]
    pub fn push(mut self, function: impl NetworkFunction + Send + Sync + 'static) -> Self {
        self.functions.push(Box::new(Erased(function)));
        self
    }

    /// Lays out the states and makes the chain. A chain without functions forwards everything.
    ///
    /// # Errors
    /// The functions do not go together; see [`ChainError`].
    pub fn build(self) -> Result<Chain, ChainError> {
        self.build_within(ChainLayout::default())
    }

    /// As [`ChainBuilder::build`], for connections whose records hold the states of an earlier chain, of `layout`:
    /// states of known functions keep their offsets, others are placed behind them.
    ///
    /// # Errors
    /// As [`ChainBuilder::build`]. Also, the record may lack room for a new function's state, or unused record bytes
    /// may differ from that state's default.
    /// default is not what the unused bytes of a record are.
    pub fn build_within(self, mut layout: ChainLayout) -> Result<Chain, ChainError> {
        if self.functions.len() > CHAIN_FUNCTIONS_MAX {
            return Err(ChainError::TooManyFunctions(self.functions.len()));
        }
        let mut links: Vec<ChainEntry> = Vec::with_capacity(self.functions.len());
        let mut counter_names = Vec::new();
        for function in self.functions {
            check_unique(&links, &*function)?;
            let state = layout.place(&*function)?;
            let names = function.counter_names();
            let counters = names.len();
            counter_names.extend(names.into_iter().map(|name| format!("{}.{name}", function.name())));
            let handles_packets = function.handles_packets();
            links.push(ChainEntry { function, state, counters, handles_packets });
        }
        let renumbers = links.iter().any(|link| link.function.renumbers());
        let counts_connections = links.iter().any(|link| link.function.counts_connections());
        let proxies_handshakes = links.iter().any(|link| link.function.handshake_proxy().is_some());
        let tunneller = links.iter().position(|link| link.function.uses_tunnels());
        let classifier = links.iter().position(|link| link.function.classifies());
        let decides_by_class = links.iter().any(|link| link.function.decides_by_class());
        let translators = only_translators(&links);
        Ok(Chain {
            default_states: layout.defaults(),
            links,
            layout,
            counter_names,
            renumbers,
            counts_connections,
            proxies_handshakes,
            tunneller,
            classifier,
            decides_by_class,
            translators,
        })
    }
}

/// The indices of the functions that translate, if no other one handles packets.
fn only_translators(links: &[ChainEntry]) -> Vec<usize> {
    let handling = || links.iter().enumerate().filter(|(_, link)| link.handles_packets);
    let only_translate = handling().all(|(_, link)| link.function.only_translates());
    if only_translate { handling().map(|(index, _)| index).collect() } else { Vec::new() }
}

fn check_unique(links: &[ChainEntry], function: &dyn ErasedFunction) -> Result<(), ChainError> {
    for link in links {
        if link.function.name() == function.name() {
            return Err(ChainError::DuplicateName(function.name()));
        }
        if link.function.attribute() == function.attribute() {
            return Err(ChainError::DuplicateAttribute {
                first: link.function.name(),
                second: function.name(),
                attribute: function.attribute(),
            });
        }
    }
    Ok(())
}

/// A function in the chain, with its state's position and its counters.
struct ChainEntry {
    function: Box<dyn ErasedFunction>,
    /// Its state's bytes in [`Connection::functions`].
    state: Range<usize>,
    /// The number of its counters.
    counters: usize,
    handles_packets: bool,
}

/// The mutable resources that the caller lends the chain for a packet.
pub struct Runtime<'a> {
    /// Now.
    pub now: Instant,
    /// This node.
    pub node: NodeId,
    /// Counters made by [`Chain::new_counters`] of the same chain; those of another one may panic.
    pub counters: &'a mut ChainCounters,
    /// The log for the operator.
    pub log: &'a mut Log,
    /// Beginnings of streams that functions wait for the rest of.
    pub assemblies: &'a mut Assemblies,
    /// The connections that functions expect.
    pub expectations: &'a mut Expectations,
    /// What a function that answers in place of an end point exchanges with the caller.
    pub handshake: HandshakeExchange,
}

/// In `on_packet` the connection's tuples are fixed; a function that searches a free one finds none.
struct NoTupleFree;

impl TupleUse for NoTupleFree {
    fn is_used(&self, _tuple: &Tuple) -> bool {
        true
    }
}

/// Functions in order. Made by [`ChainBuilder`].
pub struct Chain {
    links: Vec<ChainEntry>,
    /// The positions of states, including those of functions of earlier chains.
    layout: ChainLayout,
    /// Every state at its default, to begin and to decode from.
    default_states: [u8; FUNCTION_STATE_BYTES_MAX],
    counter_names: Vec<String>,
    /// Whether a function changes the numbers of TCP segments.
    renumbers: bool,
    /// Whether a function counts the connections in the table.
    counts_connections: bool,
    /// Whether a function answers handshakes for servers.
    proxies_handshakes: bool,
    /// The index of the function that may send packets into tunnels.
    tunneller: Option<usize>,
    /// The index of the classifier.
    classifier: Option<usize>,
    /// Whether a function decides by class.
    decides_by_class: bool,
    /// The functions that handle packets, if all of them only translate: one translation then stands for all. Otherwise none.
    translators: Vec<usize>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.links.iter().map(|link| (link.function.name(), &link.state))).finish()
    }
}

impl Chain {
    /// The functions' names in order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &'static str> + '_ {
        self.links.iter().map(|link| link.function.name())
    }

    /// The name of a function by its index, and the names of its counters without the function's prefix.
    pub fn function(&self, index: usize) -> Option<(&'static str, impl Iterator<Item = &str>)> {
        let link = self.links.get(index)?;
        let first = self.links[..index].iter().map(|link| link.counters).sum::<usize>();
        let names = self.counter_names[first..first + link.counters].iter();
        Some((
            link.function.name(),
            names.map(|name: &String| name.split_once('.').map_or(name.as_str(), |(_, own)| own)),
        ))
    }

    /// The names of all counters (for example `firewall.rule_0_hits`), in the order of [`ChainCounters::values`].
    #[must_use]
    pub fn counter_names(&self) -> &[String] {
        &self.counter_names
    }

    /// Whether packets of known connections need the functions' states. If not, [`Chain::process`] does not access
    /// them.
    #[must_use]
    pub fn packets_use_states(&self) -> bool {
        self.links.iter().any(|link| link.function.packets_use_state())
    }

    /// Counters for this chain, all zero.
    #[must_use]
    pub fn new_counters(&self) -> ChainCounters {
        ChainCounters {
            values: vec![0; self.counter_names.len()],
            functions: vec![FunctionCounters::default(); self.links.len()],
        }
    }

    /// Processes a packet of a connection: calls every `on_packet` (of functions that handle packets), in chain order
    /// in the original direction and in reverse order in the reply direction, until one does not forward it.
    pub fn process(
        &self,
        runtime: &mut Runtime<'_>,
        connection: &mut Connection,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed {
        match (&*self.translators, &packet.headers.transport) {
            (translators @ [_, ..], Transport::Tcp(_) | Transport::Udp) => {
                for index in translators {
                    runtime.counters.functions[*index].packets += 1;
                }
                translate(connection, packet, direction);
                Processed { verdict: Verdict::Forward, states_changed: false }
            }
            _ => self.process_watched(runtime, connection, packet, direction, &mut Unwatched),
        }
    }

    /// As [`Chain::process`]; `watch` observes every call.
    #[inline]
    pub fn process_watched<W: Watch>(
        &self,
        runtime: &mut Runtime<'_>,
        connection: &mut Connection,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
        watch: &mut W,
    ) -> Processed {
        let class = self.class(connection);
        let mut context = Context {
            now: runtime.now,
            node: runtime.node,
            ingress: packet.frame.ingress,
            original: connection.original,
            reply: connection.reply,
            tuples: &NoTupleFree,
            class,
            counters: &mut [],
            log: runtime.log,
            assemblies: runtime.assemblies,
            expected: None,
            taking: None,
            handshake: HandshakeExchange::NONE,
            expectations: runtime.expectations,
            is_tunnelled: false,
            has_expected: false,
        };
        let states = &mut connection.functions;
        let counters = &mut *runtime.counters;
        let processed = match direction {
            Direction::Original => self.pass_forwards(states, &mut context, counters, packet, watch),
            Direction::Reply => self.pass_backwards(states, &mut context, counters, packet, watch),
        };
        runtime.handshake = context.handshake;
        let processed = Processed { states_changed: processed.states_changed | context.has_expected, ..processed };
        if self.class(connection) == class { processed } else { self.follow_class(connection, processed) }
    }

    /// Whether a function refuses the connection for good: see [`NetworkFunction::is_refused`].
    #[must_use]
    #[cold]
    pub fn is_refused(&self, connection: &Connection) -> bool {
        self.links.iter().any(|link| link.function.is_refused(&connection.functions[link.state.clone()]))
    }

    /// What a function shares with the same function of other nodes. One at most does.
    #[must_use]
    pub fn shared_values(&self) -> Option<&dyn SharedValues> {
        self.links.iter().find_map(|link| link.function.shared_values())
    }

    /// The function that answers handshakes for servers, if there is one.
    #[must_use]
    pub fn handshake_proxy(&self) -> Option<&dyn HandshakeProxy> {
        if !self.proxies_handshakes {
            return None;
        }
        self.links.iter().find_map(|link| link.function.handshake_proxy())
    }

    /// The tunnel that the connection's packets in the original direction leave in, once they are processed. It is one-sided then: its
    /// replies pass elsewhere.
    ///
    /// # Errors
    /// There is one, and it is not known: the packet is to be dropped.
    #[inline]
    pub fn tunnel(&self, connection: &Connection) -> Result<Option<TunnelEnd>, DropReason> {
        let Some(link) = self.tunneller.and_then(|index| self.links.get(index)) else { return Ok(None) };
        if connection.reply != connection.original.inverse() {
            return Ok(None);
        }
        link.function.tunnel(&connection.functions[link.state.clone()])
    }

    /// A function's state of a connection, by its type; `None` if no function of the chain has it.
    #[must_use]
    pub fn state_of<S: FlowState>(&self, connection: &Connection) -> Option<S> {
        let link = self.links.iter().find(|link| link.function.attribute() == S::ATTRIBUTE)?;
        S::read_from_bytes(&connection.functions[link.state.clone()]).ok()
    }

    /// Whether there is no function.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.links.is_empty()
    }

    /// Whether no function keeps anything of the connection: a new one with its tuple would have the same states.
    #[must_use]
    pub fn has_default_states(&self, connection: &Connection) -> bool {
        connection.functions == self.default_states
    }

    /// Whether connection tracking must see segments in the form of [`Chain::as_sent`].
    #[must_use]
    #[inline]
    pub const fn renumbers(&self) -> bool {
        self.renumbers
    }

    /// Whether a function must see further packets of the connection. Packets of others only are translated.
    #[must_use]
    pub fn needs_packets(&self, connection: &Connection) -> bool {
        self.links.iter().any(|link| link.function.needs_packets(&connection.functions[link.state.clone()]))
    }

    /// Counts packets of connections of which no function [needs packets](Chain::needs_packets), as [`Chain::process`] does, for a
    /// caller that has translated them by their connections' tuples.
    pub fn count_translated(&self, counters: &mut ChainCounters, packets: u64) {
        for (link, counted) in self.links.iter().zip(&mut counters.functions) {
            counted.packets += if link.handles_packets { packets } else { 0 };
        }
    }

    /// The headers of an incoming segment with acknowledgements in the other side's numbering, before any renumbering
    /// function. `None` when they are equal to the original ones.
    #[must_use]
    pub fn as_sent(&self, connection: &Connection, headers: &Headers, direction: Direction) -> Option<Headers> {
        let Transport::Tcp(arrived) = headers.transport else { return None };
        let mut segment = arrived;
        let ask = |link: &ChainEntry, segment: &mut _| {
            link.function.as_sent(&connection.functions[link.state.clone()], segment, direction);
        };
        let renumbering = self.links.iter().filter(|link| link.function.renumbers());
        match direction {
            Direction::Original => renumbering.for_each(|link| ask(link, &mut segment)),
            Direction::Reply => renumbering.rev().for_each(|link| ask(link, &mut segment)),
        }
        (segment != arrived).then_some(Headers { transport: Transport::Tcp(segment), ..*headers })
    }

    /// Gives the TCP header of a packet that left in `direction` what its sender wrote into it: an ICMP error quotes it.
    pub fn restore_quoted(&self, connection: &Connection, quoted: &mut QuotedTcp<'_>, direction: Direction) {
        let ask = |link: &ChainEntry| {
            link.function.restore_quoted(&connection.functions[link.state.clone()], &mut *quoted, direction);
        };
        // The last function that saw the packet comes first.
        match direction {
            Direction::Original => self.links.iter().rev().for_each(ask),
            Direction::Reply => self.links.iter().for_each(ask),
        }
    }

    fn pass_forwards<'a, W: Watch>(
        &self,
        states: &mut [u8; FUNCTION_STATE_BYTES_MAX],
        context: &mut Context<'a>,
        counters: &'a mut ChainCounters,
        packet: &mut Packet<'_, '_>,
        watch: &mut W,
    ) -> Processed {
        let ChainCounters { values, functions } = counters;
        let mut counters = values.as_mut_slice();
        let mut states_changed = false;
        for ((function, link), counted) in self.links.iter().enumerate().zip(functions) {
            (context.counters, counters) = mem::take(&mut counters).split_at_mut(link.counters);
            if !link.handles_packets {
                continue;
            }
            let state = &mut states[link.state.clone()];
            watch.before_call(context.counters);
            let processed = link.function.on_packet(state, context, packet, Direction::Original);
            watch.after_call(&Call { function, outcome: CallOutcome::Handled(processed.verdict), context }, packet);
            states_changed |= processed.states_changed;
            counted.packets += 1;
            if processed.verdict != Verdict::Forward {
                counted.packets_stopped += 1;
                return Processed { states_changed, ..processed };
            }
        }
        Processed { verdict: Verdict::Forward, states_changed }
    }

    fn pass_backwards<'a, W: Watch>(
        &self,
        states: &mut [u8; FUNCTION_STATE_BYTES_MAX],
        context: &mut Context<'a>,
        counters: &'a mut ChainCounters,
        packet: &mut Packet<'_, '_>,
        watch: &mut W,
    ) -> Processed {
        let ChainCounters { values, functions } = counters;
        let mut counters = values.as_mut_slice();
        let mut states_changed = false;
        for ((function, link), counted) in self.links.iter().enumerate().zip(functions).rev() {
            let others = counters.len() - link.counters;
            (counters, context.counters) = mem::take(&mut counters).split_at_mut(others);
            if !link.handles_packets {
                continue;
            }
            let state = &mut states[link.state.clone()];
            watch.before_call(context.counters);
            let processed = link.function.on_packet(state, context, packet, Direction::Reply);
            watch.after_call(&Call { function, outcome: CallOutcome::Handled(processed.verdict), context }, packet);
            states_changed |= processed.states_changed;
            counted.packets += 1;
            if processed.verdict != Verdict::Forward {
                counted.packets_stopped += 1;
                return Processed { states_changed, ..processed };
            }
        }
        Processed { verdict: Verdict::Forward, states_changed }
    }

    /// Ends the connection: calls every function's `on_close` in chain order.
    pub fn close(&self, connection: &Connection, reason: CloseReason) {
        for link in &self.links {
            link.function.on_close(&connection.functions[link.state.clone()], reason);
        }
    }

    /// Notes that a record has entered the table: of a connection that began here, or of a replica.
    #[inline]
    pub fn note_entered(&self, connection: &Connection) {
        if self.counts_connections {
            let Connection { original, reply, functions, .. } = connection;
            self.links.iter().for_each(|link| link.function.on_enter(&functions[link.state.clone()], original, reply));
        }
    }

    /// Notes that a record has left the table, however its connection ended.
    #[inline]
    pub fn note_left(&self, connection: &Connection) {
        if self.counts_connections {
            let Connection { original, reply, functions, .. } = connection;
            self.links.iter().for_each(|link| link.function.on_leave(&functions[link.state.clone()], original, reply));
        }
    }

    /// Appends the states of all functions as attributes: one for each function whose state is not the default,
    /// containing the function's attributes.
    pub fn encode_states(&self, connection: &Connection, out: &mut Vec<u8>) {
        for link in &self.links {
            let start = out.len();
            tlv::put_fixed::<4>(out, link.function.attribute(), 0, |_| {});
            link.function.encode(&connection.functions[link.state.clone()], out);
            let length_bytes = out.len() - start;
            if length_bytes == tlv::TLV_HEADER_BYTES {
                out.truncate(start);
                continue;
            }
            let length =
                u16::try_from(length_bytes).expect("a state is at most 64 bytes, its attributes far below 64 KiB");
            out[start + 2..start + 4].copy_from_slice(&length.to_be_bytes());
            if !out.len().is_multiple_of(4) {
                out.resize(out.len().next_multiple_of(4), 0);
            }
        }
    }

    /// Sets the states of all functions from the output of [`Chain::encode_states`], possibly of a node with another
    /// chain. Attributes of unknown functions are skipped; functions without an attribute get their default.
    ///
    /// # Errors
    /// The attributes are malformed. `connection` is then unchanged.
    pub fn decode_states(&self, connection: &mut Connection, attributes: &[u8]) -> Result<(), TlvError> {
        let mut states = self.default_states;
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            if let Some(link) = self.links.iter().find(|link| link.function.attribute() == kind) {
                link.function.decode(&mut states[link.state.clone()], value)?;
            }
        }
        connection.functions = states;
        Ok(())
    }
}
