//! Network address translation: source NAT to addresses that the cluster shares, and port forwarding.
//!
//! A connection's translation is decided when it begins and is contained in its two tuples, which every node with the
//! connection has; any node can continue to translate.
//!
//! ```text
//!   original direction:  in  Connection.original      out  inverse of Connection.reply
//!   reply direction:     in  Connection.reply         out  inverse of Connection.original
//! ```
//!
//! **Nodes that forward at the same time never choose the same port.** Each takes ports for new connections from its part of the
//! range ([`PortRange::slice`]), so two of them never choose one tuple, without coordination. Connections that are taken
//! over keep their ports, whatever part they are from. Where one node forwards at a time, each has all ports.
//!
//! Protocols without ports have nothing to divide. Two inside hosts that reach the same outside host by such a protocol
//! (GRE, ESP) through two nodes at once may collide; the table of the node that learns of it second refuses the
//! connection.
//!
//! **Port selection.** The node's ports in the order of a keyed hash of the inside end point (RFC 6056 section 3.3.3 without its
//! counter). Nodes with the same key and ports have the same order: a connection of which every node has lost the record, and that
//! is picked up in the middle, finds its former port unless that is another's.
//!
//! As the destination is not hashed, an end point has the same port towards all peers as long as that is free (RFC 4787
//! REQ-1), and an inside address always the same pool address (REQ-2). ICMP queries are translated by their identifier
//! (RFC 5508 REQ-1).
//!
//! **Endpoint-independent mappings** ([`EndpointMappings`]) make that certain: an end point keeps its port towards all peers, and
//! no other end point has the port. Filtering is address and port-dependent as for all connections: a packet from outside passes
//! only if it answers one from inside.
//!
//! **Computed mappings** ([`Mapping`], RFC 7422): an inside address has a fixed block of ports, and the outside address
//! and port follow from the inside ones; see the `deterministic` module. Nodes then do not divide the ports, and a node
//! can continue to translate a connection of which it has the tuple only.
//!
//! **Forwarded ports** are never chosen: an address and port that a destination rule forwards, whatever its other
//! conditions, is no source of another connection. (Rules that name no ports do not restrict source NAT.)
//!
//! **Expected connections** ([`crate::expectation`]) follow their master connection; rules do not apply. A source port
//! in use is replaced by one of the node's part.
//!
//! **Several workers.** Each worker chooses ports for which the replies reach that worker, so two workers never choose
//! the same port, like two nodes. As replies are steered by both ends, an inside end point then has the same port only
//! towards peers whose packets reach one worker.
//!
//! **Hairpinning** (RFC 4787 REQ-9) is configured by rules: a source rule that also matches inside sources towards the
//! inside destinations of port forwarding.
//!
//! **New rules** apply to new connections: an existing one keeps its translation to its end, as its end points know
//! each other by it. Flows of datagrams have no end of their own, so they end when the rules would translate them otherwise.
//!
//! **Untranslated connections** are never rewritten. If the reply tuple of one is another connection's, the table
//! refuses it (`tuple_in_use`) on insertion, as Linux does for connections without a NAT rule.

mod continuing;
mod deterministic;
mod endpoints;
pub(crate) mod ports;
mod restoring;
mod rule;
#[cfg(test)]
mod tests;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use flow::wire::tlv::{self, TlvError};
use flow::wire::{Packet, Transport};
use flow::{Direction, DropReason, PortId, Tuple};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::address::tuple_bytes;
use crate::class::Class;
use crate::expectation::{ANY_ADDRESS, ANY_PORT, Expectation};
use crate::function::{Context, FlowState, NetworkFunction, Stray, TranslatedTuples, Verdict, state_attribute};
use crate::port_range::PortRange;
use crate::restoration::{Restoring, Unrestorable};
use crate::rule_set::{Conditions, RuleIndex, RuleKey, RuleSet, has_ports};
pub use deterministic::{Algorithm, BLOCK_PORTS_MIN, Mapping, MappingError, MappingKey};
use deterministic::{Computed, port_setter};
pub use endpoints::{ENDPOINT_ADDRESSES_MAX, EndpointMappings};
pub use ports::{PORT_PROBES_MAX, SourcePorts};
pub use rule::{
    DestinationRule, NatConfig, NatError, POOL_ADDRESSES_MAX, RuleKind, SOURCE_PORTS_DEFAULT, SourceAction, SourceRule,
};
use rule::{Pool, Target, check_destination, check_shared, check_source};

