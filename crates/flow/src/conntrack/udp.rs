//! UDP: one direction seen, or both.
//!
//! ```text
//!  first packet ──► UNREPLIED ──reply──► REPLIED ──► still going 2 s after the first reply: a stream,
//!                    30 s                 30 s        120 s from then on, ASSURED
//! ```

use core::time::Duration;

use super::{Advance, Change, ProtocolState, Timeouts, note_reply};
use crate::{Direction, Instant, connection};

/// The age, counted from the first reply, at which a flow becomes a stream: it gets a longer timeout and is not evicted
/// under memory pressure. (Linux counts from the first packet, one round trip earlier.)
pub const UDP_STREAM_AFTER: Duration = Duration::from_secs(2);

/// The states of a UDP flow, by their numbers in [`ProtocolState::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum UdpState {
    /// Packets have been seen in one direction.
    Unreplied = 0,
    /// Packets have been seen in both directions.
    Replied = 1,
}

impl UdpState {
    /// The state with this number.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::Unreplied),
            1 => Some(Self::Replied),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unreplied => "UNREPLIED",
            Self::Replied => "REPLIED",
        }
    }
}

pub(super) fn begin(timeouts: &Timeouts) -> (ProtocolState, Duration) {
    (ProtocolState { state: UdpState::Unreplied as u8, ..ProtocolState::default() }, timeouts.udp)
}

/// No reply will be seen: the flow counts as answered from its first packet on.
pub(super) const fn see_one_side(now: Instant, state: &mut ProtocolState) {
    (state.state, state.last_sequence) = (UdpState::Replied as u8, milliseconds(now));
}

pub(super) fn advance(
    timeouts: &Timeouts,
    now: Instant,
    state: &mut ProtocolState,
    flags: &mut u8,
    direction: Direction,
) -> Advance {
    let mut change = note_reply(flags, direction);
    if direction == Direction::Reply && state.state != UdpState::Replied as u8 {
        state.state = UdpState::Replied as u8;
        state.last_sequence = milliseconds(now);
        change = Change::State;
    }
    if state.state != UdpState::Replied as u8 {
        return Advance::pass(change, Some(timeouts.udp));
    }
    let assured = connection::flags::ASSURED;
    // A replica that was taken over lacks the time of its first reply: a flow that continues after a failover counts as
    // a stream.
    let replied_for = milliseconds(now).wrapping_sub(state.last_sequence);
    if *flags & assured == 0 && u128::from(replied_for) >= UDP_STREAM_AFTER.as_millis() {
        *flags |= assured;
        change = Change::State;
    }
    let is_stream = *flags & assured != 0;
    Advance::pass(change, Some(if is_stream { timeouts.udp_stream } else { timeouts.udp }))
}

/// `now` in milliseconds, modulo 2^32: enough to see two seconds pass.
const fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}
