//! The sending side of a full synchronisation, while traffic goes on.

use flow::serial::{is_before, later};

use crate::session::Handle;

/// Where a resynchronisation stands.
///
/// ```text
///             begin              cursor at the end           all sent is received,
///            (round + 1)                                     nothing pending
///   Needed ─────────────► Sending ─────────────► Settling ─────────────► Ending
///     ▲ ▲                                         │    ▲                  │  │
///     │ └────────── something was left out ───────┘    └─ the end is lost ┘  │ the end is received
///     │                                                                      ▼
///     └───────────────── asked for again, or something was left out ─────── Done
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stage {
    /// To begin.
    Needed,
    /// The connections from this handle on are still to be sent.
    Sending(Handle),
    /// All were sent; messages before `barrier` must be received before the end may be sent.
    Settling {
        /// The number behind the last message that matters.
        barrier: u32,
    },
    /// The end was sent.
    Ending,
    /// The peer has the end.
    Done,
}

/// The sending side of a resynchronisation.
#[cfg_attr(test, derive(Clone))]
pub(super) struct FullSync {
    pub(super) stage: Stage,
    /// Counts resynchronisations, from 1.
    pub(super) round: u16,
    /// Something was left out that only a new round can send.
    left_out: bool,
}

impl FullSync {
    pub(super) const fn new() -> Self {
        Self { stage: Stage::Needed, round: 0, left_out: false }
    }

    /// The round as the header has it: 1 to 255, and 0 before the first.
    pub(super) const fn wire_round(&self) -> u8 {
        if self.round == 0 { 0 } else { ((self.round - 1) % 255) as u8 + 1 }
    }

    /// Begins the round that is needed, if one is. True if it did.
    pub(super) fn begin_if_needed(&mut self) -> bool {
        let needed = self.stage == Stage::Needed;
        if needed {
            // 0 is no round: entries of connections that were never sent bear it.
            self.round = self.round.checked_add(1).unwrap_or(1);
            self.stage = Stage::Sending(Handle(0));
            self.left_out = false;
        }
        needed
    }

    /// The full synchronisation must begin anew.
    pub(super) const fn restart(&mut self) {
        self.stage = Stage::Needed;
    }

    /// Something could not be queued. A round in progress goes on, so that a peer that is too slow for all changes still makes
    /// progress, but it does not end: another follows.
    pub(super) fn leave_out(&mut self) {
        match self.stage {
            Stage::Ending | Stage::Done => self.stage = Stage::Needed,
            Stage::Needed | Stage::Sending(_) | Stage::Settling { .. } => self.left_out = true,
        }
    }

    /// The peer asks for a full synchronisation. A round in progress is answer enough for now; the peer asks on.
    pub(super) fn requested(&mut self) {
        if self.stage == Stage::Done {
            self.stage = Stage::Needed;
        }
    }

    /// Whether a loss of `number` is this round's concern.
    pub(super) const fn concerns(&self, number: u32) -> bool {
        match self.stage {
            Stage::Sending(_) => true,
            Stage::Settling { barrier } => is_before(number, barrier),
            Stage::Needed | Stage::Ending | Stage::Done => false,
        }
    }

    /// `number` must be received before the end may be said.
    pub(super) const fn extend_barrier(&mut self, number: u32) {
        if let Stage::Settling { barrier } = self.stage {
            self.stage = Stage::Settling { barrier: later(barrier, number.wrapping_add(1)) };
        }
    }

    /// Whether the end may be sent, given the oldest unacknowledged number and the pending connections. A round that left
    /// something out ends here instead, for a new one.
    pub(super) fn may_end(&mut self, base: u32, round_pending: u32) -> bool {
        let Stage::Settling { barrier } = self.stage else { return false };
        if round_pending > 0 || is_before(base, barrier) {
            return false;
        }
        if self.left_out {
            self.stage = Stage::Needed;
        }
        !self.left_out
    }
}

#[cfg(test)]
impl FullSync {
    /// Appends what its future depends on: numbers as seen from `next`.
    pub(super) fn normal_form(&self, next: u32, out: &mut alloc::vec::Vec<u64>) {
        let Self { stage, round, left_out } = self;
        let (name, detail) = match stage {
            Stage::Needed => (0, 0),
            Stage::Sending(cursor) => (1, cursor.0),
            Stage::Settling { barrier } => (2, next.wrapping_sub(*barrier)),
            Stage::Ending => (3, 0),
            Stage::Done => (4, 0),
        };
        out.push(name | u64::from(*round == 0) << 8 | u64::from(*left_out) << 9 | u64::from(detail) << 16);
    }
}
