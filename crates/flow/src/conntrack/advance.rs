//! The tracker's result for a packet of a known connection.

use core::time::Duration;

use crate::DropReason;
use crate::connection::Direction;
use crate::connection::flags::REPLIED;

/// The extent of a packet's change to a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Change {
    /// Nothing that is replicated.
    None,
    /// Something within the state (a window scale, a FIN).
    Detail,
    /// The automaton's state, or one of the record's flags REPLIED and ASSURED.
    State,
}

/// The treatment of a connection after a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// It continues.
    Keep,
    /// It has ended: remove it now.
    Close,
    /// It has ended and the packet begins a new one with the same tuple: remove it and begin the new one.
    Reopen,
}

/// The tracker's result for a packet of a known connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Advance {
    /// Whether the packet may pass.
    pub verdict: Result<(), DropReason>,
    /// The extent of the change.
    pub change: Change,
    /// The treatment of the connection.
    pub next: Next,
    /// The connection's lifetime without further packets, which may be shorter than the time left. `None` keeps the
    /// expiry.
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
