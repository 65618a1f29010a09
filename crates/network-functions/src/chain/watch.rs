//! Observation of a chain's calls.

use flow::wire::Packet;
use flow::{DropReason, Tuple};

use crate::function::{Context, Verdict};

/// A function's result for a connection or a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOutcome {
    /// A connection began, or was refused.
    Began(Result<(), DropReason>),
    /// A packet was processed.
    Handled(Verdict),
}

/// One call of a function.
pub struct Call<'c, 'x> {
    /// The function's index in the chain, from 0.
    pub function: usize,
    /// The result of the call.
    pub outcome: CallOutcome,
    pub(super) context: &'c Context<'x>,
}

impl Call<'_, '_> {
    /// The tuple of the connection's packets in the original direction behind this function, as far as decided.
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

/// An observer of the calls to a chain's functions. Functions that do not process a packet are not called.
pub trait Watch {
    /// A function is about to be called; these are its counters.
    fn before_call(&mut self, counters: &[u64]);

    /// It was called. `packet` is as it left the function.
    fn after_call(&mut self, call: &Call<'_, '_>, packet: &Packet<'_, '_>);
}

/// The absence of an observer. It costs nothing.
pub struct Unwatched;

impl Watch for Unwatched {
    #[inline(always)]
    fn before_call(&mut self, _counters: &[u64]) {}

    #[inline(always)]
    fn after_call(&mut self, _call: &Call<'_, '_>, _packet: &Packet<'_, '_>) {}
}
