//! The guarantees of a chain to functions and to its caller.

use alloc::string::ToString;
use alloc::sync::Arc;
use alloc::vec;
use core::sync::atomic::{AtomicU32, Ordering};

use flow::conntrack::ProtocolState;
use proptest::prelude::*;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::*;
use crate::firewall::{Firewall, FirewallConfig};
use crate::function::FlowState;
use crate::log::LogEntry;
use crate::testing::{Gateway, INSIDE, OUTSIDE, tcp};

/// Counts a connection's packets, from 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(transparent)]
struct Count<const ATTRIBUTE: u16>(u32);

const COUNT_ATTRIBUTE: u16 = 5;

impl<const ATTRIBUTE: u16> Default for Count<ATTRIBUTE> {
    fn default() -> Self {
        Self(100)
    }
}

impl<const ATTRIBUTE: u16> FlowState for Count<ATTRIBUTE> {
    const ATTRIBUTE: u16 = ATTRIBUTE;

    fn encode(&self, out: &mut Vec<u8>) {
        if *self != Self::default() {
            tlv::put(out, COUNT_ATTRIBUTE, &self.0.to_be_bytes());
        }
    }

    fn decode(attributes: &[u8]) -> Result<Self, TlvError> {
        let mut state = Self::default();
        for attribute in tlv::read(attributes) {
            let (kind, value) = attribute?;
            if kind == COUNT_ATTRIBUTE {
                state.0 = value.try_into().map(u32::from_be_bytes).map_err(|_| TlvError::ValueSize(kind))?;
            }
        }
        Ok(state)
    }
}

/// Counts packets in its state and in counter 1 of 2, logs each packet, and returns `verdict`.
struct Witness<const ATTRIBUTE: u16> {
    name: &'static str,
    begins: Result<(), DropReason>,
    verdict: Verdict,
    closed: Arc<AtomicU32>,
}

fn witness<const ATTRIBUTE: u16>(name: &'static str) -> Witness<ATTRIBUTE> {
    Witness { name, begins: Ok(()), verdict: Verdict::Forward, closed: Arc::default() }
}

impl<const ATTRIBUTE: u16> NetworkFunction for Witness<ATTRIBUTE> {
    type State = Count<ATTRIBUTE>;

    fn name(&self) -> &'static str {
        self.name
    }

    fn counter_names(&self) -> Vec<String> {
        vec!["begun".to_string(), "packets".to_string()]
    }

    fn on_init(&self, context: &mut Context<'_>, _packet: &Packet<'_, '_>) -> Result<Self::State, DropReason> {
        context.count(0);
        context.reply.destination_port += 1;
        self.begins.map(|()| Count::default())
    }

    fn on_packet(
        &self,
        state: &mut Self::State,
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        _direction: Direction,
    ) -> Verdict {
        state.0 += 1;
        context.count(1);
        let tuple = packet.headers.tuple;
        assert!(context.tuples.is_used(&tuple), "every tuple is in use");
        context.log.push_with(|| LogEntry { function: self.name, message: String::new(), tuple });
        self.verdict
    }

    fn on_close(&self, state: &Self::State, reason: CloseReason) {
        assert_eq!(reason, CloseReason::Timeout);
        self.closed.store(state.0, Ordering::Relaxed);
    }
}

fn seen(gateway: &mut Gateway) -> Vec<&'static str> {
    gateway.log.drain().map(|entry| entry.function).collect()
}

fn connection() -> Connection {
    let tuple = tcp("10.0.0.1:5000", "198.51.100.1:443");
    Connection::new(tuple, NodeId(0), ProtocolState::default(), Instant::FAR_FUTURE)
}

fn three() -> ChainBuilder {
    ChainBuilder::new().push(witness::<1>("first")).push(witness::<2>("second")).push(witness::<3>("third"))
}

#[test]
fn packets_pass_the_functions_in_order_and_replies_in_reverse_order() {
    let mut gateway = Gateway::of(three().build().unwrap());
    let mut begun = gateway.begin(INSIDE, connection().original).unwrap();
    assert_eq!(seen(&mut gateway), ["first", "second", "third"]);
    assert_eq!(begun.connection.reply.destination_port, 5003, "each function sees the choice of those before it");
    let (processed, _) = gateway.pass(&mut begun.connection, OUTSIDE, Direction::Reply);
    assert_eq!(processed, Processed { verdict: Verdict::Forward, states_changed: true });
    assert_eq!(seen(&mut gateway), ["third", "second", "first"]);
    assert_eq!(gateway.counters.values(), [1, 2, 1, 2, 1, 2]);
}

