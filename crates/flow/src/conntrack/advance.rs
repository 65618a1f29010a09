//! What tracking says of a packet of a known connection.

use core::time::Duration;

use crate::DropReason;
use crate::connection::Direction;
use crate::connection::flags::REPLIED;

/// How much a packet changed of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Nothing that another node needs.
    None,
    /// Something within the state (a window scale, a FIN).
    Detail,
    /// The automaton's state, or one of the record's flags REPLIED and ASSURED.
    State,
}

/// What becomes of a connection after a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It goes on.
    Keep,
    /// It has ended: remove it now.
    Close,
    /// It has ended and the packet begins a new one with the same tuple: remove it and begin again.
    Reopen,
}

/// What tracking says of a packet of a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance {
    /// Whether the packet may pass.
    pub verdict: Result<(), DropReason>,
    /// How much changed.
    pub change: Change,
    /// What becomes of the connection.
    pub next: Next,
    /// How long the connection lives if nothing more comes, which may be less than it had left; `None` leaves its
    /// expiry as it is.
    pub timeout: Option<Duration>,
}

impl Advance {
    pub(super) const fn pass(change: Change, timeout: Option<Duration>) -> Self {
        Self { verdict: Ok(()), change, next: Next::Keep, timeout }
    }

    pub(super) const fn refuse(reason: DropReason) -> Self {
        Self { verdict: Err(reason), change: Change::None, next: Next::Keep, timeout: None }
    }
}

/// Marks the connection as answered if the packet is the first of the reply direction.
pub(super) fn note_reply(flags: &mut u8, direction: Direction) -> Change {
    if direction == Direction::Reply && *flags & REPLIED == 0 {
        *flags |= REPLIED;
        return Change::State;
    }
    Change::None
}
