//! Type-erased functions, as the chain stores them.

use alloc::string::String;
use alloc::vec::Vec;

use flow::wire::tlv::TlvError;
use flow::wire::{Packet, QuotedTcp, TcpSegment, Transport, TunnelEnd};
use flow::{Direction, DropReason, Tuple};
use zerocopy::FromBytes;

use super::layout::StateLayout;
use crate::class::Class;
use crate::function::{
    CloseReason, Context, FlowState, HandshakeProxy, NetworkFunction, ReevaluationOutcome, Stray, TranslatedTuples,
    Verdict,
};
use crate::restoration::{Restoring, Unrestorable};
use crate::shared_values::SharedValues;

/// The result of a function, or of the chain, for a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Processed {
    /// The first verdict other than [`Verdict::Forward`], or that one.
    pub verdict: Verdict,
    /// Whether a function changed its state or expects a connection: the change must be replicated.
    pub states_changed: bool,
}

/// A [`NetworkFunction`] that receives its state as bytes, with exactly the size and alignment of its [`StateLayout`].
/// Any other bytes are a defect of the caller and panic.
pub(super) trait ErasedFunction: Send + Sync {
    fn name(&self) -> &'static str;
    fn counter_names(&self) -> Vec<String>;
    fn layout(&self) -> StateLayout;
    fn attribute(&self) -> u16;
    fn handles_packets(&self) -> bool;
    fn translates(&self) -> bool;
    fn only_translates(&self) -> bool;
    fn packets_use_state(&self) -> bool;
    fn counts_connections(&self) -> bool;
    fn handshake_proxy(&self) -> Option<&dyn HandshakeProxy>;
    fn shared_values(&self) -> Option<&dyn SharedValues>;
    fn write_default(&self, state: &mut [u8]);
    fn on_init(&self, state: &mut [u8], context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<(), DropReason>;
    fn on_packet(
        &self,
        state: &mut [u8],
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed;
    fn needs_packets(&self, state: &[u8]) -> bool;
    fn renumbers(&self) -> bool;
    fn as_sent(&self, state: &[u8], segment: &mut TcpSegment, direction: Direction);
    fn restore_quoted(&self, state: &[u8], quoted: &mut QuotedTcp<'_>, direction: Direction);
    fn classifies(&self) -> bool;
    fn set_denied(&self, state: &mut [u8], is_denied: bool);
    fn is_refused(&self, state: &[u8]) -> bool;
    fn decides_by_class(&self) -> bool;
    fn reevaluate(&self, state: &mut [u8], outgoing: &Tuple, class: Class) -> ReevaluationOutcome;
    fn may_continue(&self, state: &[u8], tuples: &TranslatedTuples) -> Result<(), DropReason>;
    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray;
    fn uses_tunnels(&self) -> bool;
    fn tunnel(&self, state: &[u8]) -> Result<Option<TunnelEnd>, DropReason>;
    fn on_enter(&self, state: &[u8], original: &Tuple, reply: &Tuple);
    fn on_leave(&self, state: &[u8], original: &Tuple, reply: &Tuple);
    fn restorable(&self) -> Result<(), Unrestorable>;
    fn is_restorable(&self, state: &[u8]) -> bool;
    fn is_restorable_by_class(&self, state: &[u8]) -> bool;
    fn restore(&self, state: &mut [u8], restoring: &mut Restoring) -> Option<()>;
    fn incoming_of(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>);
    fn on_close(&self, state: &[u8], reason: CloseReason);
    fn encode(&self, state: &[u8], out: &mut Vec<u8>);
    fn decode(&self, state: &mut [u8], attributes: &[u8]) -> Result<(), TlvError>;
}

/// Wraps a function as an erased one. A separate type, so that the two traits' methods cannot be confused.
pub(super) struct Erased<F>(pub(super) F);

const STATE_FITS: &str = "the chain hands every function the bytes that it laid out for it";

fn write<S: FlowState>(value: &S, state: &mut [u8]) {
    value.write_to(state).expect(STATE_FITS);
}

fn read<S: FlowState>(state: &[u8]) -> S {
    S::read_from_bytes(state).expect(STATE_FITS)
}

impl<F: NetworkFunction> Erased<F> {
    #[inline]
    fn process(
        &self,
        state: &mut [u8],
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed {
        if !F::PACKETS_USE_STATE {
            let verdict = self.0.on_packet(&mut F::State::default(), context, packet, direction);
            return Processed { verdict, states_changed: false };
        }
        let Ok(state) = F::State::mut_from_bytes(state) else { unreachable!("{STATE_FITS}") };
        // Compared here, where the type is known: for a function that only reads its state the compiler removes the
        // comparison.
        let before = *state;
        let verdict = self.0.on_packet(state, context, packet, direction);
        Processed { verdict, states_changed: self.0.is_replicated_change(&before, state) }
    }
}

/// Sequence number and acknowledgement of a TCP segment.
const fn numbers(transport: &Transport) -> Option<(u32, u32)> {
    match transport {
        Transport::Tcp(segment) => Some((segment.sequence, segment.acknowledgement)),
        _ => None,
    }
}

impl<F: NetworkFunction + Send + Sync> ErasedFunction for Erased<F> {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn counter_names(&self) -> Vec<String> {
        self.0.counter_names()
    }

    fn layout(&self) -> StateLayout {
        StateLayout { size_bytes: size_of::<F::State>(), align_bytes: align_of::<F::State>() }
    }

    fn attribute(&self) -> u16 {
        F::State::ATTRIBUTE
    }

    fn handles_packets(&self) -> bool {
        F::HANDLES_PACKETS
    }

    fn translates(&self) -> bool {
        F::TRANSLATES
    }

    fn only_translates(&self) -> bool {
        F::ONLY_TRANSLATES
    }

    fn packets_use_state(&self) -> bool {
        F::HANDLES_PACKETS && F::PACKETS_USE_STATE
    }

    fn counts_connections(&self) -> bool {
        self.0.counts_connections()
    }

    fn handshake_proxy(&self) -> Option<&dyn HandshakeProxy> {
        self.0.handshake_proxy()
    }

    fn shared_values(&self) -> Option<&dyn SharedValues> {
        self.0.shared_values()
    }

    fn write_default(&self, state: &mut [u8]) {
        write(&F::State::default(), state);
    }

    fn on_init(&self, state: &mut [u8], context: &mut Context<'_>, packet: &Packet<'_, '_>) -> Result<(), DropReason> {
        write(&self.0.on_init(context, packet)?, state);
        Ok(())
    }

    fn on_packet(
        &self,
        state: &mut [u8],
        context: &mut Context<'_>,
        packet: &mut Packet<'_, '_>,
        direction: Direction,
    ) -> Processed {
        let arrived = packet.headers.transport;
        let processed = self.process(state, context, packet, direction);
        debug_assert!(
            processed.verdict != Verdict::Forward
                || self.0.renumbering().is_some()
                || numbers(&arrived) == numbers(&packet.headers.transport),
            "{} renumbers segments and offers no inverse",
            self.0.name()
        );
        processed
    }

    fn needs_packets(&self, state: &[u8]) -> bool {
        self.0.needs_packets(&read(state))
    }

    fn renumbers(&self) -> bool {
        self.0.renumbering().is_some()
    }

    fn as_sent(&self, state: &[u8], segment: &mut TcpSegment, direction: Direction) {
        if let Some(renumbering) = self.0.renumbering() {
            renumbering.as_sent(&read(state), segment, direction);
        }
    }

    fn restore_quoted(&self, state: &[u8], quoted: &mut QuotedTcp<'_>, direction: Direction) {
        if let Some(renumbering) = self.0.renumbering() {
            renumbering.restore(&read(state), quoted, direction);
        }
    }

    fn classifies(&self) -> bool {
        F::CLASSIFIES
    }

    fn set_denied(&self, state: &mut [u8], is_denied: bool) {
        let Ok(state) = F::State::mut_from_bytes(state) else { unreachable!("{STATE_FITS}") };
        self.0.set_denied(state, is_denied);
    }

    fn is_refused(&self, state: &[u8]) -> bool {
        self.0.is_refused(&read(state))
    }

    fn decides_by_class(&self) -> bool {
        self.0.decides_by_class()
    }

    fn reevaluate(&self, state: &mut [u8], outgoing: &Tuple, class: Class) -> ReevaluationOutcome {
        let Ok(state) = F::State::mut_from_bytes(state) else { unreachable!("{STATE_FITS}") };
        self.0.reevaluate(state, outgoing, class)
    }

    fn may_continue(&self, state: &[u8], tuples: &TranslatedTuples) -> Result<(), DropReason> {
        self.0.may_continue(&read(state), tuples)
    }

    fn classify_stray(&self, packet: &Packet<'_, '_>) -> Stray {
        self.0.classify_stray(packet)
    }

    fn uses_tunnels(&self) -> bool {
        F::USES_TUNNELS
    }

    fn tunnel(&self, state: &[u8]) -> Result<Option<TunnelEnd>, DropReason> {
        self.0.tunnel(&read(state))
    }

    fn on_enter(&self, state: &[u8], original: &Tuple, reply: &Tuple) {
        self.0.on_enter(&read(state), original, reply);
    }

    fn on_leave(&self, state: &[u8], original: &Tuple, reply: &Tuple) {
        self.0.on_leave(&read(state), original, reply);
    }

    fn restorable(&self) -> Result<(), Unrestorable> {
        self.0.restorable()
    }

    fn is_restorable(&self, state: &[u8]) -> bool {
        self.0.is_restorable(&read(state))
    }

    fn is_restorable_by_class(&self, state: &[u8]) -> bool {
        self.0.is_restorable_by_class(&read(state))
    }

    fn restore(&self, state: &mut [u8], restoring: &mut Restoring) -> Option<()> {
        write(&self.0.restore(restoring)?, state);
        Some(())
    }

    fn incoming_of(&self, outgoing: &Tuple, incoming: &mut Vec<Tuple>) {
        self.0.incoming_of(outgoing, incoming);
    }

    fn on_close(&self, state: &[u8], reason: CloseReason) {
        self.0.on_close(&read(state), reason);
    }

    fn encode(&self, state: &[u8], out: &mut Vec<u8>) {
        read::<F::State>(state).encode(out);
    }

    fn decode(&self, state: &mut [u8], attributes: &[u8]) -> Result<(), TlvError> {
        write(&F::State::decode(attributes)?, state);
        Ok(())
    }
}