#[test]
fn every_function_counts_in_its_own_counters() {
    let stops = Witness { verdict: Verdict::Queued, ..witness::<2>("second") };
    let chain = ChainBuilder::new().push(witness::<1>("first")).push(stops).push(witness::<3>("third"));
    let mut gateway = Gateway::of(chain.build().unwrap());
    let mut connection = connection();
    for (direction, ingress, passed) in
        [(Direction::Original, INSIDE, ["first", "second"]), (Direction::Reply, OUTSIDE, ["third", "second"])]
    {
        let (processed, _) = gateway.pass(&mut connection, ingress, direction);
        assert_eq!(processed.verdict, Verdict::Queued, "functions behind the one that did not forward see nothing");
        assert_eq!(seen(&mut gateway), passed);
    }
    assert_eq!(gateway.counter("first.packets"), 1);
    assert_eq!(gateway.counter("second.packets"), 2);
    assert_eq!(gateway.counter("third.packets"), 1);
    let counted: Vec<_> = gateway.counters.functions().iter().map(|of| (of.packets, of.packets_stopped)).collect();
    assert_eq!(counted, [(1, 0), (2, 2), (1, 0)]);
}

#[test]
fn a_connection_refused_by_any_function_is_unchanged() {
    let refuses = Witness { begins: Err(DropReason::FirewallDenied), ..witness::<2>("second") };
    let chain = ChainBuilder::new().push(witness::<1>("first")).push(refuses).push(witness::<3>("third"));
    let mut gateway = Gateway::of(chain.build().unwrap());
    // `Gateway::begin` checks that nothing of the connection has changed.
    let refused = gateway.begin(INSIDE, connection().original).map(|begun| begun.outgoing);
    assert_eq!(refused, Err(DropReason::FirewallDenied));
    assert_eq!(gateway.counter("second.begun"), 1);
    assert_eq!(gateway.counter("third.begun"), 0);
    let counted: Vec<_> =
        gateway.counters.functions().iter().map(|of| (of.connections, of.connections_refused)).collect();
    assert_eq!(counted, [(1, 0), (1, 1), (0, 0)]);
}

#[test]
fn all_functions_are_notified_of_the_end_with_their_state() {
    let (first, second) = (witness::<1>("first"), witness::<2>("second"));
    let closed = [first.closed.clone(), second.closed.clone()];
    let mut gateway = Gateway::of(ChainBuilder::new().push(first).push(second).build().unwrap());
    let begun = gateway.begin(INSIDE, connection().original).unwrap();
    gateway.chain.close(&begun.connection, CloseReason::Timeout);
    assert_eq!(closed.map(|count| count.load(Ordering::Relaxed)), [101, 101]);
}

#[test]
fn an_empty_chain_forwards_everything() {
    let mut gateway = Gateway::of(ChainBuilder::new().build().unwrap());
    let begun = gateway.begin(INSIDE, connection().original).unwrap();
    assert_eq!(begun.outgoing, connection().original);
    let mut encoded = Vec::new();
    gateway.chain.encode_states(&begun.connection, &mut encoded);
    assert!(encoded.is_empty());
}

#[test]
fn an_invalid_chain_is_refused_with_the_functions_name() {
    let error = |builder: ChainBuilder| builder.build().map(|_| ()).unwrap_err();
    assert_eq!(error(three().push(witness::<4>("second"))), ChainError::DuplicateName("second"));
    assert_eq!(
        error(three().push(witness::<2>("fourth"))),
        ChainError::DuplicateAttribute { first: "second", second: "fourth", attribute: 2 }
    );
    assert_eq!(
        error(ChainBuilder::new().push(witness::<1>("small")).push(Large)),
        ChainError::StatesTooLarge { function: "large", end_bytes: 68 }
    );
    let many = (0..=CHAIN_FUNCTIONS_MAX).fold(ChainBuilder::new(), |builder, _| builder.push(witness::<1>("repeated")));
    assert_eq!(error(many), ChainError::TooManyFunctions(CHAIN_FUNCTIONS_MAX + 1));
}

