//! The storage of fragmented packets, found by name and ordered by age.

use alloc::vec::Vec;

use hashbrown::HashTable;

use super::Datagram;
use crate::{HashKey, Tuple};

const NONE: u32 = u32::MAX;

struct Slot {
    /// `None`: the slot is free, and `younger` is the next free one.
    datagram: Option<Datagram>,
    older: u32,
    younger: u32,
}

/// Slots that never move, a list of those in use from the oldest to the youngest, and an index of names.
pub(super) struct Slots {
    key: HashKey,
    slots: Vec<Slot>,
    index: HashTable<u32>,
    first_free: u32,
    oldest: u32,
    youngest: u32,
}

impl Slots {
    /// Room for `datagrams_max`; memory is touched as they come.
    pub(super) fn new(datagrams_max: usize, key: HashKey) -> Self {
        Self {
            key,
            slots: Vec::with_capacity(datagrams_max),
            index: HashTable::with_capacity(datagrams_max),
            first_free: NONE,
            oldest: NONE,
            youngest: NONE,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.index.len()
    }

    pub(super) fn find(&self, name: &Tuple) -> Option<u32> {
        let is_it = |slot: &u32| self.get(*slot).is_some_and(|datagram| datagram.name == *name);
        self.index.find(self.key.hash(name), is_it).copied()
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Datagram> {
        self.slots.get(slot as usize)?.datagram.as_ref()
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Datagram> {
        self.slots.get_mut(slot as usize)?.datagram.as_mut()
    }

    /// The oldest datagram.
    pub(super) const fn oldest(&self) -> Option<u32> {
        if self.oldest == NONE { None } else { Some(self.oldest) }
    }

    /// Inserts a new datagram; the caller has checked that there is room.
    pub(super) fn insert(&mut self, datagram: Datagram) -> u32 {
        let name = datagram.name;
        let slot = Slot { datagram: Some(datagram), older: self.youngest, younger: NONE };
        let number = if self.first_free == NONE {
            self.slots.push(slot);
            self.slots.len() as u32 - 1
        } else {
            let number = self.first_free;
            self.first_free = self.slots[number as usize].younger;
            self.slots[number as usize] = slot;
            number
        };
        match self.youngest {
            NONE => self.oldest = number,
            youngest => self.slots[youngest as usize].younger = number,
        }
        self.youngest = number;
        let Self { key, slots, index, .. } = self;
        let name_of = |slot: &u32| slots[*slot as usize].datagram.as_ref().map_or(0, |known| key.hash(&known.name));
        index.insert_unique(key.hash(&name), number, name_of);
        number
    }

    /// Removes a datagram.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Datagram> {
        let place = self.slots.get_mut(slot as usize)?;
        let datagram = place.datagram.take()?;
        let (older, younger) = (place.older, place.younger);
        place.younger = self.first_free;
        self.first_free = slot;
        match older {
            NONE => self.oldest = younger,
            older => self.slots[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.slots[younger as usize].older = older,
        }
        if let Ok(entry) = self.index.find_entry(self.key.hash(&datagram.name), |number| *number == slot) {
            entry.remove();
        }
        Some(datagram)
    }
}
