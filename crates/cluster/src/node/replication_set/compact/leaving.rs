//! What the filter of a node that leaves does not hold: connections whose handshake is in progress, where it has entries of established
//! connections only.
//!
//! Their clients may have received the answer already, and would wait for a connection that nobody knows. So they are replicated as
//! records: those that there are when the node begins to leave, a part of the table at a time, and those that are answered until it has
//! left. One that nobody has answered begins anew at the other node, when its client repeats the request.

use flow::table::{Slot, Table};

/// Slots that one step looks at.
const SLOTS_PER_STEP: u32 = 4096;

/// Whether the node leaves, and how far its table has been looked through.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Leaving {
    /// The node stays.
    #[default]
    No,
    /// The connections from this slot on are to be looked at.
    Looking(Slot),
    /// All were looked at.
    Looked,
}

impl Leaving {
    /// The node is about to leave.
    pub(super) const fn begin() -> Self {
        Self::Looking(Slot(0))
    }

    pub(super) const fn is_in_progress(self) -> bool {
        !matches!(self, Self::No)
    }

    /// Whether connections are still to be looked at.
    pub(super) const fn is_looking(self) -> bool {
        matches!(self, Self::Looking(_))
    }

    /// The next connections to look at.
    pub(super) fn step<'a>(&mut self, table: &'a Table) -> impl Iterator<Item = Slot> + use<'a> {
        let (mut cursor, mut end) = (Slot(0), Slot(0));
        if let Self::Looking(from) = *self {
            (cursor, end) = (from, Slot(from.0.saturating_add(SLOTS_PER_STEP)));
            *self = if end.0 < table.capacity() { Self::Looking(end) } else { Self::Looked };
        }
        core::iter::from_fn(move || {
            let slot = table.next_occupied(cursor).filter(|slot| *slot < end)?;
            cursor = Slot(slot.0 + 1);
            Some(slot)
        })
    }
}