/// A function whose state occupies the whole record.
struct Large;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LargeState([u32; FUNCTION_STATE_BYTES_MAX / 4]);

impl Default for LargeState {
    fn default() -> Self {
        Self([0; FUNCTION_STATE_BYTES_MAX / 4])
    }
}

impl FlowState for LargeState {
    const ATTRIBUTE: u16 = 9;

    fn encode(&self, _out: &mut Vec<u8>) {}

    fn decode(_attributes: &[u8]) -> Result<Self, TlvError> {
        Ok(Self::default())
    }
}

impl NetworkFunction for Large {
    type State = LargeState;

    fn name(&self) -> &'static str {
        "large"
    }

    fn on_init(&self, _context: &mut Context<'_>, _packet: &Packet<'_, '_>) -> Result<LargeState, DropReason> {
        Ok(LargeState::default())
    }

    fn on_packet(
        &self,
        _state: &mut LargeState,
        _context: &mut Context<'_>,
        _packet: &mut Packet<'_, '_>,
        _direction: Direction,
    ) -> Verdict {
        Verdict::Forward
    }
}

/// The states of a connection after `packets` packets.
fn encoded_after(chain: ChainBuilder, packets: usize) -> Vec<u8> {
    let mut gateway = Gateway::of(chain.build().unwrap());
    let mut connection = connection();
    gateway.chain.decode_states(&mut connection, &[]).unwrap();
    for _ in 0..packets {
        let (processed, _) = gateway.pass(&mut connection, INSIDE, Direction::Original);
        assert!(processed.states_changed);
    }
    let mut encoded = Vec::new();
    gateway.chain.encode_states(&connection, &mut encoded);
    encoded
}

#[test]
fn a_default_state_is_not_encoded_and_decodes_to_the_default() {
    assert!(encoded_after(three(), 0).is_empty());
    let chain = three().build().unwrap();
    let mut connection = connection();
    chain.decode_states(&mut connection, &[]).unwrap();
    assert_eq!(connection.functions, chain.default_states);
    assert_eq!(connection.functions[..4], 100u32.to_ne_bytes());
}

#[test]
fn nodes_with_other_chains_decode_known_states_and_skip_others() {
    let encoded = encoded_after(three(), 7);
    // Another order, one function less and one more: offsets differ, attributes do not.
    let other =
        ChainBuilder::new().push(witness::<3>("third")).push(witness::<8>("eighth")).push(witness::<1>("first"));
    let chain = other.build().unwrap();
    let mut connection = connection();
    chain.decode_states(&mut connection, &encoded).unwrap();
    let states: Vec<u32> =
        connection.functions[..12].chunks(4).map(|bytes| u32::from_ne_bytes(bytes.try_into().unwrap())).collect();
    assert_eq!(states, [107, 100, 107]);
}

#[test]
fn malformed_states_change_nothing() {
    let chain = three().build().unwrap();
    let before = connection();
    let mut wrong_size = Vec::new();
    let mut inner = Vec::new();
    tlv::put(&mut inner, COUNT_ATTRIBUTE, &[1, 2]);
    tlv::put(&mut wrong_size, 2, &inner);
    let mut truncated = encoded_after(three(), 1);
    truncated.truncate(truncated.len() - 3);
    for (attributes, error) in [(wrong_size, TlvError::ValueSize(COUNT_ATTRIBUTE)), (truncated, TlvError::Length)] {
        let mut connection = before;
        assert_eq!(chain.decode_states(&mut connection, &attributes), Err(error));
        assert_eq!(connection.functions, before.functions);
    }
}

proptest! {
    #[test]
    fn states_survive_the_wire_between_attributes_of_later_versions(
        packets in 0usize..20,
        unknown_kind in 100u16..,
        unknown_value in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let known = encoded_after(three(), packets);
        let mut encoded = Vec::new();
        tlv::put(&mut encoded, unknown_kind, &unknown_value);
        // A later version of the first function has an additional attribute, unknown to this one.
        for attribute in tlv::read(&known) {
            let (kind, value) = attribute.unwrap();
            let mut longer = value.to_vec();
            tlv::put(&mut longer, unknown_kind, &unknown_value);
            tlv::put(&mut encoded, kind, &longer);
        }
        let chain = three().build().unwrap();
        let mut connection = connection();
        prop_assert_eq!(chain.decode_states(&mut connection, &encoded), Ok(()));
        let mut reencoded = Vec::new();
        chain.encode_states(&connection, &mut reencoded);
        prop_assert_eq!(reencoded, known);
    }

    #[test]
    fn decoding_never_panics(bytes: Vec<u8>) {
        let mut connection = connection();
        let _ = three().build().unwrap().decode_states(&mut connection, &bytes);
    }
}

