//! Connections in the order in which they came, of which any can leave: lists through one array.

use alloc::vec;
use alloc::vec::Vec;

use flow::Instant;

/// The end of a list.
const NONE: u32 = u32::MAX;

/// In which list a connection is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// Nothing is known of the slot's connection, or nothing matters any more.
    None,
    /// Deferred, in the order in which they began.
    Deferred,
    /// Deferred although due, for want of packets, in the order in which they were looked at.
    Idle,
    /// Replicated, but not old enough for its lifetime to be known, in the order of replication.
    Replicated,
    /// Over before it was replicated: no peer is to receive it.
    NeverReplicated,
}

/// The places that are lists.
const LISTS: [Place; 3] = [Place::Deferred, Place::Idle, Place::Replicated];

/// What is known of the connection in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub(super) began: Instant,
    /// When it came into its list.
    pub(super) since: Instant,
    before: u32,
    after: u32,
    pub(super) place: Place,
    /// Its lifetime has been counted.
    pub(super) is_counted: bool,
    /// The connection before it with the same tuple ended here, so that no peer has anything of it.
    pub(super) is_unknown_to_peers: bool,
}

impl Entry {
    const EMPTY: Self = Self {
        began: Instant::ZERO,
        since: Instant::ZERO,
        before: NONE,
        after: NONE,
        place: Place::None,
        is_counted: false,
        is_unknown_to_peers: false,
    };
}

#[derive(Clone, Copy, Debug)]
struct List {
    first: u32,
    last: u32,
    len: u32,
}

/// An entry for each slot of the connection table, which bounds the lists.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    entries: Vec<Entry>,
    lists: [List; LISTS.len()],
}

impl Queue {
    pub(super) fn new(connections_max: u32) -> Self {
        let list = List { first: NONE, last: NONE, len: 0 };
        Self { entries: vec![Entry::EMPTY; connections_max as usize], lists: [list; LISTS.len()] }
    }

    pub(super) fn get(&self, slot: u32) -> Option<&Entry> {
        self.entries.get(slot as usize)
    }

    /// What is known of the slot's connection, to be changed but for its place.
    pub(super) fn get_mut(&mut self, slot: u32) -> Option<&mut Entry> {
        self.entries.get_mut(slot as usize)
    }

    pub(super) fn place(&self, slot: u32) -> Place {
        self.get(slot).map_or(Place::None, |entry| entry.place)
    }

    pub(super) fn len(&self, place: Place) -> u32 {
        Self::index(place).map_or(0, |list| self.lists[list].len)
    }

    /// The slot that came first into a list, and what is known of it.
    pub(super) fn first(&self, place: Place) -> Option<(u32, &Entry)> {
        let first = self.lists[Self::index(place)?].first;
        Some((first, self.get(first)?))
    }

    /// Another connection begins in the slot.
    pub(super) fn begin(&mut self, now: Instant, slot: u32) {
        self.unlink(slot);
        if let Some(entry) = self.entries.get_mut(slot as usize) {
            *entry = Entry { began: now, ..Entry::EMPTY };
        }
    }

    /// The slot's connection goes elsewhere.
    pub(super) fn put(&mut self, now: Instant, slot: u32, place: Place) {
        self.unlink(slot);
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        entry.place = place;
        let Some(list) = Self::index(place).map(|list| &mut self.lists[list]) else { return };
        (entry.since, entry.before, entry.after) = (now, list.last, NONE);
        let before = core::mem::replace(&mut list.last, slot);
        list.len += 1;
        match self.entries.get_mut(before as usize) {
            Some(before) => before.after = slot,
            None => list.first = slot,
        }
    }

    fn unlink(&mut self, slot: u32) {
        let Some(entry) = self.entries.get_mut(slot as usize) else { return };
        let place = core::mem::replace(&mut entry.place, Place::None);
        let (before, after) = (entry.before, entry.after);
        let Some(list) = Self::index(place).map(|list| &mut self.lists[list]) else { return };
        list.len -= 1;
        match self.entries.get_mut(before as usize) {
            Some(before) => before.after = after,
            None => list.first = after,
        }
        match self.entries.get_mut(after as usize) {
            Some(after) => after.before = before,
            None => list.last = before,
        }
    }

    fn index(place: Place) -> Option<usize> {
        LISTS.iter().position(|list| *list == place)
    }
}
