//! Every protocol that has no automaton of its own: a flow between two addresses that ends by silence.

use core::time::Duration;

use super::{Advance, ProtocolState, Timeouts, note_reply};
use crate::Direction;

pub(super) fn begin(timeouts: &Timeouts) -> (ProtocolState, Duration) {
    (ProtocolState::default(), timeouts.generic)
}

pub(super) fn advance(timeout: Duration, flags: &mut u8, direction: Direction) -> Advance {
    Advance::pass(note_reply(flags, direction), Some(timeout))
}