/// A firewall that refuses every connection. Its attribute is that of the first witness, its name is not.
fn closed() -> Firewall {
    Firewall::new(FirewallConfig::default()).unwrap()
}

#[test]
fn a_replacing_chain_finds_the_states_at_their_positions() {
    let first = three().build().unwrap();
    let mut connection = connection();
    first.decode_states(&mut connection, &encoded_after(three(), 5)).unwrap();
    let states = connection.functions;

    // The first was removed, a firewall was added, and the order is another.
    let renewed = ChainBuilder::new().push(witness::<3>("third")).push(witness::<7>("second"));
    assert_eq!(renewed.build_within(first.layout()).err(), Some(ChainError::CannotJoin("second")), "it is another");
    let renewed = ChainBuilder::new().push(witness::<3>("third")).push(closed()).push(witness::<2>("second"));
    let renewed = renewed.build_within(first.layout()).unwrap();
    assert!(renewed.continues(&first));
    assert!(!first.continues(&renewed), "it has no state of the firewall");
    let mut encoded = Vec::new();
    renewed.encode_states(&connection, &mut encoded);
    let mut decoded = connection;
    decoded.functions = [0xff; FUNCTION_STATE_BYTES_MAX];
    renewed.decode_states(&mut decoded, &encoded).unwrap();
    assert_eq!(decoded.functions[..4], 100u32.to_ne_bytes(), "if the first is added again, it finds its default");
    assert_eq!(decoded.functions[4..12], states[4..12], "the states of the second and the third");

    // The first is added again and finds its state.
    let back = three().build_within(renewed.layout()).unwrap();
    let (mut then, mut now) = (Vec::new(), Vec::new());
    first.encode_states(&connection, &mut then);
    back.encode_states(&connection, &mut now);
    assert_eq!(then, now);
}

#[test]
fn a_chain_of_another_layout_does_not_continue() {
    let first = three().build().unwrap();
    let other = ChainBuilder::new().push(witness::<3>("third")).push(witness::<1>("first")).build().unwrap();
    assert!(!other.continues(&first));
}

#[test]
fn counters_continue_by_name() {
    let first = three().build().unwrap();
    let functions = [1, 2, 3].map(|packets| FunctionCounters { packets, ..FunctionCounters::default() });
    let counters = ChainCounters { values: vec![1, 2, 3, 4, 5, 6], functions: functions.to_vec() };
    let renewed = ChainBuilder::new().push(closed()).push(witness::<2>("second"));
    let renewed = renewed.build_within(first.layout()).unwrap();
    let continued = renewed.continue_counters(&first, &counters);
    assert_eq!(continued.values(), [0, 0, 3, 4]);
    assert_eq!(continued.functions(), [FunctionCounters::default(), functions[1]]);
}

/// Gives segments other numbers, and offers no inverse.
struct Renumberer;

impl NetworkFunction for Renumberer {
    type State = Count<9>;

    fn name(&self) -> &'static str {
        "renumberer"
    }

    fn on_init(&self, _: &mut Context<'_>, _: &Packet<'_, '_>) -> Result<Self::State, DropReason> {
        Ok(Count::default())
    }

    fn on_packet(
        &self,
        _: &mut Self::State,
        _: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        _: Direction,
    ) -> Verdict {
        packet.renumber_tcp(77, 0, |edge| edge);
        Verdict::Forward
    }
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "renumberer renumbers segments and offers no inverse")]
fn a_function_that_renumbers_segments_without_an_inverse_is_found_by_debug_builds() {
    let mut gateway = Gateway::with(Renumberer);
    let tuple = tcp("10.0.0.2:4000", "192.0.2.1:80");
    let mut begun = gateway.begin(INSIDE, tuple).unwrap();
    let _ = gateway.answer(&mut begun);
}
