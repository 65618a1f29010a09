//! The memory of the connections: an array of records, and separately the data that packets do not need.

use alloc::vec;
use alloc::vec::Vec;

use core::mem::offset_of;

use super::prefetch::{CACHE_LINE_BYTES, prefetch};
use crate::Instant;
use crate::connection::Connection;
use crate::timer_wheel::{Timer, TimerStore};

const NONE: u32 = u32::MAX;

/// Marks a free slot, in place of the original tuple's version. The record itself shows whether the slot is free, and
/// is being fetched into the cache anyway.
const FREE: u8 = 0;

/// The table's data of a connection beside its record; packets of a known connection do not touch it.
#[derive(Clone, Copy, Debug)]
pub struct Cold {
    pub(super) timer: Timer,
    /// When the connection was inserted, in nanoseconds of [`Instant`].
    pub created_at_nanos: u64,
    /// The next free slot, while this one is free.
    next_free: u32,
}

const _: () = assert!(size_of::<Cold>() == 32);

/// The timers of an array of cold parts.
pub(super) struct ColdTimers<'a>(pub(super) &'a mut [Cold]);

impl TimerStore for ColdTimers<'_> {
    fn timer(&self, index: u32) -> &Timer {
        &self.0[index as usize].timer
    }

    fn timer_mut(&mut self, index: u32) -> &mut Timer {
        &mut self.0[index as usize].timer
    }
}

/// Records in slots that never move. All memory is reserved at the start; none is touched before it is needed.
pub(super) struct Slab {
    /// Records of all slots that were ever used; those of free slots are stale, except for the [`FREE`] in their tuples.
    records: Vec<Connection>,
    pub(super) cold: Vec<Cold>,
    /// A bit for each slot that holds a connection, for iteration.
    occupied: Vec<u64>,
    capacity: u32,
    first_free: u32,
    len: u32,
}

impl Slab {
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            records: Vec::with_capacity(capacity as usize),
            cold: Vec::with_capacity(capacity as usize),
            occupied: vec![0; (capacity as usize).div_ceil(64)],
            capacity,
            first_free: NONE,
            len: 0,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    /// Slots that were ever used.
    pub(super) const fn slots_used(&self) -> u32 {
        self.records.len() as u32
    }

    pub(super) const fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Bytes of memory that it holds when full.
    pub(super) const fn memory_bytes(&self) -> usize {
        self.capacity as usize * (size_of::<Connection>() + size_of::<Cold>()) + self.occupied.len() * 8
    }

    /// Stores a connection in a free slot; `None` when there is none.
    pub(super) fn insert(&mut self, connection: &Connection, now: Instant) -> Option<u32> {
        debug_assert!(connection.original.version != FREE, "a tuple is of a version of IP");
        let cold = Cold { timer: Timer::NEW, created_at_nanos: now.as_nanos(), next_free: NONE };
        let slot = if self.first_free != NONE {
            let slot = self.first_free;
            self.first_free = self.cold[slot as usize].next_free;
            self.records[slot as usize] = *connection;
            self.cold[slot as usize] = cold;
            slot
        } else if self.records.len() < self.capacity as usize {
            self.records.push(*connection);
            self.cold.push(cold);
            self.records.len() as u32 - 1
        } else {
            return None;
        };
        self.occupied[slot as usize / 64] |= 1 << (slot % 64);
        self.len += 1;
        Some(slot)
    }

    /// Frees a slot that holds a connection. It is the next to be reused, while it is in the cache.
    pub(super) fn remove(&mut self, slot: u32) {
        debug_assert!(self.is_occupied(slot));
        self.occupied[slot as usize / 64] &= !(1 << (slot % 64));
        let record = &mut self.records[slot as usize];
        // A lookup that knows the slot finds neither tuple any more.
        (record.original.version, record.reply.version) = (FREE, FREE);
        self.cold[slot as usize].next_free = self.first_free;
        self.first_free = slot;
        self.len -= 1;
    }

    #[inline(always)]
    pub(super) fn is_occupied(&self, slot: u32) -> bool {
        self.get(slot).is_some()
    }

    /// The record of a slot that holds a connection.
    #[inline(always)]
    pub(super) fn get(&self, slot: u32) -> Option<&Connection> {
        self.records.get(slot as usize).filter(|record| record.original.version != FREE)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Connection> {
        self.records.get_mut(slot as usize).filter(|record| record.original.version != FREE)
    }

    /// The record of a slot that has been used; stale if it is free.
    #[inline(always)]
    pub(super) fn record(&self, slot: u32) -> &Connection {
        &self.records[slot as usize]
    }

    /// As [`Slab::record`], mutable.
    #[inline(always)]
    pub(super) fn record_mut(&mut self, slot: u32) -> &mut Connection {
        &mut self.records[slot as usize]
    }

    /// Prefetches a slot's record, without the functions' states.
    #[inline(always)]
    pub(super) fn prefetch_record(&self, slot: u32) {
        for offset_bytes in (0..offset_of!(Connection, functions)).step_by(CACHE_LINE_BYTES) {
            prefetch(&self.records, slot as usize, offset_bytes);
        }
    }

    /// Prefetches the functions' states of a slot.
    #[inline(always)]
    pub(super) fn prefetch_functions(&self, slot: u32) {
        prefetch(&self.records, slot as usize, offset_of!(Connection, functions));
    }

    /// Prefetches a slot's cold part.
    #[inline(always)]
    pub(super) fn prefetch_cold(&self, slot: u32) {
        prefetch(&self.cold, slot as usize, 0);
    }

    /// Prefetches the slot that is filled next, if it was used before.
    pub(super) fn prefetch_free(&self) {
        if self.first_free != NONE {
            self.prefetch_cold(self.first_free);
            self.prefetch_record(self.first_free);
            self.prefetch_functions(self.first_free);
        }
    }

    /// The first slot at or after `from` that holds a connection.
    pub(super) fn next_occupied(&self, from: u32) -> Option<u32> {
        let mut word = from as usize / 64;
        let mut bits = self.occupied.get(word)? & (u64::MAX << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.occupied.get(word)?;
        }
        Some(word as u32 * 64 + bits.trailing_zeros())
    }

    /// Length of the list of free slots, and slots ever used.
    #[cfg(test)]
    pub(super) fn count_free(&self) -> (u32, u32) {
        let mut free = 0;
        let mut slot = self.first_free;
        while slot != NONE {
            assert!(!self.is_occupied(slot), "slot {slot} is both free and occupied");
            free += 1;
            slot = self.cold[slot as usize].next_free;
        }
        (free, self.records.len() as u32)
    }
}
