//! The table of the kernel's connections, as this node knows them.
//!
//! ```text
//!  original tuple, zone ──► index (hash, slot) ──► records in pieces of 4096, 96 bytes each
//!                                                      └─► boxed: what few connections have
//! ```
//! Memory grows with the connections, a piece at a time; a slot that becomes free is used again first. When the table is
//! full, what is new is not taken.

mod record;

use alloc::vec::Vec;

use flow::netfilter::{Entry, Tuple};
use flow::{HashKey, NodeId};
use hashbrown::HashTable;
use replication::Handle;

pub(super) use record::{Key, Record, beyond, flag};

/// Records that memory is taken for at a time.
const PIECE_RECORDS: usize = 4096;
const PIECE_SHIFT: u32 = PIECE_RECORDS.trailing_zeros();

/// Where a connection is: its hash, so that growing touches no record, and its slot.
#[derive(Clone, Copy, Debug)]
struct Place {
    hash: u32,
    slot: u32,
}

/// The table is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Full;

/// The table.
#[derive(Debug)]
pub(super) struct Mirror {
    key: HashKey,
    pieces: Vec<Vec<Record>>,
    slots: u32,
    slots_max: u32,
    free: Vec<u32>,
    index: HashTable<Place>,
}

impl Mirror {
    pub(super) const fn new(key: HashKey, slots_max: u32) -> Self {
        Self { key, pieces: Vec::new(), slots: 0, slots_max, free: Vec::new(), index: HashTable::new() }
    }

    /// Connections held.
    pub(super) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    /// Every slot that holds something is below this.
    pub(super) const fn slots_used(&self) -> u32 {
        self.slots
    }

    /// Connections held at most.
    pub(super) const fn slots_max(&self) -> u32 {
        self.slots_max
    }

    /// How many more there is room for.
    pub(super) fn room(&self) -> u32 {
        self.slots_max - self.len()
    }

    #[inline]
    pub(super) fn find(&self, original: &Tuple, zone: u16) -> Option<Handle> {
        let key = Key::new(original, zone);
        let hash = key.hash(&self.key);
        let is_it = |place: &Place| place.hash == hash && self.at(place.slot).is(&key);
        self.index.find(spread(hash), is_it).map(|place| Handle(place.slot))
    }

    /// The hash of a tuple in a zone.
    pub(super) fn hash(&self, original: &Tuple, zone: u16) -> u32 {
        Key::new(original, zone).hash(&self.key)
    }

    #[inline]
    fn at(&self, slot: u32) -> &Record {
        &self.pieces[(slot >> PIECE_SHIFT) as usize][slot as usize & (PIECE_RECORDS - 1)]
    }

    /// The connection in the slot, if there is one.
    #[inline]
    pub(super) fn get(&self, handle: Handle) -> Option<&Record> {
        let piece = self.pieces.get((handle.0 >> PIECE_SHIFT) as usize)?;
        piece.get(handle.0 as usize & (PIECE_RECORDS - 1)).filter(|record| record.is_any(flag::OCCUPIED))
    }

    /// As [`Mirror::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Record> {
        let piece = self.pieces.get_mut((handle.0 >> PIECE_SHIFT) as usize)?;
        piece.get_mut(handle.0 as usize & (PIECE_RECORDS - 1)).filter(|record| record.is_any(flag::OCCUPIED))
    }

    /// Takes a connection in that is not there yet.
    pub(super) fn insert(&mut self, entry: &Entry, owner: NodeId) -> Result<(Handle, &mut Record), Full> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots < self.slots_max => self.grow(),
            None => return Err(Full),
        };
        let hash = Key::new(&entry.original, entry.zone).hash(&self.key);
        self.index.insert_unique(spread(hash), Place { hash, slot }, |place| spread(place.hash));
        let piece = &mut self.pieces[(slot >> PIECE_SHIFT) as usize];
        let record = &mut piece[slot as usize & (PIECE_RECORDS - 1)];
        record.begin(entry, owner);
        Ok((Handle(slot), record))
    }

    fn grow(&mut self) -> u32 {
        let slot = self.slots;
        if slot as usize & (PIECE_RECORDS - 1) == 0 {
            let records = PIECE_RECORDS.min((self.slots_max - slot) as usize);
            self.pieces.push(Vec::with_capacity(records));
        }
        self.pieces[(slot >> PIECE_SHIFT) as usize].push(Record::vacant(0));
        self.slots += 1;
        slot
    }

    /// The slot is free.
    pub(super) fn remove(&mut self, handle: Handle) {
        let Some(record) = self.get(handle) else { return };
        let hash = record.key().hash(&self.key);
        if let Ok(place) = self.index.find_entry(spread(hash), |place| place.slot == handle.0) {
            place.remove();
        }
        if let Some(record) = self.get_mut(handle) {
            *record = Record::vacant(record.generation.wrapping_add(1));
            self.free.push(handle.0);
        }
    }

    /// The first connection at or after the slot.
    pub(super) fn next_occupied(&self, from: Handle) -> Option<Handle> {
        self.next_occupied_below(from, self.slots)
    }

    /// The first connection at or after the slot, and below `end`.
    pub(super) fn next_occupied_below(&self, from: Handle, end: u32) -> Option<Handle> {
        (from.0..end.min(self.slots)).find(|slot| self.at(*slot).is_any(flag::OCCUPIED)).map(Handle)
    }
}

/// The index wants its bits at both ends.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