/// The name of the function.
pub const NAME: &str = "nat";

/// NAT's state of a connection beside its tuples: the rules that translated it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct NatState {
    /// The source rule's number, from 1; 0 without source translation.
    source_rule_number: u16,
    /// The destination rule's number, from 1; 0 without destination translation.
    destination_rule_number: u16,
}

mod attribute {
    //! Attributes of the state.
    /// Number of the source rule, u16.
    pub(super) const SOURCE_RULE: u16 = 1;
    /// Number of the destination rule, u16.
    pub(super) const DESTINATION_RULE: u16 = 2;
}

impl NatState {
    /// The source rule that translated the connection, of the configuration under which it began.
    #[must_use]
    pub fn source_rule(&self) -> Option<RuleIndex> {
        self.source_rule_number.checked_sub(1).map(RuleIndex)
    }

    /// The destination rule that translated the connection, of the configuration under which it began.
    #[must_use]
    pub fn destination_rule(&self) -> Option<RuleIndex> {
        self.destination_rule_number.checked_sub(1).map(RuleIndex)
    }
}

impl FlowState for NatState {
    const ATTRIBUTE: u16 = state_attribute::NAT;

    fn encode(&self, out: &mut Vec<u8>) {
        for (kind, number) in [
            (attribute::SOURCE_RULE, self.source_rule_number),
            (attribute::DESTINATION_RULE, self.destination_rule_number),
        ] {
            if number != 0 {
                tlv::put_fixed::<8>(out, kind, 2, |bytes| bytes[4..6].copy_from_slice(&number.to_be_bytes()));
            }
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            let number = || value.try_into().map(u16::from_be_bytes).map_err(|_| TlvError::ValueSize(kind));
            match kind {
                attribute::SOURCE_RULE => state.source_rule_number = number()?,
                attribute::DESTINATION_RULE => state.destination_rule_number = number()?,
                _ => {}
            }
        }
        Ok(state)
    }
}

/// NAT; see the module's documentation.
pub struct Nat {
    destination_rules: RuleSet,
    targets: Vec<Target>,
    /// The destinations of destination rules that name ports: source NAT must not choose these ports.
    forwarded: RuleSet,
    /// The addresses that each destination rule forwards, if they are single ones.
    destinations: Vec<Vec<[u8; 16]>>,
    source_rules: RuleSet,
    pools: Vec<Pool>,
    /// Whether a rule has an ingress condition, which a tuple cannot answer.
    asks_ingress: bool,
    /// This node's part of the ports.
    ports: SourcePorts,
    /// Those of all nodes.
    all_ports: PortRange,
}

/// Indices of the counters behind those of the rules.
#[derive(Clone, Copy)]
enum Counter {
    PortsExhausted,
    TuplesInUse,
    PortsDisplaced,
}

const COUNTER_NAMES: [&str; 3] = ["ports_exhausted", "tuples_in_use", "ports_displaced"];

impl Nat {
    /// NAT by these rules.
    ///
    /// # Errors
    /// The configuration is invalid; see [`NatError`].
    pub fn new(config: NatConfig) -> Result<Self, NatError> {
        let NatConfig { destination_rules, source_rules, ports, node, nodes, key } = config;
        let (source_conditions, pools) = checked(source_rules, |index, rule| check_source(index, rule, ports))?;
        check_shared(&pools)?;
        let (destination_conditions, targets) = checked(destination_rules, check_destination)?;
        let named_ports = destination_conditions.iter().filter(|conditions| !conditions.destination_ports.is_empty());
        let forwarded: Vec<_> = named_ports.map(destination_alone).collect();
        Ok(Self {
            forwarded: compile(&forwarded, RuleKind::Destination)?,
            asks_ingress: source_conditions.iter().chain(&destination_conditions).any(|rule| !rule.ingress.is_empty()),
            destinations: destination_conditions.iter().map(single_addresses).collect(),
            destination_rules: compile(&destination_conditions, RuleKind::Destination)?,
            targets,
            source_rules: compile(&source_conditions, RuleKind::Source)?,
            pools,
            ports: SourcePorts::new(ports, node, nodes, key).ok_or(NatError::NoPorts { ports, node, nodes })?,
            all_ports: ports,
        })
    }

    /// The ports that this node chooses for new connections.
    #[must_use]
    pub const fn ports(&self) -> PortRange {
        self.ports.ports()
    }

