//! Protocols without an automaton: a flow between two addresses that ends by timeout.

use core::time::Duration;

use super::{Advance, ProtocolState, Timeouts, note_reply};
use crate::Direction;

pub(super) fn begin(timeouts: &Timeouts) -> (ProtocolState, Duration) {
    (ProtocolState::default(), timeouts.generic)
}

pub(super) fn advance(timeout: Duration, flags: &mut u8, direction: Direction) -> Advance {
    Advance::pass(note_reply(flags, direction), Some(timeout))
}
