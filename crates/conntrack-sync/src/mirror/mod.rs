//! The mirror of the kernel's table of connections.
//!
//! ```text
//!  original tuple, zone ──► index (hash, slot) ──► records in chunks of 4096, 96 bytes each
//!                                                      └─► boxed: rare properties
//! ```
//! Memory grows with the connections, a chunk at a time; free slots are reused first. A full table rejects new
//! connections.

mod record;

use alloc::vec::Vec;

use flow::netfilter::{Entry, Tuple};
use flow::{HashKey, NodeId};
use hashbrown::HashTable;
use replication::Handle;

pub(super) use record::{Key, Record, beyond, flag};

/// The number of records allocated at a time.
const CHUNK_RECORDS: usize = 4096;
const CHUNK_SHIFT: u32 = CHUNK_RECORDS.trailing_zeros();

/// An index entry of a connection: its hash, so that growing touches no record, and its slot.
#[derive(Clone, Copy, Debug)]
struct IndexEntry {
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
    chunks: Vec<Vec<Record>>,
    slots: u32,
    slots_max: u32,
    free: Vec<u32>,
    index: HashTable<IndexEntry>,
}

impl Mirror {
    pub(super) const fn new(key: HashKey, slots_max: u32) -> Self {
        Self { key, chunks: Vec::new(), slots: 0, slots_max, free: Vec::new(), index: HashTable::new() }
    }

    /// Connections held.
    pub(super) fn len(&self) -> u32 {
        self.index.len() as u32
    }

    /// All occupied slots are below this one.
    pub(super) const fn slots_used(&self) -> u32 {
        self.slots
    }

    /// The maximum number of connections.
    pub(super) const fn slots_max(&self) -> u32 {
        self.slots_max
    }

    /// The number of further connections that fit.
    pub(super) fn room(&self) -> u32 {
        self.slots_max - self.len()
    }

    #[inline]
    pub(super) fn find(&self, original: &Tuple, zone: u16) -> Option<Handle> {
        let key = Key::new(original, zone);
        let hash = key.hash(&self.key);
        let is_it = |place: &IndexEntry| place.hash == hash && self.at(place.slot).is(&key);
        self.index.find(spread(hash), is_it).map(|place| Handle(place.slot))
    }

    /// The hash of a tuple in a zone.
    pub(super) fn hash(&self, original: &Tuple, zone: u16) -> u32 {
        Key::new(original, zone).hash(&self.key)
    }

    #[inline]
    fn at(&self, slot: u32) -> &Record {
        &self.chunks[(slot >> CHUNK_SHIFT) as usize][slot as usize & (CHUNK_RECORDS - 1)]
    }

    /// The connection in the slot, if there is one.
    #[inline]
    pub(super) fn get(&self, handle: Handle) -> Option<&Record> {
        let chunk = self.chunks.get((handle.0 >> CHUNK_SHIFT) as usize)?;
        chunk.get(handle.0 as usize & (CHUNK_RECORDS - 1)).filter(|record| record.is_any(flag::OCCUPIED))
    }

    /// As [`Mirror::get`].
    #[inline]
    pub(super) fn get_mut(&mut self, handle: Handle) -> Option<&mut Record> {
        let chunk = self.chunks.get_mut((handle.0 >> CHUNK_SHIFT) as usize)?;
        chunk.get_mut(handle.0 as usize & (CHUNK_RECORDS - 1)).filter(|record| record.is_any(flag::OCCUPIED))
    }

    /// Inserts a new connection.
    pub(super) fn insert(&mut self, entry: &Entry, owner: NodeId) -> Result<(Handle, &mut Record), Full> {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots < self.slots_max => self.grow(),
            None => return Err(Full),
        };
        let hash = Key::new(&entry.original, entry.zone).hash(&self.key);
        self.index.insert_unique(spread(hash), IndexEntry { hash, slot }, |place| spread(place.hash));
        let chunk = &mut self.chunks[(slot >> CHUNK_SHIFT) as usize];
        let record = &mut chunk[slot as usize & (CHUNK_RECORDS - 1)];
        record.begin(entry, owner);
        Ok((Handle(slot), record))
    }

    fn grow(&mut self) -> u32 {
        let slot = self.slots;
        if slot as usize & (CHUNK_RECORDS - 1) == 0 {
            let records = CHUNK_RECORDS.min((self.slots_max - slot) as usize);
            self.chunks.push(Vec::with_capacity(records));
        }
        self.chunks[(slot >> CHUNK_SHIFT) as usize].push(Record::vacant(0));
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

/// Mixes the hash: the index uses its bits at both ends.
const fn spread(hash: u32) -> u64 {
    (hash as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests;