    /// The formulas of the source rules with computed mapping, for the log: each rule's index, and how to find the
    /// inside host of an outside address and port.
    pub fn formulas(&self) -> impl Iterator<Item = (usize, String)> + '_ {
        self.pools.iter().enumerate().filter_map(|(index, pool)| match pool {
            Pool::Computed(mapping) => Some((index, mapping.describe())),
            Pool::Exempt | Pool::Chosen(_) | Pool::Endpoints(..) => None,
        })
    }

    fn endpoints(&self) -> impl Iterator<Item = &EndpointMappings> {
        self.pools.iter().filter_map(|pool| match pool {
            Pool::Endpoints(_, mappings) => Some(&**mappings),
            Pool::Exempt | Pool::Chosen(_) | Pool::Computed(_) => None,
        })
    }

    /// All rules have the same value, which knows their addresses.
    fn count_endpoint(&self, state: &NatState, original: &Tuple, reply: &Tuple, is_entering: bool) {
        if state.source_rule_number != 0
            && let Some(mappings) = self.endpoints().next()
        {
            mappings.count(original, reply, is_entering);
        }
    }

    fn count(&self, context: &mut Context<'_>, counter: Counter) {
        context.count(self.pools.len() + self.targets.len() + counter as usize);
    }

    /// Whether the source of `outgoing` is an address and port that a destination rule forwards, for any client.
    /// Otherwise packets of that source's peer to the forwarded service would reach this connection (port shadowing,
    /// CVE-2021-3773).
    fn is_forwarded(&self, outgoing: &Tuple) -> bool {
        let key = RuleKey { tuple: outgoing.inverse(), icmp: None, ingress: PortId::default(), class: Class::Unknown };
        has_ports(outgoing.protocol) && self.forwarded.classify(&key).is_some()
    }

    /// `outgoing` with its destination translated by the first matching destination rule.
    fn translate_destination(&self, outgoing: &mut Tuple, key: &RuleKey) -> Option<RuleIndex> {
        let index = self.destination_rules.classify(key)?;
        let target = &self.targets[index.get()];
        outgoing.destination = target.address;
        if let Some((range, to)) = target.moved {
            outgoing.destination_port = outgoing.destination_port - range.first() + to;
        }
        Some(index)
    }

    /// `outgoing` with a source address of `pool`, such that the reply tuple is free.
    fn translate_source(
        &self,
        outgoing: &Tuple,
        pool: &[[u8; 16]],
        context: &mut Context<'_>,
    ) -> Result<Tuple, DropReason> {
        let translated = self.ports.translate(outgoing, pool, context.tuples, |tuple| self.is_forwarded(tuple));
        translated.ok_or_else(|| self.exhausted(context))
    }

    /// `outgoing` with the source that its inside end point has towards all destinations.
    fn translate_endpoint(
        &self,
        outgoing: &Tuple,
        (pool, mappings): (&[[u8; 16]], &EndpointMappings),
        context: &mut Context<'_>,
    ) -> Result<Tuple, DropReason> {
        let address = self.ports.address(outgoing, pool);
        let mut translated = Tuple { source: address, ..*outgoing };
        let Some(set_port) = port_setter(outgoing.protocol) else { return Ok(translated) };
        let may_take = |port| {
            let mut candidate = translated;
            set_port(&mut candidate, port);
            self.ports.ports().contains(port) && !self.is_forwarded(&candidate)
        };
        let port = mappings.claim(context.now, outgoing, &address, may_take);
        set_port(&mut translated, port.ok_or_else(|| self.exhausted(context))?);
        if context.tuples.is_used(&translated.inverse()) {
            self.count(context, Counter::TuplesInUse);
            return Err(DropReason::TupleInUse);
        }
        Ok(translated)
    }

    fn exhausted(&self, context: &mut Context<'_>) -> DropReason {
        self.count(context, Counter::PortsExhausted);
        DropReason::NatPortsExhausted
    }

    /// `outgoing` with the source that `mapping` computes, or the next port of the host's block if that is in use.
    fn compute_source(
        &self,
        outgoing: &Tuple,
        mapping: &Computed,
        context: &mut Context<'_>,
    ) -> Result<Tuple, DropReason> {
        let Some(mut candidates) = mapping.candidates(outgoing) else { return Err(DropReason::NatUntranslatable) };
        let Some(computed) = candidates.next() else { return Err(DropReason::NatBlockExhausted) };
        let tuples = context.tuples;
        let is_free = |tuple: &Tuple| !tuples.is_used(&tuple.inverse());
        if port_setter(outgoing.protocol).is_none() || (is_free(&computed) && !self.is_forwarded(&computed)) {
            return Ok(computed);
        }
        self.count(context, Counter::PortsDisplaced);
        candidates.find(|candidate| is_free(candidate) && !self.is_forwarded(candidate)).ok_or_else(|| {
            self.count(context, Counter::PortsExhausted);
            DropReason::NatBlockExhausted
        })
    }

    /// Translates an expected connection by its expectation. Its port is kept if free, whichever part it is from: the
    /// other end of its tuple was chosen for this connection alone.
    fn follow(&self, expected: &Expectation, context: &mut Context<'_>) -> Result<NatState, DropReason> {
        let incoming = context.outgoing();
        let mut outgoing = Tuple {
            destination: expected.outgoing.destination,
            destination_port: expected.outgoing.destination_port,
            ..incoming
        };
        if expected.outgoing.source != ANY_ADDRESS {
            outgoing.source = expected.outgoing.source;
        }
        if expected.outgoing.source_port != ANY_PORT {
            outgoing.source_port = expected.outgoing.source_port;
        }
        if outgoing.source != incoming.source
            && has_ports(outgoing.protocol)
            && (context.tuples.belongs_to_other_worker(&outgoing.inverse())
                || context.tuples.is_used(&outgoing.inverse())
                || self.is_forwarded(&outgoing))
        {
            let with_port = |source_port| Tuple { source_port, ..outgoing };
            let free = self.ports.free_port(&outgoing, with_port, context.tuples, |tuple| self.is_forwarded(tuple));
            outgoing = free.ok_or_else(|| self.exhausted(context))?;
        }
        if outgoing != incoming && context.tuples.is_used(&outgoing.inverse()) {
            self.count(context, Counter::TuplesInUse);
            return Err(DropReason::TupleInUse);
        }
        context.reply = outgoing.inverse();
        Ok(NatState::default())
    }
}

