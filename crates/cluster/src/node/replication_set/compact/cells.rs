//! How the connection in each slot was replicated.

use alloc::vec;
use alloc::vec::Vec;

use flow::table::Slot;
use replication::compact::CellState;

/// The connection is in the filter, with the state that the cell has.
const IN_FILTER: u8 = 1;
/// The connection is replicated precisely, or is a replica that was.
const PRECISE: u8 = 2;

/// How the connection in a slot was replicated.
#[derive(Clone, Copy, Default, Debug)]
struct Cell {
    /// Stands for its tuple: the slot may hold another connection by now.
    name: u32,
    state: CellState,
    flags: u8,
}

const _: () = assert!(size_of::<Cell>() == 8, "a million connections take eight megabytes");

/// How the connection in each slot was replicated. A filter gives back only what it was given. So what was sent is remembered
/// here and not taken from the connection, which may have changed or gone since.
#[derive(Debug)]
pub(in crate::node) struct Cells(Vec<Cell>);

impl Cells {
    pub(in crate::node) fn new(connections_max: u32) -> Self {
        Self(vec![Cell::default(); connections_max as usize])
    }

    fn get(&self, slot: Slot, name: u32) -> Option<&Cell> {
        self.0.get(slot.0 as usize).filter(|cell| cell.name == name && cell.flags != 0)
    }

    /// Whether the connection in the slot is replicated precisely.
    pub(in crate::node) fn is_precise(&self, slot: Slot) -> bool {
        self.0.get(slot.0 as usize).is_some_and(|cell| cell.flags & PRECISE != 0)
    }

    /// Whether the connection of that name is replicated precisely.
    pub(in crate::node) fn is_precise_as(&self, slot: Slot, name: u32) -> bool {
        self.get(slot, name).is_some_and(|cell| cell.flags & PRECISE != 0)
    }

    /// The state with which the connection is in the filter, if it is.
    pub(in crate::node) fn filtered(&self, slot: Slot, name: u32) -> Option<CellState> {
        self.get(slot, name).filter(|cell| cell.flags & IN_FILTER != 0).map(|cell| cell.state)
    }

    /// The connection is in the filter, in this state.
    pub(in crate::node) fn set_filtered(&mut self, slot: Slot, name: u32, state: CellState) {
        let kept = self.get(slot, name).map_or(0, |cell| cell.flags);
        if let Some(cell) = self.0.get_mut(slot.0 as usize) {
            *cell = Cell { name, state, flags: kept | IN_FILTER };
        }
    }

    /// The connection is replicated precisely.
    pub(in crate::node) fn set_precise(&mut self, slot: Slot, name: u32) {
        let known = self.get(slot, name).copied().unwrap_or_default();
        if let Some(cell) = self.0.get_mut(slot.0 as usize) {
            *cell = Cell { name, flags: known.flags | PRECISE, ..known };
        }
    }

    /// The connection is in the filter no more. The state that it was in it with.
    pub(in crate::node) fn take_filtered(&mut self, slot: Slot, name: u32) -> Option<CellState> {
        let state = self.filtered(slot, name)?;
        self.0[slot.0 as usize].flags &= !IN_FILTER;
        Some(state)
    }

    /// Nothing is replicated of the connection any more. Returns whether it was replicated precisely, and the state that it was
    /// in the filter with.
    pub(in crate::node) fn forget(&mut self, slot: Slot, name: u32) -> (bool, Option<CellState>) {
        let Some(known) = self.get(slot, name).copied() else { return (false, None) };
        self.0[slot.0 as usize] = Cell::default();
        (known.flags & PRECISE != 0, (known.flags & IN_FILTER != 0).then_some(known.state))
    }

    /// The slot holds nothing.
    pub(in crate::node) fn clear_copy(&mut self, slot: Slot) {
        if let Some(cell) = self.0.get_mut(slot.0 as usize).filter(|cell| cell.flags == PRECISE) {
            *cell = Cell::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_one_connection_is_not_taken_for_anothers() {
        let mut cells = Cells::new(4);
        let (slot, state) = (Slot(2), CellState::from_number(3));
        cells.set_filtered(slot, 7, state);
        assert_eq!((cells.filtered(slot, 7), cells.filtered(slot, 8)), (Some(state), None));
        assert_eq!(cells.forget(slot, 8), (false, None), "of that nothing was sent");
        cells.set_precise(slot, 7);
        assert!(
            cells.is_precise(slot) && cells.filtered(slot, 7).is_some(),
            "both, until the peer has the precise word"
        );
        assert_eq!(cells.take_filtered(slot, 7), Some(state));
        assert_eq!(cells.forget(slot, 7), (true, None));
        assert!(!cells.is_precise(slot));
    }

    #[test]
    fn a_slot_that_another_connection_takes_is_replicated_anew() {
        let mut cells = Cells::new(4);
        cells.set_precise(Slot(1), 7);
        cells.set_filtered(Slot(1), 8, CellState::from_number(1));
        assert!(!cells.is_precise(Slot(1)), "that was the former one");
        cells.clear_copy(Slot(1));
        assert!(cells.filtered(Slot(1), 8).is_some(), "it is no copy");
        cells.set_filtered(Slot(9), 8, CellState::from_number(1));
        assert_eq!(cells.filtered(Slot(9), 8), None, "there is no such slot");
    }
}
