//! The events of connections.

use std::time::Duration;

use flow::conntrack::Change;
use flow::table::Slot;
use flow::{Connection, Direction, DropReason, Instant};

use super::{Notes, is_one_way};

/// Something became of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Event<'a> {
    /// What.
    pub kind: EventKind,
    /// When, by the capture's clock.
    pub at: Instant,
    /// Where the connection lies (or lay until now) in the table. Another may take its place once it has ended; [`Notes::id`]
    /// is never used again.
    pub slot: Slot,
    /// Its record, as it is after what happened. Its expiry counts from the trace's first packet.
    pub connection: &'a Connection,
    /// What was noted of it.
    pub notes: Notes,
}

impl Event<'_> {
    /// From the connection's first packet to its last, as far as they have come.
    #[must_use]
    pub const fn lifetime(&self) -> Duration {
        self.notes.lifetime()
    }

    /// Packets were seen in one direction only.
    #[must_use]
    pub const fn is_one_way(&self) -> bool {
        is_one_way(self.connection)
    }
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EventKind {
    /// Its first packet came.
    Began,
    /// A packet changed something that would be replicated.
    Changed {
        /// What it was before.
        before: Before,
        /// How much changed.
        change: Change,
        /// Which way the packet went.
        direction: Direction,
    },
    /// It is no more.
    Ended(End),
}

/// What a connection was before a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// The number of its state.
    pub state: u8,
    /// Its flags.
    pub flags: u8,
}

/// Why a connection is no more.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum End {
    /// Both sides closed it, or one reset it.
    Closed,
    /// It was reset before it was ever answered otherwise.
    Refused,
    /// No packet came for as long as its state lasts.
    Expired,
    /// Its end points began another with the same tuple.
    Reopened,
    /// The table was full, and it gave way to another.
    Displaced,
    /// The trace ended before it did.
    Trace,
}

impl End {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Closed, Self::Refused, Self::Expired, Self::Reopened, Self::Displaced, Self::Trace];

    /// The end as a key of results.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Reopened => "reopened",
            Self::Displaced => "displaced",
            Self::Trace => "trace_ended",
        }
    }
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// It is of a connection.
    Followed {
        /// Where that lies in the table; it may have ended with this packet.
        slot: Slot,
        /// Its number; see [`Notes::id`].
        id: u64,
        /// Which way the packet went.
        direction: Direction,
        /// How much it changed.
        change: Change,
    },
    /// It is of none, or the tracker refuses it.
    Untracked(DropReason),
}