type Checked<V> = (Vec<Conditions>, Vec<V>);

fn checked<R, V>(
    rules: Vec<R>,
    check: impl Fn(usize, R) -> Result<(Conditions, V), NatError>,
) -> Result<Checked<V>, NatError> {
    rules.into_iter().enumerate().map(|(index, rule)| check(index, rule)).collect()
}

/// The destination conditions of a destination rule, without those on clients.
fn destination_alone(conditions: &Conditions) -> Conditions {
    Conditions {
        family: conditions.family,
        destinations: conditions.destinations.clone(),
        protocols: conditions.protocols.clone(),
        destination_ports: conditions.destination_ports.clone(),
        ..Conditions::default()
    }
}

/// The destinations of a rule that are single addresses.
fn single_addresses(conditions: &Conditions) -> Vec<[u8; 16]> {
    let single = conditions.destinations.iter().filter(|prefix| prefix.prefix_len() == prefix.max_prefix_len());
    single.map(|prefix| tuple_bytes(prefix.addr())).collect()
}

fn compile(conditions: &[Conditions], kind: RuleKind) -> Result<RuleSet, NatError> {
    RuleSet::compile(conditions.iter()).map_err(|error| NatError::Conditions { kind, error })
}

/// Whether the ports of an SCTP packet can be changed to those of `outgoing`: a fragment's cannot, as the checksum
/// covers the whole packet. (It does not cover addresses.)
fn may_be_renumbered(packet: &Packet<'_, '_>, outgoing: &Tuple) -> bool {
    let Tuple { source_port, destination_port, .. } = packet.headers.tuple;
    !packet.headers.is_fragment || (source_port, destination_port) == (outgoing.source_port, outgoing.destination_port)
}

/// Gives a packet the outgoing tuple of its direction: what every function that only translates does with packets.
#[inline]
pub(crate) fn translate_packet(context: &Context<'_>, packet: &mut Packet<'_, '_>, direction: Direction) -> Verdict {
    // The tuples decide, not the state: connections from elsewhere (the kernel's connection tracking) have
    // translated tuples without a rule of this node.
    let outgoing = match direction {
        Direction::Original => context.reply.inverse(),
        Direction::Reply => context.original.inverse(),
    };
    if packet.headers.tuple == outgoing {
        return Verdict::Forward;
    }
    if matches!(packet.headers.transport, Transport::IcmpError(_)) {
        // The quoted packet needs translation, too; the caller that related the error to the connection does it.
        return Verdict::Drop(DropReason::NatUntranslatable);
    }
    if matches!(packet.headers.transport, Transport::Sctp(_)) && !may_be_renumbered(packet, &outgoing) {
        return Verdict::Drop(DropReason::NatUntranslatable);
    }
    packet.rewrite(&outgoing);
    Verdict::Forward
}

