//! Looking on while a chain works.

use flow::wire::Packet;
use flow::{DropReason, Tuple};

use crate::function::{Context, Verdict};

/// What a function made of a connection or a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome {
    /// A connection began, or was refused.
    Began(Result<(), DropReason>),
    /// A packet passed through.
    Handled(Verdict),
}

/// One call of a function.
pub struct Call<'c, 'x> {
    /// The function's place in the chain, from 0.
    pub function: usize,
    /// What it said.
    pub outcome: CallOutcome,
    pub(super) context: &'c Context<'x>,
}

impl Call<'_, '_> {
    /// The tuple of the connection's packets in the original direction behind this function, as far as it is decided.
    #[must_use]
    pub const fn outgoing(&self) -> Tuple {
        self.context.outgoing()
    }

    /// The function's counters after the call.
    #[must_use]
    pub const fn counters(&self) -> &[u64] {
        self.context.counters
    }
}

/// Somebody who looks on while the functions of a chain are called. Those that have no part in a packet are not called.
pub trait Watch {
    /// A function is about to be called; these are its counters.
    fn before_call(&mut self, counters: &[u64]);

    /// It was called. `packet` is as it left the function.
    fn after_call(&mut self, call: &Call<'_, '_>, packet: &Packet<'_, '_>);
}

/// Nobody looks on. Costs nothing.
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn before_call(&mut self, _counters: &[u64]) {}

    #[inline(always)]
    fn after_call(&mut self, _call: &Call<'_, '_>, _packet: &Packet<'_, '_>) {}
}
