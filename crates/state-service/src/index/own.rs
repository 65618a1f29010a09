//! The index of this node's connections.

use alloc::vec;
use alloc::vec::Vec;

use filters::{Change, Cuckoo, CuckooShape, Exchange, Full, KeyHash, MarkId, ShapeError, Update};

use super::{ITEMS_MAX, PART_WORDS_MAX, PARTS_MAX};
use crate::message::{IndexPart, Known, Message, Side};

/// The index of one side.
struct OwnSide {
    filter: Cuckoo,
    mark: MarkId,
    /// The epoch in which each word changed last.
    changed_in: Vec<u32>,
}

/// The index of this node's connections, one filter for each side.
pub struct OwnIndex {
    sides: [OwnSide; 2],
    shape: CuckooShape,
    incarnation: u32,
    epoch: u32,
}

/// An increment that is being sent: the words, which are read when their part is encoded.
pub struct Increment {
    query: u32,
    side: Side,
    since: u32,
    epoch: u32,
    indices: Vec<u32>,
    next_part: usize,
}

impl Increment {
    fn parts(&self) -> usize {
        self.indices.len().div_ceil(PART_WORDS_MAX).max(1)
    }

    /// All words are in it.
    pub(crate) const fn is_whole(&self) -> bool {
        self.since == 0
    }

    /// All of its parts have been encoded.
    pub(crate) fn is_sent(&self) -> bool {
        self.next_part >= self.parts()
    }
}

impl OwnIndex {
    /// An empty one for `items_max` connections. `incarnation` differs from that of former runs of the process, and is not 0.
    ///
    /// # Errors
    /// There are more connections than [`ITEMS_MAX`].
    pub fn new(items_max: u64, incarnation: u32) -> Result<Self, ShapeError> {
        if items_max > ITEMS_MAX {
            return Err(ShapeError::OutOfRange { what: "connections", value: items_max, least: 0, most: ITEMS_MAX });
        }
        let shape = CuckooShape::for_items(items_max);
        let side = || -> Result<OwnSide, ShapeError> {
            let mut filter = Cuckoo::new(shape)?;
            let mark = filter.memory_mut().mark().expect("the first mark of a new filter");
            let words = filter.memory().words().len();
            Ok(OwnSide { filter, mark, changed_in: vec![0; words] })
        };
        Ok(Self { sides: [side()?, side()?], shape, incarnation: incarnation.max(1), epoch: 0 })
    }

    /// Adds a connection. Each must be added once, and removed once.
    ///
    /// # Errors
    /// The filter is full: the connection will be found by an owner or backup only.
    pub fn insert(&mut self, side: Side, key: KeyHash) -> Result<(), Full> {
        self.sides[side as usize].filter.insert(key)
    }

    /// Removes a connection that was added.
    pub fn remove(&mut self, side: Side, key: KeyHash) {
        self.sides[side as usize].filter.remove(key);
    }

    /// Whether a connection was added, or a false positive.
    #[must_use]
    pub fn contains(&self, side: Side, key: KeyHash) -> bool {
        self.sides[side as usize].filter.contains(key)
    }

    /// What a receiver of everything knows.
    #[must_use]
    pub const fn known(&self) -> Known {
        Known { incarnation: self.incarnation, epoch: self.epoch }
    }

    /// Ends the epoch, if anything has changed in it, and returns the words of each side that changed.
    fn advance(&mut self) -> [Vec<u32>; 2] {
        if self.sides.iter().all(|side| side.filter.memory().changed(side.mark) == 0) {
            return [Vec::new(), Vec::new()];
        }
        self.epoch += 1;
        let epoch = self.epoch;
        self.sides.each_mut().map(|side| {
            let mut changes: Vec<Change> = Vec::new();
            side.filter.memory_mut().take_changes(side.mark, usize::MAX, &mut changes);
            let mut indices: Vec<u32> = changes.iter().map(|change| change.index).collect();
            indices.iter().for_each(|index| side.changed_in[*index as usize] = epoch);
            indices.sort_unstable();
            indices
        })
    }

    /// The changes since the last advertisement, for all peers; empty if there are none. The caller does so periodically.
    pub fn advertise(&mut self) -> Vec<Increment> {
        let since = self.epoch;
        let indices = self.advance();
        if self.epoch == since {
            return Vec::new();
        }
        let epoch = self.epoch;
        // A side without changes is advertised, too: its receivers learn the epoch.
        let increment = |(side, indices)| Increment { query: 0, side, since, epoch, indices, next_part: 0 };
        Side::ALL.into_iter().zip(indices).map(increment).collect()
    }

    /// The answer to a query: what changed since the receiver's epoch, including what has not been advertised. Both sides, in the
    /// order of [`Side::ALL`]. `advertised` receives the increment that other peers miss by that.
    pub fn answer(&mut self, query: u32, known: [Known; 2], advertised: &mut Vec<Increment>) -> [Increment; 2] {
        advertised.extend(self.advertise());
        let epoch = self.epoch;
        Side::ALL.map(|side| {
            let Known { incarnation, epoch: since } = known[side as usize];
            // An epoch that has not begun is of another run, whatever the receiver states.
            let since = if incarnation == self.incarnation && since <= epoch { since } else { 0 };
            let changed = self.sides[side as usize].changed_in.iter().enumerate();
            let indices = changed.filter(|(_, changed_in)| **changed_in > since).map(|(index, _)| index as u32);
            Increment { query, side, since, epoch, indices: indices.collect(), next_part: 0 }
        })
    }

    /// Appends the next message of an increment to `bytes`. Returns false if there is none left.
    pub fn encode_next(&self, increment: &mut Increment, bytes: &mut Vec<u8>) -> bool {
        let parts = increment.parts();
        debug_assert!(parts <= PARTS_MAX, "as many connections as ITEMS_MAX");
        if increment.is_sent() {
            return false;
        }
        let words = self.sides[increment.side as usize].filter.memory();
        let indices = increment.indices.chunks(PART_WORDS_MAX).nth(increment.next_part).unwrap_or_default();
        let mut changes =
            indices.iter().map(|index| Change { index: *index, word: words.word(*index as usize) }).collect();
        let mut update = Vec::new();
        Update::encode(&mut changes, &mut update);
        let part = IndexPart {
            query: increment.query,
            side: increment.side,
            incarnation: self.incarnation,
            since: increment.since,
            epoch: increment.epoch,
            part: increment.next_part as u16,
            parts: parts as u16,
            shape: self.shape,
            update: &update,
        };
        Message::Index(part).encode(bytes);
        increment.next_part += 1;
        true
    }
}