impl NetworkFunction for Nat {
    type State = NatState;
    const TRANSLATES: bool = true;
    const ONLY_TRANSLATES: bool = true;
    const PACKETS_USE_STATE: bool = false;
    const COUNTS_CONNECTIONS: bool = true;

    fn name(&self) -> &'static str {
        NAME
    }

    fn counts_connections(&self) -> bool {
        self.endpoints().next().is_some()
    }

    fn on_enter(&self, state: &NatState, original: &Tuple, reply: &Tuple) {
        self.count_endpoint(state, original, reply, true);
    }

    fn on_leave(&self, state: &NatState, original: &Tuple, reply: &Tuple) {
        self.count_endpoint(state, original, reply, false);
    }

    /// `source_rule_0_connections` and so on, `destination_rule_0_connections` and so on, `ports_exhausted`,
    /// `tuples_in_use` and `ports_displaced`.
    fn counter_names(&self) -> Vec<String> {
        let sources = (0..self.pools.len()).map(|index| format!("source_rule_{index}_connections"));
        let destinations = (0..self.targets.len()).map(|index| format!("destination_rule_{index}_connections"));
        sources.chain(destinations).chain(COUNTER_NAMES.map(|name| name.to_string())).collect()
    }

    fn on_init(&self, context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<NatState, DropReason> {
        if let Some(expected) = context.expected {
            return self.follow(&expected, context);
        }
        let incoming = context.outgoing();
        let mut outgoing = incoming;
        let mut state = NatState::default();
        // Source NAT has verified that its tuple is free: no second lookup is needed.
        let mut is_known_free = false;
        let mut key = RuleKey::new(incoming, &packet.headers.transport, context.ingress);
        if let Some(index) = self.translate_destination(&mut outgoing, &key) {
            context.count(self.pools.len() + index.get());
            state.destination_rule_number = index.0 + 1;
            key.tuple = outgoing;
        }
        let rule = self.source_rules.classify(&key);
        let pool = rule.map(|index| (index, &self.pools[index.get()]));
        if let Some((index, pool @ (Pool::Chosen(_) | Pool::Endpoints(..) | Pool::Computed(_)))) = pool {
            outgoing = match pool {
                Pool::Endpoints(addresses, mappings) => {
                    self.translate_endpoint(&outgoing, (addresses, mappings), context)?
                }
                Pool::Computed(mapping) => self.compute_source(&outgoing, mapping, context)?,
                Pool::Chosen(addresses) => self.translate_source(&outgoing, addresses, context)?,
                Pool::Exempt => outgoing,
            };
            is_known_free = port_setter(outgoing.protocol).is_some();
            context.count(index.get());
            state.source_rule_number = index.0 + 1;
        }
        let reply = outgoing.inverse();
        if !is_known_free && outgoing != incoming && context.tuples.is_used(&reply) {
            self.count(context, Counter::TuplesInUse);
            return Err(DropReason::TupleInUse);
        }
        context.reply = reply;
        Ok(state)
    }

    fn may_continue(&self, state: &NatState, tuples: &TranslatedTuples) -> Result<(), DropReason> {
        if tuples.is_of_datagrams() && !self.still_translates(*state, tuples) {
            return Err(DropReason::TranslationReplaced);
        }
        Ok(())
    }

    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray {
        let key = RuleKey::new(packet.headers.tuple, &packet.headers.transport, packet.frame.ingress);
        let is_translated = |index: RuleIndex| !matches!(self.pools[index.get()], Pool::Exempt);
        let is_served = self.source_rules.classify(&key).is_some_and(is_translated)
            || self.destination_rules.classify(&key).is_some();
        if is_served { Stray::Served } else { Stray::Unknown }
    }

    fn restorable(&self) -> Result<(), Unrestorable> {
        self.check_restorable()
    }

    fn restore(&self, restoring: &mut Restoring) -> Option<NatState> {
        self.recompute(restoring)
    }

    fn incoming_of(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        self.invert(outgoing, incoming);
    }

    #[inline]
    fn on_packet(
        &self,
        _state: &mut NatState,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Verdict {
        translate_packet(context, packet, direction)
    }
}
